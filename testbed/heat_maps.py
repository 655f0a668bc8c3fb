"""The plots of a run's loads: bytes per NIC and per uplink, a map per scheme, all on one scale of colour."""

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from testbed.means import in_order
from testbed.outcome import Outcome
from testbed.palette import HEAT, INK, NO_CELL, canvas, named, styled
from traffic.metrics import load_mse, nic_received_bytes, nic_sent_bytes, uplink_bytes

UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("bytes", 1.0))
Loads = NDArray[np.float64]


def one_per_scheme(outcomes: Sequence[Outcome], workload: str) -> list[Outcome]:
    """Return an outcome of each scheme that ran a workload: the first seed's that is not void, if any is."""
    chosen: dict[str, Outcome] = {}
    for outcome in sorted(outcomes, key=lambda outcome: outcome.verdict.word == "void"):
        if outcome.experiment.collective.name == workload:
            chosen.setdefault(outcome.experiment.policy, outcome)
    return [chosen[scheme] for scheme in in_order(chosen)]


@styled
def nic_heat_map(outcomes: Sequence[Outcome], workload: str) -> Figure:
    """Return what each NIC of each server sent (above) and received (below), a column per scheme."""
    shown = one_per_scheme(outcomes, workload)
    fabrics = [outcome.experiment.fabric for outcome in shown]
    sent = [nic_sent_bytes(outcome.best, fabric) for outcome, fabric in zip(shown, fabrics, strict=True)]
    received = [
        nic_received_bytes(outcome.best, fabric) for outcome, fabric in zip(shown, fabrics, strict=True)
    ]
    note = shown[0].experiment.collective.note
    figure = canvas(_width(len(shown)), 5.2, f"{named(workload, note)}: bytes per NIC")
    axes = figure.subplots(2, len(shown), squeeze=False, sharex=True, sharey=True)
    for line, (what, loads) in enumerate((("sent", sent), ("received", received))):
        drawn = _maps(figure, axes[line], loads, f"{what} per NIC")
        for panel, outcome, load in zip(axes[line], shown, loads, strict=True):
            _title(panel, outcome, f"MSE {load_mse(load):.3f}")
        axes[line][0].set_ylabel("server")
        _mark_void(axes[line], shown, drawn)
    for panel in axes[-1]:
        panel.set_xlabel("NIC")
    return figure


@styled
def uplink_heat_map(outcomes: Sequence[Outcome], workload: str) -> Figure:
    """Return what each leaf sent to each spine, a map per scheme; hot cells are where flows collide."""
    shown = one_per_scheme(outcomes, workload)
    tables = [uplink_bytes(outcome.best, outcome.experiment.fabric) for outcome in shown]
    note = shown[0].experiment.collective.note
    title = f"{named(workload, note)}: bytes from leaf to spine"
    figure = canvas(_width(len(shown)), 3.0, title)
    axes = figure.subplots(1, len(shown), squeeze=False, sharex=True, sharey=True)[0]
    loads = [table.to_numpy(dtype=float) for table in tables]
    drawn = _maps(figure, axes, loads, "per uplink")
    for panel, outcome, load in zip(axes, shown, loads, strict=True):
        used = load[load > 0]
        _title(
            panel, outcome, f"busiest {used.max() / np.nanmean(load):.1f}x mean" if len(used) else "not used"
        )
        panel.set_xlabel("spine")
    axes[0].set_ylabel("leaf")
    _mark_void(axes, shown, drawn)
    return figure


def has_uplinks(outcomes: Sequence[Outcome]) -> bool:
    """Return whether the fabric of the outcomes has leaves that are joined to spines."""
    return any(switch.tier == 1 for outcome in outcomes[:1] for switch in outcome.experiment.fabric.switches)


def _width(maps: int) -> float:
    return max(4.5, 1.55 * maps + 1.5)


def _maps(figure: Figure, axes: NDArray[np.object_], loads: Sequence[Loads], what: str) -> list[AxesImage]:
    """Draw loads side by side, on one scale of colour that starts at 0."""
    most = max((float(np.nanmax(load)) for load in loads if load.size), default=0.0)
    unit, scale = next(((name, size) for name, size in UNITS if most >= size), UNITS[-1])
    heat = colormaps[HEAT].with_extremes(bad=NO_CELL)
    look = {"vmin": 0.0, "vmax": most / scale or 1.0}
    drawn = [
        panel.imshow(load / scale, heat, aspect="auto", interpolation="nearest", **look)
        for panel, load in zip(axes, loads, strict=True)
    ]
    figure.colorbar(drawn[0], ax=list(axes), label=f"{what} [{unit}]", fraction=0.05, aspect=18)
    for panel in axes:
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        panel.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        panel.spines[:].set_visible(False)
        panel.tick_params(length=0)
    return drawn


def _title(panel: Axes, outcome: Outcome, number: str) -> None:
    word = outcome.verdict.word
    mark = f" ({word})" if word in ("void", "model") else ""
    panel.set_title(f"{outcome.experiment.policy}{mark}\n{number}")


def _mark_void(axes: NDArray[np.object_], shown: Sequence[Outcome], drawn: Sequence[AxesImage]) -> None:
    """Cross out the maps of void outcomes."""
    for panel, outcome, image in zip(axes, shown, drawn, strict=True):
        if outcome.verdict.word == "void":
            left, right, bottom, top = image.get_extent()
            cross = Rectangle(
                (left, bottom), right - left, top - bottom, facecolor="#ffffffb0", hatch="xx", edgecolor=INK
            )
            panel.add_patch(cross)
