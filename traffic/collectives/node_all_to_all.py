"""All-to-all between nodes over one lit link at a time: binary exchange, and rings, with their closed forms.

    p   nodes, ranked by their place in the group
    m   bytes from every node to every node, its own part included
    B   rate of a link between nodes, each way [bit/s]
    w   distance of a round's partners
    L   lanes of a link between nodes

In a round of the binary exchange node i swaps half of all that it holds with i XOR w; w halves from p / 2
to 1. A ring passes on what is for nodes farther along, one way round or the shorter way; what is for the
opposite node then goes half either way.

Both owe the same from end to end, whatever nodes pass on: m from every node to every other one. A node has as
many ranks as links have lanes, its first GPUs: each owes m / L to its like in every other node. The GPUs of a
node stand for each other, so bytes may leave and enter by any of them.

Printed and corrected here: Algorithm 6 has the range of destinations start at "r & w", which misses bytes
from four nodes on; it is r AND NOT (w - 1), up to that + w exclusive.

References
----------
InfiniteHBD, section 7 and appendix G, algorithm 6.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from topologies.errors import DemandError
from topologies.events import View
from traffic.collectives.owed import Owed, exactly
from traffic.collectives.pattern import EndToEnd
from traffic.collectives.ring import waits_around
from traffic.messages import Messages
from traffic.ops import Ops, each_alone

Block = tuple[int, int]
"""What a node has for another: m bytes, by the ranks of the two."""
Hop = tuple[int, int]
"""The GPU that sends from a node to another, and the one that receives there."""
Nodes = tuple[tuple[int, ...], ...]
"""The GPUs of each node."""


@dataclass(frozen=True)
class Round:
    """A round of the binary exchange."""

    distance: int
    """w: node i and i XOR w are partners."""
    sent: tuple[tuple[Block, ...], ...]
    """What each node sends to its partner."""


def exchange_rounds(nodes: int) -> list[Round]:
    """Return the rounds of the binary exchange.

    Raises
    ------
    DemandError
        If the number of nodes is no power of two, or under 2.

    References
    ----------
    InfiniteHBD, appendix G, algorithm 6, corrected as said above.

    Examples
    --------
    >>> first, second = exchange_rounds(4)
    >>> first.distance, first.sent[0], second.sent[0]
    (2, ((0, 2), (0, 3)), ((0, 1), (2, 1)))
    """
    if nodes < 2 or nodes & (nodes - 1):
        raise DemandError(f"a binary exchange between {nodes} nodes", "take a power of two")
    held = [{node} for node in range(nodes)]
    rounds = []
    w = nodes // 2
    while w:
        firsts = [(node ^ w) & ~(w - 1) for node in range(nodes)]
        sent = (
            tuple((a, b) for a in sorted(held[node]) for b in range(first, first + w))
            for node, first in enumerate(firsts)
        )
        rounds.append(Round(w, tuple(sent)))
        held = [held[node] | held[node ^ w] for node in range(nodes)]
        w //= 2
    return rounds


def binary_exchange_s(nodes: int, node_bytes: float, rate_bps: float, *, dark_s: float = 0.0) -> float:
    """Return how long a binary exchange takes: log2 p rounds of p m / 2 bytes [s].

    Parameters
    ----------
    nodes
        p, a power of two.
    node_bytes
        m [bytes].
    rate_bps
        B [bit/s].
    dark_s
        What rounds wait for circuits, in all [s].

    Examples
    --------
    >>> binary_exchange_s(8, 1.0, 8.0)
    12.0
    """
    rounds = exchange_rounds(nodes)
    return len(rounds) * (nodes * node_bytes / 2 * 8 / rate_bps) + dark_s


def ring_all_to_all_s(nodes: int, node_bytes: float, rate_bps: float, *, both_ways: bool) -> float:
    """Return how long an all-to-all over a ring takes: m p (p - 1) / 2, both ways m p^2 / 8 bytes [s].

    Parameters
    ----------
    nodes
        p; an odd number has no opposite nodes, and takes m (p^2 - 1) / 8 both ways.
    node_bytes, rate_bps
        As of `binary_exchange_s`.
    both_ways
        Whether bytes go the shorter way round, or all the same way.

    Examples
    --------
    >>> ring_all_to_all_s(8, 1.0, 8.0, both_ways=False), ring_all_to_all_s(8, 1.0, 8.0, both_ways=True)
    (28.0, 8.0)
    """
    return sum(ring_steps(nodes, both_ways=both_ways)) / 2 * node_bytes * 8 / rate_bps


def least_all_to_all_s(nodes: int, node_bytes: float, rate_bps: float) -> float:
    """Return what no all-to-all beats whose nodes light one link each: (p - 1) m bytes [s]."""
    return (nodes - 1) * node_bytes * 8 / rate_bps


def ring_steps(nodes: int, *, both_ways: bool) -> list[int]:
    """Return what a node passes on in each step of a ring, each way, in halves of m.

    Examples
    --------
    >>> ring_steps(4, both_ways=False), ring_steps(4, both_ways=True)
    ([6, 4, 2], [3, 1])
    """
    if nodes < 2:
        raise DemandError(f"an all-to-all between {nodes} nodes", "take two or more")
    if both_ways:
        return [nodes + 1 - 2 * step for step in range(1, nodes // 2 + 1)]
    return [2 * (nodes - step) for step in range(1, nodes)]


@dataclass(frozen=True)
class ExchangeRound:
    """A round of the binary exchange, in which every node sends p m / 2 bytes to its partner.

    Of the all-to-all it owes what it brings to its last node: a block goes over one bit of its two nodes'
    ranks after the other, the highest first, and arrives with the lowest one in which they differ.

    Raises
    ------
    DemandError
        If the nodes are no power of two or share a GPU, the distance is not that of a round, a hop does not
        join a node with its partner, or lanes cannot share the bytes evenly.
    """

    lanes: tuple[tuple[Hop, ...], ...]
    """The hops of each lane, from each node to its partner."""
    nodes: Nodes
    """The GPUs of each node, by its rank."""
    distance: int
    """w: node i and i XOR w are partners."""
    node_bytes: int
    """m, from every node to every node [bytes]."""
    name = "binary exchange"

    def __post_init__(self) -> None:
        """Check that hops join partners."""
        p, w = len(self.nodes), self.distance
        if p < 2 or p & (p - 1) or not 1 <= w < p or w & (w - 1):
            raise DemandError(
                f"a round over {w} of {p} nodes", "take powers of two, a distance below the nodes"
            )
        if self.node_bytes < 1 or not self.lanes or self.node_bytes % len(self.lanes):
            raise DemandError(
                f"{self.node_bytes} bytes to each node over {len(self.lanes)} lanes",
                f"give a multiple of {max(len(self.lanes), 1)}",
            )
        for lane in self.lanes:
            _check_hops(self.nodes, lane, [node ^ w for node in range(p)])

    @property
    def gpus(self) -> frozenset[int]:
        """The GPUs of all nodes."""
        return frozenset(gpu for node in self.nodes for gpu in node)

    @property
    def end_to_end(self) -> EndToEnd:
        """The blocks that arrive in this round at the nodes that they are for."""
        node = np.arange(len(self.nodes))
        apart = node[:, np.newaxis] ^ node
        return _owed_between(self.nodes, (apart & -apart) == self.distance, len(self.lanes), self.node_bytes)

    def lower(self, view: View | None = None, *, coupled: bool = False) -> Ops:
        """Return a message per lane from each node to its partner, half of all blocks that it holds."""
        source, destination = np.array(self.lanes, dtype=np.int64).transpose(1, 0, 2).reshape(-1, 2).T
        size = len(self.nodes) // 2 * self.node_bytes // len(self.lanes)
        return each_alone(Messages(source, destination, np.full(len(source), size, dtype=np.int64)))

    def renumbered(self, gpus: Sequence[int]) -> "ExchangeRound":
        """Return the same round between other GPUs: ``gpus[k]`` takes the part of GPU k."""
        return replace(self, lanes=_renumbered(self.lanes, gpus), nodes=_renumbered_nodes(self.nodes, gpus))


def owed_in_exchange_round(pattern: ExchangeRound) -> Owed:
    """Return the load of each hop, p m / 2 over all lanes [bytes]."""
    hops = np.array([hop for lane in pattern.lanes for hop in lane], dtype=np.int64)
    size = pattern.node_bytes * len(pattern.nodes) // (2 * len(pattern.lanes))
    return exactly(hops[:, 0], hops[:, 1], np.full(len(hops), size, dtype=np.int64))


@dataclass(frozen=True)
class RingAllToAll:
    """An all-to-all between nodes over rings, step by step; a node passes on what is for others.

    A node's bytes are shared evenly by the rings that run the same way. What GPUs of a node pass to each
    other is not modelled: the GPU that receives may be another than that which sends on.

    Raises
    ------
    DemandError
        If rings are not of equally many nodes, two or more, hops do not go from node to node, or bytes
        cannot be cut into equal parts.
    """

    rings: tuple[tuple[Hop, ...], ...]
    """The hops of each ring, from each of its nodes to the next; all run the same way."""
    node_bytes: int
    """m, from every node to every node [bytes]."""
    back: tuple[tuple[Hop, ...], ...] = ()
    """As many rings that run the other way; without them all bytes go one way round."""
    nodes: Nodes = ()
    """The GPUs of each node, in the order of the rings; by default the fewest that hops allow."""
    name = "ring all-to-all"

    def __post_init__(self) -> None:
        """Check that bytes can be shared."""
        lengths = {len(ring) for ring in (*self.rings, *self.back)}
        if len(lengths) != 1 or min(lengths) < 2 or len(self.back) not in (0, len(self.rings)):
            raise DemandError(
                f"{len(self.rings)} rings one way and {len(self.back)} back, of {sorted(lengths)} nodes",
                "give rings of equally many nodes, two or more, and as many back or none",
            )
        if self.node_bytes < 1 or self.node_bytes % (2 * len(self.rings)):
            raise DemandError(
                f"{self.node_bytes} bytes to each node over {len(self.rings)} rings",
                f"give a multiple of {2 * len(self.rings)}",
            )
        if not self.nodes:
            object.__setattr__(self, "nodes", _nodes_of(self.rings, self.back))
        p = len(self.nodes)
        for some, step in ((self.rings, 1), (self.back, -1)):
            for ring in some:
                _check_hops(self.nodes, ring, [(node + step) % p for node in range(p)])

    @property
    def gpus(self) -> frozenset[int]:
        """The GPUs of all nodes."""
        return frozenset(gpu for node in self.nodes for gpu in node)

    @property
    def end_to_end(self) -> EndToEnd:
        """The bytes that each node owes each other one."""
        others = ~np.eye(len(self.nodes), dtype=bool)
        return _owed_between(self.nodes, others, len(self.rings), self.node_bytes)

    def lower(self, view: View | None = None, *, coupled: bool = False) -> Ops:
        """Return the messages of all rings, step by step; a hop waits for what came over the one before."""
        hops = np.array((*self.rings, *self.back), dtype=np.int64)
        rings, nodes, _ = hops.shape
        halves = np.array(ring_steps(nodes, both_ways=bool(self.back)), dtype=np.int64)
        sizes = np.repeat(halves * (self.node_bytes // (2 * len(self.rings))), rings * nodes)
        source, destination = np.tile(hops.reshape(-1, 2), (len(halves), 1)).T
        hop = np.tile(np.arange(rings * nodes), len(halves))  # each keeps its connection
        return each_alone(Messages(source, destination, sizes), waits_around(len(halves), rings, nodes), hop)

    def renumbered(self, gpus: Sequence[int]) -> "RingAllToAll":
        """Return the same all-to-all between other GPUs: ``gpus[k]`` takes the part of GPU k."""
        rings, back = (_renumbered(some, gpus) for some in (self.rings, self.back))
        return replace(self, rings=rings, back=back, nodes=_renumbered_nodes(self.nodes, gpus))


def owed_in_ring_all_to_all(pattern: RingAllToAll) -> Owed:
    """Return what each hop carries: m p (p - 1) / 2, both ways m p^2 / 8, of odd p m (p^2 - 1) / 8."""
    hops = np.array((*pattern.rings, *pattern.back), dtype=np.int64)
    rings, nodes, _ = hops.shape
    eighths = nodes * nodes - nodes % 2 if pattern.back else 4 * nodes * (nodes - 1)
    size = pattern.node_bytes * eighths // (8 * len(pattern.rings))
    edge = np.arange(rings * nodes).reshape(rings, nodes)
    return Owed(
        source=hops[:, :, 0].ravel(),
        destination=hops[:, :, 1].ravel(),
        least=np.full(rings * nodes, size, dtype=np.int64),
        most=np.full(rings * nodes, size, dtype=np.int64),
        total=size * rings * nodes,
        follows=np.concatenate([edge[:, -1:], edge[:, :-1]], axis=1).ravel(),
        steps=nodes // 2 if pattern.back else nodes - 1,
    )


def _owed_between(nodes: Nodes, owed: NDArray[np.bool_], lanes: int, node_bytes: int) -> EndToEnd:
    """Return m bytes between each two nodes that owe each other, evenly between the ranks of each lane."""
    ranks = np.array([[gpus[lane % len(gpus)] for lane in range(lanes)] for gpus in nodes], dtype=np.int64)
    sources, destinations = np.nonzero(owed)
    source, destination = ranks[sources].ravel(), ranks[destinations].ravel()
    size = np.full(len(source), node_bytes // lanes, dtype=np.int64)
    return EndToEnd(Messages(source, destination, size), nodes)


def _nodes_of(rings: Sequence[Sequence[Hop]], back: Sequence[Sequence[Hop]]) -> Nodes:
    """Return the GPUs of each node of rings: where one comes in it goes on, and the others beside it."""
    joined: nx.Graph[int] = nx.Graph()
    for some in (rings, back):
        for ring in some:
            joined.add_edges_from((ring[place - 1][1], near) for place, (near, _) in enumerate(ring))
            joined.add_edges_from((first, near) for (first, _), (near, _) in zip(some[0], ring, strict=True))
    return tuple(tuple(sorted(nx.node_connected_component(joined, near))) for near, _ in rings[0])


def _check_hops(nodes: Nodes, hops: Sequence[Hop], to: Sequence[int]) -> None:
    """Refuse hops that do not go from each node to the one given for it."""
    number = {gpu: node for node, gpus in enumerate(nodes) for gpu in gpus}
    going = sorted((number.get(near, -1), number.get(far, -1)) for near, far in hops)
    if len(number) != sum(map(len, nodes)) or going != list(enumerate(to)):
        raise DemandError(
            f"the hops {str(list(hops))[:60]} do not join {len(nodes)} nodes, each to the one it sends to",
            "list the GPUs of each node in nodes, each once, and a hop from every node to its next",
        )


def _renumbered(several: tuple[tuple[Hop, ...], ...], gpus: Sequence[int]) -> tuple[tuple[Hop, ...], ...]:
    return tuple(tuple((gpus[near], gpus[far]) for near, far in hops) for hops in several)


def _renumbered_nodes(nodes: Nodes, gpus: Sequence[int]) -> Nodes:
    return tuple(tuple(gpus[gpu] for gpu in node) for node in nodes)
