"""The claims about Spectra's sweep, over tables made by hand."""

import pandas as pd

from testbed.claims import Claim
from testbed.claims_spectra import spectra_claims
from testbed.ocs_sweep import COLUMNS


def bound_claims(far: float) -> list[Claim]:
    """Return the claims about the bound if all is 2 % above it, but for 8 switches at one delay."""
    rows = [
        (
            "benchmark",
            0.003,
            16,
            seed,
            switches,
            delay,
            scheme,
            far if (switches, delay) == (8, 0.04) else 1.02,
            1.0,
        )
        for seed in range(2)
        for switches in (1, 2, 4, 8)
        for delay in (0.001, 0.04)
        for scheme in ("spectra", "spectra_plus")
    ]
    claims = spectra_claims(pd.DataFrame(rows, columns=COLUMNS))
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
