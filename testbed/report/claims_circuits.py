"""What is claimed of schedules that are executed, held against the summary of `testbed.trust.outcome`.

Spectra's claims are about plans; here they are held against what the circuits carried. lightrail's
are that what was planned is what happens.
"""

from collections.abc import Iterator
from functools import partial

import pandas as pd

from testbed.report.claims import LIGHTRAIL, MORE, Claim, Sentence, judged, mean, ratio
from testbed.trust.outcome import LEFT_OUT

EXECUTED = 1.15
"""How much longer than predicted an execution may take."""
NEAR_BOUND = 1.10
SPECTRA = "Spectra, V"
BYTES = "{:.0f} B"


def circuit_claims(table: pd.DataFrame, *, spectras: bool = True) -> list[Claim]:
    """Return every claim with its measured value, Spectra's first: they are of circuits alone."""
    if "makespan_s" not in table:
        return []  # of the big switch alone
    workloads = list(dict.fromkeys(table.loc[table["makespan_s"].notna(), "workload"]))
    of_paper = workloads if spectras else []
    papers = [sentence for workload in of_paper for sentence in _spectras(table, str(workload))]
    ours = [sentence for workload in workloads for sentence in _ours(table, str(workload))]
    return [judged(sentence, table) for sentence in (*papers, *ours)]


def _spectras(table: pd.DataFrame, workload: str) -> Iterator[Sentence]:
    """Yield what Spectra's paper claims, as far as what it compares was run."""
    spectra = _name(table, workload, "spectra")
    yield Sentence(
        "Spectra's makespan near the lower bound",
        f"{SPECTRA}, {workload}", (1.0, NEAR_BOUND), [(workload, spectra)],
        partial(_over_bound, workload=workload),
    )  # fmt: skip
    ocses = int(table.loc[table["workload"] == workload, "ocses"].iloc[0])
    if ocses > 1:  # on one switch LESS is Decompose, as Spectra is
        yield from _longer(table, workload, "less", "LESS", f"{SPECTRA}, {workload}")


def _longer(table: pd.DataFrame, workload: str, rival: str, name: str, source: str) -> Iterator[Sentence]:
    """Yield that a rival takes longer than Spectra, if it was run."""
    spectra, other = _name(table, workload, "spectra"), _name(table, workload, rival)
    if _executed(table, workload)["name"].eq(other).any():
        yield Sentence(
            f"{name} takes longer than Spectra, measured",
            source, MORE, [(workload, other), (workload, spectra)],
            partial(ratio, workload=workload, scheme=other, other=spectra, column="cct_s"),
        )  # fmt: skip


def _ours(table: pd.DataFrame, workload: str) -> Iterator[Sentence]:
    """Yield what lightrail promises: schedules go as planned and beat a rotor's, and every byte arrives."""
    executed, spectra = _executed(table, workload), _name(table, workload, "spectra")
    sound = executed[~executed["verdict"].isin(LEFT_OUT)]
    over = (sound if len(sound) else executed).groupby("name", sort=False)["over_predicted"].mean()
    slowest = str(over.idxmax())
    for scheme in dict.fromkeys([spectra, slowest]):
        who = scheme if scheme == spectra else f"the slowest, {scheme},"
        yield Sentence(
            f"{who} takes no longer than predicted",
            f"{LIGHTRAIL}, {workload}", (0.0, EXECUTED), [(workload, scheme)],
            partial(mean, workload=workload, scheme=scheme, column="over_predicted"),
        )  # fmt: skip
    yield Sentence(
        "no byte is missing",
        f"{LIGHTRAIL}, {workload}", (0.0, 0.0),
        [(workload, str(scheme)) for scheme in dict.fromkeys(executed["name"])],
        partial(_missing_bytes, workload=workload), pattern=BYTES,
    )  # fmt: skip
    yield from _longer(table, workload, "rotor", "the rotor", f"{LIGHTRAIL}, {workload}")


def _name(table: pd.DataFrame, workload: str, scheduler: str) -> str:
    """Return what tables call a scheduler's first point, or would."""
    executed = _executed(table, workload)
    found = executed.loc[executed["circuits"].str.partition(",")[0] == scheduler, "name"]
    return str(found.iloc[0]) if len(found) else f"{executed['scheme'].iloc[0]}, {scheduler}"


def _executed(table: pd.DataFrame, workload: str) -> pd.DataFrame:
    return table[(table["workload"] == workload) & table["makespan_s"].notna()]


def _over_bound(table: pd.DataFrame, workload: str) -> float:
    rows = table[(table["workload"] == workload) & (table["name"] == _name(table, workload, "spectra"))]
    return float((rows["makespan_s"] / rows["bound_s"]).mean())


def _missing_bytes(table: pd.DataFrame, workload: str) -> float:
    return float(_executed(table, workload)["missing_bytes"].sum())
