"""A drawing of a fabric: servers with GPUs and NICs, switches by tier, OCSes with their lit circuits."""

from collections.abc import Iterator
from pathlib import Path as FilePath
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch, PathPatch, Rectangle
from matplotlib.path import Path

from testbed.machine.walk import hand_back
from testbed.report.fabric_places import Box, Places
from testbed.report.fabric_words import fabric_text, rate_text
from testbed.report.images import image_of
from testbed.report.page import FORMATS
from testbed.report.palette import INK, LONGEST_LINE, fixed_canvas, styled
from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Link, Port, Server, Switch
from topologies.light import Configuration

RAILS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a8200", "#6f4e9c")
"""Colours of rails; the ninth has the first again."""
CIRCUIT, LINK = "#d55e00", "#7d858f"
FACES = {"server": ("#f3f4f6", INK), "packet": ("#dfeaf3", "#33648c"), "ocs": ("#fdf1dc", "#b06f00")}
"""Face and edge of a box."""
FORWARDS = "#009e73"
GPU = "#5d6672"
MOST_GPUS_DRAWN = 16
MANY_LINKS = 120
"""From so many on those between switches are pale."""
THIN, THICK = 0.7, 2.4
"""Lines of the slowest and of the fastest links."""


@styled
def fabric_figure(fabric: Fabric, circuits: Configuration | None = None) -> Figure:
    """Return a drawing of a fabric.

    Parameters
    ----------
    fabric
        The fabric.
    circuits
        The circuits that are lit in each OCS; an arrow shows the direction of one that has no other back.
    """
    lit = {name: some for name, some in (circuits or {}).items() if some}
    found = Places(fabric, lit)
    caption = wrap(fabric_caption(fabric, lit), min(round(14 * found.wide), LONGEST_LINE))
    over, under = 0.3 + 0.16 * len(caption) + _behind(found, found.top), 0.45 + _behind(found, found.bottom)
    high = found.top - found.bottom + over + under
    figure = fixed_canvas(found.wide, high, fabric.name)
    figure.text(
        0.012, 1 - 0.27 / high, "\n".join(caption), va="top", fontsize=8.5, color=INK, linespacing=1.4
    )
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, found.wide), ylim=(found.bottom - under, found.top + over))
    axes.set_axis_off()
    colours = _rail_colours(fabric)
    for link in found.links:
        _draw_link(axes, found, link, colours, lit, _widths(fabric))
    for box in found.boxes.values():
        _draw_box(axes, box, forwards=fabric.servers_forward)
    for port, (x, y) in found.ports.items():
        _draw_port(axes, found.boxes[port.node], x, y)
    for gid, ends in _drawn_circuits(found, lit).items():
        _draw_circuit(axes, found, gid, ends, colours)
    for more in found.more:
        axes.text(more.x, more.y, str(more), ha="center", va="center", fontsize=8, color=INK)
    _draw_key(figure, fabric, found, lit)
    return figure


def draw_fabric(fabric: Fabric, path: str | FilePath, circuits: Configuration | None = None) -> None:
    """Draw a fabric into a file: PNG, PDF or SVG, by its ending.

    Raises
    ------
    ScenarioError
        If the file has another ending, or cannot be written.
    """
    path = FilePath(path)
    form = next((form for form in FORMATS if path.suffix == f".{form}"), None)
    if form is None:
        raise ScenarioError(f"no drawing is made as {path.name!r}", "end its name in .png, .pdf or .svg")
    image = image_of(fabric_figure(fabric, circuits), form)
    try:
        with path.open("wb") as file:
            file.write(image)
            hand_back(file.fileno())  # to the user behind sudo
    except OSError as error:
        raise ScenarioError(f"{path} cannot be written: {error.strerror}", "name another file") from error


def fabric_caption(fabric: Fabric, circuits: Configuration | None = None) -> str:
    """Return the counts of a fabric, and how many circuits are lit."""
    lit = sum(map(len, (circuits or {}).values()))
    return fabric_text(fabric) + (f"; {lit:,} {'circuit' if lit == 1 else 'circuits'} lit" if lit else "")


def _behind(found: Places, y: float) -> float:
    """Return the room that the first or last row takes behind its middle."""
    row = [box for box in found.boxes.values() if box.y == y]
    arcs = any(found.boxes[link.a.node].y == found.boxes[link.b.node].y == y for link in found.links)
    return max(box.high for box in row) / 2 + 0.15 + 0.5 * arcs


