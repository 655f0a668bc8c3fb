"""DLRM with more and more all-to-all: iterations, tax, paths and loads (Figures 12 to 15)."""

import math
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from scenarios._topoopt.fabrics import COLOURS, FAT_TREE, IDEAL, TOPOOPT
from scenarios._topoopt.scale.rows import ALIKE, FIGURE, MS, figure_claim
from testbed.report.claims import Claim, arithmetic, around, ruling
from testbed.report.page import Block, Findings, Line, Plot, Sheet
from testbed.report.palette import canvas, horizontal_grid, styled
from testbed.report.table import number

PATHS = {4: 5.7, 8: 3.0}
"""Figure 14: mean hops, by d."""
TAXES = {(64, 4): 1.11, (64, 8): 1.05, (2048, 4): 3.03}
"""Figure 13, by batch and d."""
CLOSED = "a closed form of circuits and demand"
DRAWN = "of the graph alone: one shortest path a pair, drawn"
UNEVEN = {4: 0.39, 8: 0.59}
"""Figure 15: by how much the least loaded circuit has less than the most loaded, by d."""


def all_to_all(table: pd.DataFrame) -> Findings:
    """Return the findings of the rows of section 5.4."""
    blocks, claims = [], list[Claim]()
    for degree in (4, 8):
        found = _batches(table, degree)
        if TOPOOPT in found.index:
            lines = [_batch_line(batch, found) for batch in found.loc[TOPOOPT].index.sort_values()]
            blocks.append(Block(lines, f"d = {degree}"))
            claims += _batch_claims(degree, found)
    sheet = Sheet(
        ("batch of a GPU",),
        (
            "all-to-all / AllReduce",
            TOPOOPT,
            IDEAL,
            FAT_TREE,
            "fat-tree / TopoOpt",
            "tax",
            "mean hops",
            "least / most",
        ),
        blocks,
        "Milliseconds of an iteration of DLRM with a table for each server, B = 100 Gbit/s, of the start "
        "strategy (Figure 12); the bandwidth tax (13), the mean path (14), and the least loaded circuit over "
        "the most loaded (15).",
    )
    plot = Plot(
        "figure_12", partial(_draw_batches, table), "Iterations with more and more all-to-all (Figure 12)."
    )
    return Findings([sheet] if blocks else [], [plot] if blocks else [], claims)


def _batches(table: pd.DataFrame, degree: int) -> pd.DataFrame:
    """Return the rows of section 5.4 with so many interfaces, by fabric and batch."""
    own = table[(table["section"].astype(str) == "5.4") & (table["degree"] == degree)]
    return own.set_index(["fabric", "batch"])


def _batch_line(batch: int, found: pd.DataFrame) -> Line:
    mine = found.loc[TOPOOPT].loc[batch]
    times_s = [found["iteration_s"].get((fabric, batch), math.nan) for fabric in (TOPOOPT, IDEAL, FAT_TREE)]
    return Line(
        [
            str(batch),
            f"{mine['mp_bytes'] / mine['ring_bytes']:.3f}",
            *(number(MS * time_s, "{:.1f}") for time_s in times_s),
            number(times_s[2] / times_s[0], "{:.2f}"),
            f"{mine['tax']:.3f}",
            f"{mine['mean_hops']:.2f}",
            f"{mine['least_over_most']:.2f}",
        ]
    )


def _batch_claims(degree: int, found: pd.DataFrame) -> list[Claim]:
    own, claims = found.loc[TOPOOPT], list[Claim]()

    def over(fabric: str, batch: int) -> float:
        one, other = (found["iteration_s"].get((name, batch), math.nan) for name in (fabric, TOPOOPT))
        return float(one / other)

    if degree == 4:
        longer = "batch 128: the fat-tree takes 2.7 times as long"
        slower = "batch 2048: TopoOpt takes 1.1 times as long as the fat-tree"
        claims += [
            figure_claim("batch 128: TopoOpt and the ideal switch alike", "12", ALIKE, over(IDEAL, 128)),
            figure_claim(longer, "12", around(2.7), over(FAT_TREE, 128)),
            figure_claim(slower, "12", around(1.1), 1 / over(FAT_TREE, 2048)),
        ]
    for (batch, of), tax in TAXES.items():
        if of == degree:
            text = f"bandwidth tax {tax:g} at batch {batch}, d = {degree}"
            taxed = float(own["tax"].get(batch, math.nan))
            claims.append(arithmetic(text, FIGURE.format(13), around(tax), taxed, CLOSED))
    hops, text = PATHS[degree], f"mean path {PATHS[degree]:g} hops, d = {degree}"
    measured = float(own["mean_hops"].iloc[0])
    claims.append(arithmetic(text, FIGURE.format(14), around(hops), measured, CLOSED))
    if 128 in own.index:
        text = f"all-to-all alone: the least loaded circuit has {UNEVEN[degree]:.0%} less, d = {degree}"
        expected, measured = around(UNEVEN[degree]), 1 - float(own["even_least_over_most"][128])
        verdict = ruling(measured, expected)
        claims.append(Claim(text, FIGURE.format(15), expected, measured, verdict, DRAWN))
    return claims


@styled
def _draw_batches(table: pd.DataFrame) -> Figure:
    figure = canvas(8.0, 3.3, "DLRM with more and more all-to-all, 128 servers, 100 Gbit/s")
    for axes, degree in zip(figure.subplots(1, 2), (4, 8), strict=True):
        for fabric, rows in _batches(table, degree).groupby("fabric", sort=False):
            own = rows["iteration_s"].droplevel("fabric").sort_index()
            axes.plot(own.index, own, "o-", color=COLOURS[str(fabric)], label=fabric, markersize=3)
        axes.set(
            title=f"d = {degree}", xscale="log", yscale="log", xlabel="batch of a GPU", ylabel="iteration [s]"
        )
        horizontal_grid(axes)
        axes.legend()
    return figure
