"""What Ultra Ethernet's spraying and REPS promise of permutations, as sentences to hold a summary against.

Neither gives a number for a fabric of this size, so the ranges are lightrail's. A sentence is ruled by
emulated runs that are faithful, and by no others: the prediction has no queues, and asks REPS for no choice.

References
----------
Ultra Ethernet Specification 1.0, packet spraying; T. Bonato et al., "REPS: recycled entropy packet spraying
for adaptive load balancing and failure mitigation", arXiv:2407.21625, section 4.
"""

import math

import pandas as pd

from testbed.report.claims import MORE, SHARE, Claim, Range, Sentence, judged, mean, ratio_sentence

ULTRA_ETHERNET, REPS = "Ultra Ethernet 1.0", "REPS"
NEAR: Range = (0.0, 1.30)
"""CCT over the lower bound, of a scheme that is near it."""
COLLIDE: Range = (1.5, math.inf)
"""ECMP's CCT over that of spraying, where two flows meet on a link."""
IN_USE: Range = (0.5, math.inf)
"""The share of packets whose entropy was used before."""


def spray_claims(table: pd.DataFrame, workload: str) -> list[Claim]:
    """Return what a summary says of a permutation, by its name."""
    recycles = Sentence(
        "REPS uses entropies again for half of its packets",
        REPS,
        IN_USE,
        [(workload, "reps")],
        lambda faithful: mean(faithful, workload, "reps", "recycled"),
        pattern=SHARE,
    )
    return [
        _ruled(_near("Spraying", ULTRA_ETHERNET, workload, "spray"), table),
        _collides(table, workload),
        _ruled(_near("REPS", REPS, workload, "reps"), table),
        _ruled(recycles, table),
    ]


def _near(whose: str, source: str, workload: str, scheme: str) -> Sentence:
    text = f"{whose} ends within {NEAR[1]:.2f}x of the lower bound"

    def over_bound(table: pd.DataFrame) -> float:
        mine = _of(table, workload, scheme)
        return float((mine["cct_s"] / mine["bound_s"]).mean())

    return Sentence(text, source, NEAR, [(workload, scheme)], over_bound)


def _collides(table: pd.DataFrame, workload: str) -> Claim:
    """Return what flows cost that meet, by the seeds in which some do by the prediction."""
    text = "ECMP's flows collide: 1.5x the CCT of spraying"
    sentence = ratio_sentence(text, ULTRA_ETHERNET, COLLIDE, workload, ("ecmp", "spray"), "cct_s")
    ecmp = _of(table, workload, "ecmp")
    apart = ecmp.index[ecmp["predicted_s"] <= MORE[0] * ecmp["bound_s"]]
    if len(ecmp) and len(apart) == len(ecmp):
        return Claim(text, sentence.source, COLLIDE, reason="by the prediction no two flows of ECMP meet")
    return _ruled(sentence, table.drop(index=apart))


def _ruled(sentence: Sentence, table: pd.DataFrame) -> Claim:
    """Return what the faithful points of a summary say of a sentence; not comparable where one has none."""
    is_faithful = table["verdict"] == "faithful"
    for workload, scheme in sentence.needs:
        mine = _of(table, workload, scheme)
        if len(mine) and not is_faithful[mine.index].any():
            words = ", ".join(dict.fromkeys(mine["verdict"]))
            reason = "nothing was emulated" if words == "model" else f"{words}: {scheme}, {workload}"
            return Claim(sentence.text, sentence.source, sentence.expected, reason=reason)
    return judged(sentence, table[is_faithful])


def _of(table: pd.DataFrame, workload: str, scheme: str) -> pd.DataFrame:
    return table[(table["workload"] == workload) & (table["name"] == scheme)]
