"""The plots of parallel OCSes: what was lit when, and prediction against measurement."""

from collections.abc import Sequence
from itertools import groupby

import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from controller.circuits.status import LogEntry
from testbed.report.means import BIG_SWITCH, Point, circuit_points, scheme_labels, transports_of
from testbed.report.palette import BOUND, INK, VOID_HATCH, canvas, horizontal_grid, over, styled
from testbed.report.table import significant, time_unit
from testbed.run.light_log import LightLog
from testbed.run.outcome import Outcome
from topologies.errors import ScenarioError

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
RED, PALE_RED = 6, 7
LIT = [to_hex(colormaps["tab20"](index)) for index in range(20) if index not in (RED, PALE_RED)]
DARK = "#111111"
SHOWN = 1.8
"""A plot ends at so many times its shortest time, or nothing could be read beside a rotor's."""


@styled
def timelines(results: Sequence[Outcome], table: pd.DataFrame) -> Figure:
    """Return which permutation every OCS showed when: a panel per execution, a row per OCS, dark in black.

    Parameters
    ----------
    results
        All on one fabric. Equal colours in a panel are equal permutations, up to as many as `LIT` has.
    table
        The summary, which decides the unit; times are real.
    """
    lights = [light_of(result) for result in results]
    heights = [len(light.logs) for light in lights]
    transports = (result.experiment.transport_name for result in results)
    title = over("What was lit when: a colour per permutation, dark is black", transports)
    figure = canvas(8.5, 0.8 + 0.27 * sum(heights) + 0.6 * len(results), title)
    panels = figure.subplots(len(results), squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    unit, scale = time_unit(table)
    times = [light.cct_s / scale for light in lights]
    end = _end(times)
    for axes, result, time in zip(panels, results, times, strict=True):
        _timeline(axes, result, unit, scale)
        if time > end:
            axes.annotate("goes on", (1, 0.5), xycoords="axes fraction", va="center", rotation=90, fontsize=7)
    panels[-1].set_xlim(-0.02 * end, 1.03 * end)
    panels[-1].set_xlabel(f"time since the first night, at real scale [{unit}]")
    return figure


def _timeline(axes: Axes, result: Outcome, unit: str, scale: float) -> None:
    light, experiment = light_of(result), result.experiment
    real = experiment.dilation.real_s(1.0) / scale
    colours: dict[tuple[tuple[int, int], ...], str] = {}
    end_s = experiment.dilation.emulated_s(light.cct_s) + light.start_s
    for row, log in enumerate(light.logs.values()):
        for start_s, until_s, entry in _blocks(log, end_s):
            place = ((start_s - light.start_s) * real, (until_s - start_s) * real)
            lit = entry and colours.setdefault(entry.circuits, LIT[len(colours) % len(LIT)])
            axes.broken_barh([place], (row - 0.38, 0.76), facecolors=lit or DARK, linewidth=0)
    predicted, measured = result.predicted_s / scale, light.cct_s / scale
    axes.axvline(predicted, color=BOUND, linewidth=1.2, linestyle="--")
    axes.axvline(measured, color=INK, linewidth=1.2)
    axes.set_yticks(range(len(light.logs)), list(light.logs))
    axes.invert_yaxis()
    word = result.verdict.word
    axes.set_title(
        f"{_name(experiment.scheme_name)}: predicted {significant(predicted)} {unit} (dashed), "
        f"measured {significant(measured)} {unit} (line)" + ("" if word == "faithful" else f", {word}")
    )


def light_of(outcome: Outcome) -> LightLog:
    """Return what circuits did; ScenarioError where there were none."""
    if outcome.light is None:
        raise ScenarioError(f"{outcome.experiment.scheme_name} was not carried by circuits")
    return outcome.light


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
    """Return predicted and measured CCT per scheme: a panel per number of OCSes, the bound in red.

    Parameters
    ----------
    table
        The summary.
    """
    panels = [list(rows) for _, rows in groupby(circuit_points(table), lambda point: point.workload)]
    unit, scale = time_unit(table)
    figure = canvas(
        max(6.5, sum(0.45 * len(rows) + 0.9 for rows in panels)),
        3.4,
        over("Predicted (pale) and measured CCT", transports_of(table)),
    )
    widths = [len(rows) for rows in panels]
    every = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0]
    for axes, rows in zip(every, panels, strict=True):
        _bars(axes, rows, scale)
        axes.set(title=rows[0].workload, ylabel=f"CCT at real scale [{unit}]")
    return figure


def _bars(axes: Axes, rows: Sequence[Point], scale: float) -> None:
    # The big switch is left out: where delays are long, nothing could be read beside it.
    end = _end([point["cct_s"].value / scale for point in rows if point.scheme != BIG_SWITCH])
    for x, point in enumerate(rows):
        colour, measured = COLOURS.get(point.scheme.partition(",")[0], INK), point["cct_s"].value / scale
        axes.bar(x - 0.2, point["predicted_s"].value / scale, 0.38, color=colour, alpha=0.45)
        bar = axes.bar(x + 0.2, measured, 0.38, color=colour).patches[0]
        if point.void:
            bar.set(facecolor="white", edgecolor=colour, hatch=VOID_HATCH)
        said = [f"{point['over_predicted'].value:.2f}"]
        said += [point.word] if point.word != "faithful" else []
        said += [f"({significant(measured)})"] if measured > end else []
        at = (x + (0.0 if measured > end else 0.1), min(measured, end))
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6}
        axes.annotate(
            "\n".join(said), at, (0, 3), textcoords="offset points", ha="center", fontsize=7, bbox=box
        )
    axes.axhline(rows[0]["bound_s"].value / scale, color=BOUND, linewidth=1.4)
    axes.set_xticks(
        range(len(rows)), [_name(label) for label in scheme_labels(rows)], rotation=30, ha="right"
    )
    axes.set_ylim(0, 1.25 * end)
    horizontal_grid(axes)


def _end(times: Sequence[float]) -> float:
    """Return where a plot of some times ends."""
    return min(max(times), SHOWN * min(times))


def _name(scheme: str) -> str:
    scheduler, comma, meeting = scheme.partition(",")
    return NAMES.get(scheduler, scheduler) + comma + meeting
