"""Claims: held against what was measured, and against nothing else."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios._rails.claims_rails import rails_claims
from testbed.report.claims import PREDICTED, Claim, around

ALL = ("ecmp", "plb", "minrtt", "reps", "rails")


def summary_of(cct_s: dict[str, float], workload: str = "uniform", bound_s: float = 1.0) -> pd.DataFrame:
    """Return a summary of two seeds in which the schemes take these times."""
    rows = [
        {
            "workload": workload,
            "name": scheme,
            "transport": "credit",
            "seed": seed,
            "busbw_gbytes_s": 10.0 / seconds,
            "bound_s": bound_s,
            "verdict": "faithful",
            **dict.fromkeys(("cct_s", "cct_mean_s", "cct_p80_s", "cct_p95_s", "cct_p99_s"), seconds),
        }
        for scheme, seconds in cct_s.items()
        for seed in (0, 1)
    ]
    return pd.DataFrame(rows)


def claim(table: pd.DataFrame, words: str) -> Claim:
    """Return the one claim that has these words in it."""
    (found,) = [claim for claim in rails_claims(table) if words in claim.text]
    return found


def test_a_claim_holds_at_the_papers_number_and_says_what_it_rests_on() -> None:
    found = claim(summary_of({"ecmp": 1.29, "rails": 1.0}), "RailS has 1.29x")
    assert (found.verdict, found.basis, found.source) == ("holds", "2 seeds", "RailS, VI-B")
    assert found.reason == ""
    assert found.measured == pytest.approx(1.29)


@pytest.mark.parametrize(
    ("ecmp_s", "reason"),
    [
        (2.0, "above the range"),
        (1.1, "below the range: ecmp is within 1.10x of the lower bound, no scheme gains more"),
        (1.0, "no difference"),
        (0.5, "the other way round"),
    ],
)
def test_a_claim_that_does_not_hold_says_why(ecmp_s: float, reason: str) -> None:
    found = claim(summary_of({"ecmp": ecmp_s, "rails": 1.0}), "RailS has 1.29x")
    assert (found.verdict, found.reason) == ("does not hold", reason)
    assert found.measured == pytest.approx(ecmp_s)


def test_what_is_0_over_0_is_not_laid_to_the_seeds() -> None:
    table = summary_of({"ecmp": 1.29, "rails": 1.0}).assign(busbw_gbytes_s=0.0)
    assert claim(table, "RailS has 1.29x").reason == "0 over 0, or not measured: there is nothing to compare"
    apart = table[(table["name"] == "ecmp") == (table["seed"] == 0)]
    assert claim(apart, "RailS has 1.29x").reason == "the schemes have no seed in common"


def test_a_void_point_makes_the_claims_about_it_not_comparable() -> None:
    table = summary_of({"ecmp": 1.29, "plb": 1.18, "rails": 1.0})
    table.loc[(table["name"] == "ecmp") & (table["seed"] == 1), "verdict"] = "void"
    found = claim(table, "RailS has 1.29x")
    assert (found.verdict, found.reason) == ("not comparable", "void: ecmp, uniform, seed 1")
    assert math.isnan(found.measured)
    assert claim(table, "PLB ends 18 %").verdict == "holds"


def test_a_scheme_that_was_not_run_makes_a_claim_not_comparable() -> None:
    found = claim(summary_of({"ecmp": 1.29, "rails": 1.0}), "REPS has")
    assert (found.verdict, found.reason) == ("not comparable", "not run: reps, uniform")
    assert not found.ran
    assert claim(summary_of({"ecmp": 1.29, "rails": 1.0}), "RailS has 1.29x").ran


@given(st.lists(st.floats(0.1, 10), min_size=5, max_size=5), st.booleans())
def test_predictions_are_shown_and_rule_nothing_whatever_they_are(times: list[float], emulated: bool) -> None:
    table = summary_of(dict(zip(ALL, times, strict=True)))
    table.loc[(table["name"] != "rails") | (not emulated), "verdict"] = "model"
    found = rails_claims(table)
    assert {claim.verdict for claim in found} == {"not comparable"}
    ruled = {claim.text: claim.measured for claim in rails_claims(table.assign(verdict="faithful"))}
    assert {claim.text: claim.measured for claim in found} == ruled
    assert all(claim.reason.startswith(PREDICTED) for claim in found)


def test_predictions_are_told_from_measurements() -> None:
    table = summary_of({"ecmp": 1.29, "rails": 1.0}).assign(verdict="model")
    found = claim(table, "RailS has 1.29x")
    assert found.basis == "2 seeds, by the model, nothing was emulated"
    assert found.reason == f"{PREDICTED}; in the range"


def test_uniform_as_in_the_paper_holds() -> None:
    times = {"ecmp": 1.3, "plb": 1.17, "minrtt": 1.03, "reps": 0.97, "rails": 1.0}
    table = summary_of(times)
    table.loc[table["name"] == "minrtt", "cct_mean_s"] = 0.9
    assert {claim.verdict for claim in rails_claims(table)} == {"holds"}


def test_sparse_as_in_the_paper_holds() -> None:
    gains = {"sparse 0.6": 2.8, "sparse 0.4": 1.7, "sparse 0.2": 1.5, "sparse 0": 1.3}
    tables = [
        summary_of(dict.fromkeys(ALL, gain) | {"rails": 1.0}, workload) for workload, gain in gains.items()
    ]
    found = rails_claims(pd.concat(tables))
    assert len(found) == 17
    assert {claim.verdict for claim in found} == {"holds"}


def test_claims_of_sparse_load_are_ruled_for_each_gating_and_labelled() -> None:
    gains = {"sparse 0.6": 2.8, "sparse 0.4": 1.7, "sparse 0.6 per GPU": 2.4, "sparse 0.4 per GPU": 2.6}
    found = rails_claims(
        pd.concat([summary_of({"ecmp": gain, "rails": 1.0}, workload) for workload, gain in gains.items()])
    )
    per_token, per_gpu = (
        {(claim.source, claim.text): claim for claim in found if whose in claim.source}
        for whose in ("top k per token", "top k per GPU")
    )
    assert len(per_token) == len(per_gpu) == 9 == len(found) / 2
    grows, times = "RailS' gain on ECMP grows with sparsity", "RailS has 2.8x ECMP's busbw"
    for claims, whose, rulings in (
        (per_token, "token", ("holds", "holds")),
        (per_gpu, "GPU", ("does not hold", "does not hold")),
    ):
        source = f"RailS, VI-C, top k per {whose}"
        ruled = claims[source, grows].verdict, claims[f"{source}, sparse 0.6", times].verdict
        assert ruled == rulings


def test_a_gain_that_shrinks_with_sparsity_is_found() -> None:
    tables = [
        summary_of({"ecmp": gain, "rails": 1.0}, workload)
        for workload, gain in (("sparse 0.6", 1.2), ("sparse 0", 1.5))
    ]
    found = claim(pd.concat(tables), "grows with sparsity")
    assert found.verdict == "does not hold"
    assert found.measured == pytest.approx(0.8)


def test_a_better_rival_and_a_worse_percentile_are_found() -> None:
    table = summary_of({"ecmp": 2.0, "reps": 0.9, "rails": 1.0}, "sparse 0.4")
    assert claim(table, "highest busbw").verdict == "does not hold"
    table = summary_of({"ecmp": 2.0, "rails": 1.0}, "sparse 0.4")
    table.loc[table["name"] == "rails", "cct_p95_s"] = 2.5
    assert claim(table, "best mean and percentiles").measured == pytest.approx(0.8)


@pytest.mark.parametrize("later", [1.0, 0.985, 1.015])
def test_who_ends_no_later_does_not_end_last(later: float) -> None:
    table = summary_of({"ecmp": later, "plb": 1.0, "minrtt": later, "reps": 1.0, "rails": 1.0})
    for words in ("ECMP ends last", "MinRTT ends 4 % later"):
        found = claim(table, words)
        assert (found.verdict, found.reason) == ("does not hold", "no difference")


@pytest.mark.parametrize("sparser", [1.5, 1.48, 1.52])
def test_a_gain_that_stays_does_not_grow(sparser: float) -> None:
    tables = [
        summary_of({"ecmp": gain, "rails": 1.0}, workload)
        for workload, gain in (("sparse 0.6", sparser), ("sparse 0", 1.5))
    ]
    found = claim(pd.concat(tables), "grows with sparsity")
    assert (found.verdict, found.reason) == ("does not hold", "no difference")


def test_workloads_without_claims_have_none() -> None:
    assert rails_claims(summary_of({"ecmp": 1.0, "rails": 1.0}, "A100 step 3")) == []


def test_the_range_around_a_number_stays_on_its_side_of_1() -> None:
    assert around(1.04) == pytest.approx((1.02, 1.144))
    assert around(0.95) == pytest.approx((0.855, 0.98))
    assert around(2.8) == pytest.approx((2.52, 3.08))


SKEWED = {"ecmp": 2.3, "plb": 2.52, "minrtt": 1.56, "reps": 0.99, "rails": 1.0}


def with_loads(table: pd.DataFrame, column: str, loads: dict[str, float]) -> pd.DataFrame:
    """Return a summary with a load MSE for each scheme, and 0 at the NICs' other end."""
    even = table.assign(mse_sent=0.0, mse_received=0.0)
    even[column] = table["name"].map(loads)
    return even


