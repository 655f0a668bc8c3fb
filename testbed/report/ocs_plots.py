"""The plot of parallel OCSes: prediction against measurement."""

import math
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.report.means import BIG_SWITCH, Point, circuit_points, scheme_labels, transports_of
from testbed.report.palette import (
    BOUND,
    VOID_HATCH,
    Shades,
    canvas,
    colours,
    horizontal_grid,
    over,
    styled,
)
from testbed.report.table import significant, time_unit

NAMES = {"less": "LESS", "spectra_plus": "spectra+", "not_equalized": "spectra, not equalized", "bvn": "BvN"}
SHOWN = 1.8
"""A plot ends at so many times its shortest time, or nothing could be read beside a rotor's."""


@styled
def plan_against_measurement(table: pd.DataFrame) -> Figure:
    """Return predicted and measured CCT per scheme: a panel per number of OCSes, each bar's bound in red.

    Parameters
    ----------
    table
        The summary.
    """
    panels = [list(rows) for _, rows in groupby(circuit_points(table), lambda point: point.workload)]
    shades = colours(table["name"])
    unit, scale = time_unit(table)
    figure = canvas(
        max(6.5, sum(0.45 * len(rows) + 0.9 for rows in panels)),
        3.4,
        over("Predicted (pale) and measured CCT", transports_of(table)),
    )
    widths = [len(rows) for rows in panels]
    every = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0]
    for axes, rows in zip(every, panels, strict=True):
        _bars(axes, rows, shades, scale)
        axes.set(title=rows[0].workload, ylabel=f"CCT at real scale [{unit}]")
    return figure


def _bars(axes: Axes, rows: Sequence[Point], shades: Shades, scale: float) -> None:
    # The big switch is left out: where delays are long, nothing could be read beside it.
    end = _end([point["cct_s"].value / scale for point in rows if point.name != BIG_SWITCH])
    for x, point in enumerate(rows):
        colour = shades[point.name]
        measured = np.nan_to_num(point["cct_s"].value / scale)
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
        axes.hlines(point["bound_s"].value / scale, x - 0.5, x + 0.5, color=BOUND, linewidth=1.4)
    axes.set_xticks(range(len(rows)), _labels(rows), rotation=30, ha="right")
    axes.set_ylim(0, 1.25 * end)
    horizontal_grid(axes)


def _end(times: Sequence[float]) -> float:
    """Return where a plot of some times ends; what is unsound has none."""
    known = [time for time in times if not math.isnan(time)] or [1.0]
    return min(max(known), SHOWN * min(known))


def _labels(rows: Sequence[Point]) -> list[str]:
    """Return the name of each point of a panel: its circuits, and its scheme where these have several."""
    labels = scheme_labels(rows)
    several = len({label for label, point in zip(labels, rows, strict=True) if point.circuits}) > 1
    return [
        ", ".join([_name(point.circuits), *[label] * several]) if point.circuits else label
        for label, point in zip(labels, rows, strict=True)
    ]


def _name(circuits: str) -> str:
    scheduler, comma, more = circuits.partition(",")
    return NAMES.get(scheduler, scheduler) + comma + more
