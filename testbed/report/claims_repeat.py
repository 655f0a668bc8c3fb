"""Whether a run that is repeated gives what it gave before: the CCT of each point over the one before."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pandas as pd

from testbed.report.claims import Claim, Range, Sentence, judged
from testbed.trust.outcome import LEFT_OUT
from topologies.printable import printable

AGAIN: Range = (0.95, 1.05)
"""How far a CCT may be from the one before of the same transport and seed."""
KEY = ["transport", "seed"]


def repeat_claims(
    table: pd.DataFrame,
    before: pd.DataFrame,
    source: str,
    changed: Mapping[tuple[str, str, str], str] | None = None,
) -> list[Claim]:
    """Return a claim per workload and scheme: that no CCT of a transport and seed differs by more than 5 %.

    Parameters
    ----------
    table, before
        Summaries of the repetition and of the run that is repeated (`testbed.trust.outcome.summary`).
    source
        What is repeated, as a reader knows it.
    changed
        By workload, scheme and transport, what has changed since of the user's own code that these run: they
        are measured, and not compared.
    """
    table = table.assign(**{name: table[name].map(printable) for name in ("workload", "name", "transport")})
    transports = table["transport"].unique()
    sound = before[(~before["verdict"].isin(LEFT_OUT)) & before["transport"].isin(transports)]
    found = {tuple(map(printable, point)): why for point, why in (changed or {}).items()}
    other = {tuple(point): why for (*point, over), why in found.items() if over in transports}
    claims = []
    for workload, scheme in dict.fromkeys(zip(table["workload"], table["name"], strict=True)):
        claim = _judged(str(workload), str(scheme), table, sound, source)
        if (workload, scheme) in other:
            claim = replace(claim, verdict="not comparable", reason=other[workload, scheme])
        claims.append(claim)
    return claims


def _judged(workload: str, scheme: str, table: pd.DataFrame, sound: pd.DataFrame, source: str) -> Claim:
    text = f"{workload}: {scheme} takes as long as before"
    mine = sound[(sound["workload"] == workload) & (sound["name"] == scheme)]
    if mine.empty:
        return Claim(text, source, AGAIN, reason="void or unsound before, or not finished")
    before = mine.set_index(KEY)["cct_s"]
    measure = partial(_furthest, workload=workload, scheme=scheme, before=before)
    return judged(Sentence(text, source, AGAIN, [(workload, scheme)], measure), table, by_model=True)


def _furthest(table: pd.DataFrame, workload: str, scheme: str, before: "pd.Series[float]") -> float:
    """Return the CCT over the one before that is furthest from 1; NaN if no seed is common."""
    here = table[(table["workload"] == workload) & (table["name"] == scheme)]
    ratios = (here.set_index(KEY)["cct_s"] / before).dropna()
    return float(max(ratios, key=lambda ratio: max(ratio, 1 / ratio), default=float("nan")))
