"""Spectra's figures 6 to 10, over the table of `scenarios._spectra.ocs_sweep`."""

from collections.abc import Sequence
from functools import partial
from itertools import product

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from scenarios._spectra.ocs_sweep import FLOWS_DELAY, LARGE_NOISE, PLUS_SWITCHES
from testbed.report.ocs_plots import NAMES
from testbed.report.page import Plot
from testbed.report.palette import BOUND, CIRCUIT_COLOURS, canvas, horizontal_grid, legend_below, styled


def sweep_plots(table: pd.DataFrame) -> list[Plot]:
    """Return Spectra's figures 6 to 10: points are means over the seeds, bars one standard deviation."""
    main = ["less", "eclipse", "spectra", "spectra_plus", "bound"]
    four = table[table["switches"] == PLUS_SWITCHES]
    ai = {
        name: four[(four["workload"] == name) & (four["noise"] == noise)]
        for name, noise in (("gpt", 0.003), ("moe", 0.0))
    }
    bench = table[(table["workload"] == "benchmark") & table["flows"].eq(16)]
    by_size = {
        f"{size} switch{'es' if size > 1 else ''}": bench[bench["switches"] == size]
        for size in sorted(bench["switches"].unique())
    }
    equalized = ["not_equalized", "spectra", "bound"]
    return [
        Plot("fig6_ai_workloads", partial(_lines, "Makespan of AI workloads on 4 switches", ai, main), AI),
        Plot(
            "fig7_equalization",
            partial(_lines, "What equalization brings, on 4 switches", ai, equalized),
            EQUAL,
        ),
        Plot("fig8_noise", partial(_noise, four), NOISE),
        Plot(
            "fig9_benchmark", partial(_lines, "Makespan of the benchmark workload", by_size, main), BENCHMARK
        ),
        Plot("fig10_flows", partial(_flows, table), FLOWS),
    ]


MEANS = "Means over the seeds, bars are one standard deviation."
SPREAD = f"{MEANS} No schedule gets under the red line."
AI = f"Spectra, figure 6: how long the schedules take, by the delay. {SPREAD}"
EQUAL = f"Spectra, figure 7: the same schedules before and after switches were made equally busy. {SPREAD}"
NOISE = f"Spectra, figure 8: what noise on the demand changes. {MEANS}"
BENCHMARK = f"Spectra, figure 9: 4 large and 12 small flows per port. {SPREAD}"
FLOWS = f"Spectra, figure 10: a quarter of the flows carry 70 % of the demand. {SPREAD}"


@styled
def _lines(title: str, panels: dict[str, pd.DataFrame], schemes: Sequence[str]) -> Figure:
    """Return a panel for each part of the table, two side by side."""
    down = -(-len(panels) // 2)
    figure = canvas(7.2, 2.4 * down + 0.8, title)
    every = figure.subplots(down, 2).ravel()
    for axes, (name, rows) in zip(every, panels.items(), strict=True):
        for scheme in schemes:
            _line(axes, rows, "delay", scheme)
        _by_delay(axes, name)
    legend_below(figure)
    return figure


def _by_delay(axes: Axes, title: str) -> None:
    axes.set(title=title, ylim=(0, None), xlabel="reconfiguration delay [line time]")
    axes.set_ylabel("makespan [line time]")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    horizontal_grid(axes)


def _line(
    axes: Axes, rows: pd.DataFrame, x: str, scheme: str, label: str = "", style: str = "-", alpha: float = 1
) -> None:
    mine = rows[rows["scheme"] == ("spectra" if scheme == "bound" else scheme)]
    if mine.empty:
        return
    column = "bound" if scheme == "bound" else "makespan"
    spread = mine.groupby(x)[column].agg(["mean", "std"])
    colour = BOUND if scheme == "bound" else CIRCUIT_COLOURS[scheme]
    label = label or ("lower bound" if scheme == "bound" else NAMES.get(scheme, scheme))
    axes.errorbar(
        spread.index, spread["mean"], spread["std"].fillna(0), color=colour, label=label, linestyle=style,
        alpha=alpha, marker="" if scheme == "bound" else "o", markersize=3, capsize=2, elinewidth=0.8,
        zorder=1 if scheme == "bound" else 2,
    )  # fmt: skip


NOISES = ((0.003, "--", 0.45), (LARGE_NOISE, "-", 1.0))
"""What is compared, each with its line and how pale that is."""


@styled
def _noise(four: pd.DataFrame) -> Figure:
    figure = canvas(7.2, 3.2, f"Noise of 0.3 % (pale) and of {LARGE_NOISE * 100:g} %, 4 switches")
    for axes, workload in zip(figure.subplots(1, 2), ("gpt", "moe"), strict=True):
        rows = four[four["workload"] == workload]
        for scheme, (noise, style, alpha) in product(("eclipse", "spectra"), NOISES):
            label = f"{scheme}, {100 * noise:g} %"
            _line(axes, rows[rows["noise"] == noise], "delay", scheme, label, style, alpha)
        _by_delay(axes, workload)
    legend_below(figure)
    return figure


@styled
def _flows(table: pd.DataFrame) -> Figure:
    figure = canvas(4.8, 3.4, f"Flows per port, delay {FLOWS_DELAY:g}, 4 switches")
    axes = figure.subplots()
    rows = table[(table["workload"] == "benchmark") & (table["switches"] == PLUS_SWITCHES)]
    rows = rows[rows["delay"] == FLOWS_DELAY]
    for scheme in ("less", "eclipse", "spectra", "bound"):
        _line(axes, rows, "flows", scheme)
    axes.set(xlabel="flows per port", ylabel="makespan [line time]", ylim=(0, None))
    horizontal_grid(axes)
    legend_below(figure)
    return figure
