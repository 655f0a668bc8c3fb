"""What each server and OCS did when, as a picture: a column per run, the emulated above the predicted.

What a row shows is first a share of each of many bins of time, for each colour, and then pixels: so a million
messages take as long to draw as one, and nothing is drawn over anything else.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, cycle

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from testbed.core.run import Run
from testbed.report.activity import LANES, light_spans, merged, server_spans, shares, waiting_spans
from testbed.report.palette import BOUND, fixed_canvas, named, over, styled
from testbed.report.table import UNITS, significant
from testbed.trust.outcome import Outcome
from topologies.fabric import Fabric

MOST_ROWS = 32
"""Most rows of servers, and of OCSes; where there are more, a row stands for several beside each other."""
MOST_COLOURS = 8
"""Most colours of collectives; where there are more, those that differ in a number share one."""
COMPUTE, DARK, OTHERS = "#8c8c8c", "#111111", "others"
COLLECTIVES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#b8a800", "#6f4e9c", "#7f5f3f")
REDS = 6, 7
LIGHT = [
    to_hex(colormaps["tab20"](index)) for index in (*range(1, 20, 2), *range(0, 20, 2)) if index not in REDS
]
"""For permutations that are lit, in the order in which they come, over and over."""
FAULT_LINES = {"failed": "-", "detected": ":", "back": "--"}
"""How the lines look at which something fails, is known to, and is back."""
IDLE, PALE = "#f3f3f3", 0.5
"""The colour of doing nothing, and how pale bytes are that are received."""
WAITS, HATCH, STRIPE = "#9a9a9a", 8, 3
"""How waiting is hatched: the colour of the stripes, and how many bins apart and wide they are."""
SHOWN = 2.5
"""A picture ends at so many times the median of its runs, or nothing could be read beside a rotor's."""
BINS, LANE_PIXELS, GAP_PIXELS = 1600, 6, 3
"""Bins of time over the whole width, pixels of a lane, and between two rows."""
WIDTH, LEFT, RIGHT, TITLE, PANEL_TITLE, LABELS, KEY = 10.0, 0.62, 0.12, 0.22, 0.27, 0.46, 0.2
"""Sizes [inches]: of the figure, left and right of a panel, above all, above a panel, below a column, and of
a line of the key."""
ROW, HIGHEST, LEAST_LABEL = 0.17, 3.2, 0.12
"""Sizes [inches]: of a row, of a panel at most, and of a row's name at least."""
KEYS_IN_LINE, LONGEST_NAME = 4, 30
LONGEST_OF_THREE, LONGEST_OF_TWO = 20, 40
"""Characters of a name for which there is room above a panel, with so many beside each other."""
Pixels = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Column:
    """A run and its prediction, below each other."""

    name: str
    """Whose they are; may be empty."""
    fabric: Fabric
    runs: Mapping[str, Run]
    """By what they are called, the first on top."""

    @cached_property
    def spans(self) -> list[pd.DataFrame]:
        """What servers did in each run."""
        return [server_spans(run, self.fabric) for run in self.runs.values()]

    @cached_property
    def waits(self) -> list[pd.DataFrame]:
        """When servers had messages that waited in each run."""
        return [waiting_spans(run, self.fabric) for run in self.runs.values()]

    @cached_property
    def light(self) -> list[pd.DataFrame]:
        """What OCSes showed in each run."""
        return [light_spans(run, self.fabric) for run in self.runs.values()]

    @cached_property
    def ocses(self) -> list[str]:
        """The OCSes that were reconfigured in any run."""
        used = set(chain.from_iterable(light["ocs"] for light in self.light))
        return [switch.name for switch in self.fabric.switches if switch.name in used]

    @cached_property
    def rows(self) -> list[str]:
        """The name of each row: of a server or an OCS, or of the first of several."""
        servers = [server.name for server in self.fabric.servers]
        return [
            group[0] if len(group) == 1 else f"{group[0]} .."
            for names in (servers, self.ocses)
            for group in _groups(names)
        ]

    @property
    def height(self) -> float:
        """How high a panel is [inches]."""
        return min(ROW * len(self.rows), HIGHEST)


def timeline_of(outcomes: Sequence[Outcome]) -> Figure:
    """Return what servers and OCSes did when in some outcomes of one workload, a column for each."""
    experiments = [outcome.experiment for outcome in outcomes]
    schemes, transports = zip(*((each.name, each.transport_name) for each in experiments), strict=True)
    columns = [
        column_of(outcome, scheme if schemes.count(scheme) == 1 else f"{scheme} ({transport})")
        for outcome, scheme, transport in zip(outcomes, schemes, transports, strict=True)
    ]
    job = experiments[0].job
    return timeline(columns, f"{named(job.name, job.note)}: what each server did when", transports)


