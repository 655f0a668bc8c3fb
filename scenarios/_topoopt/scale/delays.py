"""Circuits that follow demand, by how long they are dark (Figure 17)."""

import math

import pandas as pd

from scenarios._topoopt.fabrics import OCS_RECONFIG, TOPOOPT
from scenarios._topoopt.scale.figures import FULL_BPS
from scenarios._topoopt.scale.rows import ALIKE, MS, figure_claim, times
from testbed.report.claims import MORE, around
from testbed.report.page import Block, Findings, Line, Sheet
from testbed.report.table import number


def delays(table: pd.DataFrame) -> Findings:
    """Return iterations over the delay of OCSes, with and without forwarding."""
    own = table[(table["fabric"] == OCS_RECONFIG) & (table["degree"] == 8) & (table["rate_bps"] == FULL_BPS)]
    found = sorted(own["delay_s"].unique())
    blocks, at = [], own.set_index(["model", "forwards", "delay_s"])["iteration_s"]
    for model in own["model"].unique():
        topoopt = times(table, model, TOPOOPT, 8).get(FULL_BPS, math.nan)
        lines = [
            Line(
                [
                    name,
                    *(number(MS * at.get((model, forwards, d), math.nan), "{:.1f}") for d in found),
                    number(MS * topoopt, "{:.1f}"),
                ]
            )
            for name, forwards in (("servers forward", True), ("they do not", False))
        ]
        blocks.append(Block(lines, model))
    sheet = Sheet(
        ("OCS-reconfig",),
        (*(f"{1e6 * delay_s:g} us" for delay_s in found), TOPOOPT),
        blocks,
        "Milliseconds of an iteration over circuits that follow demand, d = 8, B = 100 Gbit/s, by how long "
        "they are dark; what is owed is looked at every five delays, and 5 ms at least (Figure 17).",
    )
    slowest, fastest = max(found, default=math.nan), min(found, default=math.nan)

    def time_s(model: str, delay_s: float, *, forwards: bool) -> float:
        return float(at.get((model, forwards, delay_s), math.nan))

    dlrm_s, bert_s = (
        {forwards: time_s(model, slowest, forwards=forwards) for forwards in (True, False)}
        for model in ("dlrm", "bert")
    )
    alike = time_s("bert", fastest, forwards=False) / times(table, "bert", TOPOOPT, 8).get(FULL_BPS, math.nan)
    longer = "BERT at 10 ms: forwarding takes 1.4 times as long as none"
    claims = [
        figure_claim("DLRM at 10 ms: forwarding better than none", "17", MORE, dlrm_s[False] / dlrm_s[True]),
        figure_claim(longer, "17", around(1.4), bert_s[True] / bert_s[False]),
        figure_claim("BERT at 1 us without forwarding: as TopoOpt", "17", ALIKE, alike),
    ]
    return Findings([sheet] if blocks else [], [], claims if blocks else [])
