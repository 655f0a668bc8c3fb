"""Whether a run again gives what it gave before, over tables made by hand."""

import pandas as pd
import pytest

from testbed.report.claims_repeat import repeat_claims

COLUMNS = ["workload", "name", "transport", "seed", "cct_s", "verdict"]


def summary(
    *times_s: float, verdict: str = "faithful", scheme: str = "plb", transport: str = "tcp"
) -> pd.DataFrame:
    """Return a summary of one workload and scheme, a time per seed."""
    rows = [("uniform", scheme, transport, seed, time_s, verdict) for seed, time_s in enumerate(times_s)]
    return pd.DataFrame(rows, columns=COLUMNS)


@pytest.mark.parametrize(
    ("again", "measured", "verdict"),
    [
        ((1.0, 2.0), 1.0, "holds"),
        ((1.04, 2.0), 1.04, "holds"),
        ((1.04, 1.8), 0.9, "does not hold"),
        ((1.06, 1.9), 1.06, "does not hold"),
        ((1.0, 2.0, 9.0), 1.0, "holds"),  # a seed that was not run before
    ],
)
def test_the_seed_furthest_from_its_time_before_decides(
    again: tuple[float, ...], measured: float, verdict: str
) -> None:
    (claim,) = repeat_claims(summary(*again), summary(1.0, 2.0), "before")
    assert claim.measured == pytest.approx(measured)
    assert claim.verdict == verdict


def test_what_was_void_or_is_void_is_not_compared() -> None:
    for again, before in (("faithful", "void"), ("void", "faithful")):
        (claim,) = repeat_claims(summary(1.0, verdict=again), summary(1.0, verdict=before), "before")
        assert claim.verdict == "not comparable"
        assert "void" in claim.reason


def test_every_scheme_has_its_claim() -> None:
    table = pd.concat([summary(1.0), summary(1.0, scheme="rails")])
    claims = repeat_claims(table, summary(1.0), "before")
    assert {claim.text: claim.verdict for claim in claims} == {
        "uniform: plb takes as long as before": "holds",
        "uniform: rails takes as long as before": "not comparable",
    }


def test_what_has_another_source_now_is_measured_and_not_compared() -> None:
    table = pd.concat(
        [summary(1.0), summary(1.0, scheme="mine"), summary(1.0, scheme="mine", transport="credit")]
    )
    changed = {("uniform", "mine", "tcp"): "the source of own has changed since"}
    for transport, verdict in (("tcp", "not comparable"), ("credit", "holds")):
        claims = repeat_claims(table[table["transport"] == transport], table, "before", changed)
        (mine,) = [claim for claim in claims if "mine" in claim.text]
        assert (mine.measured, mine.verdict) == (1.0, verdict)
        assert [claim.verdict for claim in claims if claim != mine] == ["holds"] * (transport == "tcp")
    assert mine.reason == ""
