"""The ruler of dilation: a rate, bytes, a time and a delay, real and emulated."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from testbed.experiment.dilation import Dilation
from testbed.report.palette import BOUND, INK, fixed_canvas, styled
from testbed.trust.similitude import ROCE_HEADER_BYTES, ROCE_PAYLOAD_BYTES
from traffic.packets import DEFAULT_MTU

REAL, EMULATED = "#0072b2", "#e69f00"
DECADES = 8
"""Of every ruler, so that arrows of one length are factors of one size."""


@dataclass(frozen=True)
class Ruler:
    """A quantity at both scales."""

    name: str
    unit: str
    first: int
    """The decade at its left end."""
    real: float
    emulated: float
    note: str
    """Where the factor comes from."""


def rulers(dilation: Dilation) -> list[Ruler]:
    """Return a ruler for each kind of quantity: a message crosses a NIC's link of 100 Gbit/s."""
    rate_bps, message_bytes, delay_s = 100e9, 4e6, 1.5e-6
    time_s = 8 * message_bytes / rate_bps
    return [
        Ruler("rate of a NIC", "bit/s", 5, rate_bps, rate_bps * dilation.rate, "rate"),
        Ruler("a message", "B", 2, message_bytes, message_bytes * dilation.volume, "volume"),
        Ruler("its time on the link", "s", -5, time_s, dilation.emulated_s(time_s), "volume / rate"),
        Ruler("delay of a link", "s", -7, delay_s, dilation.emulated_s(delay_s), "volume / rate"),
        Ruler(
            "a full packet", "B", 0, ROCE_PAYLOAD_BYTES + ROCE_HEADER_BYTES, DEFAULT_MTU, "not scaled: --mtu"
        ),
    ]


@styled
def dilation_ruler(dilation: Dilation) -> Figure:
    """Return the rulers under each other, a decade as long on each."""
    every = rulers(dilation)
    figure = fixed_canvas(7.2, 0.78 * len(every) + 0.75, "What stands for what: real and emulated")
    axes = figure.add_axes((0.19, 0.1, 0.62, 0.84))
    for line, ruler in enumerate(every):
        _draw(axes, ruler, -line)
    axes.set(xlim=(-0.1, DECADES + 0.1), ylim=(0.6 - len(every), 0.55))
    axes.set_axis_off()
    figure.text(0.19, 0.035, "\u25cf real", color=REAL, fontsize=9)
    figure.text(0.28, 0.035, "\u25cf emulated", color=EMULATED, fontsize=9)
    figure.text(0.42, 0.035, "A decade is as long on every ruler; time = volume / rate.", color=INK)
    return figure


def quantity(value: float, unit: str) -> str:
    """Return a quantity with its prefix.

    Examples
    --------
    >>> quantity(28e6, "bit/s"), quantity(0.00032, "s")
    ('28 Mbit/s', '320 µs')
    """
    return EngFormatter(unit=unit)(float(f"{value:.3g}"))


def _draw(axes: Axes, ruler: Ruler, y: float) -> None:
    real, emulated = (float(np.log10(v)) - ruler.first for v in (ruler.real, ruler.emulated))
    axes.plot([0, DECADES], [y, y], color=INK, linewidth=0.8)
    for decade in range(DECADES + 1):
        axes.plot([decade, decade], [y, y - 0.08], color=INK, linewidth=0.8)
        axes.text(
            decade,
            y - 0.12,
            quantity(10.0 ** (ruler.first + decade), ruler.unit),
            ha="center",
            va="top",
            fontsize=6.5,
            color="#777777",
        )
    arrow = {"arrowstyle": "-|>", "color": BOUND, "shrinkA": 4, "shrinkB": 4, "linewidth": 1.4}
    axes.annotate("", (emulated, y), (real, y), arrowprops=arrow)
    for at, value, colour in ((real, ruler.real, REAL), (emulated, ruler.emulated, EMULATED)):
        (dot,) = axes.plot(at, y, "o", color=colour, markersize=6, zorder=3)
        dot.set_gid(f"{ruler.name}|{'real' if colour == REAL else 'emulated'}")
        left = (at < real) if colour == EMULATED else at < emulated
        beside = -0.06 if left else 0.06
        text = quantity(value, ruler.unit)
        axes.text(at + beside, y + 0.13, text, ha="right" if left else "left", color=colour, fontsize=8.5)
    factor = ruler.emulated / ruler.real
    axes.text(-0.25, y, ruler.name, ha="right", va="center", fontsize=9, color=INK)
    axes.text(DECADES + 0.6, y + 0.1, f"x {factor:.3g}", ha="left", va="center", color=BOUND)
    axes.text(DECADES + 0.6, y - 0.13, ruler.note, ha="left", va="center", fontsize=7, color="#777777")
