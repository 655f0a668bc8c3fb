"""The plots of an application's run: what hosts sent, links and queues over time, bytes between hosts, light.

What is over time is an image: a row per link, or per several that are beside each other, and a column per
stretch of time. So a fabric of a thousand links takes as long to draw as one of ten, and can be read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from testbed.apps.app_record import AppRecord
from testbed.apps.phases import TrafficPhase, demand_of
from testbed.report.activity import shares
from testbed.report.app_sheets import bytes_text
from testbed.report.heat_maps import UNITS as BYTES
from testbed.report.palette import BOUND, HEAT, INK, NO_CELL, canvas, horizontal_grid, styled
from testbed.report.palette import shown as brief
from testbed.report.timeline import DARK, IDLE, LIGHT
from topologies.fabric import Fabric, Port

MOST_ROWS = 32
"""Rows of a panel; where there are more links, a row is the busiest of several beside each other."""
BINS = 600
"""Columns of a panel over time, at most."""
WIDTH, ROW, LEAST_PANEL, SCALE = 9.0, 0.16, 0.5, 2.5
"""Sizes [inches]: of a plot, of a row, of a panel at least, of a scale of colour at most."""
RATES = (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0))
PHASE = "#dce9f5"
DROPS = "#c0262d"
TIME = "time since the processes began [s]"
MOST_KEYS, LONGEST_CIRCUITS = 7, 60
"""Sets of circuits that a key names, and characters of one."""
MOST_NAMES = 24
"""Names of hosts at an axis, at most."""
Grid = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LinkGroup:
    """Links that belong together."""

    title: str
    ports: Sequence[Port]
    """The ports that send."""


def link_groups(fabric: Fabric) -> list[LinkGroup]:
    """Return all ports that send, in groups: NICs, switches to NICs, switches to switches."""
    groups: dict[str, list[Port]] = {"NICs send": [], "NICs receive": [], "switches to switches": []}
    for port in sorted(fabric.link_at, key=lambda port: _order(fabric, port)):
        to_nic = fabric.peer(port).node in fabric.server_index
        kind = "NICs send" if port.node in fabric.server_index else "NICs receive"
        groups[kind if kind == "NICs send" or to_nic else "switches to switches"].append(port)
    return [LinkGroup(title, ports) for title, ports in groups.items() if ports]


def _order(fabric: Fabric, port: Port) -> tuple[int, int, int]:
    """Return where a port stands: by its NIC where its link has one, else by its switch."""
    ends = [port, fabric.peer(port)]
    nic = next((end for end in ends if end.node in fabric.server_index), None)
    end = nic or port
    index = fabric.server_index.get(end.node, fabric.switch_index.get(end.node, 0))
    return int(nic is None), index, end.number


@styled
def sent_plot(record: AppRecord, phases: Sequence[TrafficPhase]) -> Figure:
    """Return the rate of all hosts together over time, emulated, with phases and faults."""
    figure = canvas(WIDTH, 2.6, "What hosts sent")
    axes = figure.subplots()
    traffic, end_s = record.tables.traffic, _end_s(record)
    bins = int(min(BINS, max(end_s / record.tap.bin_s, 1)))
    columns = {"IP packets": ("wire_bytes", "#b9b9b9"), "payload, first sent": ("payload_bytes", "#0072b2")}
    sums, row = traffic.groupby("at_s", as_index=False).sum(), np.zeros(traffic["at_s"].nunique(), dtype=int)
    times = _Times(end_s, bins, record.tap.bin_s)
    rates = {
        label: 8 * times.grid(1, row, sums["at_s"], sums[name], spread=True)[0] / (end_s / bins)
        for label, (name, _) in columns.items()
    }
    edges = np.linspace(0, end_s, bins + 1)
    unit, scale = _unit(max(float(each.max()) for each in rates.values()), RATES)
    for label, bps in rates.items():
        axes.stairs(bps / scale, edges, fill=True, color=columns[label][1], label=label)
    for phase in phases:
        axes.axvspan(phase.start_s, phase.end_s, color=PHASE, zorder=0, linewidth=0)
    _mark_events(axes, record)
    axes.set(xlim=(0, end_s), xlabel=TIME, ylabel=f"emulated rate [{unit}]")
    horizontal_grid(axes)
    figure.legend(loc="outside upper right", ncols=2)
    return figure


@styled
def links_plot(record: AppRecord) -> Figure:
    """Return the rate of every link over time, as a share of its emulated rate."""
    fabric = record.fabric
    groups = link_groups(fabric)
    rows = [[*_grouped(group.ports)] for group in groups]
    figure, panels = _panels(rows, "Rates of links")
    rate_bps = {str(port): link.rate_bps * record.rate_factor for port, link in fabric.link_at.items()}
    for axes, group, names in zip(panels, groups, rows, strict=True):
        sent = _over_time(record, "bytes", group.ports, spread=True)
        full = np.array([rate_bps[str(port)] for port in group.ports])[:, None]
        share = 8 * sent / (_end_s(record) / sent.shape[1]) / full
        image = _draw(axes, record, _merged(share, group.ports), names, group.title, 0.0, 1.0)
        _mark_events(axes, record)
    panels[-1].set_xlabel(TIME)
    _scale(figure, image, panels, "share of the link's rate")
    return figure


@styled
def queues_plot(record: AppRecord) -> Figure:
    """Return the bytes in switches' queues over time, and where packets were dropped."""
    fabric, links = record.fabric, record.tables.links
    most = links.groupby("port")[["backlog_bytes", "drops"]].max()
    used = set(most.index[(most > 0).any(axis=1)])
    groups = [
        LinkGroup(group.title.replace("NICs receive", "to NICs"), ports)
        for group in link_groups(fabric)
        if (ports := [port for port in group.ports if str(port) in used])
    ]
    rows = [[*_grouped(group.ports)] for group in groups]
    figure, panels = _panels(rows, "Queues of switches: what waits (colour), and drops (red)")
    unit, scale = _unit(float(most["backlog_bytes"].max()), BYTES)
    for axes, group, names in zip(panels, groups, rows, strict=True):
        waiting = _merged(_over_time(record, "backlog_bytes", group.ports, spread=False), group.ports)
        top = max(float(most["backlog_bytes"].max()) / scale, 1e-9)
        image = _draw(axes, record, waiting / scale, names, group.title, 0.0, top)
        drops = _merged(_over_time(record, "drops", group.ports, spread=False), group.ports)
        row, column = np.nonzero(drops)
        at_s = (column + 0.5) * _end_s(record) / drops.shape[1]
        axes.scatter(at_s, row + 0.5, s=5, color=DROPS, marker="s", linewidths=0)
        _mark_events(axes, record)
    panels[-1].set_xlabel(TIME)
    _scale(figure, image, panels, f"waiting [{unit}]")
    return figure


