"""Topology-aware all-to-all: bytes between servers go over delegation GPUs, and their NICs.

The *lanes* of a pair of servers are its lit circuits or, if it has none, packet NICs, NIC m to NIC m. If it
has neither and servers forward, as on a patch panel, they are its shortest routes over several circuits, each
NIC in one of them: then lanes share circuits, with each other and with direct ones. Bytes are split evenly
over the lanes of their pair. Each NIC belongs to a GPU, its delegation GPU, so there are

    gather      over NVLink: each GPU's share of a lane to the delegation GPU of the lane's source NIC
    transfer    over the lanes
    inside      over NVLink: what stays in its server
    scatter     over NVLink: from the delegation GPU of the lane's destination NIC to the GPUs it is for

Transfer and inside start when all servers have gathered, and scatter when both have ended: the paper's text
has no more overlap. ``pipelined`` is the other extreme, in which chunks flow on and all four go at once.

References
----------
mFabric, section 5.3. That NIC k belongs to GPU floor(k GPUs / NICs), and packet lanes join NICs of equal
number, is ours.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from topologies.errors import ScenarioError
from topologies.events import View
from topologies.fabric import Fabric, Nic, Port
from topologies.light import Circuit
from topologies.packet_part import cut_off, on_packet_switch
from topologies.routes import Routes, light_leads
from traffic.messages import Messages
from traffic.ops import INSIDE, LANES, OWN, Brought, Ops, Part
from traffic.relays import Hops, relayed_paths
from traffic.scheme import Placement, placement_of, routed, servers_of
from traffic.spraying.policy import QueuePair
from traffic.tables import CROSSES, GATHER, SCATTER

BISECTIONS = 60
"""Halvings of a time span: what is left of it is less than a float can tell."""
MOST_KNOWN = 1024
"""So many delegations are remembered: a training step repeats the same few hundred."""


Key = TypeVar("Key")
Known = TypeVar("Known")


@dataclass(frozen=True, eq=False)
class Delegation:
    """The messages of an all-to-all in each of its legs."""

    messages: Messages
    """The messages of the all-to-all."""
    pair: NDArray[np.int64]
    """Index of each message's pair of servers in `between`; -1 if it stays inside, shape (messages,)."""
    stays: NDArray[np.int64]
    """The messages that stay inside, by their index."""
    between: Messages
    """All that one server sends to another, from the first GPU of the one to the first of the other."""
    lanes: Placement
    """`between` on the queue pairs of its lanes; what is relayed on those of each of its hops."""
    gather: Messages
    """Moves from GPUs to delegation GPUs of their server."""
    inside: Messages
    """The messages that stay inside."""
    scatter: Messages
    """Moves from delegation GPUs to others of their server."""


