"""The plots of parallel OCSes: what was lit when, plan against measurement, and the paper's figures."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from controller.status import LogEntry
from testbed.ocs_executor import Execution
from testbed.ocs_sweep import FLOWS_DELAY, LARGE_NOISE, PLUS_SWITCHES
from testbed.palette import BOUND, INK, canvas, horizontal_grid, styled

COLOURS = {
    "spectra": "#0072b2",
    "spectra_plus": "#56b4e9",
    "eclipse": "#009e73",
    "less": "#e69f00",
    "bvn": "#cc79a7",
    "solstice": "#b8a800",
    "rotor": "#999999",
    "not_equalized": "#d55e00",
    "big switch": "#2b2b2b",
}
NAMES = {"less": "LESS", "spectra_plus": "spectra+", "not_equalized": "spectra, not equalized", "bvn": "BvN"}
LIT = (
    "#56b4e9",
    "#e69f00",
    "#009e73",
    "#f0e442",
    "#cc79a7",
    "#0072b2",
    "#d55e00",
    "#999999",
    "#8dd3c7",
    "#bebada",
)
DARK = "#111111"


@styled
def timelines(executions: Sequence[Execution]) -> Figure:
    """Return which permutation every OCS showed when: a panel per execution, a row per OCS, dark in black.

    Equal colours in a panel are equal permutations; times are emulated seconds since the first night.
    """
    rows = sum(len(execution.logs) for execution in executions)
    figure = canvas(
        8.5,
        0.8 + 0.3 * rows + 0.55 * len(executions),
        "What was lit when: a colour per permutation, dark is black",
    )
    heights = [len(execution.logs) for execution in executions]
    panels = figure.subplots(len(executions), squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for axes, execution in zip(panels, executions, strict=True):
        _timeline(axes, execution)
    longest_s = max(execution.cct_s * execution.experiment.dilation.time for execution in executions)
    panels[-1].set_xlim(-0.02 * longest_s, 1.05 * longest_s)
    panels[-1].set_xlabel("emulated time since the first night [s]")
    return figure


def _timeline(axes: Axes, execution: Execution) -> None:
    time = execution.experiment.dilation.time
    colours: dict[tuple[tuple[int, int], ...], str] = {}
    for row, (_, log) in enumerate(execution.logs.items()):
        for start_s, end_s, entry in _blocks(log, execution.cct_s * time + execution.start_s):
            if entry is None:
                colour = DARK
            else:
                colour = colours.setdefault(entry.circuits, LIT[len(colours) % len(LIT)])
            axes.broken_barh(
                [(start_s - execution.start_s, end_s - start_s)],
                (row - 0.38, 0.76),
                facecolors=colour,
                linewidth=0,
            )
    planned_s = execution.experiment.schedule.makespan * time
    axes.axvline(planned_s, color=BOUND, linewidth=1.2, linestyle="--")
    axes.axvline(execution.cct_s * time, color=INK, linewidth=1.2)
    axes.set_yticks(range(len(execution.logs)), list(execution.logs))
    axes.invert_yaxis()
    scheduler = execution.experiment.scheduler
    name = NAMES.get(scheduler, scheduler)
    axes.set_title(
        f"{name}: planned {planned_s:.3f} s (dashed), measured {execution.cct_s * time:.3f} s (line)"
    )


def _blocks(log: Sequence[LogEntry], end_s: float) -> list[tuple[float, float, LogEntry | None]]:
    """Return the intervals of a log, up to a time: lit with an entry's circuits, or dark (None)."""
    blocks: list[tuple[float, float, LogEntry | None]] = []
    for index, entry in enumerate(log):
        following = log[index + 1] if index + 1 < len(log) else None
        dark_s = entry.dark_s if entry.dark_s is not None else entry.command_s
        if entry.lit_s is None:
            continue
        until_s = following.dark_s if following and following.dark_s is not None else end_s
        blocks += [(dark_s, entry.lit_s, None), (entry.lit_s, max(until_s, entry.lit_s), entry)]
    return blocks


