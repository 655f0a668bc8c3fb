"""What RailS claims of Mixtral's training, as sentences that a summary is held against.

The paper gives a range over the schemes that RailS is compared with; here it is held against
RailS' time over the mean of theirs.

References
----------
RailS, section VI-F, figures 12 and 13.
"""

import pandas as pd

from testbed.claims import Range, Sentence, around, ratio
from testbed.claims_skew import rivals_of

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
    rivals = rivals_of(table, workload)
    return Sentence(
        f"{workload}: RailS improves CCT by {least:g} to {most:g} %",
        MIXTRAL,
        (1 - most / 100, 1 - least / 100),
        [(workload, name) for name in (*rivals, "rails")],
        lambda table: _over_mean(table, workload, rivals, "cct_s"),
        gain_over=(workload, "ecmp"),
    )


def _iteration(placement: str, workloads: list[str], table: pd.DataFrame) -> Sentence:
    """Return the claim about the iteration: of *dense* the best case, of *sparse* the worst."""
    words, expected = ITERATION[placement]
    rivals = rivals_of(table, workloads[0])
    extreme = min if placement == "dense" else max
    return Sentence(
        f"{placement}: RailS shortens the iteration {words}",
        MIXTRAL,
        expected,
        [(workload, name) for workload in workloads for name in (*rivals, "rails")],
        lambda table: extreme(
            ratio(table, workload, "rails", name, "iteration_s") for workload in workloads for name in rivals
        ),
    )


def _over_mean(table: pd.DataFrame, workload: str, rivals: list[str], column: str) -> float:
    """Return RailS' column over the mean of its rivals'."""
    return len(rivals) / sum(ratio(table, workload, name, "rails", column) for name in rivals)