class Lanes:
    """Each message split over the lanes of its two servers.

    Parameters
    ----------
    light
        Whether circuits are lanes; else packet NICs carry all.
    spill
        Whether pairs that have circuits put what these cannot carry in the least possible time on
        packet NICs; else circuits carry all of it.
    two_hops
        Whether a pair without a circuit goes through a server that has circuits to both, where there is one,
        and not over packet NICs. Servers have to forward.
    """

    def __init__(self, *, light: bool = True, spill: bool = False, two_hops: bool = False) -> None:
        self._light, self._spill, self._two_hops = light, spill, two_hops
        self._placed: dict[object, Placement] = {}
        self._found: dict[object, _FoundLanes] = {}
        """What was placed, and the lanes of pairs of servers, by all that they depend on."""

    def place(self, view: View, messages: Messages) -> Placement:
        """Return a parcel for each message and lane; equal messages over equal circuits are placed once.

        Raises
        ------
        ScenarioError
            If no lane joins the servers of a message, or servers should forward and do not.
        """
        key = decides(view, messages, light=self._light)
        return remembered(self._placed, key, lambda: self._place(view, messages))

    def paths(self, view: View, messages: Messages) -> list[Hops | None]:
        """Return how messages go through other servers where all packet NICs of one have failed.

        No hops if they go directly; None if no relay can serve them now.
        """
        if not (view.failed and cut_off(view.fabric, view.failed)):
            return [()] * len(messages)
        ends = servers_of(view.fabric, messages)
        lanes = self._lanes(view, tuple(dict.fromkeys(ends))).of_pair
        over_packets = defaultdict[tuple[int, int], int](int)
        for pair, size in zip(ends, messages.bytes.tolist(), strict=True):
            if lanes[pair] and on_packet_switch(view.fabric, lanes[pair][0].source):
                over_packets[pair] += size
        lacking = [pair for pair, own in lanes.items() if not own]
        found = (
            relayed_paths(view, _nics(view.fabric, on_packets=False), lacking, over_packets)
            if lacking
            else {}
        )
        return [found.get(pair, ()) for pair in ends]

    def _place(self, view: View, messages: Messages) -> Placement:
        ends = servers_of(view.fabric, messages)
        found = self._lanes(view, tuple(dict.fromkeys(ends)))
        lanes = found.of_pair
        for near, far in (pair for pair, own in lanes.items() if not own):
            raise ScenarioError(
                f"neither circuits nor packet NICs that work join server {near} to server {far}",
                "light a circuit between them, give both packet NICs, or let servers forward (two hops); "
                "what fails must leave each server a lane, or be back before it is known",
            )
        if not self._spill and len(lanes) == len(ends) and (placed := found.place(messages)):
            return placed
        shares = self._shares(view, messages, ends, lanes)
        return placement_of(
            (lane, message, round(until * size) - round(before * size))
            for message, (pair, size) in enumerate(zip(ends, messages.bytes.tolist(), strict=True))
            for lane, (before, until) in zip(
                lanes[pair], pairwise(accumulate(shares[pair], initial=0.0)), strict=True
            )
        )

    def _lanes(self, view: View, pairs: tuple[tuple[int, int], ...]) -> "_FoundLanes":
        """Return the lanes of pairs of servers: circuits first, then, where they are used, packet NICs."""
        servers = dict.fromkeys(server for pair in pairs for server in pair)
        key = pairs, view.failed, _light(view, servers) if self._light else ()
        return remembered(self._found, key, lambda: _FoundLanes(self._find_lanes(view, pairs, servers)))

    def _find_lanes(
        self, view: View, pairs: Sequence[tuple[int, int]], servers: Iterable[int]
    ) -> dict[tuple[int, int], list[QueuePair]]:
        routes = view.routes()
        lit = defaultdict[tuple[int, int], list[QueuePair]](list)
        for nic in (nic for server in servers for nic in _nics(view.fabric, on_packets=False)[server]):
            if self._light and (far := routes.next_nic(nic)):
                lit[nic.server, far.server].append(QueuePair(nic, far))
        found = {}
        for pair in pairs:
            lanes = lit.get(pair, [])
            if not lanes and self._two_hops:
                lanes = _over_two_hops(view.fabric, routes, *pair)
            if self._spill or not lanes:
                lanes = [*lanes, *_packet_lanes(view.fabric, view.failed, *pair)]
            if not lanes and self._light and view.fabric.servers_forward:
                lanes = _forwarded(view.fabric, routes, *pair)
            found[pair] = lanes
        return found

    def _shares(
        self,
        view: View,
        messages: Messages,
        ends: Sequence[tuple[int, int]],
        lanes: dict[tuple[int, int], list[QueuePair]],
    ) -> Mapping[tuple[int, int], Sequence[float]]:
        """Return which share of a pair's bytes each of its lanes carries."""
        if not self._spill:
            return {pair: [1 / len(own)] * len(own) for pair, own in lanes.items()}
        shares = {pair: np.full(len(own), 1 / len(own)) for pair, own in lanes.items()}
        owed = defaultdict[tuple[int, int], int](int)
        for pair, size in zip(ends, messages.bytes.tolist(), strict=True):
            owed[pair] += size
        capable = {
            pair: np.array([on_packet_switch(view.fabric, lane.source) for lane in own])
            for pair, own in lanes.items()
        }
        rates = {
            pair: np.array([view.fabric.nic_rate_bps(lane.source) for lane in own])
            for pair, own in lanes.items()
        }
        light_bps = {pair: float(rates[pair][~capable[pair]].sum()) for pair in lanes}
        least_s = _least_spilling_s(view, owed, light_bps)
        for pair, size in owed.items():
            over_light = min(light_bps[pair] * least_s / 8 / size, 1.0) if capable[pair].any() else 1.0
            for part, of_lanes in ((over_light, ~capable[pair]), (1 - over_light, capable[pair])):
                if of_lanes.any():
                    shares[pair][of_lanes] = part * rates[pair][of_lanes] / rates[pair][of_lanes].sum()
        return {pair: own.tolist() for pair, own in shares.items()}