@styled
def plan_against_measurement(table: pd.DataFrame) -> Figure:
    """Return planned makespan and measured CCT per scheduler: a panel per number of OCSes, the bound in red.

    Parameters
    ----------
    table
        A row per execution: ocses, scheduler, planned_s, cct_s, bound_s (emulated seconds).
    """
    sizes = sorted(table["ocses"].unique())
    figure = canvas(
        4.2 * len(sizes) + 0.6,
        3.4,
        "Planned makespan (pale), and measured CCT with its ratio to it; the lower bound in red",
    )
    for axes, size in zip(figure.subplots(1, len(sizes), squeeze=False)[0], sizes, strict=True):
        mine = table[table["ocses"] == size].groupby("scheduler", sort=False).mean(numeric_only=True)
        at = np.arange(len(mine))
        colours = [COLOURS.get(str(name), INK) for name in mine.index]
        axes.bar(at - 0.2, mine["planned_s"], 0.38, color=colours, alpha=0.45)
        axes.bar(at + 0.2, mine["cct_s"], 0.38, color=colours)
        for x, row in zip(at, mine.itertuples(), strict=True):
            axes.text(
                x + 0.2, row.cct_s, f"{row.cct_s / row.planned_s:.2f}", ha="center", va="bottom", fontsize=7
            )
        axes.axhline(mine["bound_s"].iloc[0], color=BOUND, linewidth=1.4)
        axes.set_xticks(at, [NAMES.get(str(name), str(name)) for name in mine.index], rotation=30, ha="right")
        axes.set_title(f"{size} OCSes")
        axes.set_ylabel("emulated time [s]")
        horizontal_grid(axes)
    return figure


def sweep_figures(table: pd.DataFrame) -> dict[str, Figure]:
    """Return Spectra's figures 6 to 10 over the table of `testbed.ocs_sweep`, by name.

    Points are means over the seeds, bars one standard deviation.
    """
    main = ["less", "eclipse", "spectra", "spectra_plus", "bound"]
    four = table[table["switches"] == PLUS_SWITCHES]
    gpt, moe = (
        four[(four["workload"] == name) & (four["noise"] == n)] for name, n in (("gpt", 0.003), ("moe", 0.0))
    )
    bench = table[(table["workload"] == "benchmark") & table["flows"].eq(16)]
    title = "Makespan of AI workloads on 4 switches"
    return {
        "fig6_ai_workloads": _lines(title, {"gpt": gpt, "moe": moe}, main),
        "fig7_equalization": _lines(
            "What equalization brings", {"gpt": gpt, "moe": moe}, ["not_equalized", "spectra", "bound"]
        ),
        "fig8_noise": _noise(four),
        "fig9_benchmark": _lines(
            "Makespan of the benchmark workload",
            {
                f"{s} switch{'es' if s > 1 else ''}": bench[bench["switches"] == s]
                for s in sorted(bench["switches"].unique())
            },
            main,
        ),
        "fig10_flows": _flows(table),
    }


@styled
def _lines(title: str, panels: dict[str, pd.DataFrame], schemes: Sequence[str]) -> Figure:
    figure = canvas(3.1 * len(panels) + 0.8, 3.2, title)
    for axes, (name, rows) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for scheme in schemes:
            _line(axes, rows, "delay", scheme)
        axes.set(title=name, xlabel="reconfiguration delay [line time]", ylim=(0, None))
        horizontal_grid(axes)
    figure.axes[0].set_ylabel("makespan [line time]")
    _legend(figure)
    return figure


def _line(
    axes: Axes, rows: pd.DataFrame, x: str, scheme: str, label: str = "", style: str = "-", alpha: float = 1
) -> None:
    mine = rows[rows["scheme"] == ("spectra" if scheme == "bound" else scheme)]
    if mine.empty:
        return
    column = "bound" if scheme == "bound" else "makespan"
    spread = mine.groupby(x)[column].agg(["mean", "std"])
    colour = BOUND if scheme == "bound" else COLOURS[scheme]
    label = label or ("lower bound" if scheme == "bound" else NAMES.get(scheme, scheme))
    axes.errorbar(
        spread.index, spread["mean"], spread["std"].fillna(0), color=colour, label=label, linestyle=style,
        alpha=alpha, marker="" if scheme == "bound" else "o", markersize=3, capsize=2, elinewidth=0.8,
        zorder=1 if scheme == "bound" else 2,
    )  # fmt: skip


@styled
def _noise(four: pd.DataFrame) -> Figure:
    figure = canvas(7.2, 3.2, f"Noise of 0.3 % (pale) and of {LARGE_NOISE * 100:g} %, 4 switches")
    for axes, workload in zip(figure.subplots(1, 2), ("gpt", "moe"), strict=True):
        rows = four[four["workload"] == workload]
        for scheme in ("eclipse", "spectra"):
            _line(axes, rows[rows["noise"] == 0.003], "delay", scheme, f"{scheme}, 0.3 %", "--", 0.45)
            _line(
                axes,
                rows[rows["noise"] == LARGE_NOISE],
                "delay",
                scheme,
                f"{scheme}, {LARGE_NOISE * 100:g} %",
            )
        axes.set(title=workload, xlabel="reconfiguration delay [line time]")
        horizontal_grid(axes)
    figure.axes[0].set_ylabel("makespan [line time]")
    _legend(figure)
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
    _legend(figure)
    return figure


def _legend(figure: Figure) -> None:
    drawn: dict[str, Artist] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        drawn |= dict(zip(labels, handles, strict=True))
    figure.legend(list(drawn.values()), list(drawn), loc="outside lower left", ncols=len(drawn))
