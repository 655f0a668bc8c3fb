"""Places of a drawn fabric: the servers, switches and ports that are drawn, and where each is [inches].

Servers stand in a row; packet switches above them, tier by tier. OCSes stand below the servers where the
fabric has packet switches, and above them where it has none. Of many servers the first are drawn, and with
them the switches that they reach on the way up; a text counts the others.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from testbed.report.fabric_words import number, words_of
from topologies.fabric import Fabric, Link, Port, Server, Switch

Node = Server | Switch
MOST_SERVERS, LEAST_SERVERS, MOST_NICS = 16, 4, 64
"""Drawn servers at most, and as many as have so many NICs together, but not fewer than the least."""
MOST_SWITCHES = 16
"""Drawn switches of a row."""
ROW, ARCS = 1.3, 0.45
"""From a row to the next, and the room above a row for links within it [inches]."""
SERVER_HIGH, SWITCH_HIGH, LIT_HIGH = 0.62, 0.3, 0.8
LETTER, NIC_WIDE, PORT_WIDE = 0.078, 0.12, 0.1
MARGIN, LEAST_WIDE, MOST_WIDE = 0.25, 5.2, 12.0


@dataclass(frozen=True)
class Box:
    """A drawn server or switch, by its middle and its size."""

    node: Node
    x: float
    y: float
    wide: float
    high: float

    @property
    def gid(self) -> str:
        """Name of its artist."""
        kind = "server" if isinstance(self.node, Server) else self.node.kind
        return f"{kind}|{self.node.name}"


@dataclass(frozen=True)
class More:
    """Nodes of a row that are not drawn."""

    count: int
    words: tuple[str, str]
    """One of them, and several."""
    x: float
    y: float

    def __str__(self) -> str:
        one, several = (f"more\n{word}" for word in self.words)
        return f"...\n{number(self.count, one, several)}"


class Places:
    """Where everything of a fabric is.

    Parameters
    ----------
    fabric
        The fabric.
    lit
        The OCSes that show circuits.
    """

    def __init__(self, fabric: Fabric, lit: Iterable[str] = ()) -> None:
        self._lit = frozenset(lit)
        near = _near(fabric.links)
        rows = _rows(fabric, near)
        drawn = _drawn(fabric, rows, near)
        names = {node.name for row in drawn.values() for node in row}
        self.links = [link for link in fabric.links if link.a.node in names and link.b.node in names]
        """Links between drawn nodes."""
        self._linked = {port for link in self.links for port in (link.a, link.b)}
        self.wide = _wide(fabric, drawn, len(drawn[0]) < len(rows[0]))
        self.boxes: dict[str, Box] = {}
        self.more: list[More] = []
        heights = self._heights(drawn)
        for rank, row in drawn.items():
            self._place(row, len(rows[rank]), words_of(rows[rank][0]), heights[rank])
        self.bottom, self.top = min(heights.values()), max(heights.values())
        """Middles of the lowest and the highest row."""

    def _heights(self, drawn: Mapping[int, Sequence[Node]]) -> dict[int, float]:
        """Return the middle of each row; a row with links within it has room for them behind it."""
        rank_of = {node.name: rank for rank, row in drawn.items() for node in row}
        self.crowded = {
            rank_of[link.a.node] for link in self.links if rank_of[link.a.node] == rank_of[link.b.node]
        }
        """Rows with links between their own nodes."""
        heights = {0: 0.0}
        for rank in sorted(drawn, key=abs):
            if rank:
                before = rank - 1 if rank > 0 else rank + 1
                step = ROW + ARCS * (before in self.crowded)
                heights[rank] = heights[before] + (step if rank > 0 else -step)
        return heights

    def _place(self, drawn: Sequence[Node], count: int, words: tuple[str, str], y: float) -> None:
        """Spread nodes over the width, and behind them the words for those that are left out."""
        cells = len(drawn) + (count > len(drawn))
        cell = (self.wide - 2 * MARGIN) / cells
        for index, node in enumerate(drawn):
            wide, high = self._size(node, cell)
            self.boxes[node.name] = Box(node, MARGIN + (index + 0.5) * cell, y, wide, high)
        if count > len(drawn):
            self.more.append(More(count - len(drawn), words, self.wide - MARGIN - 0.5 * cell, y))

    def _size(self, node: Node, cell: float) -> tuple[float, float]:
        if isinstance(node, Server):
            return min(_server_wide(node), 0.94 * cell), SERVER_HIGH
        letters = LETTER * len(node.name) + 0.12
        if node.kind == "packet":
            return min(max(letters, 0.55), 0.94 * cell), SWITCH_HIGH
        ports = sum(port.node == node.name for port in self._linked)
        return min(max(letters, 0.55, PORT_WIDE * ports), 0.94 * cell), LIT_HIGH if self._lit else SWITCH_HIGH

    @cached_property
    def ports(self) -> dict[Port, tuple[float, float]]:
        """The ends of drawn links: on the edge that faces the other end, behind a row for links within it."""
        edges = defaultdict[tuple[str, int], list[tuple[Port, Port]]](list)
        for link in self.links:
            for port, peer in ((link.a, link.b), (link.b, link.a)):
                edges[port.node, self.side(port.node, peer.node)].append((port, peer))
        found: dict[Port, tuple[float, float]] = {}
        for (name, side), ends in edges.items():
            box = self.boxes[name]
            is_packet = isinstance(box.node, Switch) and box.node.kind == "packet"
            ends.sort(key=lambda end: (self.boxes[end[1].node].x if is_packet else 0, end))
            for index, (port, _peer) in enumerate(ends):
                x = box.x + box.wide * ((index + 0.5) / len(ends) - 0.5)
                found[port] = x, box.y + side * box.high / 2
        return found

    def side(self, name: str, peer: str) -> int:
        """Return 1 if a node's link to another leaves it upwards, else -1."""
        own, other = self.boxes[name].y, self.boxes[peer].y
        return 1 if other > own or (other == own and own >= 0) else -1


