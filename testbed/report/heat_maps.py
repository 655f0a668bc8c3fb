"""The plots of a run's loads: bytes per NIC and per uplink, a map per scheme, all on one scale of colour.

The maps of a line are images side by side on one pair of axes, at a place fixed in inches. A pair of axes
for each map, placed by matplotlib's constrained layout, took four times as long to draw.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from testbed.experiment.experiment import Experiment
from testbed.report.means import in_order
from testbed.report.palette import HEAT, INK, NO_CELL, fixed_canvas, named, over, styled
from testbed.report.table import number
from testbed.trust.outcome import LEFT_OUT, Outcome
from traffic.metrics import load_mse, nic_received_bytes, nic_sent_bytes, uplink_bytes

UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("bytes", 1.0))
MAP = 0.94
"""Width of a map; maps are 1 apart."""
APART, HEIGHT = 1.5, 1.85
"""How far apart maps are, and how high [inches]."""
LEFT, RIGHT, ABOVE, BELOW = 0.45, 0.75, 0.42, 0.05
"""What is free around a line of maps, for what is written there [inches]."""
SCALE_AT, SCALE_WIDTH = 0.1, 0.1
"""How far right of the maps the scale of colour stands, and how wide it is [inches]."""
TITLE, LABELS = 0.22, 0.38
"""What is free above all lines for the figure's title, and under them for labels [inches]."""
Loads = NDArray[np.float64]


def one_per_scheme(outcomes: Sequence[Outcome], workload: str, *, faults: bool = False) -> list[Outcome]:
    """Return an outcome of each scheme that ran a workload: the first seed's that is not left out, if any is.

    A scheme with faults is one of its own if that is asked for.
    """
    chosen: dict[str, Outcome] = {}
    for outcome in sorted(outcomes, key=lambda outcome: outcome.verdict.word in LEFT_OUT):
        if outcome.experiment.job.name == workload:
            experiment = outcome.experiment
            chosen.setdefault(experiment.name if faults else _name(experiment), outcome)
    return [chosen[scheme] for scheme in in_order(chosen)]


def _name(experiment: Experiment) -> str:
    """Return what a map is called: without what fails."""
    return experiment.name_without_faults


@styled
def nic_heat_map(outcomes: Sequence[Outcome], workload: str) -> Figure:
    """Return what each NIC of each server sent (above) and received (below), a column per scheme."""
    shown = one_per_scheme(outcomes, workload)
    figure, (above, below) = _lines(shown, "bytes per NIC", 2)
    for axes, what, bytes_of in ((above, "sent", nic_sent_bytes), (below, "received", nic_received_bytes)):
        loads = [bytes_of(outcome.link_bytes, outcome.experiment.fabric) for outcome in shown]
        _draw_maps(axes, shown, loads, f"{what} per NIC")
        _write_titles(axes, shown, [f"MSE {number(load_mse(load), '{:.3f}')}" for load in loads])
        axes.set_ylabel("server")
    _label_columns(below, loads, "NIC")
    return figure


@styled
def uplink_heat_map(outcomes: Sequence[Outcome], workload: str) -> Figure:
    """Return what each leaf sent to each spine, a map per scheme; hot cells are where flows collide."""
    shown = [each for each in one_per_scheme(outcomes, workload) if has_uplinks([each])]
    tables = [uplink_bytes(outcome.link_bytes, outcome.experiment.fabric) for outcome in shown]
    loads = [table.to_numpy(dtype=float) for table in tables]
    figure, (axes,) = _lines(shown, "bytes from leaf to spine", 1)
    _draw_maps(axes, shown, loads, "per uplink")
    _write_titles(axes, shown, [_busiest(load) for load in loads])
    axes.set_ylabel("leaf")
    _label_columns(axes, loads, "spine")
    return figure


def has_uplinks(outcomes: Sequence[Outcome]) -> bool:
    """Return whether a fabric of the outcomes has leaves that are joined to spines."""
    return any(switch.tier == 1 for outcome in outcomes for switch in outcome.experiment.fabric.switches)


def _lines(shown: Sequence[Outcome], what: str, count: int) -> tuple[Figure, list[Axes]]:
    """Return a figure, and axes for so many lines of maps, a map per outcome."""
    across, down = APART * max(len(shown), 3), ABOVE + HEIGHT + BELOW  # the title takes the width of three
    width, height = LEFT + across + RIGHT, TITLE + count * down + LABELS
    job = shown[0].experiment.job
    transports = (outcome.experiment.transport_name for outcome in shown)
    figure = fixed_canvas(width, height, over(f"{named(job.name, job.note)}: {what}", transports))
    size = APART * len(shown) / width, HEIGHT / height
    bottoms = [LABELS + BELOW + line * down for line in reversed(range(count))]
    return figure, [figure.add_axes((LEFT / width, bottom / height, *size)) for bottom in bottoms]


def _draw_maps(axes: Axes, shown: Sequence[Outcome], loads: Sequence[Loads], what: str) -> None:
    """Draw loads side by side, void ones crossed out, and beside them the scale, which starts at 0."""
    most = max((float(np.nanmax(load)) for load in loads if load.size), default=0.0)
    unit, scale = next(((name, size) for name, size in UNITS if most >= size), UNITS[-1])
    heat, shades = colormaps[HEAT].with_extremes(bad=NO_CELL), Normalize(0.0, most / scale or 1.0)
    for place, (outcome, load) in enumerate(zip(shown, loads, strict=True)):
        sides = place, place + MAP, len(load) - 0.5, -0.5
        axes.imshow(load / scale, heat, shades, interpolation="nearest", extent=sides)
        if outcome.verdict.word in LEFT_OUT:
            cross = Rectangle((place, -0.5), MAP, len(load), facecolor="#ffffffb0", hatch="xx", edgecolor=INK)
            axes.add_patch(cross)
    axes.set(xlim=(0, len(loads)), ylim=(max(map(len, loads)) - 0.5, -0.5), aspect="auto")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks([])
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    width = APART * len(loads)
    bar = axes.inset_axes((1 + SCALE_AT / width, 0, SCALE_WIDTH / width, 1))
    bar.figure.colorbar(ScalarMappable(shades, heat), cax=bar, label=f"{what} [{unit}]")


def _label_columns(axes: Axes, loads: Sequence[Loads], what: str) -> None:
    """Number the columns of each map, at most six; as texts, since ticks take three times as long to draw."""
    below = axes.get_xaxis_transform()
    for place, load in enumerate(loads):
        columns = load.shape[1]
        for column in range(0, columns, -(-columns // 6)):
            at = place + MAP * (column + 0.5) / columns
            axes.text(at, -0.03, str(column), transform=below, ha="center", va="top", fontsize=8, color=INK)
    axes.set_xlabel(what, labelpad=14)


def _write_titles(axes: Axes, shown: Sequence[Outcome], numbers: Sequence[str]) -> None:
    """Write above each map whose it is, and a number."""
    above = axes.get_xaxis_transform()
    for place, (outcome, said) in enumerate(zip(shown, numbers, strict=True)):
        word = outcome.verdict.word
        mark = f" ({word})" if word in (*LEFT_OUT, "model") else ""
        text = f"{_name(outcome.experiment)}{mark}\n{said}"
        axes.text(place, 1.03, text, transform=above, va="bottom")


def _busiest(load: Loads) -> str:
    used = load[load > 0]
    return f"busiest {used.max() / np.nanmean(load):.1f}x mean" if len(used) else "not used"