@styled
def demand_plot(record: AppRecord) -> Figure:
    """Return bytes between hosts: what the application was to send, if that is known, and what it sent."""
    payload, wire = demand_of(record.tables.traffic, len(record.fabric.servers))
    maps = {"payload, first sent": payload, "IP packets": wire}
    if record.demand is not None:
        maps = {"demand": record.demand, **maps}
    used = np.flatnonzero(sum(each.sum(axis=0) + each.sum(axis=1) for each in maps.values()))
    names = [record.fabric.servers[index].name for index in used]
    figure = canvas(WIDTH, 3.6 if len(maps) == 2 else 3.1, "Bytes between hosts")
    most = max(int(each.max()) for each in maps.values())
    unit, scale = _unit(most, BYTES)
    every = figure.subplots(1, len(maps), squeeze=False)[0]
    for axes, (title, matrix) in zip(every, maps.items(), strict=True):
        shown = matrix[np.ix_(used, used)] / scale
        shown = np.ma.masked_where(np.eye(len(used), dtype=bool), shown)
        image = axes.imshow(shown, HEAT, vmin=0, vmax=most / scale or 1.0, interpolation="nearest")
        axes.set_facecolor(NO_CELL)
        axes.set(title=f"{title}: {bytes_text(int(matrix.sum()))}", xlabel="to")
        _name_hosts(axes, names)
    every[0].set_ylabel("from")
    figure.colorbar(image, ax=every, label=f"[{unit}]", shrink=0.8)
    return figure


