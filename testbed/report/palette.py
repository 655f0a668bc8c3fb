"""How plots look: a scheme has one colour in all plots of a run, and no void number passes for a sound one.

The colours are Okabe and Ito's, which colour-blind readers tell apart.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from colorsys import hsv_to_rgb
from functools import wraps
from itertools import count
from typing import Literal, ParamSpec, TypeVar
from warnings import catch_warnings, filterwarnings

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.category import StrCategoryFormatter
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, Formatter, FuncFormatter, LogFormatterSciNotation

from testbed.report.means import BIG_SWITCH, Point, in_order
from testbed.trust.outcome import LEFT_OUT
from topologies.printable import printable

Arguments = ParamSpec("Arguments")
Drawn = TypeVar("Drawn")
Kind = Literal["bars", "lines", "dots"]
Shades = Mapping[str, str]
"""The colour of each of a run's schemes (`colours`)."""
COLOURS = {
    "ecmp": "#9a9a9a",
    "plb": "#e69f00",
    "minrtt": "#56b4e9",
    "reps": "#009e73",
    "spray": "#b8a20a",
    "rails": "#0072b2",
    "optimal": "#2b2b2b",
    "pxn": "#cc79a7",
}
CIRCUIT_COLOURS = {
    "spectra": "#0072b2",
    "spectra_plus": "#56b4e9",
    "eclipse": "#009e73",
    "less": "#e69f00",
    "bvn": "#cc79a7",
    "solstice": "#b8a800",
    "rotor": "#999999",
    "not_equalized": "#d55e00",
    BIG_SWITCH: "#2b2b2b",
}
"""Of circuits by their scheduler, and of the packets beside them."""
TRANSPORT_COLOURS = {
    "credit": "#0072b2",
    "nscc": "#d55e00",
    "dctcp": "#009e73",
    "swift": "#cc79a7",
    "tcp": "#9a9a9a",
    "ideal": "#2b2b2b",
}
"""Of transports, where a plot compares those."""
OWN = ("#d55e00", "#a6a000", "#6f4e9c", "#17becf", "#8c564b", "#2f6b2f")
"""For schemes that have no colour of their own, in the order of their names; others follow."""
GOLDEN = 0.618
"""How far apart the hues of the others are: no two that follow each other are alike."""
BOUND = "#c0262d"
INK = "#333333"
VOID_HATCH = "xxxx"
HEAT = "YlGnBu"
NO_CELL = "#e8e8e8"
LONGEST_LINE, LONGEST_KEY, LONGEST_TICK = 100, 60, 40
"""Most characters of a line in a plot, of a name in its key, and of one at an axis: longer ones leave no room
for what is drawn."""
LONGEST_END = 12
"""Most characters that are left of either end: twice that has room in the height of a panel."""
LETTERS_PER_INCH = 15
"""Of a panel's title."""
WRAPPED = FixedFormatter, FuncFormatter, StrCategoryFormatter, LogFormatterSciNotation
"""The formatters that write names at an axis, or formulas."""
_style = rc_context(
    {
        "font.size": 9,
        "axes.titlesize": 9,
        "axes.labelsize": 9,
        "axes.titlelocation": "left",
        "figure.titlesize": 10.5,
        "figure.titleweight": "bold",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": INK,
        "axes.linewidth": 0.7,
        "xtick.color": INK,
        "ytick.color": INK,
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "grid.color": "#dddddd",
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "hatch.linewidth": 0.6,
        "lines.linewidth": 1.6,
        "text.parse_math": False,  # a name may hold dollars
    }
)


def styled(draw: Callable[Arguments, Drawn]) -> Callable[Arguments, Drawn]:
    """Return a function that draws, in the style of all plots and with all its texts as they are."""

    @_style
    @wraps(draw)
    def drawn(*arguments: Arguments.args, **named: Arguments.kwargs) -> Drawn:
        with catch_warnings():
            filterwarnings("ignore", "Glyph .* missing from font")  # a box stands for it
            made = draw(*arguments, **named)
            if isinstance(made, Figure):
                _show(made)
            return made

    return drawn


