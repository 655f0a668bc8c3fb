"""Iterations over the rate of interfaces and over their number (Figures 11, 27 and 28)."""

import math
from collections.abc import Sequence
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from scenarios._topoopt.costs import PRICES, interconnect_bill
from scenarios._topoopt.fabrics import (
    COLOURS,
    EXPANDER,
    FAT_TREE,
    IDEAL,
    OCS_RECONFIG,
    SIP_ML,
    TOPOOPT,
    fat_tree_bps,
)
from scenarios._topoopt.scale.figures import DEGREES, FULL_BPS, MODELS
from scenarios._topoopt.scale.rows import ALIKE, MS, figure_claim, mean_ratio, times
from testbed.report.claims import MORE, Claim, Range, around
from testbed.report.page import Block, Findings, Line, Plot, Sheet
from testbed.report.palette import canvas, horizontal_grid, styled
from testbed.report.table import number

FAT_TREE_TIMES = {"candle": 2.8, "vgg16": 2.8, "bert": 3.0, "dlrm": 2.8, "ncf": 2.1}
"""Figure 11: the fat-tree of similar cost over TopoOpt, on average over rates."""
IDEAL_TIMES = {"dlrm": 1.3, "ncf": 1.7}
"""Figure 11: TopoOpt over the ideal switch; the others are alike."""
GAINS = (
    ("candle", "nearly linear in d (2 to 8: 4 times)", (3.2, 4.4), 2, 8),
    ("bert", "hardly changes with d (4 to 8)", (1.0, 1.3), 4, 8),
    ("dlrm", "more than linear in d (2 to 8: over 4 times)", (4.0, math.inf), 2, 8),
)
"""Figure 28: what changes with the number of interfaces, between which."""


def swept(table: pd.DataFrame, degree: int, figure: str) -> Findings:
    """Return iterations over the rate of an interface: Figure 11 with 4 a server, 27 with 8."""
    rates = sorted(table["rate_bps"].unique())
    blocks = []
    for model in MODELS:
        base = times(table, model, TOPOOPT, degree)
        lines = []
        for fabric in COLOURS:
            own = times(table, model, fabric, degree)
            if own:
                cells = [number(MS * own.get(rate, math.nan), "{:.1f}") for rate in rates]
                lines.append(Line([fabric, *cells, number(mean_ratio(own, base), "{:.2f}")]))
        if lines:
            blocks.append(Block(lines, model))
    sheet = Sheet(
        ("fabric",),
        (*(f"{rate / 1e9:.0f}G" for rate in rates), "/ TopoOpt"),
        blocks,
        f"Milliseconds of an iteration on 128 servers with {degree} interfaces, by their rate (Figure "
        f"{figure}); the mean ratio over the rates that both have. Packet fabrics are one switch, without "
        "collisions of paths; the fat-tree has a quarter of TopoOpt's bandwidth, if no other was given, and "
        f"then costs {_tree_costs(rates, degree)} of TopoOpt at these rates. Rings are one flow each, and "
        "so are embeddings; they end when the busiest link does. "
        "Strategies were searched with as many steps on all fabrics, but for those whose circuits follow "
        "demand.",
    )
    plot = Plot(
        f"figure_{figure}",
        partial(_draw_swept, table, degree),
        f"Iteration times over the rate of an interface, {degree} a server (Figure {figure}).",
    )
    return Findings([sheet], [plot], _swept_claims(table, degree, figure))


def _tree_costs(rates: Sequence[float], degree: int) -> str:
    """Return the cost of a fat-tree of a quarter of TopoOpt's bandwidth, as a share of TopoOpt's, by rate."""
    priced = [rate for rate in rates if rate in PRICES and fat_tree_bps(degree, rate) in PRICES]
    shares = [
        interconnect_bill(FAT_TREE, 128, degree, rate).usd / interconnect_bill(TOPOOPT, 128, degree, rate).usd
        for rate in priced
    ]
    return ", ".join(f"{share:.2f}" for share in shares) or "an unknown share"


