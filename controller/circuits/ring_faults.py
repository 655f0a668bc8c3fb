"""What becomes of a TP group on a K-hop ring while nodes die, and of its circuits.

A group *shrinks*: its ring closes without the node, and only the two neighbours' bundles change. Or the
node is *replaced*: groups are placed anew with as many nodes as before, and a spare node takes part.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.foreseen import Foreseen, ForeseenChange
from controller.circuits.ring_circuits import (
    Group,
    bundle_circuits,
    changed_bundles,
    place,
    ring_paths,
    shrunk,
)
from topologies.errors import DemandError
from topologies.khop_ring import KHopRing

Mode = Literal["shrink", "replace"]
"""What happens to a group whose node dies."""


def node_fault(node: int) -> str:
    """Return what the fault of a node is called."""
    return f"node {node}"


def surviving_groups(ring: KHopRing, group: Group, dying: Sequence[int], mode: Mode) -> tuple[Group, ...]:
    """Return a group as it is at first, and after each of the nodes that die one after the other.

    Parameters
    ----------
    ring
        Which nodes are joined.
    group
        Its nodes in wiring order.
    dying
        The nodes that die, in this order.
    mode
        Whether it shrinks, or is replaced by that of the groups that `place` gives which shares most nodes
        with it. A group without the dead node stays as it is.

    Raises
    ------
    DemandError
        If a node dies twice, no link bridges a gap, a bundle would light two paths, or nothing is left.
    FabricError
        If a node does not exist.

    References
    ----------
    InfiniteHBD, sections 4.2 and 4.3 (algorithm 2); the paper does not say what becomes of a group whose
    node dies while it is in use.
    """
    if len(set(dying)) < len(dying):
        raise DemandError(f"a node dies twice in {', '.join(map(str, dying))}", "name each once")
    ring.components(frozenset(dying))  # refuses nodes that do not exist
    groups = [group]
    for count, node in enumerate(dying, start=1):
        before, faulty = groups[-1], frozenset(dying[:count])
        if node not in before:
            groups.append(before)
        elif mode == "shrink":
            groups += shrunk(ring, [before], faulty)
        else:
            groups += _nearest(place(ring, faulty, len(group)), before)
        if len(groups) == count:
            raise DemandError(
                f"no group of {len(group)} nodes is left without the nodes {sorted(faulty)}",
                "let fewer nodes die, or take more nodes",
            )
    return tuple(groups)


def foreseen_rings(
    ring: KHopRing, groups: Sequence[Group], dying: Sequence[int], delay: ReconfigurationDelay
) -> Foreseen:
    """Return the circuits of a group from the start, and what changes after each node that dies.

    Parameters
    ----------
    ring, groups, dying
        As of `surviving_groups`, and what it returned.
    delay
        Of a bundle [real s].
    """
    paths = [ring_paths(ring, [group], frozenset(dying[:count])) for count, group in enumerate(groups)]
    changes = tuple(
        ForeseenChange(
            tuple(map(node_fault, dying[:count])),
            bundle_circuits(ring, after, changed_bundles(before, after)),
        )
        for count, (before, after) in enumerate(pairwise(paths), start=1)
    )
    return Foreseen(bundle_circuits(ring, paths[0], ring.every_bundle), changes, delay)


def _nearest(groups: Sequence[Group], before: Group) -> list[Group]:
    """Return the first of the groups that share most nodes with one from before; none if there are none."""
    shared = [len({*group} & {*before}) for group in groups]
    return [groups[shared.index(max(shared))]] if groups else []
