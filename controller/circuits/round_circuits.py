"""Circuits of an all-to-all on a K-hop ring: the path of each bundle in each round, and when it changes.

A bundle that a round needs on another path than it shows changes as soon as the last round that used it
has ended. So a round waits for a reconfiguration only if the round before it used the same bundle on
another path; the circuits of the first are lit before bytes are sent. Bundles that no round needs, and
NVLink between the bundles of a node, take no part.
"""

from collections.abc import Sequence
from itertools import pairwise

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.foreseen import Foreseen
from controller.circuits.ring_circuits import Paths, bundle_circuits, link_paths
from topologies.errors import DemandError
from topologies.khop_ring import KHopRing, TrxBundle


def exchange_paths(ring: KHopRing) -> list[dict[TrxBundle, int]]:
    """Return the paths that bundles light in each round of a binary exchange between all nodes.

    In round k nodes that are n / 2^k apart are joined, the node whose rank has that bit 0 by its +distance.

    Raises
    ------
    DemandError
        If the number of nodes is no power of two, or no links join the partners of a round.

    References
    ----------
    InfiniteHBD, appendix G.3 and algorithm 6.
    """
    n = ring.nodes
    if n & (n - 1):
        raise DemandError(f"a binary exchange between {n} nodes", "take a power of two")
    distances = [n >> k for k in range(1, n.bit_length())]
    return [link_paths(ring, ((node, node ^ w) for node in range(n) if not node & w)) for w in distances]


def node_ring_paths(ring: KHopRing) -> dict[TrxBundle, int]:
    """Return the paths that join each node with the two beside it.

    Raises
    ------
    DemandError
        If the wiring does not close, or both links of a node are in one bundle.
    """
    return link_paths(ring, ((node, (node + 1) % ring.nodes) for node in range(ring.nodes)))


def foreseen_rounds(
    ring: KHopRing, rounds: Sequence[tuple[str, Paths]], delay: ReconfigurationDelay
) -> Foreseen:
    """Return circuits that change between the rounds of a job.

    Parameters
    ----------
    ring
        What is wired.
    rounds
        The nodes of the job that send, one after the other, and the paths that each needs lit.
    delay
        Of an OCSTrx [real s].
    """
    needs = [needed for _, needed in rounds]
    first: dict[TrxBundle, int] = {}
    for needed in needs:
        first |= {bundle: path for bundle, path in needed.items() if bundle not in first}
    after = tuple(
        (name, bundle_circuits(ring, later, sorted(later)))
        for number, (name, needed) in enumerate(rounds)
        if (later := _next_paths(needed, needs[number + 1 :]))
    )
    return Foreseen(bundle_circuits(ring, first, sorted(first)), (), delay, after)


def rounds_that_wait(rounds: Sequence[Paths]) -> list[int]:
    """Return the rounds, counted from 0, that wait for a reconfiguration.

    That holds where rounds last longer than a reconfiguration, which then passes beside a whole round.
    """
    return [
        number
        for number, (before, needed) in enumerate(pairwise(rounds), start=1)
        if any(before.get(bundle, path) != path for bundle, path in needed.items())
    ]


def _next_paths(used: Paths, later: Sequence[Paths]) -> dict[TrxBundle, int]:
    """Return the bundles of a round that light another path in the next round that needs them."""
    following = {
        bundle: next((needed[bundle] for needed in later if bundle in needed), path)
        for bundle, path in used.items()
    }
    return {bundle: path for bundle, path in following.items() if path != used[bundle]}