class _FoundLanes:
    """The lanes of pairs of servers, and where messages go if each pair has one."""

    def __init__(self, of_pair: dict[tuple[int, int], list[QueuePair]]) -> None:
        self.of_pair = of_pair
        counts = [len(own) for own in of_pair.values()]
        self._queue_pairs = tuple(lane for own in of_pair.values() for lane in own)
        self._qp = np.arange(len(self._queue_pairs))
        self._message = np.repeat(np.arange(len(counts)), counts)
        self._until = np.array([part for lanes in counts for part in accumulate([1 / max(lanes, 1)] * lanes)])
        """Which part of its message is on a lane and those before it."""
        self._is_first = np.array([not lane for lanes in counts for lane in range(lanes)], dtype=bool)
        self._is_apart = len(set(self._queue_pairs)) == len(self._queue_pairs)

    def place(self, messages: Messages) -> Placement | None:
        """Return messages, one of each pair in order, split evenly; None if a lane carried nothing of one.

        Those of equal lanes share what does not depend on their sizes.
        """
        end = np.rint(self._until * messages.bytes[self._message]).astype(np.int64)
        sizes = end - np.where(self._is_first, 0, np.roll(end, 1))
        if not self._is_apart or not (sizes > 0).all():
            return None
        return Placement(self._queue_pairs, self._qp, self._message, sizes)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Between which servers messages go, whatever their sizes."""

    pair: NDArray[np.int64]
    """The pair of servers of each message; -1 if it stays inside, shape (messages,)."""
    crossing: NDArray[np.int64]
    stays: NDArray[np.int64]
    """The messages that leave their server, and those that do not."""
    inside: tuple[NDArray[np.int64], NDArray[np.int64]]
    """Source and destination of the latter."""
    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    """The first GPU of each server of a pair, shape (pairs,)."""


@dataclass(frozen=True, eq=False)
class _Shares:
    """What GPUs of a server send to each other for the lanes of its pairs, whatever its size."""

    message: NDArray[np.int64]
    parcel: NDArray[np.int64]
    """The message of each share, and the parcel of its pair that it is part of."""
    moves: NDArray[np.intp]
    """The shares that are not where they should be."""
    hop: NDArray[np.intp]
    """Between which GPUs each of these moves."""
    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    """Those GPUs, each two once."""

    def sent(self, messages: Messages, part: NDArray[np.float64]) -> Messages:
        """Return what GPUs send to each other in all; ``part`` is which of its pair each parcel has."""
        shares = messages.bytes[self.message] * part[self.parcel]
        sizes = np.rint(np.bincount(self.hop, shares[self.moves], len(self.source))).astype(np.int64)
        found = Messages(self.source, self.destination, sizes)
        return found if sizes.all() else found.select(sizes > 0)


class Shapes:
    """What delegations between the same GPUs and over the same lanes have in common, found once."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[bytes, bytes], _Pairs] = {}
        self._shares: dict[tuple[int, int], tuple[object, tuple[_Shares, _Shares]]] = {}
        """By the identity of pairs and of parcels, which are kept."""

    def pairs(self, fabric: Fabric, messages: Messages) -> _Pairs:
        """Return between which servers messages go."""
        key = messages.source.tobytes(), messages.destination.tobytes()
        return remembered(self._pairs, key, lambda: _pairs_of(fabric, messages))

    def shares(
        self, fabric: Fabric, messages: Messages, pairs: _Pairs, placed: Placement
    ) -> tuple[_Shares, _Shares]:
        """Return what is gathered and what is scattered, where each parcel is of a whole path."""

        def found() -> tuple[object, tuple[_Shares, _Shares]]:
            every = np.ones(len(placed.bytes), dtype=bool)
            return (pairs, placed.qp), _shares_of(fabric, messages, pairs, placed, every, every)

        return remembered(self._shares, (id(pairs), id(placed.qp)), found)[1]


def delegation(view: View, messages: Messages, lanes: Lanes, shapes: Shapes | None = None) -> Delegation:
    """Return the legs of an all-to-all over lanes; ``shapes`` are those that are known."""
    fabric, shapes = view.fabric, shapes or Shapes()
    pairs = shapes.pairs(fabric, messages)
    of_crossing = pairs.pair[pairs.crossing]
    sizes = np.bincount(of_crossing, messages.bytes[pairs.crossing], len(pairs.source)).astype(np.int64)
    between = Messages(pairs.source, pairs.destination, sizes)
    placed, first, last = _placed(view, between, lanes)
    if first is None or last is None:
        gathered, scattered = shapes.shares(fabric, messages, pairs, placed)
    else:
        gathered, scattered = _shares_of(fabric, messages, pairs, placed, first, last)
    part = placed.bytes / sizes[placed.message]
    return Delegation(
        messages,
        pairs.pair,
        pairs.stays,
        between,
        placed,
        gathered.sent(messages, part),
        Messages(*pairs.inside, messages.bytes[pairs.stays]),
        scattered.sent(messages, part),
    )


