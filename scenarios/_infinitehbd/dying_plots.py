"""A TP group's ring, drawn before and after each fault."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from scenarios._infinitehbd.dying_ring import Stage, foreseen_of, stages_of
from testbed.report.palette import BOUND, INK, canvas, styled
from testbed.run.experiment import Experiment
from topologies.fabric import Fabric
from topologies.light import Circuit, light_rings

RING, NEW, SPARE = "#0072b2", "#e69f00", "#bbbbbb"
PANEL = 3.2
"""Width of a panel [inches]."""
NODE_RADIUS = 0.2
"""Of a node's GPUs about its place; nodes stand on a circle of radius 1."""
Lit = Mapping[str, tuple[Circuit, ...]]


@styled
def drawn_rings(experiment: Experiment) -> Figure:
    """Return the rings of an experiment of `dying_ring`, a panel before and one after each fault."""
    stages, foreseen = stages_of(experiment), foreseen_of(experiment)
    figure = canvas(PANEL * len(stages), PANEL + 0.4, f"{experiment.name}: rings of light")
    panels = figure.subplots(1, len(stages), squeeze=False)[0]
    per_node = len(experiment.faults[0].gpus)
    places = gpu_places(experiment.fabric, per_node)
    lit, dead = dict(foreseen.first), list[int]()
    for number, (axes, stage) in enumerate(zip(panels, stages, strict=True)):
        if number:
            lit |= dict(foreseen.changes[number - 1].circuits)
            dead.append(experiment.faults[number - 1].gpus[0] // per_node)
        _draw(axes, experiment.fabric, lit, stage, stages[number - 1] if number else stage, places)
        for node in dead:
            centre = places[node * per_node : (node + 1) * per_node].mean(axis=0)
            axes.plot(*centre, marker="x", markersize=22, markeredgewidth=2, color=BOUND)
        for node in range(len(places) // per_node):
            centre = 1.42 * places[node * per_node : (node + 1) * per_node].mean(axis=0)
            axes.text(*centre, str(node), ha="center", va="center", color=INK)
        after = f"after {experiment.faults[number - 1].name}" if number else "at first"
        axes.set_title(f"{after}: {len(stage.gpus)} GPUs")
        axes.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), aspect="equal")
        axes.set_axis_off()
    return figure


def gpu_places(fabric: Fabric, per_node: int) -> NDArray[np.float64]:
    """Return where each GPU is drawn, shape (GPUs, 2): nodes on a circle, clockwise from the top."""
    gpu = np.arange(len(fabric.servers))
    node = np.pi / 2 - 2 * np.pi * (gpu // per_node) / (len(gpu) // per_node)
    inside = np.pi / 2 - 2 * np.pi * (gpu % per_node) / per_node
    near = np.stack([np.cos(inside), np.sin(inside)], axis=1) * NODE_RADIUS
    return np.stack([np.cos(node), np.sin(node)], axis=1) + near


def _draw(
    axes: Axes,
    fabric: Fabric,
    lit: Lit,
    stage: Stage,
    before: Stage,
    places: NDArray[np.float64],
) -> None:
    """Draw the rings of light, the TP group's above those of spare nodes."""
    for gpus in light_rings(fabric, lit):
        ring = Stage((), gpus, ())
        for edge in ring.edges:
            colour = RING if edge in before.edges else NEW
            if ring.edges != stage.edges:
                colour = SPARE
            axes.plot(*places[sorted(edge)].T, color=colour, linewidth=1.0 if colour == SPARE else 1.8)
    axes.plot(*places.T, linestyle="", marker="o", markersize=3.5, color=INK)
