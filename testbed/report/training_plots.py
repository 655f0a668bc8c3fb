"""The plots of training: what the all-to-alls of an iteration take in each phase, and the iteration."""

import re
from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from testbed.report.means import Mean, Point, points, transports_of
from testbed.report.palette import Shades, canvas, horizontal_grid, legend, over, styled
from testbed.report.plots import HEADROOM, beside, draw, draw_bound, schemes_of
from testbed.report.table import time_unit

PHASED = re.compile(r"(?P<model>mixtral (?:dense|sparse)) (?P<phase>start|early|mid|stable)")
"""Name of a workload that is a phase of training: ``mixtral dense start``."""
PANELS = {"cct_s": "all-to-alls of an iteration", "iteration_s": "iteration, compute included"}


def phased(table: pd.DataFrame) -> list[str]:
    """Return what was trained in phases: the workloads' names without their phases."""
    names = (PHASED.fullmatch(str(workload)) for workload in dict.fromkeys(table["workload"]))
    return list(dict.fromkeys(name["model"] for name in names if name))


@styled
def phase_bars(table: pd.DataFrame, shades: Shades, model: str) -> Figure:
    """Return CCT (left) and iteration time (right) by phase: a group of bars each, and the lower bound.

    Parameters
    ----------
    table, shades
        From `testbed.trust.outcome.summary`, and the colours of all schemes of its run.
    model
        One of `phased`.
    """
    rows = [point for point in points(table) if _is_of(point, model)]
    phases = list(dict.fromkeys(point.workload for point in rows))
    unit, scale = time_unit(table)
    title = f"{model} (synthetic): time by phase of training, lower is better"
    figure = canvas(9.0, 3.4, over(title, transports_of(table)))
    for axes, (column, what) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
        for group, phase in enumerate(phases):
            mine = [point for point in rows if point.workload == phase]
            for bar in beside(mine, rows, group, shades):
                mean = bar.point[column]
                draw(axes, bar, Mean(mean.value / scale, mean.spread / scale, mean.void))
                bound_s = bar.point["bound_s"].value + _compute_s(mine) * (column == "iteration_s")
                draw_bound(axes, bar, bound_s / scale)
        axes.set_xticks(range(len(phases)), [phase.removeprefix(model).strip() for phase in phases])
        axes.set(title=what, ylabel=f"time [{unit}]")
        axes.set_ymargin(HEADROOM)
        horizontal_grid(axes)
    words = [point.word for point in rows]
    legend(figure, schemes_of(rows), shades, bound="at the lower bound", words=words)
    return figure


def _is_of(point: Point, model: str) -> bool:
    name = PHASED.fullmatch(point.workload)
    return name is not None and name["model"] == model


def _compute_s(mine: Sequence[Point]) -> float:
    return mine[0]["iteration_s"].value - mine[0]["cct_s"].value