def _rail_colours(fabric: Fabric) -> dict[str, str]:
    """Return the colour of each switch that joins the NICs of one rail, where servers have several."""
    if max(server.nics for server in fabric.servers) == 1:
        return {}
    rails: dict[str, set[int]] = {}
    for server in range(len(fabric.servers)):
        for rail, nic in fabric.rails(server).items():
            peer = fabric.peer(Port(fabric.servers[server].name, nic)).node
            rails.setdefault(peer, set()).add(rail)
    if len(set(map(min, rails.values()))) < 2:
        return {}
    return {name: RAILS[min(some) % len(RAILS)] for name, some in rails.items() if len(some) == 1}


def _widths(fabric: Fabric) -> dict[float, float]:
    """Return the width of the lines of each rate."""
    rates = sorted({link.rate_bps for link in fabric.links})
    step = (THICK - THIN) / max(len(rates) - 1, 1)
    return {rate: 1.0 if len(rates) == 1 else THIN + step * index for index, rate in enumerate(rates)}


def _draw_link(
    axes: Axes,
    found: Places,
    link: Link,
    colours: dict[str, str],
    lit: Configuration,
    widths: dict[float, float],
) -> None:
    (x, y), (u, v) = found.ports[link.a], found.ports[link.b]
    servers = [found.boxes[end.node] for end in (link.a, link.b)]
    at_server = any(isinstance(box.node, Server) for box in servers)
    colour = next((colours[end.node] for end in (link.a, link.b) if end.node in colours), LINK)
    is_dark = bool(lit) and any(_is_dark(found, end, lit) for end in (link.a, link.b))
    steps = [(x, y), (u, v)]
    codes = [Path.MOVETO, Path.LINETO]
    if servers[0].y == servers[1].y:  # an arc behind the row
        bend = found.side(link.a.node, link.b.node) * min(0.2 + 0.12 * abs(u - x), 0.66)
        steps, codes = [(x, y), (x, y + bend), (u, v + bend), (u, v)], [Path.MOVETO, *[Path.CURVE4] * 3]
    line = PathPatch(
        Path(steps, codes),
        facecolor="none",
        edgecolor=colour if at_server else LINK,
        linewidth=widths[link.rate_bps],
        alpha=0.25 if is_dark else 0.85 if at_server or len(found.links) < MANY_LINKS else 0.4,
        zorder=1,
    )
    line.set_gid(f"link|{link}")
    axes.add_patch(line)


def _is_dark(found: Places, port: Port, lit: Configuration) -> bool:
    """Return whether a port is an OCS' and no circuit lights it."""
    node = found.boxes[port.node].node
    is_ocs = isinstance(node, Switch) and node.kind == "ocs"
    return is_ocs and all(port.number not in circuit for circuit in lit.get(port.node, ()))


def _draw_box(axes: Axes, box: Box, *, forwards: bool) -> None:
    kind = box.gid.partition("|")[0]
    face, edge = FACES[kind]
    shape = {
        "server": "square,pad=0",
        "packet": "round,pad=0,rounding_size=0.07",
        "ocs": "square,pad=0",
    }
    corner = box.x - box.wide / 2, box.y - box.high / 2
    is_server = isinstance(box.node, Server)
    patch = FancyBboxPatch(
        corner,
        box.wide,
        box.high,
        shape[kind],
        facecolor=face,
        edgecolor=FORWARDS if is_server and forwards else edge,
        linewidth=1.6 if is_server and forwards else 0.9,
        zorder=2,
    )
    patch.set_gid(box.gid)
    axes.add_patch(patch)
    if isinstance(box.node, Server):
        axes.text(
            box.x, box.y - 0.15, box.node.name, ha="center", va="center", fontsize=7.5, color=INK, zorder=4
        )
        _draw_gpus(axes, box, box.node.gpus)
    else:
        y = box.y + (box.high / 2 - 0.15) * (1 if box.y > 0 else -1) * (box.high > 0.5)
        behind = {"facecolor": face, "edgecolor": "none", "pad": 0.8}
        axes.text(
            box.x, y, box.node.name, ha="center", va="center", fontsize=7.5, color=INK, zorder=5, bbox=behind
        )


