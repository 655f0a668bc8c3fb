"""Iteration times with larger micro-batches: Figure 25."""

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from scenarios._mfabric.fabrics import COLOURS, FAT_TREE, MFABRIC, TOPOOPT
from scenarios._mfabric.figures.iteration_times import of_all_rates, over
from scenarios._mfabric.section import FIGURE_ONLY, Section
from scenarios._mfabric.step.points import StepPoint, StepSetup
from scenarios._mfabric.step.study import Iterations, StepStudy, as_simulated_s, step_section, with_waits
from testbed.report.claims import MORE, Claim, around, predicted
from testbed.report.page import Block, Findings, Line, Plot, Sheet
from testbed.report.palette import canvas, horizontal_grid, legend_below, styled

SOURCE = "mFabric, D.4 (Figure 25)"
MODELS, BATCHES = ("mixtral-8x7b", "mixtral-8x22b"), (32, 64)
PREDICTED = (FAT_TREE, MFABRIC, TOPOOPT)
OVER_TOPOOPT = {32: 1.8, 64: 2.0}
"""Gains of mFabric with 8x7B that the paper prints, means over the rates."""


def _points(setup: StepSetup) -> list[StepPoint]:
    """Return the training steps of Figure 25."""
    return [
        StepPoint(model, fabric, rate_bps, micro_batch=batch)
        for model in MODELS
        for batch in BATCHES
        for rate_bps in setup.rates_bps
        for fabric in PREDICTED
    ]


def _section(setup: StepSetup, found: Iterations) -> Section:
    """Return iteration times with micro-batches of 32 and 64 sequences."""
    table = pd.DataFrame(
        [
            {
                "model": point.model, "micro_batch": point.micro_batch, "rate_gbps": point.rate_bps / 1e9,
                "fabric": point.fabric, "iteration_s": as_simulated_s(point, found),
            }
            for point in _points(setup)
        ]
    )  # fmt: skip
    plot = Plot("batches", partial(_plot, table), f"Paper, figure 25 ({FIGURE_ONLY}). {CAPTION}")
    return step_section(
        "batches", "iteration times with larger micro-batches", setup, table,
        Findings([_sheet(table)], [plot], _claims(table)), micro_batches=list(BATCHES),
    )  # fmt: skip


def _claims(table: pd.DataFrame) -> list[Claim]:
    over_topoopt = {
        key: over(rows, TOPOOPT, MFABRIC) for key, rows in table.groupby(["model", "micro_batch"], sort=False)
    }
    least = min(ratios.min() for ratios in over_topoopt.values())
    text = "faster than TopoOpt with every model, batch and rate"
    means = [
        predicted(
            f"8x7B, b = {batch}: {gain}x over TopoOpt on average", SOURCE, around(gain),
            of_all_rates(over_topoopt["mixtral-8x7b", batch]),
            "time and bytes grow alike with b here: what a GPU computes per second is one number",
        )
        for batch, gain in OVER_TOPOOPT.items()
    ]  # fmt: skip
    return [predicted(text, SOURCE, MORE, least), *means]


def _sheet(table: pd.DataFrame) -> Sheet:
    rates = list(dict.fromkeys(table["rate_gbps"]))
    blocks = []
    for (model, batch), rows in table.groupby(["model", "micro_batch"], sort=False):
        times = rows.pivot_table(index="fabric", columns="rate_gbps", values="iteration_s", sort=False)
        lines = [
            Line([str(name), *(f"{times.loc[name, rate]:.1f}" for rate in rates)]) for name in times.index
        ]
        for above, below in ((MFABRIC, FAT_TREE), (TOPOOPT, MFABRIC)):
            ratios = over(rows, above, below)
            cells = [f"{above} / {below}", *(f"{ratio:.3f}" for ratio in ratios)]
            lines.append(Line(cells, look="bound"))
        blocks.append(Block(lines, f"{model}, b = {batch}"))
    return Sheet(
        ("iteration [s]",),
        [f"{rate:g} Gbit/s" for rate in rates],
        blocks,
        "Figure 25: micro-batches of b sequences, 1,024 GPUs. In this model work and bytes are proportional "
        "to b, so the ratios are those of b = 8 but for the wait for circuits, which does not grow (that of "
        "forwards, about). The paper's become more communication-intensive: its GPUs are profiled at each b.",
    )


@styled
def _plot(table: pd.DataFrame) -> Figure:
    figure = canvas(8.5, 5.4, "Iteration time with micro-batches of b sequences (SYNTHETIC gates)")
    panels = figure.subplots(len(MODELS), len(BATCHES)).ravel()
    groups = table.groupby(["model", "micro_batch"], sort=False)
    for axes, ((model, batch), rows) in zip(panels, groups, strict=True):
        for name, here in rows.groupby("fabric", sort=False):
            axes.plot(
                here["rate_gbps"], here["iteration_s"], color=COLOURS[str(name)], label=name, marker="o",
                markersize=3,
            )  # fmt: skip
        rates = list(dict.fromkeys(rows["rate_gbps"]))
        axes.set(title=f"{model}, b = {batch}", xlabel="NIC [Gbit/s]", ylabel="iteration [s]", xscale="log")
        axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        horizontal_grid(axes)
    legend_below(figure)
    return figure


CAPTION = "Our predictions; fat-tree stands for rail-optimised too."
STUDY = StepStudy(lambda setup: with_waits(_points(setup)), _section)
