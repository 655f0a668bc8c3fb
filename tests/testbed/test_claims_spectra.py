"""The claims about Spectra's sweep, over tables made by hand."""

import pandas as pd
import pytest

from scenarios._spectra.claims_spectra import spectra_claims
from scenarios._spectra.ocs_sweep import COLUMNS
from testbed.report.claims import Claim


def sweep(makespan: float, far: float) -> pd.DataFrame:
    """Return a sweep in which spectra and spectra+ have a makespan, and another at one point."""
    rows = [
        (
            "benchmark",
            0.003,
            16,
            seed,
            switches,
            delay,
            scheme,
            far if (switches, delay) == (8, 0.04) else makespan,
            1.0,
        )
        for seed in range(2)
        for switches in (1, 2, 4, 8)
        for delay in (0.001, 0.04)
        for scheme in ("spectra", "spectra_plus")
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def bound_claims(far: float) -> list[Claim]:
    """Return the claims about the bound if all is 2 % above it, but for 8 switches at one delay."""
    claims = spectra_claims(sweep(1.02, far))
    return [claim for claim in claims if claim.text.startswith("benchmark: Spectra close to the lower bound")]


def test_one_point_far_from_the_bound_is_not_hidden_by_the_mean() -> None:
    (claim,) = bound_claims(1.2)
    assert (claim.verdict, claim.measured) == ("does not hold", 1.2)
    assert claim.reason == "worst at s = 8, delay 0.04; mean of all 1.042, 2 seeds"


def test_all_points_near_the_bound_hold() -> None:
    (claim,) = bound_claims(1.05)
    assert (claim.verdict, claim.measured) == ("holds", 1.05)


def test_claims_of_what_did_not_run_are_not_comparable() -> None:
    claims = spectra_claims(pd.DataFrame([], columns=COLUMNS))
    assert {claim.reason for claim in claims if "close to the lower bound" in claim.text} == {"not run"}


def test_numbers_of_switches_between_the_papers_count_for_the_bound_alone() -> None:
    rows = [
        ("benchmark", 0.003, 16, 0, switches, 0.01, scheme, makespan * (3 if switches == 3 else 1), 1.0)
        for switches in (1, 2, 3, 4, 8)
        for scheme, makespan in (("spectra", 1.02), ("less", 1.02 * 2.4 if switches != 3 else 1.0))
    ]
    claims = {claim.text: claim for claim in spectra_claims(pd.DataFrame(rows, columns=COLUMNS))}
    near = claims["benchmark: Spectra close to the lower bound"]
    assert (near.verdict, near.measured) == ("does not hold", 1.02 * 3)
    assert near.reason.startswith("worst at s = 3, delay 0.01;")
    less = claims["benchmark: LESS' makespan 2.4x Spectra's"]
    assert less.measured == pytest.approx(2.4)


@pytest.mark.parametrize(
    ("plus", "verdict"), [(1.0, "does not hold"), (0.995, "does not hold"), (0.985, "holds")]
)
def test_spectra_plus_has_to_be_below_spectra_by_a_percent(plus: float, verdict: str) -> None:
    table = sweep(1.05, 1.05)
    table.loc[table["scheme"] == "spectra_plus", "makespan"] *= plus
    found = [claim for claim in spectra_claims(table) if claim.text.startswith("spectra+ 1 % below")]
    assert [claim.measured for claim in found] == [pytest.approx(plus)] * 4
    assert {claim.verdict for claim in found} == {verdict}
