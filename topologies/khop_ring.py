"""InfiniteHBD's K-hop ring: nodes of GPUs whose optical transceivers (OCSTrx) are small OCSes.

A node's R GPUs stand in a cycle: bundle b of 8 transceivers joins the upper half of GPU b's lanes and
the lower half of GPU (b + 1) mod R's, so that each GPU has half its rate at each of two bundles. The
first K bundles leave the node, each by two paths; a bundle lights one of them, or loops back and joins
its own two GPUs. The other R - K bundles always loop back. Path x of one bundle and its far end join
upper with upper and lower with lower half.

    e_1 < e_2 < ...   the distances that links span: 1 to K nodes, or 1, 2, 4, ... 2^(K-1)
    bundle 0          -e_1 on path 1, -e_2 on path 2
    bundle 1          +e_1, +e_2
    bundle 2          -e_3, -e_4, and so on; with K odd the last bundle is mixed: -e_K, +e_K

The paper does not say which path is in which bundle; this fits its examples for K = 2. With K odd a
node cannot use -e_K and +e_K at once; no assignment avoids that.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from topologies.errors import FabricError
from topologies.fabric import (
    NVLINK_BPS,
    Fabric,
    Link,
    Nic,
    Port,
    Switch,
    check_links,
    equal_servers,
)

GPU_BPS = 6.4e12
"""InfiniteHBD's rate of a GPU, and of a bundle: 8 transceivers of 800 Gbit/s [bit/s]."""
BUNDLE_PORTS = 6
"""Upper and lower half of the GPUs' lanes, then upper and lower of path 1, then of path 2."""
LOOPBACK = 3
"""The path on which a bundle joins its own two GPUs; 1 and 2 leave the node."""
PATHS = ((2, 3, 0, 1, -1, -1), (4, 5, -1, -1, 0, 1), (1, 0, -1, -1, -1, -1))
"""The permutations that a bundle permits: path x is ``PATHS[x - 1]``."""
COPPER = ((1, 0),)
"""What a bundle that never leaves its node permits: two cables, here an OCS that always loops back."""


class TrxBundle(NamedTuple):
    """A bundle by its node and its own number there; `str` gives the name of its OCS."""

    node: int
    number: int

    def __str__(self) -> str:
        return f"n{self.node}b{self.number}"


class Exit(NamedTuple):
    """One of the two paths of a bundle that leave its node."""

    bundle: int
    path: int
    """1 or 2."""