def shown(text: str, longest: int) -> str:
    """Return a text as a plot has it: printable, and of a line that is longer than it may be both ends."""
    end = min(longest // 4, LONGEST_END)
    lines = printable(text, keep="\n").split("\n")
    return "\n".join(line if len(line) <= longest else f"{line[:end]}...{line[-end:]}" for line in lines)


class _Shown(Formatter):
    """A formatter whose names are as plots show them, and whose formulas are numbers."""

    def __init__(self, formatter: Formatter) -> None:
        self._formatter = formatter

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Return the label of a place of the axis."""
        text = self._formatter(x, pos)
        if isinstance(self._formatter, LogFormatterSciNotation):
            return self.fix_minus(f"{x:g}") if text else ""
        return shown(text, LONGEST_TICK)

    def set_locs(self, locs: list[float]) -> None:
        """Take the places that are labelled, among which a logarithmic axis chooses."""
        self._formatter.set_locs(locs)


def _show(figure: Figure) -> None:
    """Have a figure show all its texts as they can be shown."""
    longest: dict[str, int] = {}
    for axes in figure.axes:
        wide = axes.get_position().width * figure.get_figwidth()
        titles = [axes.get_title(place) for place in ("left", "center", "right")]
        longest |= dict.fromkeys(titles, max(LONGEST_TICK, round(LETTERS_PER_INCH * wide)))
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_formatter(), WRAPPED):
                axis.set_major_formatter(_Shown(axis.get_major_formatter()))
            if isinstance(axis.get_minor_formatter(), WRAPPED):
                axis.set_minor_formatter(_Shown(axis.get_minor_formatter()))
    for text in _texts(figure):
        text.set_text(shown(text.get_text(), longest.get(text.get_text(), LONGEST_LINE)))


def _texts(artist: Artist) -> Iterator[Text]:
    """Yield all texts of an artist but those at ticks: formatters make them, and it takes long."""
    for child in artist.get_children():
        if isinstance(child, Axis):
            yield child.label
        elif isinstance(child, Text):
            yield child
        else:
            yield from _texts(child)


def colours(schemes: Iterable[str]) -> dict[str, str]:
    """Return the colour of each of a run's schemes, in the order in which they are shown: no two share one.

    A name that has a known scheme, scheduler or transport in it has the colour of that, if no name before has
    it.

    Parameters
    ----------
    schemes
        All of the run: those of one plot may have other colours among themselves.
    """
    found: dict[str, str] = {}
    names = in_order(schemes)
    for name in names:
        known = _known(name)
        if known is not None and known not in found.values():
            found[name] = known
    free = (colour for colour in _further() if colour not in {*found.values(), BOUND})
    return {name: found.get(name) or next(free) for name in names}


def _known(name: str) -> str | None:
    known = TRANSPORT_COLOURS | CIRCUIT_COLOURS | COLOURS
    return next((known[word] for word in (name, *name.split(", ")) if word in known), None)


def _further() -> Iterator[str]:
    yield from OWN
    for number in count():
        yield to_hex(hsv_to_rgb(GOLDEN * number % 1, 0.6, 0.75))


def over(title: str, transports: Iterable[str]) -> str:
    """Return the title of a figure with the transports that it is about.

    Examples
    --------
    >>> over("Bytes per NIC", ["credit"])
    'Bytes per NIC (over credit)'
    """
    return f"{title} (over {', '.join(dict.fromkeys(transports))})"


def canvas(width: float, height: float, title: str) -> Figure:
    """Return an empty figure with a title; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, x=0.012, ha="left")
    return figure


def fixed_canvas(width: float, height: float, title: str) -> Figure:
    """Return the same for axes that are placed by hand: nothing has to be measured to lay them out."""
    figure = Figure(figsize=(width, height))
    figure.suptitle(title, x=0.012, y=1 - 0.05 / height, ha="left")
    return figure


def legend(
    figure: Figure,
    schemes: Iterable[str],
    shades: Shades,
    *,
    words: Iterable[str],
    bound: str | None = None,
    kind: Kind = "bars",
) -> None:
    """Write under a figure what its colours and marks mean.

    Parameters
    ----------
    figure, schemes, shades
        What was drawn, of which schemes, and the colours of all of the run.
    words
        The verdicts of all that was drawn.
    bound
        What the red line is, None where there is none.
    kind
        What a scheme is drawn as.
    """
    drawn = set(words)
    handles = [_handle(kind, shades[name], shown(name, LONGEST_KEY)) for name in in_order(schemes)]
    if bound is not None:
        handles.append(Line2D([], [], color=BOUND, linewidth=1.4, label=bound))
    handles += [_handle(kind, INK, word, void=True) for word in LEFT_OUT if word in drawn]
    if "model" in drawn:
        handles.append(Patch(facecolor="none", label="model: nothing was emulated"))
    if handles:
        columns = _columns(handles, figure.get_figwidth())
        across = [handle for column in range(columns) for handle in handles[column::columns]]
        figure.legend(handles=across, loc="outside lower left", ncols=columns)


def legend_below(figure: Figure, columns: int | None = None) -> None:
    """Write below a figure what its panels show, each name once, by default in one row."""
    drawn: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            drawn.setdefault(label, handle)
    figure.legend(list(drawn.values()), list(drawn), loc="outside lower left", ncols=columns or len(drawn))


def horizontal_grid(axes: Axes) -> None:
    """Draw lines to read heights by, behind the data."""
    axes.yaxis.grid(visible=True)
    axes.set_axisbelow(True)


def write_mark(axes: Axes, mark: str, at: tuple[float, float], rotation: int = 0) -> None:
    """Write a word of a verdict above a place, or beside it, legible over whatever is there."""
    axes.annotate(
        mark,
        at,
        (0, 4) if rotation else (5, 0),
        textcoords="offset points",
        rotation=rotation,
        ha="center" if rotation else "left",
        va="bottom" if rotation else "center",
        fontsize=7,
        color=INK,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6},
    )


def mark_of(point: Point) -> str:
    """Return what must be written at a point's number: nothing if it is faithful."""
    return "" if point.word == "faithful" else point.verdict


def named(workload: str, note: str) -> str:
    """Return a workload's name, a synthetic one named so."""
    return f"{workload} (synthetic)" if note.startswith("synthetic") else workload


def _handle(kind: Kind, colour: str, label: str, *, void: bool = False) -> Patch | Line2D:
    if kind == "lines":
        return Line2D([], [], color=colour, label=label, linestyle=":" if void else "-")
    if kind == "dots":
        return Line2D([], [], color=colour, label=label, linestyle="", marker="x" if void else "o")
    face, hatch = ("white", VOID_HATCH) if void else (colour, None)
    return Patch(facecolor=face, edgecolor=colour, hatch=hatch, label=label)


def _columns(handles: Sequence[Patch | Line2D], width: float) -> int:
    """Return how many columns of a legend that is filled line by line fit into a width [inches]."""
    wide = [0.6 + 0.075 * len(str(handle.get_label())) for handle in handles]
    fitting = (
        columns
        for columns in range(len(handles), 1, -1)
        if sum(max(wide[column::columns]) for column in range(columns)) <= width
    )
    return next(fitting, 1)