def _pairs_of(fabric: Fabric, messages: Messages) -> _Pairs:
    servers, offsets = fabric.server_of_gpu, np.asarray(fabric.gpu_offsets)
    near, far, count = servers[messages.source], servers[messages.destination], len(fabric.servers)
    (crossing,) = np.nonzero(near != far)
    codes, of_crossing = np.unique((near * count + far)[crossing], return_inverse=True)
    pair = np.full(len(messages), -1, dtype=np.int64)
    pair[crossing] = of_crossing
    (stays,) = np.nonzero(pair < 0)
    inside = messages.source[stays], messages.destination[stays]
    return _Pairs(pair, crossing, stays, inside, offsets[codes // count], offsets[codes % count])


def _shares_of(
    fabric: Fabric,
    messages: Messages,
    pairs: _Pairs,
    placed: Placement,
    first: NDArray[np.bool_],
    last: NDArray[np.bool_],
) -> tuple[_Shares, _Shares]:
    """Return what is gathered and scattered; parcels are of a ``first`` or ``last`` hop, or of both."""
    delegate = delegation_gpus(fabric)
    sources = np.array([delegate[lane.source] for lane in placed.queue_pairs], dtype=np.int64)
    ends = np.array([delegate[lane.destination] for lane in placed.queue_pairs], dtype=np.int64)

    def parcels(of_hop: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        (mine,) = np.nonzero(of_hop)
        message, parcel = _joined(pairs.crossing, pairs.pair[pairs.crossing], placed.message[mine])
        return message, mine[parcel]

    leaving, leaves_by = parcels(first)
    coming, comes_by = parcels(last)
    return (
        _shares(leaving, leaves_by, messages.source[leaving], sources[placed.qp[leaves_by]], fabric.gpus),
        _shares(coming, comes_by, ends[placed.qp[comes_by]], messages.destination[coming], fabric.gpus),
    )


def _shares(
    message: NDArray[np.int64],
    parcel: NDArray[np.int64],
    source: NDArray[np.int64],
    destination: NDArray[np.int64],
    gpus: int,
) -> _Shares:
    (moves,) = np.nonzero(source != destination)
    codes, hop = np.unique((source * gpus + destination)[moves], return_inverse=True)
    return _Shares(message, parcel, moves, hop, codes // gpus, codes % gpus)


@dataclass(frozen=True, eq=False)
class DelegatedOps(Ops):
    """The operations of a delegated all-to-all: what gathers, what stays, what crosses and what scatters."""

    delegation: Delegation | None = None
    """What they carry out."""
    first_pair: int = 0
    """The operation of the first pair of servers; those of the others follow, if it is not that of all."""


def in_stages(found: Delegation, *, pipelined: bool, coupled: bool, as_one: bool) -> DelegatedOps:
    """Return the operations of a delegated all-to-all, in the order in which they may start.

    Parameters
    ----------
    found
        What each stage sends.
    pipelined
        Whether none waits for another.
    coupled
        Whether the run moves what it can together: there is a row for each two servers then, and not for each
        message between them. Else lanes may change, and there is always a scatter, of what may arrive
        elsewhere than planned.
    as_one
        Whether all pairs of servers are one operation.
    """
    pairs = Part(found.between, as_one and bool(len(found.between)), LANES, CROSSES)
    kinds = [
        *[Part(found.gather, True, INSIDE, GATHER)] * bool(len(found.gather)),
        *[Part(found.inside, True, INSIDE, row=found.stays)] * bool(len(found.inside)),
        pairs,
        *[Part(found.scatter, True, INSIDE, SCATTER)] * bool(len(found.scatter) or not coupled),
    ]
    first = dict(zip((each.stage for each in kinds), accumulate(map(len, kinds), initial=0), strict=False))
    gather, begin, end = first.get(GATHER), int(GATHER in first), first.get(SCATTER, sum(map(len, kinds)))
    after = [(gather, middle) for middle in range(begin, end) if gather is not None]
    after += [(middle, end) for middle in range(begin, end) if SCATTER in first]
    by = np.where(found.pair < 0, first.get(OWN, -1), first[CROSSES] + found.pair)
    return DelegatedOps(
        tuple(kinds),
        np.array([] if pipelined else after, dtype=np.int64).reshape(-1, 2),
        None if coupled else Brought(found.messages, by),
        coupled=coupled,
        delegation=found,
        first_pair=first[CROSSES],
    )


def scattered(found: Delegation, arrived: Sequence[Mapping[int, int]], gpus: int) -> Messages:
    """Return what an all-to-all scatters if what its pairs of servers sent arrived elsewhere than planned.

    Parameters
    ----------
    found
        The all-to-all.
    arrived
        The bytes that arrived at each GPU, for each pair.
    gpus
        How many the fabric has.
    """
    parcels = [(pair, *part) for pair, parts in enumerate(arrived) for part in parts.items()]
    of_pair, gpu, size = np.array(parcels, dtype=np.int64).reshape(-1, 3).T
    share = size / np.bincount(of_pair, size)[of_pair]
    (crossing,) = np.nonzero(found.pair >= 0)
    message, parcel = _joined(crossing, found.pair[crossing], of_pair)
    moved = _shares(message, parcel, gpu[parcel], found.messages.destination[message], gpus)
    return moved.sent(found.messages, share)


@lru_cache(maxsize=4)
def delegation_gpus(fabric: Fabric) -> dict[Nic, int]:
    """Return the delegation GPU of each NIC, by its number in the fabric."""
    return {nic: fabric.pinned_gpu(nic) for nic in fabric.nics}


def _placed(
    view: View, between: Messages, lanes: Lanes
) -> tuple[Placement, NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
    """Return what servers send each other on lanes, and which parcels are of a first and of a last hop.

    None if all are of both. What is relayed has parcels in each of its hops; what no relay can serve yet has
    none.
    """
    paths = lanes.paths(view, between)
    if not any(path is None or path for path in paths):
        return lanes.place(view, between), None, None
    offsets, packets = view.fabric.gpu_offsets, Lanes(light=False)
    directly = np.array([path == () for path in paths])
    sent = [(lanes, np.flatnonzero(directly), between.select(directly), True, True)]
    for pair, path in enumerate(paths):
        for place, hop in enumerate(path or ()):
            near, far = np.array([[offsets[hop.source]], [offsets[hop.destination]]])
            message = Messages(near, far, between.bytes[pair : pair + 1])
            scheme = lanes if hop.over_light else packets
            sent.append((scheme, np.array([pair]), message, place == 0, place + 1 == len(path or ())))
    numbers: dict[QueuePair, int] = {}
    parcels: list[tuple[int, int, int, bool, bool]] = []
    for scheme, pairs, messages, is_first, is_last in sent:
        part = scheme.place(view, messages)
        rows = zip(part.qp.tolist(), pairs[part.message].tolist(), part.bytes.tolist(), strict=True)
        parcels += [
            (numbers.setdefault(part.queue_pairs[qp], len(numbers)), pair, size, is_first, is_last)
            for qp, pair, size in rows
        ]
    qp, of_pair, size, first, last = (
        np.array(sorted(parcels, key=itemgetter(1)), dtype=np.int64).reshape(-1, 5).T
    )
    return Placement(tuple(numbers), qp, of_pair, size), first > 0, last > 0


def decides(view: View, messages: Messages, *, light: bool = True) -> object:
    """Return all that decides over which lanes messages go, in a value that can be looked up."""
    columns = (messages.source, messages.destination, messages.bytes)
    gpus = np.concatenate(columns[:2])
    servers = np.unique(view.fabric.server_of_gpu[gpus]).tolist() if light else ()
    return *(column.tobytes() for column in columns), view.failed, _light(view, servers)


def _light(view: View, servers: Iterable[int]) -> tuple[tuple[Circuit, ...], ...]:
    """Return the circuits of all OCSes that the lanes of some servers depend on."""
    ocses = frozenset[str]().union(*(_light_of(view.fabric)[server] for server in servers))
    return tuple(view.lit[ocs] for ocs in sorted(ocses))


def remembered(known: dict[Key, Known], key: Key, found: Callable[[], Known]) -> Known:
    """Return what is known by a key, found if it is not; all is forgotten where it is too much."""
    if key not in known:
        if len(known) >= MOST_KNOWN:
            known.clear()
        known[key] = found()
    return known[key]


def _least_spilling_s(
    view: View, owed: dict[tuple[int, int], int], light_bps: dict[tuple[int, int], float]
) -> float:
    """Return the least time in which packet NICs carry what circuits of a pair cannot, by bisection [s]."""
    if not owed:
        return 0.0
    rows, columns = np.array(list(owed), dtype=np.int64).T
    size, light = np.array(list(owed.values()), dtype=float), np.array([light_bps[pair] for pair in owed])
    count = len(view.fabric.servers)
    packet_bps = np.array(
        [
            sum(view.fabric.nic_rate_bps(nic) for nic in _working(view.fabric, view.failed, server))
            for server in range(count)
        ]
    )

    def is_enough(time_s: float) -> bool:
        surplus = np.maximum(size - light * time_s / 8, 0.0)
        return all(
            (np.bincount(ends, surplus, count) <= packet_bps * time_s / 8).all() for ends in (rows, columns)
        )

    low, high = 0.0, 1e-9
    while not is_enough(high):
        low, high = high, 2 * high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _packet_lanes(fabric: Fabric, failed: AbstractSet[Port], near: int, far: int) -> list[QueuePair]:
    """Return queue pairs between packet NICs, NIC m to NIC m; what one has more of goes round the other's."""
    own, other = (_working(fabric, failed, server) for server in (near, far))
    lanes = max(len(own), len(other)) if own and other else 0
    return [QueuePair(own[lane % len(own)], other[lane % len(other)]) for lane in range(lanes)]


def _over_two_hops(fabric: Fabric, routes: Routes, near: int, far: int) -> list[QueuePair]:
    """Return queue pairs whose route goes through one other server, each NIC in one of them."""
    if not fabric.servers_forward:
        raise ScenarioError(
            "two hops over circuits, and the servers do not forward", "take a fabric whose servers forward"
        )
    return _disjoint(_routed(fabric, routes, near, far), 2)


def _forwarded(fabric: Fabric, routes: Routes, near: int, far: int) -> list[QueuePair]:
    """Return queue pairs on shortest routes, each NIC in one of them; none if there is no route."""
    hops = _routed(fabric, routes, near, far)
    return _disjoint(hops, min(hops.values(), default=0))


def _routed(fabric: Fabric, routes: Routes, near: int, far: int) -> dict[QueuePair, int]:
    nics = _nics(fabric, on_packets=False)
    return routed(routes, nics[near], nics[far])


def _disjoint(hops: Mapping[QueuePair, int], light_paths: int) -> list[QueuePair]:
    """Return queue pairs that cross so many light paths, but those that share a NIC with one before them."""
    used, found = set[Nic](), list[QueuePair]()
    for pair, crossed in hops.items():
        if crossed == light_paths and used.isdisjoint((pair.source, pair.destination)):
            used.update((pair.source, pair.destination))
            found.append(pair)
    return found


def _working(fabric: Fabric, failed: AbstractSet[Port], server: int) -> list[Nic]:
    """Return the packet NICs of a server that have not failed."""
    return [nic for nic in _nics(fabric, on_packets=True)[server] if fabric.nic_port(nic) not in failed]


@lru_cache(maxsize=4)
def _light_of(fabric: Fabric) -> tuple[frozenset[str], ...]:
    """Return the OCSes that each server's lanes depend on: its own, or all where light crosses several."""
    ocses = {switch.name for switch in fabric.switches if switch.kind == "ocs"}
    if light_leads(fabric):
        return (frozenset(ocses),) * len(fabric.servers)
    return tuple(
        frozenset(fabric.peer(fabric.nic_port(nic)).node for nic in nics)
        for nics in _nics(fabric, on_packets=False)
    )


@lru_cache(maxsize=8)
def _nics(fabric: Fabric, *, on_packets: bool) -> tuple[tuple[Nic, ...], ...]:
    found: list[list[Nic]] = [[] for _ in fabric.servers]
    for nic in fabric.nics:
        if on_packet_switch(fabric, nic) == on_packets:
            found[nic.server].append(nic)
    return tuple(map(tuple, found))


def _joined(
    messages: NDArray[np.int64], pair: NDArray[np.int64], parcels: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each message with each parcel of its pair; parcels stand in the order of their pairs."""
    lanes = np.bincount(parcels, minlength=int(pair.max(initial=-1)) + 1)
    first = np.cumsum(lanes) - lanes
    rows = lanes[pair]
    behind = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
    return np.repeat(messages, rows), np.repeat(first[pair], rows) + behind
