"""DLRM with more and more all-to-all: iterations, tax, paths and loads (Figures 12 to 15)."""

import math
from collections.abc import Mapping
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from scenarios._topoopt.fabrics import FAT_TREE, IDEAL, TOPOOPT
from scenarios._topoopt.scale_figures import ALL_TO_ALL_BATCHES
from scenarios._topoopt.scale_rows import ALIKE, COLOURS, MS, judged
from testbed.report.claims import Claim, around
from testbed.report.page import Block, Findings, Line, Plot, Sheet
from testbed.report.palette import canvas, horizontal_grid, styled
from testbed.report.table import number

PATHS = {4: 5.7, 8: 3.0}
"""Figure 14: mean hops, by d."""
TAXES = {(64, 4): 1.11, (64, 8): 1.05, (2048, 4): 3.03}
"""Figure 13, by batch and d."""
UNEVEN = {4: 0.39, 8: 0.59}
"""Figure 15: by how much the least loaded circuit has less than the most loaded, by d."""
Cells = Mapping[str, float]


def _batches(table: pd.DataFrame, degree: int) -> dict[str, dict[int, Cells]]:
    own = table[(table["section"].astype(str) == "5.4") & (table["degree"] == degree)]
    found: dict[str, dict[int, Cells]] = {}
    for row in own.to_dict("records"):
        found.setdefault(str(row["fabric"]), {})[int(row["batch"])] = {str(k): v for k, v in row.items()}
    return found


def all_to_all(table: pd.DataFrame) -> Findings:
    """Return what the rows of section 5.4 say."""
    blocks, claims = [], list[Claim]()
    for degree in (4, 8):
        found = _batches(table, degree)
        if not found.get(TOPOOPT):
            continue
        lines = [_batch_line(batch, found) for batch in ALL_TO_ALL_BATCHES if batch in found[TOPOOPT]]
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


def _batch_line(batch: int, found: Mapping[str, Mapping[int, Cells]]) -> Line:
    mine = found[TOPOOPT][batch]
    times_s = [
        found.get(fabric, {}).get(batch, {}).get("iteration_s", math.nan)
        for fabric in (TOPOOPT, IDEAL, FAT_TREE)
    ]
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


def _batch_claims(degree: int, found: Mapping[str, Mapping[int, Cells]]) -> list[Claim]:
    own, claims = found[TOPOOPT], list[Claim]()

    def over(fabric: str, batch: int) -> float:
        there = found.get(fabric, {}).get(batch), own.get(batch)
        return there[0]["iteration_s"] / there[1]["iteration_s"] if there[0] and there[1] else math.nan

    if degree == 4:
        claims += [
            judged("batch 128: TopoOpt and the ideal switch alike", "12", ALIKE, over(IDEAL, 128)),
            judged("batch 128: the fat-tree takes 2.7 times as long", "12", around(2.7), over(FAT_TREE, 128)),
            judged(
                "batch 2048: TopoOpt takes 1.1 times as long as the fat-tree",
                "12",
                around(1.1),
                1 / over(FAT_TREE, 2048),
            ),
        ]
    for (batch, of), tax in TAXES.items():
        if of == degree:
            measured = own[batch]["tax"] if batch in own else math.nan
            claims.append(
                judged(f"bandwidth tax {tax:g} at batch {batch}, d = {degree}", "13", around(tax), measured)
            )
    first = next(iter(own.values()))
    claims.append(
        judged(
            f"mean path {PATHS[degree]:g} hops, d = {degree}", "14", around(PATHS[degree]), first["mean_hops"]
        )
    )
    if 128 in own:
        text = f"all-to-all alone: the least loaded circuit has {UNEVEN[degree]:.0%} less, d = {degree}"
        measured = 1 - own[128].get("even_least_over_most", math.nan)
        claims.append(judged(text, "15", around(UNEVEN[degree]), measured, "one shortest path a pair, drawn"))
    return claims


@styled
def _draw_batches(table: pd.DataFrame) -> Figure:
    figure = canvas(8.0, 3.3, "DLRM with more and more all-to-all, 128 servers, 100 Gbit/s")
    for axes, degree in zip(figure.subplots(1, 2), (4, 8), strict=True):
        found = _batches(table, degree)
        for fabric in found:
            batches = sorted(found[fabric])
            axes.plot(
                batches,
                [found[fabric][b]["iteration_s"] for b in batches],
                "o-",
                color=COLOURS[fabric],
                label=fabric,
                markersize=3,
            )
        axes.set(
            title=f"d = {degree}", xscale="log", yscale="log", xlabel="batch of a GPU", ylabel="iteration [s]"
        )
        horizontal_grid(axes)
        axes.legend()
    return figure
