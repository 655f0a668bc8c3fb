"""All-to-all between nodes over one lit link at a time: binary exchange, and rings, with their closed forms.

    p   nodes, ranked by their place in the group
    m   bytes from every node to every node, its own part included
    B   rate of a link between nodes, each way [bit/s]
    w   distance of a round's partners

In a round of the binary exchange node i swaps half of all that it holds with i XOR w; w halves from p / 2
to 1. A ring passes on what is for nodes farther along, one way round or the shorter way; what is for the
opposite node then goes half either way.

Printed and corrected here: Algorithm 6 has the range of destinations start at "r & w", which misses bytes
from four nodes on; it is r AND NOT (w - 1), up to that + w exclusive.

References
----------
InfiniteHBD, section 7 and appendix G, algorithm 6.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from topologies.errors import DemandError
from topologies.events import View
from traffic.collectives.owed import Owed
from traffic.collectives.ring import waits_around
from traffic.messages import Messages
from traffic.ops import Ops, each_alone

Block = tuple[int, int]
"""What a node has for another: m bytes, by the ranks of the two."""
Hop = tuple[int, int]
"""The GPU that sends from a node to the next of a ring, and the one that receives there."""


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
class RingAllToAll:
    """An all-to-all between nodes over rings, step by step; a node passes on what is for others.

    A node's bytes are shared evenly by the rings that run the same way. What GPUs of a node pass to each
    other is not modelled: the GPU that receives may be another than that which sends on.

    Raises
    ------
    DemandError
        If rings are not of equally many nodes, two or more, or bytes cannot be cut into equal parts.
    """

    rings: tuple[tuple[Hop, ...], ...]
    """The hops of each ring, from each of its nodes to the next; all run the same way."""
    node_bytes: int
    """m, from every node to every node [bytes]."""
    back: tuple[tuple[Hop, ...], ...] = ()
    """As many rings that run the other way; without them all bytes go one way round."""
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

    @property
    def gpus(self) -> frozenset[int]:
        """The GPUs that send or receive."""
        return frozenset(gpu for ring in (*self.rings, *self.back) for hop in ring for gpu in hop)

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
        rings, back = (
            tuple(tuple((gpus[a], gpus[b]) for a, b in ring) for ring in some)
            for some in (self.rings, self.back)
        )
        return replace(self, rings=rings, back=back)


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