@dataclass(frozen=True)
class KHopRing:
    """Which nodes a K-hop ring or line joins.

    Raises
    ------
    FabricError
        If a node cannot have that many bundles, or there are too few nodes for the farthest link.
    """

    nodes: int
    """n, how many nodes there are."""
    gpus_per_node: int
    """R, GPUs and bundles of a node."""
    bundles: int
    """K, how many bundles leave a node, and how many distances its links span each way."""
    closed: bool = True
    """Whether the last nodes are joined to the first: a ring, else a line."""
    doubling: bool = False
    """Whether links span 1, 2, 4, ... 2^(K-1) nodes instead of 1, 2, 3, ... K."""
    by_distance: bool = False
    """Whether a bundle has both directions of one distance, -e on path 1 and +e on path 2: then all
    distances can be lit at once, each one way, and none both ways."""

    def __post_init__(self) -> None:
        """Refuse a ring that cannot be wired."""
        n, r, k = self.nodes, self.gpus_per_node, self.bundles
        if not 2 <= k <= r:
            raise FabricError(f"{k} bundles on a node of {r} GPUs", "give it 2 up to one per GPU")
        check_links(2 * n * (r + k))  # two of each bundle to its GPUs, two of each that leaves to another
        farthest = self.distances[-1]
        halves = self.doubling and n == 2 * farthest
        least = 2 * farthest + 1 if self.closed else farthest + 1
        if n < least and not halves:
            raise FabricError(
                f"{n} nodes with links over {farthest}", f"give a {self.shape} at least {least} nodes"
            )

    @property
    def shape(self) -> str:
        """Whether it is a ring or a line, in a word."""
        return "ring" if self.closed else "line"

    @cached_property
    def distances(self) -> tuple[int, ...]:
        """How many nodes links span, rising."""
        return tuple(1 << i if self.doubling else i + 1 for i in range(self.bundles))

    @cached_property
    def every_bundle(self) -> tuple[TrxBundle, ...]:
        """All bundles, also those that stay inside their node."""
        return tuple(
            TrxBundle(node, number) for node in range(self.nodes) for number in range(self.gpus_per_node)
        )

    @cached_property
    def exits(self) -> dict[int, Exit]:
        """The path on which the link of each signed distance leaves a node."""
        found = {}
        for index, distance in enumerate(self.distances):
            if self.by_distance:
                found[-distance], found[distance] = Exit(index, 1), Exit(index, 2)
                continue
            pair, path = 2 * (index // 2), 1 + index % 2
            mixed = index == self.bundles - 1 and index % 2 == 0
            found[-distance] = Exit(pair, path)
            found[distance] = Exit(pair, 2) if mixed else Exit(pair + 1, path)
        return found

    @cached_property
    def links(self) -> tuple[tuple[int, int, int], ...]:
        """All links: a node, the one that its +distance reaches, and the distance."""
        return tuple(
            (node, (node + distance) % self.nodes, distance)
            for distance in self.distances
            for node in range(self._starts(distance))
        )

    def _starts(self, distance: int) -> int:
        """Return from how many nodes, the first ones, a link of a distance starts."""
        if not self.closed:
            return self.nodes - distance
        # Half round the ring it is the same link seen from either end.
        return self.nodes // 2 if 2 * distance == self.nodes else self.nodes

    def ends(self, a: int, b: int) -> tuple[int, int] | None:
        """Return the signed distances of the link between two nodes, seen from each; None without a link."""
        if not (0 <= a < self.nodes and 0 <= b < self.nodes):
            return None
        for first, second, sign in ((a, b, 1), (b, a, -1)):
            distance = second - first
            if self.closed:
                distance %= self.nodes
            if distance in self.distances and first < self._starts(distance):
                return sign * distance, -sign * distance
        return None

    def components(self, faulty: AbstractSet[int]) -> list[tuple[int, ...]]:
        """Return the healthy nodes in wiring order, cut where no link bridges the faulty ones between.

        Two healthy nodes with none between them are joined if they are one of the distances apart: with
        distances 1 to K only K or more faulty nodes in a row break the line. A ring with at most one
        such break is one component, which starts behind it. Few nodes may be joined across a gap by the link
        that goes the other way round: a ring without a break starts behind that gap.
        """
        for node in faulty:
            if not 0 <= node < self.nodes:
                raise FabricError(f"faulty node {node} of nodes 0 to {self.nodes - 1}")
        healthy = [node for node in range(self.nodes) if node not in faulty]
        before = [*healthy[-1:], *healthy[:-1]]
        leads = [self._leads(a, b) for a, b in zip(before, healthy, strict=True)]
        first = leads.index(min(leads)) if self.closed and healthy else 0
        parts: list[list[int]] = []
        for index in range(first - len(healthy), first):
            if not (parts and leads[index]):
                parts.append([])
            parts[-1].append(healthy[index])
        return [tuple(part) for part in parts]

    def _leads(self, a: int, b: int) -> int:
        """Return 2 if a link leads on from one node to another, 1 if one leads back, 0 if there is none."""
        ends = self.ends(a, b)
        return 0 if ends is None else 1 + (ends[0] > 0)

    def lanes(self, a: int, b: int) -> tuple[tuple[Nic, Nic], ...]:
        """Return the NICs that the link between two nodes joins, upper halves first: a's and b's of each.

        Raises
        ------
        FabricError
            If no link joins them.
        """
        ends = self.ends(a, b)
        if ends is None:
            raise FabricError(f"no link joins the nodes {a} and {b}", "ask for nodes that are joined")
        bundles = [(node, self.exits[distance].bundle) for node, distance in zip((a, b), ends, strict=True)]
        near, far = (
            [Nic(node * self.gpus_per_node + (bundle + half) % self.gpus_per_node, half) for half in range(2)]
            for node, bundle in bundles
        )
        return tuple(zip(near, far, strict=True))


def khop_ring_fabric(ring: KHopRing, *, gpu_bps: float = GPU_BPS) -> Fabric:
    """Return a K-hop ring or line in which each GPU is an endpoint and each bundle an OCS.

    GPU g of node v is server v R + g with one GPU and two NICs: 0 is its upper half, at bundle g, and 1
    its lower half, at bundle (g - 1) mod R. Every link carries half a GPU's rate.

    Parameters
    ----------
    ring
        Which nodes are joined.
    gpu_bps
        Rate of a GPU and of a bundle [bit/s].

    Raises
    ------
    FabricError
        If the rate is not positive.

    References
    ----------
    InfiniteHBD, sections 4.1 and 4.2; appendix G.3 for distances that double.
    """
    return Fabric(
        name=f"khop_{ring.shape}",
        servers=equal_servers(ring.nodes * ring.gpus_per_node, 2, 1, NVLINK_BPS),
        switches=tuple(_ocs(ring, bundle) for bundle in ring.every_bundle),
        links=tuple(Link(a, b, gpu_bps / 2) for a, b in _cables(ring)),
    )


def _ocs(ring: KHopRing, bundle: TrxBundle) -> Switch:
    if bundle.number < ring.bundles:
        return Switch(str(bundle), BUNDLE_PORTS, "ocs", permitted=PATHS)
    return Switch(str(bundle), 2, "ocs", permitted=COPPER)


def _cables(ring: KHopRing) -> Iterator[tuple[Port, Port]]:
    """Yield the ends of all links: GPUs to bundles, then bundles to bundles, upper lanes before lower."""
    r = ring.gpus_per_node
    for bundle in ring.every_bundle:
        for half in range(2):
            gpu = bundle.node * r + (bundle.number + half) % r
            yield Port(f"h{gpu}", half), Port(str(bundle), half)
    for a, b, distance in ring.links:
        near, far = ring.exits[distance], ring.exits[-distance]
        for half in range(2):
            yield (
                Port(str(TrxBundle(a, near.bundle)), 2 * near.path + half),
                Port(str(TrxBundle(b, far.bundle)), 2 * far.path + half),
            )