def test_sender_skew_as_in_the_paper_holds() -> None:
    loads = {"ecmp": 0.15, "plb": 0.15, "minrtt": 0.03, "reps": 0.005, "rails": 0.002}
    found = rails_claims(with_loads(summary_of(SKEWED, "sender skew"), "mse_sent", loads))
    assert len(found) == 13
    assert {claim.verdict for claim in found} == {"holds", "arithmetic"}


def test_receiver_skew_as_in_the_paper_holds() -> None:
    loads = dict.fromkeys(ALL, 0.15) | {"rails": 0.002}
    times = {"ecmp": 2.05, "plb": 2.9, "minrtt": 2.15, "reps": 2.02, "rails": 1.0}
    found = rails_claims(with_loads(summary_of(times, "receiver skew"), "mse_received", loads))
    assert len(found) == 11
    assert {claim.verdict for claim in found} == {"holds", "arithmetic"}


def test_an_uneven_load_is_found_and_written_as_a_share() -> None:
    table = with_loads(summary_of(SKEWED, "sender skew"), "mse_sent", dict.fromkeys(ALL, 0.3))
    found = claim(table, "RailS' sending load MSE")
    assert (found.verdict, found.reason) == ("does not hold", "above the range")
    assert found.pattern.format(found.measured) == "0.300"


