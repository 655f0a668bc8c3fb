"""A TP group's ring, drawn before and after each fault: nodes in a line, as in the paper's figure 2."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from scenarios._infinitehbd.ring.dying import RingStage, foreseen_of, stages_of
from testbed.experiment.experiment import Experiment
from testbed.report.palette import BOUND, INK, canvas, styled
from topologies.fabric import Fabric
from topologies.light import Configuration, light_rings

RING, NEW, SPARE = "#0072b2", "#e69f00", "#bbbbbb"
RADIUS = 0.26
"""Of a node's GPUs about its place; neighbours are 1 apart, which is an inch."""
BEND = 0.35
"""How far a lane bends away from the nodes that it passes, for each place between its ends."""
MARGIN, TITLE = 0.15, 0.3
"""Around what is drawn, and above each panel [inches]."""
LEAST_WIDTH = 5.0
"""Of a figure, for its title [inches]."""
Points = NDArray[np.float64]


@styled
def drawn_rings(experiment: Experiment) -> Figure:
    """Return the rings of an experiment of `dying_ring`, a panel at first and after each fault."""
    stages, foreseen = stages_of(experiment), foreseen_of(experiment)
    per_node = len(experiment.faults[0].gpus)
    places = gpu_places(len(experiment.fabric.servers), per_node, stages)
    drawn = np.concatenate([places, *(lane(places, *edge) for stage in stages for edge in stage.edges)])
    (left, low), (right, high) = drawn.min(axis=0) - MARGIN, drawn.max(axis=0) + MARGIN
    height = len(stages) * (high - low + TITLE) + TITLE
    figure = canvas(max(right - left, LEAST_WIDTH), height, f"{experiment.name}: rings of light")
    panels = figure.subplots(len(stages), 1, squeeze=False)[:, 0]
    lit = dict(foreseen.first)
    for number, (axes, stage) in enumerate(zip(panels, stages, strict=True)):
        if number:
            lit |= dict(foreseen.changes[number - 1].circuits)
        dead = {fault.gpus[0] // per_node for fault in experiment.faults[:number]}
        _draw_nodes(axes, places, per_node, dead)
        _draw_lanes(axes, experiment.fabric, lit, stage, stages[max(number - 1, 0)], places)
        after = f"after {experiment.faults[number - 1].name}" if number else "at first"
        axes.set_title(f"{after}: {len(stage.gpus)} GPUs")
        axes.set(xlim=(left, right), ylim=(low, high), aspect="equal", anchor="W")
        axes.set_axis_off()
    return figure


def gpu_places(gpus: int, per_node: int, stages: Sequence[RingStage]) -> Points:
    """Return where each GPU is drawn, shape (GPUs, 2): about its node, GPU 1 below and 0 to its left.

    So the bundle towards lower nodes, of GPUs 0 and 1, is on the left, and that of GPUs 1 and 2 on the
    right. The line of nodes begins where no ring has to go from its one end to its other, if it can.
    """
    gpu, nodes = np.arange(gpus), gpus // per_node
    pairs = np.array([sorted(edge) for stage in stages for edge in stage.edges]) // per_node
    spans = [np.abs(np.diff((pairs - first) % nodes)).max() for first in range(nodes)]
    node = (gpu // per_node - int(np.argmin(spans))) % nodes
    angle = 2 * np.pi * (gpu % per_node - 1) / per_node - np.pi / 2
    return np.stack([node + RADIUS * np.cos(angle), RADIUS * np.sin(angle)], axis=1)


def lane(places: Points, a: int, b: int) -> Points:
    """Return the points of a lane between two GPUs: straight inside a node and to the next, else around."""
    (near_x, near_y), (far_x, far_y) = sorted((tuple(places[a]), tuple(places[b])))
    passed = round(far_x - near_x) - 1
    if passed < 1:
        return places[[a, b]]
    side = 1.0 if max(near_y, far_y) > RADIUS / 2 else -1.0
    away = side * (RADIUS + BEND * passed)
    along = np.linspace(0, 1, 40)[:, None]
    x = near_x + (far_x - near_x) * (3 - 2 * along) * along**2  # leaves and arrives upright
    y = (1 - along) ** 3 * near_y + 3 * along * (1 - along) * away + along**3 * far_y
    return np.hstack([x, y])


def _draw_nodes(axes: Axes, places: Points, per_node: int, dead: set[int]) -> None:
    """Draw GPUs as dots about the number of their node, which is crossed out if it is dead."""
    axes.plot(*places.T, linestyle="", marker="o", markersize=4, color=INK, zorder=3)
    for node, (x, y) in enumerate(places.reshape(-1, per_node, 2).mean(axis=1)):
        axes.text(x, y, str(node), ha="center", va="center_baseline", color=INK, zorder=3)
        if node in dead:
            axes.plot(x, y, marker="x", markersize=30, markeredgewidth=2, color=BOUND)


def _draw_lanes(
    axes: Axes, fabric: Fabric, lit: Configuration, stage: RingStage, before: RingStage, places: Points
) -> None:
    """Draw the rings of light: the TP group's, and the loopbacks of spare nodes."""
    for gpus in light_rings(fabric, lit):
        ring = RingStage((), gpus)
        is_spare = ring.edges != stage.edges
        for edge in ring.edges:
            colour = SPARE if is_spare else RING if edge in before.edges else NEW
            axes.plot(*lane(places, *edge).T, color=colour, linewidth=1.0 if is_spare else 1.8)
