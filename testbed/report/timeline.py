"""A run of a job as a picture, the emulated one above the predicted one."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.report.palette import BOUND, INK, canvas, over, styled
from testbed.run.runner import Run

COMPUTE, COLLECTIVE, LIT, DARK = "#9a9a9a", "#0072b2", "#e69f00", "#2b2b2b"
ROW_HEIGHT = 0.7


@styled
def timeline(runs: Mapping[str, Run], transport: str) -> Figure:
    """Return runs of one job below each other: their nodes and OCSes over time, faults as red lines.

    Parameters
    ----------
    runs
        By what they are called: emulated, predicted.
    transport
        Over which.
    """
    rows = max(len(_spans(run)) + len(_ocses(run)) for run in runs.values())
    title = over("A job over time: compute grey, bytes blue", [transport])
    figure = canvas(8.0, (0.3 * rows + 0.6) * len(runs) + 0.6, title)
    panels = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, run) in zip(panels, runs.items(), strict=True):
        _draw(axes, run)
        axes.set_title(f"{name}: {run.iteration_s * 1e3:.4g} ms")
    panels[-1].set_xlabel("time since the start, at real scale [ms]; circuits lit yellow, dark black")
    return figure


def _spans(run: Run) -> pd.DataFrame:
    spans = run.tasks.groupby("node").agg(start_s=("start_s", "min"), end_s=("end_s", "max"))
    return spans.sort_values(["end_s", "start_s"])


def _ocses(run: Run) -> list[str]:
    return sorted(set(run.events.loc[run.events["what"] == "drained", "which"]))


def _draw(axes: Axes, run: Run) -> None:
    spans, ocses = _spans(run), _ocses(run)
    computed = set(run.tasks.loc[run.tasks["gpu"] >= 0, "node"])
    for row, node in enumerate(spans.index):
        start_s, end_s = spans.loc[node, ["start_s", "end_s"]]
        _bar(axes, row, start_s, end_s, COMPUTE if node in computed else COLLECTIVE)
    for row, ocs in enumerate(ocses, start=len(spans)):
        _draw_ocs(axes, row, ocs, run)
    for at_s in run.events.loc[run.events["what"] == "failed", "at_s"]:
        axes.axvline(at_s * 1e3, color=BOUND, linewidth=1.2)
    labels = [*spans.index, *ocses]
    axes.set_yticks(range(len(labels)), labels, parse_math=False)  # a name may hold a dollar
    axes.invert_yaxis()


def _draw_ocs(axes: Axes, row: int, ocs: str, run: Run) -> None:
    """Draw when an OCS was dark or lit; before its first reconfiguration it shows nothing."""
    mine = run.events[run.events["which"].str.split(" ").str[0] == ocs]
    ends_s = [*mine["at_s"].iloc[1:], run.iteration_s]
    for at_s, what, which, end_s in zip(mine["at_s"], mine["what"], mine["which"], ends_s, strict=True):
        _bar(axes, row, at_s, end_s, DARK if what == "drained" else LIT)
        if what == "lit":
            axes.annotate(
                which.partition(" ")[2],
                (at_s * 1e3, row),
                (2, 0),
                textcoords="offset points",
                va="center",
                fontsize=6,
                color=INK,
            )


def _bar(axes: Axes, row: int, start_s: float, end_s: float, colour: str) -> None:
    place = (start_s * 1e3, (end_s - start_s) * 1e3)
    axes.broken_barh([place], (row - ROW_HEIGHT / 2, ROW_HEIGHT), facecolors=colour, linewidth=0)