def mixtral(placement: str, rivals: dict[str, float], bound_s: float = 1.0) -> pd.DataFrame:
    """Return a summary of one phase, whose compute takes as long as the lower bound."""
    table = summary_of({**rivals, "rails": 1.0}, f"mixtral {placement} start", bound_s)
    return table.assign(iteration_s=table["cct_s"] + table["bound_s"])


@pytest.mark.parametrize(
    ("placement", "rivals"),
    [
        ("dense", {"ecmp": 1.4}),
        ("dense", {"ecmp": 1.5, "plb": 1.4, "minrtt": 1.3, "reps": 1.26}),
        ("sparse", {"ecmp": 3.1}),
    ],
)
def test_mixtral_as_in_the_paper_holds(placement: str, rivals: dict[str, float]) -> None:
    found = rails_claims(mixtral(placement, rivals))
    assert [claim.source for claim in found] == [
        f"RailS, VI-F, mixtral {placement} start",
        f"RailS, VI-F, mixtral {placement}",
    ]
    assert {claim.verdict for claim in found} == {"holds"}


def test_a_rival_that_rails_does_not_beat_is_not_hidden_by_others_that_it_does() -> None:
    table = mixtral("dense", {"ecmp": 1.9, "plb": 1.9, "minrtt": 1.0, "reps": 0.95}, bound_s=0.7)
    found = claim(table, "cuts others' CCT")
    assert (found.verdict, found.reason) == ("does not hold", "the other way round")
    assert found.measured == pytest.approx(1 / 0.95)


def test_a_rival_that_is_far_too_slow_is_shown_too() -> None:
    found = claim(mixtral("dense", {"ecmp": 2.9, "reps": 1.4}), "cuts others' CCT")
    assert (found.verdict, found.reason) == ("does not hold", "below the range")
    assert found.measured == pytest.approx(1 / 2.9)


def test_a_cut_that_the_lower_bound_forbids_says_so() -> None:
    found = claim(mixtral("dense", {"ecmp": 1.4, "reps": 1.05}), "cuts others' CCT")
    assert found.reason == ("above the range: reps is within 1.05x of the lower bound, no scheme gains more")