@styled
def light_plot(record: AppRecord) -> Figure:
    """Return the circuits of each OCS over time: a colour for each set of them, black while dark."""
    light, end_s = record.tables.light, _end_s(record)
    ocses = list(dict.fromkeys(light["ocs"]))
    shown = [text for text in dict.fromkeys(light["circuits"]) if text]
    colour = {"": 0} | {text: 1 + number % len(LIGHT) for number, text in enumerate(shown)}
    place = light["ocs"].map({name: row for row, name in enumerate(ocses)}).to_numpy(np.int64)
    number = light["circuits"].map(colour).to_numpy(np.int64)
    covered = shares(light, place, number, (len(ocses), 1 + len(LIGHT), BINS), end_s)
    shades = np.array([to_rgb(each) for each in (DARK, *LIGHT, IDLE)])
    most = np.where(covered.sum(axis=1) > 0, covered.argmax(axis=1), len(LIGHT) + 1)
    figure = canvas(
        WIDTH,
        1.3 + max(ROW * min(len(ocses), MOST_ROWS), 0.3) + 0.1 * min(len(shown), MOST_KEYS),
        "Circuits of OCSes",
    )
    axes = figure.subplots()
    axes.imshow(shades[most], extent=(0, end_s, len(ocses), 0), aspect="auto", interpolation="nearest")
    step = -(-len(ocses) // MOST_ROWS)
    axes.set_yticks([row + 0.5 for row in range(0, len(ocses), step)], ocses[::step])
    axes.set(xlim=(0, end_s), xlabel=TIME)
    _mark_events(axes, record)
    key = [
        Patch(color=to_hex(tuple(shades[colour[text]])), label=brief(text or "dark", LONGEST_CIRCUITS))
        for text in [*shown[:MOST_KEYS], *[""] * bool((light["circuits"] == "").any())]
    ]
    key += [Patch(color=IDLE, label="nothing lit")] if (most > len(LIGHT)).any() else []
    left = len(shown) - MOST_KEYS
    key += [Patch(facecolor="none", label=f"{left} more, colours again")] if left > 0 else []
    figure.legend(handles=key, loc="outside lower left", ncols=2)
    return figure


def _end_s(record: AppRecord) -> float:
    """Return where plots over time end [s]: a run may have ended as it began."""
    return max(record.duration_s, record.tap.bin_s)


def _panels(rows: Sequence[Sequence[str]], title: str) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each group of rows."""
    heights = [max(ROW * len(names), LEAST_PANEL) for names in rows]
    figure = canvas(WIDTH, 0.9 + sum(heights) + 0.35 * len(rows), title)
    every = figure.subplots(len(rows), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    return figure, list(every)


@dataclass(frozen=True)
class _Times:
    """Stretches of equal length that a plot shows of a run."""

    end_s: float
    bins: int
    tick_s: float
    """How long what is shown lasts that begins at a time [s]."""

    def grid(
        self, rows: int, row: NDArray[np.integer], at_s: pd.Series, values: pd.Series, *, spread: bool
    ) -> Grid:
        """Return values by row and stretch of time.

        What is spread lies in its tick evenly, so that it is divided where stretches and ticks do not meet;
        else a stretch has the most of the ticks that it meets.
        """
        width = self.end_s / self.bins
        start, value = at_s.to_numpy() / width, values.to_numpy(float)
        end, grid = start + self.tick_s / width, np.zeros((rows, self.bins))
        for offset in range(int(np.ceil(self.tick_s / width)) + 1):
            at = np.floor(start).astype(int) + offset
            within = (np.minimum(end, at + 1) - np.maximum(start, at)) / (end - start)
            good = (at >= 0) & (at < self.bins) & (within > 1e-6)
            if spread:
                np.add.at(grid, (row[good], at[good]), value[good] * within[good])
            else:
                np.maximum.at(grid, (row[good], at[good]), value[good])
        return grid


def _over_time(record: AppRecord, column: str, ports: Sequence[Port], *, spread: bool) -> Grid:
    """Return a column of links by port and stretch of time, as of `_Times.grid`."""
    places = {str(port): row for row, port in enumerate(ports)}
    mine = record.tables.links[record.tables.links["port"].isin(places)]
    bins = int(min(BINS, max(_end_s(record) / record.tick_s, 1)))
    row = mine["port"].map(places).to_numpy(np.int64)
    times = _Times(_end_s(record), bins, record.tick_s)
    return times.grid(len(ports), row, mine["at_s"], mine[column], spread=spread)


def _size(count: int) -> int:
    return -(-count // MOST_ROWS)


def _grouped(ports: Sequence[Port]) -> list[str]:
    """Return the name of each row: of a port, or of the first of several."""
    size = _size(len(ports))
    return [f"{ports[first]}{' ..' if size > 1 else ''}" for first in range(0, len(ports), size)]


def _merged(grid: Grid, ports: Sequence[Port]) -> Grid:
    """Return the rows as they are shown, each the most of its ports."""
    return np.maximum.reduceat(grid, range(0, len(ports), _size(len(ports))), axis=0)


def _draw(
    axes: Axes, record: AppRecord, grid: Grid, names: Sequence[str], title: str, least: float, most: float
) -> ScalarMappable:
    """Draw rows over time, and return the image."""
    extent = 0.0, _end_s(record), float(len(names)), 0.0
    image = axes.imshow(
        grid, HEAT, extent=extent, aspect="auto", vmin=least, vmax=most, interpolation="nearest"
    )
    axes.set_yticks(np.arange(len(names)) + 0.5, names, fontsize=7)
    axes.tick_params(axis="y", length=0)
    axes.set_title(title)
    return image


def _scale(figure: Figure, image: ScalarMappable, panels: Sequence[Axes], label: str) -> None:
    """Draw the scale of colour beside panels."""
    figure.colorbar(image, ax=panels, label=label, shrink=min(1.0, SCALE / figure.get_figheight()))


def _mark_events(axes: Axes, record: AppRecord) -> None:
    """Draw a line where something failed (whole) or was mended or ordered (dashed)."""
    for event in record.events:
        if event.what != "missed":
            style = "-" if event.what == "failed" else "--"
            axes.axvline(event.at_s, color=BOUND, linewidth=1.0, linestyle=style)


def _name_hosts(axes: Axes, names: Sequence[str]) -> None:
    step = max(-(-len(names) // MOST_NAMES), 1)
    places = range(0, len(names), step)
    axes.set_xticks(places, names[::step], rotation=90, fontsize=7, color=INK)
    axes.set_yticks(places, names[::step], fontsize=7, color=INK)
    axes.tick_params(length=0)


def _unit(most: float, units: Sequence[tuple[str, float]]) -> tuple[str, float]:
    return next(((name, size) for name, size in units if most >= size), units[-1])
