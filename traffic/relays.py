"""Relays: how bytes leave and reach a server whose packet NICs have all failed.

They cross a circuit to a *relay*, a server that has one to the cut-off server and packet NICs that work, and
go on over its packet NICs; back the same way. The relay stores what it forwards: a message goes hop by hop,
in parts that follow each other.

References
----------
mFabric, sections 5.4 and 7.5 ("bypassed by indirect forwarding"). Which relay is ours: of those with a
circuit the one with the fewest bytes over packet NICs, then that of the lowest index.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from topologies.events import View
from topologies.fabric import Nic
from topologies.packet_part import cut_off
from topologies.routes import Routes

PARTS = 8
"""In so many parts a message is relayed, so that its hops are busy together for most of the time."""

Pair = tuple[int, int]
"""A source and a destination server."""


class Hop(NamedTuple):
    """A stretch of the path of what is relayed."""

    source: int
    """A server."""
    destination: int
    over_light: bool
    """Whether it goes over circuits between the two, else over packet NICs."""


Path = tuple[Hop, ...]


def parts_of(size: int) -> list[int]:
    """Return the sizes of the parts in which bytes are relayed.

    Examples
    --------
    >>> parts_of(20), parts_of(3)
    ([2, 3, 2, 3, 2, 3, 2, 3], [1, 1, 1])
    """
    count = min(PARTS, size)
    edges = [size * part // count for part in range(count + 1)]
    return [end - begin for begin, end in pairwise(edges)]


def relayed_paths(
    view: View, nics: Sequence[Sequence[Nic]], lacking: Sequence[Pair], over_packets: Mapping[Pair, int]
) -> dict[Pair, Path | None]:
    """Return the hops between servers that no lane joins.

    Parameters
    ----------
    view
        What is lit and has failed.
    nics
        The circuit NICs of each server.
    lacking
        The pairs of servers without a lane.
    over_packets
        What other pairs send over packet NICs meanwhile [bytes].

    Returns
    -------
    dict of pair to hops
        None for a pair that no relay can serve now.
    """
    cut = cut_off(view.fabric, view.failed)
    routes = Routes(view.fabric, view.lit, view.failed)
    busy = defaultdict[int, int](int)
    for pair, size in over_packets.items():
        for server in pair:
            busy[server] += size
    ends = dict.fromkeys(server for pair in lacking for server in pair)
    peers = {server: _peers(routes, nics[server]) for server in ends if server in cut}
    relay_of = {
        server: min(own - cut, key=lambda peer: (busy[peer], peer), default=None)
        for server, own in peers.items()
    }

    def path(near: int, far: int) -> Path | None:
        if far in peers.get(near, ()) or near in peers.get(far, ()):
            return (Hop(near, far, over_light=True),)
        first, last = relay_of.get(near, near), relay_of.get(far, far)
        if first is None or last is None or (first, last) == (near, far):
            return None
        return (
            *[Hop(near, first, over_light=True)] * (first != near),
            *[Hop(first, last, over_light=False)] * (first != last),
            *[Hop(last, far, over_light=True)] * (last != far),
        )

    return {pair: path(*pair) for pair in lacking}


def _peers(routes: Routes, nics: Sequence[Nic]) -> set[int]:
    """Return the servers to which NICs have circuits, lit both ways."""
    reached = {nic: routes.next_nic(nic) for nic in nics}
    return {far.server for nic, far in reached.items() if far and routes.next_nic(far) == nic}
