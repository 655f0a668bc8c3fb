"""The plots of a run's times: data in, figure out, a function each (loads: `testbed.report.heat_maps`).

Void and unsound points are hatched or crossed and say so; those that nothing emulated say ``model``; the
lower bound is a red line. The bars' and dots' ``gid`` is their workload and scheme.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, StrMethodFormatter
from numpy.typing import NDArray

from testbed.report.means import BASELINE, Mean, Point, in_order, points, transports_of
from testbed.report.palette import (
    BOUND,
    INK,
    VOID_HATCH,
    Shades,
    canvas,
    horizontal_grid,
    legend,
    mark_of,
    named,
    over,
    styled,
    write_mark,
)
from testbed.report.table import time_unit
from testbed.report.transports import labelled
from testbed.trust.agreement import AGREES_FROM, AGREES_TO
from testbed.trust.outcome import LEFT_OUT, Outcome
from traffic.metrics import crossing_times_s

PERCENTILES = {"mean": "cct_mean_s", "p80": "cct_p80_s", "p95": "cct_p95_s", "p99": "cct_p99_s"}
BAND = (AGREES_FROM, AGREES_TO)
"""Emulated over predicted, where the two agree."""
GROUP = 0.8
"""Width of a group of bars; groups are 1 apart."""
HEADROOM = 0.25
"""Part of a panel that stays free over the bars, for the words that stand on them."""
GROUPS_ACROSS = 6
"""Most groups side by side: what a page's width leaves legible."""
RATIO_TICKS = (0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 2, 3, 5, 10, 20, 50)


