"""Drawings of a job on TopoOpt: who sends to whom, its circuits, how long paths are, how loaded circuits."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import cos, pi, sin

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from testbed.report.palette import HEAT, INK, NO_CELL, canvas, colours, horizontal_grid, styled

MB = 1e6
SQUARE = 2.6
"""A panel [inches]."""
ROUND_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6f4e9c", "#8c564b")
"""Of circuits by how far they reach."""


@styled
def demand_maps(demands: Mapping[str, ArrayLike]) -> Figure:
    """Return who sends to whom: a map of servers per job, its rings and its other transfers together."""
    figure = canvas(0.6 + SQUARE * len(demands), SQUARE + 0.9, "Bytes from server to server in one iteration")
    for axes, (name, demand) in zip(_panels(figure, len(demands)), demands.items(), strict=True):
        matrix = np.asarray(demand, dtype=float) / MB
        shown = np.ma.masked_less_equal(matrix, 0)
        image = axes.imshow(shown, cmap=HEAT, interpolation="nearest", vmin=0)
        axes.set_facecolor(NO_CELL)
        axes.set(title=name, xlabel="to server", ylabel="from server")
        figure.colorbar(image, ax=axes, shrink=0.6, label="MB")
    return figure


@styled
def circuit_drawings(plans: Mapping[str, tuple[int, Sequence[tuple[int, int]]]]) -> Figure:
    """Return circuits between servers on a circle, by name: how many servers, and which are joined."""
    figure = canvas(0.4 + SQUARE * len(plans), SQUARE + 0.8, "Circuits")
    for axes, (name, (servers, pairs)) in zip(_panels(figure, len(plans)), plans.items(), strict=True):
        _draw_circuits(axes, servers, pairs)
        axes.set_title(name)
    return figure


def _draw_circuits(axes: Axes, servers: int, pairs: Sequence[tuple[int, int]]) -> None:
    at = [(sin(2 * pi * s / servers), cos(2 * pi * s / servers)) for s in range(servers)]
    reaches = sorted({_reach(pair, servers) for pair in pairs})
    colour = {reach: ROUND_COLOURS[i % len(ROUND_COLOURS)] for i, reach in enumerate(reaches)}
    for pair, parallel in Counter(tuple(sorted(pair)) for pair in pairs).items():
        (xa, ya), (xb, yb) = at[pair[0]], at[pair[1]]
        axes.plot(
            [xa, xb],
            [ya, yb],
            color=colour[_reach(pair, servers)],
            linewidth=0.5 + 0.5 * parallel,
            alpha=0.8,
            zorder=1,
        )
    size = max(12.0, 160.0 / max(servers / 12, 1))
    across, up = zip(*at, strict=True)
    axes.scatter(across, up, s=size, color="white", edgecolors=INK, linewidths=0.7, zorder=2)
    if servers <= 16:
        for s, (x, y) in enumerate(at):
            axes.text(x, y, str(s), ha="center", va="center", fontsize=6.5, zorder=3)
    if len(reaches) <= len(ROUND_COLOURS):
        for reach in reaches:
            axes.plot([], [], color=colour[reach], label=f"+{reach}")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, -0.14), ncols=len(reaches), fontsize=7)
    axes.set_aspect("equal")
    axes.axis("off")


def _reach(pair: Sequence[int], servers: int) -> int:
    apart = (pair[1] - pair[0]) % servers
    return min(apart, servers - apart)


@styled
def distributions(curves: Mapping[str, NDArray[np.float64]], title: str, label: str) -> Figure:
    """Return the distribution of some values, a curve per name.

    Parameters
    ----------
    curves
        The values of each, at least one.
    title, label
        Of the figure, and of what is on its horizontal axis.
    """
    figure = canvas(6.6, 3.0, title)
    axes = figure.subplots()
    for name, colour in colours(curves).items():
        values = np.sort(curves[name])
        share = np.arange(1, len(values) + 1) / len(values)
        axes.step(np.concatenate([values[:1], values]), np.concatenate([[0], share]), where="post",
                  color=colour, label=name)  # fmt: skip
    axes.set(xlabel=label, ylabel="share", ylim=(0, 1.02), xlim=(0, None))
    horizontal_grid(axes)
    figure.legend(loc="outside right center")
    return figure


def _panels(figure: Figure, count: int) -> list[Axes]:
    return list(figure.subplots(1, count, squeeze=False)[0])