def column_of(outcome: Outcome, name: str) -> Column:
    """Return the column of an outcome, in which a run that is not faithful says so."""
    word = outcome.verdict.word
    emulated = "emulated" if word == "faithful" else f"emulated ({word})"
    runs = {emulated if label == "emulated" else label: run for label, run in outcome.runs.items()}
    return Column(name, outcome.experiment.fabric, runs)


@styled
def timeline(columns: Sequence[Column], title: str, transports: Sequence[str]) -> Figure:
    """Return what servers and OCSes did when, a column for each run.

    Parameters
    ----------
    columns
        At least one, three beside each other, or two where names are long: with faults, for instance, each
        beside the same without.
    title, transports
        What the figure says above, and over what all ran.
    """
    key = _Key(columns)
    is_long = any(len(column.name) > LONGEST_OF_THREE for column in columns)
    across = min(len(columns), 2 if len(columns) == 4 or is_long else 3)
    lines = [columns[first : first + across] for first in range(0, len(columns), across)]
    heights = [max(map(_height, line)) for line in lines]
    below = KEY * (-(-len(key.handles) // KEYS_IN_LINE) + 0.5)
    height = TITLE + sum(heights) + below
    figure = fixed_canvas(WIDTH, height, over(title, transports))
    end_s = _end_s(columns)
    top, width = height - TITLE, WIDTH / across
    for line, tall in zip(lines, heights, strict=True):
        for place, column in enumerate(line):
            _draw_column(figure, column, key, (place * width, top), width, end_s)
        top -= tall
    key.write(figure, (LEFT / WIDTH, 0.02 / height))
    return figure


def _height(column: Column) -> float:
    """Return how high a column is [inches]."""
    return len(column.runs) * (PANEL_TITLE + column.height) + LABELS


def _end_s(columns: Sequence[Column]) -> float:
    """Return where the picture ends [s]."""
    times_s = [run.iteration_s for column in columns for run in column.runs.values()]
    return min(max(times_s), SHOWN * float(np.median(times_s))) or 1.0


def _draw_column(
    figure: Figure, column: Column, key: "_Key", corner: tuple[float, float], width: float, end_s: float
) -> None:
    """Draw the runs of a column below each other, from its upper left corner [inches]."""
    unit, scale = next(((name, size) for name, size in UNITS if end_s >= size), UNITS[-1])
    left, top = corner
    tall, wide, total = column.height, (width - LEFT - RIGHT) / WIDTH, figure.get_figheight()
    for number, (name, run) in enumerate(column.runs.items()):
        top -= PANEL_TITLE + tall
        axes = figure.add_axes(((left + LEFT) / WIDTH, top / total, wide, tall / total))
        _draw_run(axes, column, number, key, end_s, round(wide * BINS), scale)
        whose = f"{_short(column.name, LONGEST_OF_TWO)}, {name}" if column.name else name
        more = ", goes on" if run.iteration_s > 1.0001 * end_s else ""
        axes.set_title(f"{whose}: {significant(run.iteration_s / scale)} {unit}{more}")
        _label_rows(axes, column.rows, tall)
        axes.tick_params(axis="x", labelbottom=number + 1 == len(column.runs))
    axes.set_xlabel(f"time since the start, at real scale [{unit}]")


def _label_rows(axes: Axes, labels: Sequence[str], tall: float) -> None:
    """Name as many rows as there is room for in so many inches."""
    rows = range(0, len(labels), int(-(-LEAST_LABEL * len(labels) // tall)))
    axes.set_yticks([row + 0.5 for row in rows], [labels[row] for row in rows])
    axes.tick_params(axis="y", length=0)


def _draw_run(
    axes: Axes, column: Column, number: int, key: "_Key", end_s: float, bins: int, scale: float
) -> None:
    """Draw the run of a number, of a column."""
    run, rows = [*column.runs.values()][number], len(column.rows)
    idle = np.ones((bins, 3))
    idle[: int(np.ceil(bins * min(run.iteration_s / end_s, 1.0)))] = to_rgb(IDLE)
    servers = _server_pixels(column, number, key, end_s, idle)
    ocses = _ocs_pixels(column.light[number], column.ocses, key, end_s, idle)
    pixels = np.concatenate([servers, ocses]).reshape(-1, bins, 3)
    axes.imshow(pixels, extent=(0, end_s / scale, rows, 0), aspect="auto")
    for what, style in FAULT_LINES.items():
        for at_s in run.events.loc[run.events["what"] == what, "at_s"]:
            axes.axvline(at_s / scale, color=BOUND, linewidth=1.2, linestyle=style)
    axes.set(xlim=(0, end_s / scale), ylim=(rows, 0))
    axes.spines["left"].set_visible(False)


def _groups(names: Sequence[str]) -> list[Sequence[str]]:
    """Return names as rows show them: one each, or several beside each other."""
    size = _size(len(names))
    return [names[first : first + size] for first in range(0, len(names), size)]


def _size(count: int) -> int:
    """Return how many of so many servers, or OCSes, share a row."""
    return max(-(-count // MOST_ROWS), 1)


def _server_pixels(column: Column, number: int, key: "_Key", end_s: float, idle: Pixels) -> Pixels:
    """Return the rows of servers in the run of a number as colours: row, line within it, bin, RGB."""
    spans, servers = column.spans[number], len(column.fabric.servers)
    spans = merged(spans.assign(node=key.names_of(spans)), ["server", "lane", "node"])
    lanes, names = len(key.lanes), len(key.colours)
    numbers = dict(zip(key.colours, range(names), strict=True))
    found = _lane_shares(spans, spans["node"].map(numbers), (servers, names, len(idle)), key, end_s)
    waits = merged(column.waits[number], ["server", "lane"])
    waiting = _lane_shares(waits, waits["server"] * 0, (servers, 1, len(idle)), key, end_s)
    shades = np.tile(key.shades, (len(found) // lanes, 1, 1))
    lines = _painted(found, shades, _hatched(idle, waiting[:, 0]))
    return _with_gaps(lines.reshape(len(found) // lanes, -1, len(idle), 3))


def _lane_shares(
    spans: pd.DataFrame, name: pd.Series, shape: tuple[int, int, int], key: "_Key", end_s: float
) -> NDArray[np.float64]:
    """Return the shares of spans that have names, by the lane of each row, name and bin.

    Parameters
    ----------
    spans, name
        Of servers, and the number of what each counts for.
    shape
        How many servers, names and bins.
    """
    servers, names, bins = shape
    lanes, size = len(key.lanes), _size(servers)
    server, lane = spans["server"].to_numpy(np.int64), spans["lane"].map(key.lanes).to_numpy(np.int64)
    row = np.asarray(server // size * lanes + lane, dtype=np.int64)
    rows = -(-servers // size) * lanes
    found = shares(spans, row, name.to_numpy(np.int64), (rows, names, bins), end_s)
    return found / np.repeat(_members(servers), lanes)[:, None, None]


def _hatched(idle: Pixels, waiting: NDArray[np.float64]) -> Pixels:
    """Return the colour of where nothing is done: lane, line, bin, RGB; hatched where most wait."""
    line, bins = np.arange(LANE_PIXELS)[:, None], np.arange(len(idle))[None]
    is_striped = ((bins + 2 * line) % HATCH < STRIPE)[None] & (waiting[:, None] >= 0.5)
    return np.where(is_striped[..., None], to_rgb(WAITS), idle)


def _ocs_pixels(light: pd.DataFrame, ocses: Sequence[str], key: "_Key", end_s: float, idle: Pixels) -> Pixels:
    """Return the same of OCSes: dark, or lit in the colour of what is lit; of several in one colour."""
    size, shades = _size(len(ocses)), np.array([to_rgb(colour) for colour in (DARK, *LIGHT)])
    rows = {ocs: index // size for index, ocs in enumerate(ocses)}
    row = np.asarray(light["ocs"].map(rows), dtype=np.int64)
    colours = len(LIGHT) if size == 1 else 1
    number = np.asarray(light["circuits"].map(key.light).clip(upper=colours), dtype=np.int64)
    found = shares(light, row, number, (-(-len(ocses) // size), len(shades), len(idle)), end_s)
    found /= _members(len(ocses))[:, None, None]
    lines = _painted(found, np.tile(shades, (len(found), 1, 1)), idle)
    return _with_gaps(np.repeat(lines, len(key.lanes), axis=1))


def _members(count: int) -> NDArray[np.int64]:
    """Return how many each row stands for, of so many servers or OCSes."""
    return np.bincount(np.arange(count) // _size(count))


def _painted(found: NDArray[np.float64], shades: Pixels, idle: Pixels) -> Pixels:
    """Return shares as colours that are stacked from below: lane, line, bin, RGB; what is there is seen.

    Parameters
    ----------
    found
        Shares: lane, name, bin.
    shades
        The colour of each name in each lane.
    idle
        The colour of each bin where nothing is done; may differ by lane and line.
    """
    levels = found.cumsum(axis=1)
    np.divide(levels, np.maximum(levels[:, -1:], 1.0), out=levels)
    above = np.arange(LANE_PIXELS)[::-1] / LANE_PIXELS + 1e-6  # sums of shares are not exact
    number = (levels[:, :, None] <= above[None, None, :, None]).sum(axis=1)
    every = np.pad(shades, ((0, 0), (0, 1), (0, 0)))
    painted: Pixels = every[np.arange(len(every))[:, None, None], number]
    return np.where((number == shades.shape[1])[..., None], idle, painted)


def _with_gaps(lines: Pixels) -> Pixels:
    return np.pad(lines, ((0, 0), (0, GAP_PIXELS), (0, 0), (0, 0)), constant_values=1.0)


class _Key:
    """Which colour stands for what, in all columns of a figure.

    Parameters
    ----------
    columns
        All of them.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._runs = [run for column in columns for run in column.runs.values()]
        waits = pd.concat([waits for column in columns for waits in column.waits])
        self._waits = (waits["end_s"] - waits["start_s"] > _end_s(columns) / BINS).any()
        spans = pd.concat([spans for column in columns for spans in column.spans])
        drawn = {*spans["lane"], *waits["lane"]}
        lanes = [lane for lane in LANES if lane in drawn] or ["sends"]
        self.lanes = {lane: number for number, lane in enumerate(lanes)}
        """The number of each lane that is drawn."""
        in_job_order = dict.fromkeys(chain.from_iterable(run.tables.nodes for run in self._runs))
        self._names = _names(spans[spans["lane"] != "computes"], in_job_order)
        names = dict.fromkeys(self._names.values())
        self.colours = {"compute": COMPUTE} | dict(zip(names, cycle(COLLECTIVES), strict=False))
        """The colour of each name of `names_of`."""
        circuits = chain.from_iterable(light["circuits"] for column in columns for light in column.light)
        lit = dict.fromkeys(filter(None, circuits))
        self.light = {"": 0} | {text: 1 + number % len(LIGHT) for number, text in enumerate(lit)}
        """The number of the colour of each set of circuits, 0 where not all are lit."""

    @property
    def shades(self) -> Pixels:
        """The colour of each name in each lane: paler where bytes are received."""
        shades = np.array([[to_rgb(colour) for colour in self.colours.values()]] * len(self.lanes))
        if (received := self.lanes.get("receives")) is not None:
            shades[received] = 1 - PALE * (1 - shades[received])
        return shades

    def names_of(self, spans: pd.DataFrame) -> pd.Series:
        """Return what the key calls what servers did."""
        return spans["node"].map(self._names).where(spans["lane"] != "computes", "compute")

    @property
    def handles(self) -> list[Patch | Line2D]:
        """What stands in the key."""
        computes = "computes" in self.lanes
        colours = {name: colour for name, colour in self.colours.items() if computes or name != "compute"}
        handles: list[Patch | Line2D] = [
            Patch(facecolor=colour, label=_short(name)) for name, colour in colours.items()
        ]
        if "receives" in self.lanes:
            handles.append(Patch(facecolor=to_hex(self.shades[-1, 1]), label="paler: received"))
        if self._waits:
            handles.append(
                Patch(facecolor=IDLE, edgecolor=WAITS, hatch="////", label="waits for light or a link")
            )
        if len(self.light) > 1:
            handles += [
                Patch(facecolor=LIGHT[0], label="lit, a colour for each permutation"),
                Patch(facecolor=DARK, label="dark"),
            ]
        if any((run.events["what"] == "failed").any() for run in self._runs):
            handles.append(
                Line2D([], [], color=BOUND, linewidth=1.2, label="fails; known (dots); back (dashes)")
            )
        return handles

    def write(self, figure: Figure, corner: tuple[float, float]) -> None:
        """Write the key under a figure, from its lower left corner."""
        figure.legend(
            handles=self.handles, loc="lower left", ncols=KEYS_IN_LINE, bbox_to_anchor=corner, borderaxespad=0
        )


def _short(name: str, longest: int = LONGEST_NAME) -> str:
    return name if len(name) <= longest else f"{name[: longest - 3]}..."


def _names(spans: pd.DataFrame, in_job_order: Iterable[str]) -> dict[str, str]:
    """Return the name of each collective in the key, in the job's order: that is the same in all pictures.

    Where there are too many, those that differ in numbers only are one, and those that take least are others.
    """
    took_s = (spans["end_s"] - spans["start_s"]).groupby(spans["node"]).sum()
    names = {node: node for node in in_job_order if node in took_s.index}
    if len(names) > MOST_COLOURS:
        names = {node: re.sub(r"\[\d+\]|\s*\d+(\.\d+)*", "", name) or name for node, name in names.items()}
    if len(set(names.values())) > MOST_COLOURS:
        most = took_s.groupby(pd.Series(names)).sum().nlargest(MOST_COLOURS - 1).index
        names = {node: name if name in most else OTHERS for node, name in names.items()}
    return names
