"""Relays: how bytes leave and reach a server whose packet NICs have all failed.

They cross a circuit to a *relay*, a server that has one to the cut-off server and packet NICs that work, and
go on over its packet NICs; back the same way. The relay stores what it forwards: a message goes hop by hop,
in pieces that follow each other.

References
----------
mFabric, sections 5.4 and 7.5 ("bypassed by indirect forwarding"). Which relay is ours: of those with a
circuit the one with the fewest bytes over packet NICs, then that of the lowest index.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from topologies.events import View
from topologies.fabric import Fabric, Nic
from topologies.packet_part import cut_off
from topologies.routes import Routes
from traffic.messages import Messages
from traffic.ops import DARK, LANES, PACKETS, Ops, Part, joined

PIECES = 8
"""In so many pieces a message is relayed, so that its hops are busy together for most of the time."""

Pair = tuple[int, int]
"""A source and a destination server."""


class RelayHop(NamedTuple):
    """A stretch of the path of what is relayed."""

    source: int
    """A server."""
    destination: int
    over_light: bool
    """Whether it goes over circuits between the two, else over packet NICs."""


Hops = tuple[RelayHop, ...]
"""All of them, in order."""


def pieces_of(size: int) -> list[int]:
    """Return the sizes of the pieces in which bytes are relayed.

    Examples
    --------
    >>> pieces_of(20), pieces_of(3)
    ([2, 3, 2, 3, 2, 3, 2, 3], [1, 1, 1])
    """
    count = min(PIECES, size)
    edges = [size * piece // count for piece in range(count + 1)]
    return [end - begin for begin, end in pairwise(edges)]


def hop_by_hop(view: View, part: Part, paths: Sequence[Hops | None]) -> Ops:
    """Return operations as they go through other servers.

    Parameters
    ----------
    view
        Whether more light is to come: what no relay can serve yet waits for it.
    part
        Operations that are under way, of one move each.
    paths
        The hops of each: none if it goes directly, None if no relay can serve it now.
    """
    waits = np.array([path is None and view.light_is_coming for path in paths], dtype=bool)
    directly = np.array([not path for path in paths], dtype=bool) & ~waits
    found = [Ops((part.select(directly), replace(part.select(waits), medium=DARK)))]
    rows = zip(
        part.moves.source.tolist(), part.moves.destination.tolist(), part.moves.bytes.tolist(), strict=True
    )
    for (source, destination, size), of, path in zip(rows, part.of.tolist(), paths, strict=True):
        if path:
            ends = [_gpu_at(view.fabric, source, destination, server) for server in _servers_of(path)]
            found.append(_chain(ends, pieces_of(size), of, path))
    return joined(found)


def _chain(ends: Sequence[int], sizes: Sequence[int], of: int, path: Hops) -> Ops:
    """Return the hops of one operation's pieces between GPUs, each piece's after each other."""
    pieces = len(sizes)
    parts = tuple(
        Part(
            Messages(np.full(pieces, near), np.full(pieces, far), np.array(sizes, dtype=np.int64)),
            medium=LANES if hop.over_light else PACKETS,
            of=np.full(pieces, of),
            hop=place,
        )
        for place, (hop, (near, far)) in enumerate(zip(path, pairwise(ends), strict=True))
    )
    number = np.arange(len(path) * pieces).reshape(len(path), pieces)
    return Ops(parts, np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1))


def _servers_of(path: Hops) -> list[int]:
    return [path[0].source, *(hop.destination for hop in path)]


def _gpu_at(fabric: Fabric, source: int, destination: int, server: int) -> int:
    """Return the GPU of a server that stands for a move's: its own ones where they are there."""
    for gpu in (source, destination):
        if fabric.gpu_servers[gpu] == server:
            return gpu
    place = source - fabric.gpu_offsets[fabric.gpu_servers[source]]
    return fabric.gpu_offsets[server] + place % fabric.servers[server].gpus


def relayed_paths(
    view: View, nics: Sequence[Sequence[Nic]], lacking: Sequence[Pair], over_packets: Mapping[Pair, int]
) -> dict[Pair, Hops | None]:
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
    routes = view.routes()
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

    def path(near: int, far: int) -> Hops | None:
        if far in peers.get(near, ()) or near in peers.get(far, ()):
            return (RelayHop(near, far, over_light=True),)
        first, last = relay_of.get(near, near), relay_of.get(far, far)
        if first is None or last is None or (first, last) == (near, far):
            return None
        return (
            *[RelayHop(near, first, over_light=True)] * (first != near),
            *[RelayHop(first, last, over_light=False)] * (first != last),
            *[RelayHop(last, far, over_light=True)] * (last != far),
        )

    return {pair: path(*pair) for pair in lacking}


def _peers(routes: Routes, nics: Sequence[Nic]) -> set[int]:
    """Return the servers to which NICs have circuits, lit both ways."""
    reached = {nic: routes.next_nic(nic) for nic in nics}
    return {far.server for nic, far in reached.items() if far and routes.next_nic(far) == nic}
