"""Iteration time by the reconfiguration delay of the OCS: Figure 28."""

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from scenarios._mfabric.fabrics import MFABRIC
from scenarios._mfabric.region_plan import First
from scenarios._mfabric.section import FIGURE_ONLY, Section
from scenarios._mfabric.step.points import DELAY_S, StepPoint, StepSetup
from scenarios._mfabric.step.study import Iterations, StepStudy, step_section
from testbed.report.claims import MORE, TOLERANCE, Claim, predicted
from testbed.report.page import Block, Findings, Line, Plot, Sheet
from testbed.report.palette import canvas, horizontal_grid, styled
from testbed.report.table import duration_text

SOURCE = "mFabric, D.7 (Figure 28)"
MODEL, RATE_BPS = "mixtral-8x22b", 400e9
DELAYS_S = (1e-6, 1e-3, 10e-3, DELAY_S, 0.1, 1.0, 10.0)
FIRSTS: tuple[First, ...] = ("block", "reuse")
COLOURS: dict[First, str] = {"block": "#0072b2", "reuse": "#e69f00"}


def _points(_setup: StepSetup) -> list[StepPoint]:
    """Return the training steps of Figure 28."""
    return [
        StepPoint(MODEL, MFABRIC, RATE_BPS, delay_s=delay_s, first=first)
        for first in FIRSTS
        for delay_s in DELAYS_S
    ]


def _section(setup: StepSetup, found: Iterations) -> Section:
    """Return the iteration time by reconfiguration delay, with dispatches that wait and that do not."""
    table = pd.DataFrame(
        [
            {
                "first": point.first, "delay_s": point.delay_s, "iteration_s": found[point].seconds,
                "reconfigurations": found[point].reconfigurations,
            }
            for point in _points(setup)
        ]
    )  # fmt: skip
    plot = Plot("delay", partial(_plot, table), f"Paper, figure 28 ({FIGURE_ONLY}). {CAPTION}")
    return step_section(
        "delay", "iteration times by reconfiguration delay", setup, table,
        Findings([_sheet(table)], [plot], _claims(table)), DEFINITIONS, model=MODEL, rate_gbps=RATE_BPS / 1e9,
    )  # fmt: skip


def _times(table: pd.DataFrame) -> pd.DataFrame:
    """Return iteration times, a row per delay and a column per what dispatches do."""
    return table.pivot_table(index="delay_s", columns="first", values="iteration_s")[list(FIRSTS)]


def _claims(table: pd.DataFrame) -> list[Claim]:
    """Return the paper's sentences, ruled by what is shorter at each delay: waiting or not."""
    times = _times(table)
    best = times.min(axis=1)
    taken = ", ".join(f"{duration_text(delay_s)} {times.loc[delay_s].idxmin()}" for delay_s in DELAYS_S)
    least, most = best.index[0], best.index[-1]
    return [
        predicted(
            "25 ms: not significantly longer than 1 us (10 %)", SOURCE, (0, 1 + TOLERANCE),
            best[DELAY_S] / best[least], f"shorter: {taken}", "{:.3f}",
        ),
        predicted("1 us: a little shorter, circuits are exact", SOURCE, (MORE[0], 1 + TOLERANCE),
               best[DELAY_S] / best[least], "", "{:.3f}"),
        predicted("above 1 s: clearly longer than at 25 ms", SOURCE, MORE, best[most] / best[DELAY_S]),
    ]  # fmt: skip


def _sheet(table: pd.DataFrame) -> Sheet:
    times = _times(table)
    base = times.min(axis=1)[DELAY_S]
    lines = [
        Line(
            [duration_text(delay_s), *(f"{times.loc[delay_s, first]:.2f}" for first in FIRSTS),
             *(f"{times.loc[delay_s, first] / base:.3f}" for first in FIRSTS)]
        )
        for delay_s in times.index
    ]  # fmt: skip
    return Sheet(
        ("delay",),
        (*(f"{first} [s]" for first in FIRSTS), *(f"{first}, normalised" for first in FIRSTS)),
        [Block(lines)],
        f"Figure 28: {MODEL}, 1,024 GPUs, 400 Gbit/s, over the shorter one at {duration_text(DELAY_S)}. "
        "Block: dispatches wait until circuits for them are lit; reuse: they take those that are. The other "
        "all-to-alls wait for what computing does not hide. The paper waits at microseconds only.",
    )


@styled
def _plot(table: pd.DataFrame) -> Figure:
    figure = canvas(8.5, 3.4, "Iteration time by reconfiguration delay (SYNTHETIC gates)")
    axes = figure.subplots()
    times = _times(table)
    for first in FIRSTS:
        axes.plot(times.index, times[first], color=COLOURS[first], marker="o", markersize=4, label=first)
    axes.set(xlabel="reconfiguration delay", ylabel="iteration [s]", xscale="log", yscale="log")
    axes.set_xticks(DELAYS_S, [duration_text(delay_s) for delay_s in DELAYS_S])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:g}")
    horizontal_grid(axes)
    axes.legend(loc="upper left")
    return figure


CAPTION = "Both axes are logarithmic."
DEFINITIONS = (
    ("block", "An all-to-all whose demand only the gate decides is held until its circuits are lit."),
    ("reuse", "It takes what is lit: the circuits of the all-to-all before it."),
)
STUDY = StepStudy(_points, _section)
