"""Rings of GPUs on a K-hop ring: from TP groups to the circuits of every bundle.

A TP group is a line of nodes v_0 ... v_(m-1), each joined to the next by a link. The ends have one
bundle outside the node, inner nodes two, and every other bundle loops back; so the group's GPUs form one
cycle. Taking a bundle out of a node's cycle of GPUs leaves one path through all of them, taking two
out leaves two paths that visit all together.

After a fault a group shrinks, closing its ring without the node, or all are placed anew (`place`), with
groups of the old size. Both are plain values: what changes on the OCSes is `changed_bundles`.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import pairwise

from controller.circuits.circuits import Pair
from controller.circuits.foreseen import OcsCircuits
from topologies.errors import DemandError
from topologies.khop_ring import COPPER, LOOPBACK, PATHS, KHopRing, TrxBundle

Group = tuple[int, ...]
"""The nodes of a TP group in wiring order."""
Paths = Mapping[TrxBundle, int]
"""The path that each optical bundle lights: 1, 2, or `LOOPBACK`; a faulty node's bundles are missing."""


def place(ring: KHopRing, faulty: AbstractSet[int], group_nodes: int) -> tuple[Group, ...]:
    """Return as many groups as the components of the healthy nodes have room for, cut from their fronts.

    Parameters
    ----------
    ring
        Which nodes are joined.
    faulty
        The nodes that no group may use.
    group_nodes
        m, nodes of a group.

    Raises
    ------
    FabricError
        If a faulty node does not exist.
    DemandError
        If a group has no node.

    Notes
    -----
    With K odd a node between K - 1 faulty ones on either side would light both paths of its mixed bundle.
    A group that reaches it is given up and the next one starts there, which loses the fewest groups on a
    line. A ring without a break is cut before its first healthy node, then not always the best place.

    References
    ----------
    InfiniteHBD, section 4.3, algorithm 2.
    """
    if group_nodes < 1:
        raise DemandError(f"groups of {group_nodes} nodes", "ask for at least one")
    groups: list[Group] = []
    for component in ring.components(faulty):
        group: list[int] = []
        for node in component:
            if len(group) > 1 and _clash(ring, group[-2], group[-1], node):
                group = group[-1:]
            group.append(node)
            if len(group) == group_nodes:
                groups.append(tuple(group))
                group = []
    return tuple(groups)


def shrunk(ring: KHopRing, groups: Iterable[Group], faulty: AbstractSet[int]) -> tuple[Group, ...]:
    """Return the groups without their faulty nodes, each closed over the gap.

    Raises
    ------
    DemandError
        If no link bridges a gap, or a bundle would light two paths.
    """
    left = [tuple(node for node in group if node not in faulty) for group in groups]
    kept = tuple(group for group in left if group)
    for group in kept:
        link_paths(ring, pairwise(group))
    return kept


def ring_paths(
    ring: KHopRing, groups: Iterable[Group], faulty: AbstractSet[int] = frozenset()
) -> dict[TrxBundle, int]:
    """Return the path of every healthy node's optical bundles that joins each group into one ring.

    Raises
    ------
    DemandError
        If a node is faulty, does not exist or is in two groups, two nodes of a group that follow each
        other have no link, or a bundle would light two paths.
    """
    paths = {
        TrxBundle(node, number): LOOPBACK
        for node in range(ring.nodes)
        if node not in faulty
        for number in range(ring.bundles)
    }
    seen: set[int] = set()
    for group in groups:
        for node in group:
            if node in seen or TrxBundle(node, 0) not in paths:
                reason = "in two groups" if node in seen else "faulty or does not exist"
                raise DemandError(f"node {node} of the group {group} is {reason}")
            seen.add(node)
        paths |= link_paths(ring, pairwise(group))
    return paths


def link_paths(ring: KHopRing, pairs: Iterable[tuple[int, int]]) -> dict[TrxBundle, int]:
    """Return the paths by which pairs of nodes are joined, all at once.

    Raises
    ------
    DemandError
        If no link joins a pair, or a bundle would light both paths.
    """
    paths: dict[TrxBundle, int] = {}
    for a, b in pairs:
        ends = ring.ends(a, b)
        if ends is None:
            raise DemandError(
                f"no link joins the nodes {a} and {b}", "place groups anew, or wire distances that double"
            )
        for node, distance in zip((a, b), ends, strict=True):
            bundle = TrxBundle(node, ring.exits[distance].bundle)
            path = ring.exits[distance].path
            if paths.setdefault(bundle, path) != path:
                raise DemandError(
                    f"bundle {bundle} would light both paths, one of them from {a} to {b}",
                    "place groups anew, or wire bundles by direction",
                )
    return paths


def changed_bundles(before: Paths, after: Paths) -> tuple[TrxBundle, ...]:
    """Return the bundles that light another path than before, without those that went dark."""
    return tuple(sorted(bundle for bundle, path in after.items() if before.get(bundle) != path))


def bundle_circuits(ring: KHopRing, paths: Paths, bundles: Iterable[TrxBundle]) -> tuple[OcsCircuits, ...]:
    """Return what the OCSes of some bundles of `khop_ring_fabric` show; those of faulty nodes are dark."""
    healthy = {bundle.node for bundle in paths}
    return tuple(
        (str(bundle), _shown(ring, paths, bundle) if bundle.node in healthy else ()) for bundle in bundles
    )


def _shown(ring: KHopRing, paths: Paths, bundle: TrxBundle) -> tuple[Pair, ...]:
    """Return the circuits of a healthy node's bundle."""
    copper = bundle.number >= ring.bundles
    outputs = COPPER[0] if copper else PATHS[paths.get(bundle, LOOPBACK) - 1]
    return tuple((a, b) for a, b in enumerate(outputs) if b >= 0)


def _clash(ring: KHopRing, before: int, node: int, after: int) -> bool:
    """Return whether a node would light both paths of one bundle between two others."""
    links = [ring.ends(node, other) for other in (before, after)]
    return len({ring.exits[ends[0]].bundle for ends in links if ends}) == 1
