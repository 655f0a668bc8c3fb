"""From which size on a binary exchange is faster than a ring: by closed forms, as a table and a plot."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from controller.circuits.round_circuits import exchange_paths, rounds_that_wait
from scenarios._infinitehbd.exchange.all_to_all import DELAY
from testbed.report.page import Block, Line, Sheet
from testbed.report.palette import BOUND, INK, canvas, horizontal_grid, styled
from testbed.report.table import significant
from topologies.khop_ring import GPU_BPS, KHopRing
from traffic.collectives.node_all_to_all import binary_exchange_s, ring_all_to_all_s

BUNDLES = range(2, 7)
"""K: 4, 8, 16, 32 and 64 nodes."""
SIZES_MB = 0.05, 640.0
"""The least and the most from every node to every node that is drawn [MB]."""
RATIOS = 0.08, 16.0
"""Range of a ring's time over the exchange's that is drawn."""
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#6f4e9c")
"""By the number of nodes, the fewest first."""
MB = 1e6


@dataclass(frozen=True)
class Forms:
    """The closed forms of all-to-alls between 2^K nodes, without set-up times (InfiniteHBD, appendix G)."""

    bundles: int
    """K."""

    @property
    def nodes(self) -> int:
        """How many nodes, p."""
        return 1 << self.bundles

    @cached_property
    def waiting_rounds(self) -> int:
        """Rounds of the exchange that wait for circuits."""
        ring = KHopRing(self.nodes, self.bundles, self.bundles, doubling=True)
        return len(rounds_that_wait(exchange_paths(ring)))

    def slower(self, *, both_ways: bool) -> float:
        """Return the limit, for large sizes, of a ring's time over that of the exchange."""
        return self._over_link(both_ways=both_ways) / binary_exchange_s(self.nodes, 1.0, 8.0)

    def crossover_bytes(self, *, both_ways: bool) -> float:
        """Return from which size m on the exchange is faster than a ring, infinite if it never is [bytes]."""
        more = self._over_link(both_ways=both_ways) - binary_exchange_s(self.nodes, 1.0, 8.0)
        return self._dark_s * GPU_BPS / 8 / more if more > 0 else math.inf

    def ratio(self, node_bytes: float, *, both_ways: bool) -> float:
        """Return the time of a ring over that of the exchange, for a size m [bytes]."""
        ring_s = ring_all_to_all_s(self.nodes, node_bytes, GPU_BPS, both_ways=both_ways)
        return ring_s / binary_exchange_s(self.nodes, node_bytes, GPU_BPS, dark_s=self._dark_s)

    @property
    def _dark_s(self) -> float:
        return self.waiting_rounds * DELAY.mean_s

    def _over_link(self, *, both_ways: bool) -> float:
        """Return the bytes that a link of a ring carries for each byte of m."""
        return ring_all_to_all_s(self.nodes, 1.0, 8.0, both_ways=both_ways)


@dataclass(frozen=True)
class Seen:
    """A ring's time over the exchange's, as emulated."""

    nodes: int
    node_bytes: int
    """m [bytes]."""
    both_ways: bool
    ratio: float


ALL_FORMS = tuple(map(Forms, BUNDLES))


def crossover_sheet() -> Sheet:
    """Return from which sizes on the exchange is faster than a ring, a line per number of nodes."""
    lines = [
        Line(
            [
                str(forms.nodes),
                f"{forms.waiting_rounds} of {forms.bundles}",
                *(text for both_ways in (False, True) for text in _texts(forms, both_ways)),
            ]
        )
        for forms in ALL_FORMS
    ]
    return Sheet(
        ("nodes",),
        ("rounds dark", "one way [MB]", "at most", "both ways [MB]", "at most"),
        [Block(lines, "predicted crossovers")],
        "Predicted by closed forms, without set-up times: from how many MB from every node to every node on "
        f"the binary exchange, which is dark {1e6 * DELAY.mean_s:g} us before some of its rounds, is faster "
        "than a ring that goes one way round, and than one that uses both its bundles; and how many times as "
        "long these take at most, with any size. With a bundle per distance no round waits: what is slower "
        "with large sizes is so with all. More than 16 nodes need nodes of 8 GPUs.",
    )


def _texts(forms: Forms, both_ways: bool) -> tuple[str, str]:
    """Return from which size on the exchange is faster than a ring [MB], and by how many times at most."""
    size_mb = forms.crossover_bytes(both_ways=both_ways) / MB
    most = f"{forms.slower(both_ways=both_ways):.2f}"
    return "never" if math.isinf(size_mb) else significant(size_mb), most


@styled
def crossover_plot(seen: Sequence[Seen]) -> Figure:
    """Return the times of rings over the exchange's by size: lines predicted, and marks emulated."""
    figure = canvas(7.5, 4.4, "All-to-all: time of a ring over that of the binary exchange (predicted)")
    axes = figure.subplots()
    sizes = np.geomspace(*SIZES_MB, 200) * MB
    axes.axhline(1.0, color=BOUND, linewidth=1.2)
    for forms, colour in zip(ALL_FORMS, COLOURS, strict=True):
        for both_ways, style in ((False, "-"), (True, "--")):
            ratios = [forms.ratio(size, both_ways=both_ways) for size in sizes]
            axes.plot(sizes / MB, ratios, style, color=colour)
            crossover_mb = forms.crossover_bytes(both_ways=both_ways) / MB
            if math.isfinite(crossover_mb):
                axes.plot(crossover_mb, 1.0, marker="D", color=colour, markersize=6)
                _write_size(axes, crossover_mb, colour)
        for point in seen:
            if point.nodes == forms.nodes:
                mark = "s" if point.both_ways else "o"
                axes.plot(point.node_bytes / MB, point.ratio, mark, color=colour, markeredgecolor=INK)
    axes.set(xscale="log", yscale="log", xlim=SIZES_MB, ylim=RATIOS)
    axes.set(xlabel="from every node to every node [MB]", ylabel="ring / binary exchange")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_major_formatter("{x:g}")
    horizontal_grid(axes)
    figure.legend(handles=_handles(bool(seen)), loc="outside right upper")
    return figure


def _write_size(axes: Axes, size_mb: float, colour: str) -> None:
    """Write a size below its diamond, upright: neighbours are close to each other."""
    axes.annotate(
        f"{significant(size_mb)} MB",
        (size_mb, 1.0),
        (0, -8),
        textcoords="offset points",
        rotation=90,
        ha="center",
        va="top",
        fontsize=8,
        color=colour,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6},
    )


def _handles(emulated: bool) -> list[Line2D]:
    """Return the entries of the legend."""
    handles = [
        Line2D([], [], color=colour, label=f"{forms.nodes} nodes")
        for forms, colour in zip(ALL_FORMS, COLOURS, strict=True)
    ]
    handles += [
        Line2D([], [], color=INK, label="ring, one way"),
        Line2D([], [], color=INK, linestyle="--", label="ring, both ways"),
        Line2D([], [], color=INK, linestyle="", marker="D", label="crossover"),
    ]
    if emulated:
        marks = (("o", "one way"), ("s", "both ways"))
        handles += [
            Line2D([], [], color=INK, linestyle="", marker=mark, label=f"emulated, {way}")
            for mark, way in marks
        ]
    return handles