def _swept_claims(table: pd.DataFrame, degree: int, figure: str) -> list[Claim]:
    def over(model: str, fabric: str, below: str = TOPOOPT) -> float:
        return mean_ratio(times(table, model, fabric, degree), times(table, model, below, degree))

    claims = []
    for model in MODELS:
        # Figure 27 is said to have the same trend, without numbers.
        slower, faster = (said.get(model) if degree == 4 else None for said in (FAT_TREE_TIMES, IDEAL_TIMES))
        if model in FAT_TREE_TIMES:
            times_as = f"{slower:g} times as long" if slower else "longer"
            text = f"{model}: the fat-tree of similar cost takes {times_as}"
            claims.append(
                figure_claim(text, figure, around(slower) if slower else MORE, over(model, FAT_TREE))
            )
        if model in IDEAL_TIMES:
            times_as = f"{faster:g} times as fast as" if faster else "faster than"
            text = f"{model}: the ideal switch is {times_as} TopoOpt"
            expected = around(faster) if faster else MORE
            claims.append(figure_claim(text, figure, expected, over(model, TOPOOPT, IDEAL)))
        else:
            text = f"{model}: TopoOpt and the ideal switch alike"
            claims.append(figure_claim(text, figure, ALIKE, over(model, IDEAL)))
    if degree == 4:
        text = "candle: SiP-ML and TopoOpt alike"
        claims.append(figure_claim(text, figure, ALIKE, over("candle", SIP_ML)))
        text = "candle: OCS-reconfig slower than TopoOpt"
        claims.append(figure_claim(text, figure, MORE, over("candle", OCS_RECONFIG)))
    text = "candle: the expander slower than the fat-tree of similar cost"
    claims.append(figure_claim(text, figure, MORE, over("candle", EXPANDER, FAT_TREE)))
    return claims


@styled
def _draw_swept(table: pd.DataFrame, degree: int) -> Figure:
    figure = canvas(9.5, 5.2, f"Iteration time, 128 servers, d = {degree}")
    panels = figure.subplots(2, 3).ravel()
    for axes, model in zip(panels, MODELS, strict=True):
        for fabric, colour in COLOURS.items():
            own = times(table, model, fabric, degree)
            if own:
                rates = sorted(own)
                axes.plot(
                    [r / 1e9 for r in rates],
                    [own[r] for r in rates],
                    "o-",
                    color=colour,
                    label=fabric,
                    markersize=3,
                )
        axes.set(title=model, xscale="log", yscale="log", xlabel="B [Gbit/s]", ylabel="iteration [s]")
        horizontal_grid(axes)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def degrees(table: pd.DataFrame) -> Findings:
    """Return iterations over the number of interfaces (Figure 28)."""
    blocks = []
    for rate_bps in (40e9, FULL_BPS):
        found = {
            model: [times(table, model, TOPOOPT, degree).get(rate_bps, math.nan) for degree in DEGREES]
            for model in MODELS
        }
        lines = [
            Line([model, *(number(MS * time_s, "{:.1f}") for time_s in times_s)])
            for model, times_s in found.items()
        ]
        blocks.append(Block(lines, f"B = {rate_bps / 1e9:.0f} Gbit/s"))
    sheet = Sheet(
        ("model",),
        tuple(f"d = {degree}" for degree in DEGREES),
        blocks,
        "Milliseconds of an iteration on TopoOpt with more and more interfaces a server (Figure 28).",
    )
    return Findings([sheet], [], [_gain(table, *each) for each in GAINS])


def _gain(table: pd.DataFrame, model: str, text: str, expected: Range, few: int, many: int) -> Claim:
    """Return a claim about a model's time with few interfaces over that with many, at the full rate."""
    few_s, many_s = (times(table, model, TOPOOPT, degree).get(FULL_BPS, math.nan) for degree in (few, many))
    return figure_claim(f"{model}: {text}", "28", expected, few_s / many_s)
