"""Iteration time by the number of circuit NICs: Figure 27."""

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from scenarios._mfabric.fabrics import COLOURS, MFABRIC, NICS, PACKET_NICS
from scenarios._mfabric.section import FIGURE_ONLY, Section
from scenarios._mfabric.step.points import StepPoint, StepSetup
from scenarios._mfabric.step.study import Iterations, StepStudy, step_section
from testbed.report.claims import LESS, SAME, Claim, predicted
from testbed.report.page import Block, Findings, Plot, Sheet
from testbed.report.palette import canvas, horizontal_grid, styled
from testbed.report.table import lines_of

SOURCE = "mFabric, D.6 (Figure 27)"
MODEL, RATE_BPS = "mixtral-8x22b", 100e9
ALPHAS = (1, 2, 3, 4, 5, 6, 7)
"""Circuit NICs of a server of 8 NICs."""
FEW, MANY = 2, 6
"""Between these the paper's sentence is ruled, beside every step on the way."""


def _points(_setup: StepSetup) -> list[StepPoint]:
    """Return the training steps of Figure 27: packet NICs of one rate in all, however many they are."""
    return [
        StepPoint(
            MODEL, MFABRIC, RATE_BPS, packet_nics=NICS - alpha,
            packet_bps=PACKET_NICS * RATE_BPS / (NICS - alpha) if NICS - alpha != PACKET_NICS else None,
        )
        for alpha in ALPHAS
    ]  # fmt: skip


def _section(setup: StepSetup, found: Iterations) -> Section:
    """Return the iteration time by the number of circuit NICs."""
    table = pd.DataFrame(
        [
            {
                "alpha": NICS - point.packet_nics, "packet_nics": point.packet_nics,
                "packet_gbps": (point.packet_bps or RATE_BPS) / 1e9, "iteration_s": found[point].seconds,
                "reconfigurations": found[point].reconfigurations,
            }
            for point in _points(setup)
        ]
    )  # fmt: skip
    plot = Plot("alpha", partial(_plot, table), f"Paper, figure 27 ({FIGURE_ONLY}). {CAPTION}")
    return step_section(
        "alpha", "iteration times by the number of circuit NICs", setup, table,
        Findings([_sheet(table)], [plot], _claims(table)), model=MODEL, rate_gbps=RATE_BPS / 1e9,
    )  # fmt: skip


def _claims(table: pd.DataFrame) -> list[Claim]:
    times = table.set_index("alpha")["iteration_s"]
    steps = (times / times.shift()).dropna()
    each = ", ".join(f"{alpha} {ratio:.3f}" for alpha, ratio in steps.items())
    few, many = f"{FEW} to {MANY} circuit NICs: iterations get shorter", times[MANY] / times[FEW]
    return [
        predicted(few, SOURCE, LESS, many, "", "{:.3f}"),
        predicted("no longer with any further one", SOURCE, (0.0, 1 + SAME), steps.max(), each, "{:.3f}"),
    ]


def _sheet(table: pd.DataFrame) -> Sheet:
    base = table.set_index("alpha")["iteration_s"][NICS - PACKET_NICS]
    lines = lines_of(
        table.assign(over=table["iteration_s"] / base),
        "{alpha}", "{packet_nics} x {packet_gbps:.1f}", "{iteration_s:.2f}", "{over:.3f}",
        "{reconfigurations:,}",
    )  # fmt: skip
    return Sheet(
        ("alpha",),
        ("packet NICs [Gbit/s]", "iteration [s]", f"/ alpha = {NICS - PACKET_NICS}", "reconfigurations"),
        [Block(lines)],
        f"Figure 27: {MODEL}, 1,024 GPUs, circuit NICs of {RATE_BPS / 1e9:g} Gbit/s. Packet NICs have "
        f"{PACKET_NICS * RATE_BPS / 1e9:g} Gbit/s in all, so that packet switches cost alike; how the paper "
        "keeps their cost is not said. With alpha circuit NICs a server has circuits to at most alpha of its "
        "7 peers, and reaches the others over packets; with 7 it has one to each, whatever the demand.",
    )


@styled
def _plot(table: pd.DataFrame) -> Figure:
    figure = canvas(8.5, 3.4, "Iteration time by circuit NICs of a server (SYNTHETIC gates)")
    axes = figure.subplots()
    axes.plot(table["alpha"], table["iteration_s"], color=COLOURS[MFABRIC], marker="o", label=MFABRIC)
    axes.set(xlabel="alpha, circuit NICs of 8", ylabel="iteration [s]", ylim=(0, None))
    axes.set_xticks(ALPHAS)
    horizontal_grid(axes)
    return figure


CAPTION = "Packet NICs have 200 Gbit/s in all, and circuit NICs 100 Gbit/s each."
STUDY = StepStudy(_points, _section)