def _draw_gpus(axes: Axes, box: Box, gpus: int) -> None:
    """Draw the GPUs of a server as squares in one or two lines, or write how many there are."""
    y = box.y + 0.1
    if gpus > MOST_GPUS_DRAWN:
        axes.text(box.x, y, f"{gpus:,} GPUs", ha="center", va="center", fontsize=6.5, color=GPU, zorder=4)
        return
    across = gpus if gpus <= 4 else -(-gpus // 2)
    size = min(0.08, 0.8 * (box.wide - 0.06) / across)
    for gpu in range(gpus):
        line, place = divmod(gpu, across)
        x = box.x + (place - (across - 1) / 2) * size * 1.25 - size / 2
        below = (line - (gpus > across) / 2) * size * 1.25
        square = Rectangle((x, y - below - size / 2), size, size, color=GPU, linewidth=0, zorder=4)
        square.set_gid(f"gpu|{box.node.name}|{gpu}")
        axes.add_patch(square)


def _draw_port(axes: Axes, box: Box, x: float, y: float) -> None:
    """Draw a NIC, or a port of an OCS, as a tick on the edge of its box."""
    kind = box.gid.partition("|")[0]
    if kind != "packet":
        axes.add_patch(
            Rectangle((x - 0.02, y - 0.03), 0.04, 0.06, color=FACES[kind][1], linewidth=0, zorder=3)
        )


def _drawn_circuits(found: Places, lit: Configuration) -> dict[str, tuple[Port, Port, bool]]:
    """Return the ends of each circuit between drawn ports, and True if it has one back: those are one."""
    drawn: dict[str, tuple[Port, Port, bool]] = {}
    for name, circuits in lit.items():
        every = set(circuits)
        for a, b in sorted(every):
            has_back = (b, a) in every and a != b
            ends = Port(name, a), Port(name, b)
            if not (has_back and a > b) and all(end in found.ports for end in ends):
                drawn[f"circuit|{name}|{a}{'<>' if has_back else '>'}{b}"] = *ends, has_back
    return drawn


def _draw_circuit(
    axes: Axes, found: Places, gid: str, ends: tuple[Port, Port, bool], colours: dict[str, str]
) -> None:
    """Draw a circuit inside its OCS: an arc between two ports of one edge, else a line across."""
    start, end, has_back = ends
    (x, y), (u, v), box = found.ports[start], found.ports[end], found.boxes[start.node]
    if y == v:
        deep = (0.14 + (box.high - 0.44) * min(abs(u - x) / (0.9 * box.wide), 1)) * (1 if y < box.y else -1)
        deep *= 4 / 3  # a Bezier curve reaches three quarters of its handles
        path = Path([(x, y), (x, y + deep), (u, v + deep), (u, v)], [Path.MOVETO, *[Path.CURVE4] * 3])
    else:
        path = Path([(x, y), (u, v)], [Path.MOVETO, Path.LINETO])
    colour = colours.get(start.node, CIRCUIT)
    line = PathPatch(path, facecolor="none", edgecolor=colour, linewidth=1.3, zorder=4)
    line.set_gid(gid)
    axes.add_patch(line)
    if not has_back:
        (tip,) = axes.plot(u, v + 0.055 * (1 if v < box.y else -1), "v" if v < box.y else "^", color=colour)
        tip.set(markersize=4, zorder=5)
        tip.set_gid(f"arrow|{gid}")


def _draw_key(figure: Figure, fabric: Fabric, found: Places, lit: Configuration) -> None:
    """Write below a drawing what its shapes and lines are."""
    handles = [*_shapes(fabric, found), *_lines(fabric, lit)]
    wide = sum(0.45 + 0.066 * len(str(handle.get_label())) for handle in handles)
    columns = len(handles) if wide < found.wide else -(-len(handles) // 2)
    figure.legend(
        handles=handles, loc="lower left", ncols=columns, fontsize=7.5, handlelength=1.4, columnspacing=1.2
    )


def _shapes(fabric: Fabric, found: Places) -> Iterator[Patch]:
    kinds = {box.gid.partition("|")[0] for box in found.boxes.values()}
    words = {"server": "server", "packet": "packet switch", "ocs": "OCS"}
    for kind, word in words.items():
        if kind in kinds:
            forwards = kind == "server" and fabric.servers_forward
            label = "server, forwards for others" if forwards else word
            yield Patch(
                facecolor=FACES[kind][0], edgecolor=FORWARDS if forwards else FACES[kind][1], label=label
            )
    if any(server.gpus <= MOST_GPUS_DRAWN for server in fabric.servers):
        yield Patch(color=GPU, linewidth=0, label="GPU")


def _lines(fabric: Fabric, lit: Configuration) -> Iterator[Line2D]:
    widths = _widths(fabric)
    rates = sorted(widths) if len(widths) <= 3 else [min(widths), max(widths)]
    for rate in rates if len(widths) > 1 else ():
        yield Line2D([], [], color=LINK, linewidth=widths[rate], label=rate_text(rate))
    pairs = [(set(circuits), circuit) for circuits in lit.values() for circuit in circuits]
    if any(circuit[::-1] in every and circuit[0] != circuit[1] for every, circuit in pairs):
        yield Line2D([], [], color=CIRCUIT, linewidth=1.3, label="circuit, both ways")
    if any(circuit[::-1] not in every for every, circuit in pairs):
        yield Line2D([], [], color=CIRCUIT, linewidth=1.3, marker=">", markersize=4, label="circuit, one way")