@styled
def busbw_bars(table: pd.DataFrame, shades: Shades, baseline: str = BASELINE) -> Figure:
    """Return busbw relative to the baseline: a group of bars per workload, its limit as a line at each bar.

    Parameters
    ----------
    table, shades
        From `testbed.trust.outcome.summary`, and the colours of all schemes of its run.
    baseline
        The scheme whose busbw is 1; a workload that it did not run has no bars.
    """
    rows = points(table, baseline)
    workloads = list(dict.fromkeys(point.workload for point in rows))
    lines = -(-len(workloads) // GROUPS_ACROSS)
    across = -(-len(workloads) // lines)
    title = over(f"Bus bandwidth relative to {baseline}: higher is better", transports_of(table))
    figure = canvas(max(6.5, 1.3 * across + 1), 2.5 * lines + 0.9, title)
    for line, axes in enumerate(figure.subplots(lines, sharey=True, squeeze=False).ravel()):
        _busbw_groups(axes, rows, workloads[line * across :][:across], shades, baseline)
        axes.set_xlim(-0.5, across - 0.5)
        axes.set_ylabel(f"busbw / busbw of {baseline}")
        axes.set_ymargin(HEADROOM)
        horizontal_grid(axes)
    words = [point.word for point in rows]
    legend(figure, schemes_of(rows), shades, bound="at the lower bound", words=words)
    return figure


@styled
def cct_percentiles(outcomes: Sequence[Outcome], table: pd.DataFrame, shades: Shades) -> Figure:
    """Return mean and percentiles of the messages' completion times: a panel per workload.

    The lower bound is drawn where all of a workload is one all-to-all.
    """
    rows = points(table)
    unit, scale = time_unit(table)
    steps = {o.experiment.job.name: len(o.experiment.job.collectives) for o in outcomes}
    notes = {point.workload: point.note for point in rows}
    figure, panels = _panels(
        notes, over("Completion times of messages: lower is better", transports_of(table))
    )
    for workload, axes in panels.items():
        mine = [point for point in rows if point.workload == workload]
        for group, column in enumerate(PERCENTILES.values()):
            for bar in beside(mine, rows, group, shades):
                mean = bar.point[column]
                scaled = Mean(mean.value / scale, mean.spread / scale, mean.void)
                draw(axes, bar, scaled, say=bar.point.void or column == "cct_p99_s")
                if steps[workload] == 1:
                    draw_bound(axes, bar, bar.point["bound_s"].value / scale)
        axes.set_xticks(range(len(PERCENTILES)), list(PERCENTILES))
        axes.set_ylabel(f"time [{unit}]")
        axes.set_ymargin(HEADROOM)
        horizontal_grid(axes)
    legend(
        figure,
        schemes_of(rows),
        shades,
        bound="lower bound of the last message",
        words=[point.word for point in rows],
    )
    return figure


@styled
def cct_cdf(outcomes: Sequence[Outcome], shades: Shades) -> Figure:
    """Return what share of the messages was done when: a panel per workload, a line per scheme.

    Times are those of the messages that crossed the network, from the start of their step, over the
    step's lower bound. All seeds together; void and unsound ones only where there are no others.
    """
    notes = {o.experiment.job.name: o.experiment.job.note for o in outcomes}
    schemes = in_order(o.experiment.name for o in outcomes)
    transports = (o.experiment.transport_name for o in outcomes)
    figure, panels = _panels(notes, over("Share of the messages done: further left is better", transports))
    for workload, axes in panels.items():
        for scheme in schemes:
            _cdf(axes, workload, scheme, outcomes, shades[scheme])
        axes.axvline(1.0, color=BOUND, linewidth=1.4, zorder=1)
        axes.set(xlabel="completion time / lower bound", ylabel="share of messages", ylim=(0, 1.02))
        axes.set_xlim(left=0)
        horizontal_grid(axes)
    words = [o.verdict.word for o in outcomes]
    legend(figure, schemes, shades, bound="lower bound of the last message", words=words, kind="lines")
    return figure


@styled
def emulated_against_predicted(table: pd.DataFrame, shades: Shades) -> Figure:
    """Return emulated over predicted CCT of every emulated point, with the band in which they agree.

    Points that took no time, because nothing crossed the network, have no ratio and are left out.
    """
    emulated = table[(table["verdict"] != "model") & (table["cct_s"] > 0) & (table["predicted_s"] > 0)]
    unit, scale = time_unit(table)
    title = f"Emulated over predicted: {BAND[0]:.2f} to {BAND[1]:.2f} agree"
    figure = canvas(6.5, 3.4, over(title, transports_of(table)))
    axes = figure.subplots()
    axes.axhspan(*BAND, color="#e3eef6", zorder=0)
    axes.axhline(1.0, color=INK, linewidth=0.8)
    ratio = emulated["cct_s"] / emulated["predicted_s"]
    for (scheme, void), mine in emulated.groupby(["name", emulated["verdict"].eq("void")]):
        x, y = mine["predicted_s"] / scale, ratio[mine.index]
        dots = axes.scatter(x, y, color=shades[str(scheme)], marker="x" if void else "o", s=26)
        dots.set_gid(f"{scheme}|{'void' if void else 'sound'}")
        for at in zip(x, y, strict=True) if void else ():
            write_mark(axes, "void", at)
    if emulated.empty:
        axes.text(0.5, 0.5, "nothing was emulated that took time", transform=axes.transAxes, ha="center")
    axes.set(xscale="log", yscale="log", xlabel=f"predicted CCT [{unit}]", ylabel="emulated / predicted CCT")
    axes.set_ylim(min([0.8, *ratio * 0.95]), max([1.3, *ratio * 1.05]))
    axes.yaxis.set_major_locator(FixedLocator(RATIO_TICKS))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(StrMethodFormatter("{x:g}"))
    legend(figure, in_order(emulated["name"]), shades, words=emulated["verdict"], kind="dots")
    return figure


@styled
def cct_over_transports(table: pd.DataFrame, shades: Shades) -> Figure:
    """Return CCT over the lower bound: a panel per workload, in it a group of bars per transport."""
    rows = points(table)
    transports = transports_of(table)
    notes = {point.workload: point.note for point in rows}
    figure, panels = _panels(notes, "CCT / lower bound, by transport: lower is better")
    for workload, axes in panels.items():
        mine = [point for point in rows if point.workload == workload]
        for group, transport in enumerate(transports):
            for bar in beside([p for p in mine if p.transport == transport], rows, group, shades):
                draw(axes, bar, bar.point["over_bound"])
        axes.axhline(1.0, color=BOUND, linewidth=1.4)
        labels = [labelled(transport).replace(" (", "\n(") for transport in transports]
        axes.set_xticks(range(len(transports)), labels, rotation=30, rotation_mode="anchor", ha="right")
        axes.set_xlim(-0.5, len(transports) - 0.5)
        axes.set_ylabel("CCT / lower bound")
        axes.set_ymargin(HEADROOM)
        horizontal_grid(axes)
    legend(figure, schemes_of(rows), shades, bound="lower bound", words=[point.word for point in rows])
    return figure


@styled
def overtaken_by_packets(outcomes: Sequence[Outcome], shades: Shades) -> Figure:
    """Return what share of the packets was overtaken by so many or more: a panel per workload.

    All seeds together; void and unsound ones only where there are no others.
    """
    seen = [outcome for outcome in outcomes if has_order(outcome)]
    notes = {o.experiment.job.name: o.experiment.job.note for o in seen}
    schemes = in_order(o.experiment.name for o in seen)
    transports = (o.experiment.transport_name for o in seen)
    figure, panels = _panels(notes, over("Packets overtaken: lower is better", transports))
    for workload, axes in panels.items():
        for scheme in schemes:
            _overtaken(axes, workload, scheme, seen, shades[scheme])
        axes.set(yscale="log", xlabel="by so many packets or more", ylabel="share of packets")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        horizontal_grid(axes)
    legend(figure, schemes, shades, words=[o.verdict.word for o in seen], kind="lines")
    return figure


def has_order(outcome: Outcome) -> bool:
    """Return whether it is known how packets of an outcome overtook each other."""
    return outcome.order is not None and outcome.order.packets > 0


def times_over_bound(outcome: Outcome) -> NDArray[np.float64]:
    """Return the completion time of each message that crossed the network over its step's lower bound."""
    tables = outcome.run.tables
    bounds = np.array([outcome.node_bounds_s.get(name, 0.0) for name in tables.nodes])
    times, node = crossing_times_s(tables)
    least = bounds[node]
    return np.asarray(times[least > 0] / least[least > 0])  # none has a bound that shapers lent as a whole


def _busbw_groups(
    axes: Axes, rows: Sequence[Point], workloads: Sequence[str], shades: Shades, baseline: str
) -> None:
    """Draw a group of bars per workload, and at each what its lower bound would give."""
    labels = []
    for group, workload in enumerate(workloads):
        mine = [point for point in rows if point.workload == workload]
        for bar in beside(mine, rows, group, shades):
            draw(axes, bar, bar.point["busbw_relative"])
            draw_bound(axes, bar, bar.point["busbw_limit"].value)
        if all(np.isnan(point["busbw_limit"].value) for point in mine):
            text = "no single busbw" if mine[-1].has_no_busbw else f"{baseline} was not run"
            write_mark(axes, text, (group, 0), rotation=90)
        labels.append(named(workload, mine[-1].note).replace(" (", "\n("))
    axes.set_xticks(range(len(workloads)), labels)


def _cdf(axes: Axes, workload: str, scheme: str, outcomes: Sequence[Outcome], colour: str) -> None:
    """Draw the line of a point; a dotted one if it is void."""
    about = workload, scheme
    here = [o for o in outcomes if (o.experiment.job.name, o.experiment.name) == about]
    sound = [o for o in here if o.verdict.word not in LEFT_OUT]
    times = np.concatenate([np.empty(0), *(times_over_bound(o) for o in sound or here)])
    if not len(times):
        return
    line = axes.ecdf(times, color=colour, linestyle="-" if sound else ":")
    line.set_gid(f"{workload}|{scheme}")
    if not sound:
        write_mark(axes, f"{scheme}: {here[0].verdict.word}", (float(np.median(times)), 0.5))


def _overtaken(axes: Axes, workload: str, scheme: str, outcomes: Sequence[Outcome], colour: str) -> None:
    """Draw the line of a point, where packets were overtaken; a dotted one if it is void."""
    about = workload, scheme
    here = [o for o in outcomes if (o.experiment.job.name, o.experiment.name) == about]
    sound = [o for o in here if o.verdict.word not in LEFT_OUT]
    counts = sum((Counter(o.order.extents) for o in sound or here if o.order), Counter[int]())
    extents = np.array(sorted(counts), dtype=np.int64)
    count = np.array([counts[extent] for extent in extents.tolist()], dtype=np.int64)
    share = np.cumsum(count[::-1])[::-1] / max(count.sum(), 1)
    late = extents > 0
    if not late.any():
        return
    x, y = np.append(1, extents[late]), np.append(share[late][0], share[late])
    (line,) = axes.step(x, y, where="pre", color=colour, linestyle="-" if sound else ":", marker=".")
    line.set_gid(f"{workload}|{scheme}")
    if not sound:
        write_mark(axes, f"{scheme}: {here[0].verdict.word}", (float(x[-1]), float(y[-1])))


@dataclass(frozen=True, slots=True)
class _Bar:
    """Where the bar of a point stands, and how it looks."""

    point: Point
    at: float
    width: float
    colour: str


def beside(mine: Sequence[Point], rows: Sequence[Point], group: int, shades: Shades) -> list[_Bar]:
    """Return the bars of a group; a scheme has the same place in each."""
    schemes = schemes_of(rows)
    width = GROUP / len(schemes)
    first = group - GROUP / 2 + width / 2
    return [
        _Bar(point, first + schemes.index(point.name) * width, width, shades[point.name]) for point in mine
    ]


def draw(axes: Axes, bar: _Bar, mean: Mean, *, say: bool = True) -> None:
    """Draw a bar with its spread; it says what its verdict is unless it is faithful."""
    if np.isnan(mean.value):
        if bar.point.word == "unsound" and say:
            write_mark(axes, bar.point.verdict, (bar.at, 0), rotation=90)
        return
    patch = axes.bar(bar.at, mean.value, bar.width * 0.92, color=bar.colour).patches[0]
    if mean.void:
        patch.set(facecolor="white", edgecolor=bar.colour, hatch=VOID_HATCH)
    patch.set_gid(f"{bar.point.workload}|{bar.point.name}")
    if mean.spread:
        axes.errorbar(bar.at, mean.value, mean.spread, color=INK, linewidth=0.9, capsize=2)
    mark = "void" if mean.void else mark_of(bar.point)
    if mark and say:
        write_mark(axes, mark, (bar.at, mean.value + mean.spread), rotation=90)


def draw_bound(axes: Axes, bar: _Bar, bound: float) -> None:
    """Draw the lower bound of a bar, or what it would give, over all of its place: neighbours' join."""
    line = axes.hlines(bound, bar.at - bar.width / 2, bar.at + bar.width / 2, color=BOUND, linewidth=1.4)
    line.set_gid(f"{bar.point.workload}|{bar.point.name}|bound")


def schemes_of(rows: Iterable[Point]) -> list[str]:
    """Return the schemes of points, in the order in which they are shown."""
    return in_order(point.name for point in rows)


def _panels(notes: Mapping[str, str], title: str) -> tuple[Figure, dict[str, Axes]]:
    """Return a figure with a panel per workload, three side by side."""
    columns = 2 if len(notes) in (2, 4) else min(3, len(notes))
    lines = -(-len(notes) // columns)
    figure = canvas(max(6.5, 3.0 * columns), 2.5 * lines + 0.9, title)
    every = figure.subplots(lines, columns, squeeze=False).ravel()
    for spare in every[len(notes) :]:
        spare.set_axis_off()
    panels = dict(zip(notes, every, strict=False))
    for workload, axes in panels.items():
        axes.set_title(named(workload, notes[workload]))
    return figure, panels
