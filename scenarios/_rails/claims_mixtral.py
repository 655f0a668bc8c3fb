"""What RailS claims of Mixtral's training, as sentences that a summary is held against.

The paper gives a range over the schemes that RailS is compared with; here each of them has to be
in it, and the one that is farthest from its middle is what is shown.

References
----------
RailS, section VI-F, figures 12 and 13.
"""

import pandas as pd

from scenarios._rails.claims_skew import rivals_of
from testbed.report.claims import Range, Sentence, around, mean, ratio

MIXTRAL = "RailS, VI-F"
CUTS: dict[str, dict[str, tuple[float, float]]] = {
    "dense": {"start": (19.5, 34.9), "early": (8.9, 19.2), "mid": (25.3, 31.2), "stable": (17.9, 44.3)},
    "sparse": {"start": (66.1, 69.2), "early": (75.1, 80.4), "mid": (75.1, 76.8), "stable": (73.9, 75.7)},
}
"""By how much RailS cuts the CCT in each phase, least and most [%]."""
ITERATION: dict[str, tuple[str, Range]] = {
    "dense": ("by up to 18 %", around(0.82)),
    "sparse": ("by 40 % or more", (0.0, 0.60)),
}


def mixtral_sentences(table: pd.DataFrame) -> list[Sentence]:
    """Return what RailS claims of the phases of Mixtral that a summary holds (section VI-F)."""
    workloads = set(table["workload"])
    sentences = []
    for placement, cuts in CUTS.items():
        run = [phase for phase in cuts if f"mixtral {placement} {phase}" in workloads]
        sentences += [_cut(f"mixtral {placement} {phase}", *cuts[phase], table) for phase in run]
        if run:
            sentences.append(_iteration(placement, [f"mixtral {placement} {phase}" for phase in run], table))
    return sentences


def _cut(workload: str, least: float, most: float, table: pd.DataFrame) -> Sentence:
    """Return the claim about the CCT of a phase; the fastest rival limits what RailS can gain over all."""
    rivals = rivals_of(table, workload)
    low, high = 1 - most / 100, 1 - least / 100
    fastest = min(rivals, key=lambda name: mean(table, workload, name, "cct_s"))
    return Sentence(
        f"RailS cuts others' CCT by {least:g} to {most:g} %",
        f"{MIXTRAL}, {workload}",
        (low, high),
        [(workload, name) for name in (*rivals, "rails")],
        lambda table: max(
            (ratio(table, workload, "rails", name, "cct_s") for name in rivals),
            key=lambda measured: abs(measured - (low + high) / 2),
        ),
        gain_over=(workload, fastest),
    )


def _iteration(placement: str, workloads: list[str], table: pd.DataFrame) -> Sentence:
    """Return the claim about the iteration: of *dense* the best case, of *sparse* the worst."""
    words, expected = ITERATION[placement]
    rivals = rivals_of(table, workloads[0])
    extreme = min if placement == "dense" else max
    return Sentence(
        f"RailS cuts the iteration {words}",
        f"{MIXTRAL}, mixtral {placement}",
        expected,
        [(workload, name) for workload in workloads for name in (*rivals, "rails")],
        lambda table: extreme(
            ratio(table, workload, "rails", name, "iteration_s") for workload in workloads for name in rivals
        ),
    )