def _near(links: Iterable[Link]) -> dict[str, set[str]]:
    near = defaultdict[str, set[str]](set)
    for link in links:
        near[link.a.node].add(link.b.node)
        near[link.b.node].add(link.a.node)
    return near


def _rows(fabric: Fabric, near: Mapping[str, set[str]]) -> dict[int, list[Node]]:
    """Return the nodes of each row: row 0 has the servers, rows above and below it have no gaps."""
    ranks = _optical_ranks(fabric, near)
    packets = [switch.tier for switch in fabric.switches if switch.kind == "packet"]
    below = -1 if packets else 1
    rows: dict[int, list[Node]] = {0: list(fabric.servers)}
    for switch in fabric.switches:
        over_all = max(packets, default=0) + 2
        rank = (
            1 + switch.tier if switch.kind == "packet" else below * ranks.get(switch.name, below * over_all)
        )
        rows.setdefault(rank, []).append(switch)
    up, down = sorted(rank for rank in rows if rank > 0), sorted((rank for rank in rows if rank < 0), key=abs)
    places = {0: 0} | {rank: n for n, rank in enumerate(up, 1)} | {rank: -n for n, rank in enumerate(down, 1)}
    return {places[rank]: row for rank, row in rows.items()}


def _optical_ranks(fabric: Fabric, near: Mapping[str, set[str]]) -> dict[str, int]:
    """Return how many OCSes light crosses from the nearest server up to each OCS, and with it."""
    ocses = {switch.name for switch in fabric.switches if switch.kind == "ocs"}
    ranks: dict[str, int] = {}
    reached = {server.name for server in fabric.servers} if ocses else set()
    while reached:
        reached = {other for node in reached for other in near[node] if other in ocses} - ranks.keys()
        ranks |= dict.fromkeys(reached, max(ranks.values(), default=0) + 1)
    return ranks


def _drawn(
    fabric: Fabric, rows: Mapping[int, Sequence[Node]], near: Mapping[str, set[str]]
) -> dict[int, list[Node]]:
    """Return the nodes that are drawn: all of a small fabric, else the first servers and what they reach."""
    fitting = MOST_NICS // max(server.nics for server in fabric.servers)
    drawn = {0: _first(rows[0], max(LEAST_SERVERS, min(MOST_SERVERS, fitting)))}
    reached = {other for server in drawn[0] for other in near[server.name]}
    for rank in sorted(rows, key=abs):
        if rank:
            is_whole = len(drawn[0]) == len(rows[0])
            drawn[rank] = _first(
                [node for node in rows[rank] if is_whole or node.name in reached], MOST_SWITCHES
            )
            reached |= {other for node in drawn[rank] for other in near[node.name]}
    return drawn


def _first(nodes: Sequence[Node], most: int) -> list[Node]:
    """Return nodes up to a number; one more has the place of the words that would count it."""
    return list(nodes if len(nodes) <= most + 1 else nodes[:most])


def _wide(fabric: Fabric, drawn: Mapping[int, Sequence[Node]], has_more: bool) -> float:
    servers = sum(_server_wide(server) + 0.18 for server in fabric.servers[: len(drawn[0])])
    switches = max(sum(LETTER * len(node.name) + 0.25 for node in row) for row in drawn.values())
    return min(max(servers + 0.8 * has_more, switches + 0.8, LEAST_WIDE - 2 * MARGIN), MOST_WIDE) + 2 * MARGIN


def _server_wide(server: Server) -> float:
    return max(0.5, LETTER * len(server.name) + 0.15, NIC_WIDE * min(server.nics, 12) + 0.1)
