"""Circuits that follow demand, by how long they are dark (Figure 17)."""

import math

import pandas as pd

from scenarios._topoopt.fabrics import OCS_RECONFIG, TOPOOPT
from scenarios._topoopt.scale_figures import FULL_BPS
from scenarios._topoopt.scale_rows import ALIKE, MS, judged, times
from testbed.report.claims import MORE, around
from testbed.report.page import Block, Findings, Line, Sheet
from testbed.report.table import number


def delays(table: pd.DataFrame) -> Findings:
    """Return iterations over the delay of OCSes, with and without forwarding."""
    own = table[(table["fabric"] == OCS_RECONFIG) & (table["degree"] == 8) & (table["rate_bps"] == FULL_BPS)]
    found = sorted(own["delay_s"].unique())
    blocks, at = [], dict[tuple[str, bool, float], float]()
    for model, rows in own.groupby("model", sort=False):
        for forwards, mine in rows.groupby("forwards"):
            for delay_s, time_s in zip(mine["delay_s"], mine["iteration_s"], strict=True):
                at[str(model), bool(forwards), float(delay_s)] = float(time_s)
        topoopt = times(table, str(model), TOPOOPT, 8).get(FULL_BPS, math.nan)
        lines = [
            Line(
                [
                    name,
                    *(number(MS * at.get((str(model), forwards, d), math.nan), "{:.1f}") for d in found),
                    number(MS * topoopt, "{:.1f}"),
                ]
            )
            for name, forwards in (("servers forward", True), ("they do not", False))
        ]
        blocks.append(Block(lines, str(model)))
    sheet = Sheet(
        ("OCS-reconfig",),
        (*(f"{1e6 * delay_s:g} us" for delay_s in found), TOPOOPT),
        blocks,
        "Milliseconds of an iteration over circuits that follow demand, d = 8, B = 100 Gbit/s, by how long "
        "they are dark; what is owed is looked at every five delays, and 5 ms at least (Figure 17).",
    )
    slowest, fastest = max(found, default=math.nan), min(found, default=math.nan)

    def ratio(one: tuple[str, bool, float], other: tuple[str, bool, float]) -> float:
        return at.get(one, math.nan) / at.get(other, math.nan)

    topoopt_s = times(table, "bert", TOPOOPT, 8).get(FULL_BPS, math.nan)
    claims = [
        judged(
            "DLRM at 10 ms: forwarding better than none",
            "17",
            MORE,
            ratio(("dlrm", False, slowest), ("dlrm", True, slowest)),
        ),
        judged(
            "BERT at 10 ms: forwarding takes 1.4 times as long as none",
            "17",
            around(1.4),
            ratio(("bert", True, slowest), ("bert", False, slowest)),
        ),
        judged(
            "BERT at 1 us without forwarding: as TopoOpt",
            "17",
            ALIKE,
            at.get(("bert", False, fastest), math.nan) / topoopt_s,
        ),
    ]
    return Findings([sheet] if blocks else [], [], claims if blocks else [])
