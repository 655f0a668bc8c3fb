"""A scheme: what becomes of operations, and which queue pairs carry their bytes, once these may go."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import compress, count, product
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from topologies.errors import ScenarioError
from topologies.events import View
from topologies.fabric import Fabric, Nic, Port
from topologies.light import light_peers
from topologies.packet_part import PacketPart, is_mixed, packet_part
from topologies.routes import Routes
from traffic.messages import CHUNK_BYTES, Chunks, Messages, chunks_of
from traffic.ops import DARK, Ops, Part
from traffic.spraying.checks import refusal
from traffic.spraying.policy import (
    Assignment,
    Lanes,
    LaneSet,
    Policy,
    ProactivePolicy,
    QueuePair,
    ReactivePolicy,
    SeesBacklogs,
    each_message,
)
from traffic.spraying.rehearsal import rehearse


@dataclass(frozen=True, eq=False)
class Placement:
    """Parcels of messages on queue pairs, in the order in which they are posted; parallel arrays."""

    queue_pairs: tuple[QueuePair, ...]
    """The queue pairs in use, each once."""
    qp: NDArray[np.int64]
    """Index of each parcel's queue pair."""
    message: NDArray[np.int64]
    """Index of each parcel's message."""
    bytes: NDArray[np.int64]
    """Size of each parcel [bytes], positive; those of a message sum to its size."""


@dataclass(frozen=True, eq=False)
class Choice:
    """Messages whose chunks choose a lane as they go, as a reactive policy decides.

    Raises
    ------
    ScenarioError
        If the policy admits a message to no lane.
    """

    policy: ReactivePolicy
    """Who chooses."""
    first: int
    """The policy's number of the first message, from which the others' count on."""
    lanes: tuple[Lanes, ...]
    """What each message may use."""
    chunks: Chunks
    """The chunks of the messages."""

    def __post_init__(self) -> None:
        """Check that every message can go."""
        if not all(map(any, self.lanes)):
            raise ScenarioError("a message has chunks and no lane", "admit it to one at least")


@dataclass(frozen=True, eq=False)
class WhileLit:
    """Messages whose bytes go over whichever of their lanes has light, over several at once.

    Raises
    ------
    ScenarioError
        If a message has no lane, and nothing else carries it.
    """

    lanes: tuple[Lanes, ...]
    """What each message may use, over circuits; one that has none goes over packets at once."""
    rest: "Scheme | None" = None
    """Places over packets what is left when circuits have gone dark; without it circuits carry all."""

    def __post_init__(self) -> None:
        """Check that every message can go."""
        if not (self.rest or all(self.lanes)):
            raise ScenarioError(
                "no circuit can join the servers of a message",
                "give the scheme one for the rest, over packets",
            )

    def select(self, mask: NDArray[np.bool_]) -> "WhileLit":
        """Return the same for the messages where ``mask`` is true."""
        return replace(self, lanes=tuple(compress(self.lanes, mask.tolist())))


class Scheme(Protocol):
    """Places messages that start together; all of them leave their server.

    One that has messages go the way of an earlier one (`Part.channel`), where it places a message whole on
    one queue pair, says so by an attribute ``keeps_connections = True``. One that keeps something for the run
    has a ``memory``: another number whenever it may place messages otherwise than it did before.
    """

    def place(self, view: View, messages: Messages) -> Placement | Choice | WhileLit:
        """Return the parcels of messages, or what they may choose from as they go."""
        ...


@runtime_checkable
class Lowers(Scheme, Protocol):
    """A scheme that makes other operations of those that may go; by default they stay as they are."""

    def lower(self, ops: Ops, view: View) -> Ops:
        """Return what becomes of operations.

        It is asked when a collective starts, and again whenever bytes of operations are to leave their
        server: their parts then say whose they are (`Part.of`), and what it returns says whose they stay.
        """
        ...


def memory_of(scheme: Scheme) -> int:
    """Return a scheme's memory; 0 of one that keeps nothing."""
    return int(getattr(scheme, "memory", 0))


def keeps_connections(scheme: object) -> bool:
    """Return whether a scheme, or its policy, has messages go the way of an earlier one."""
    return bool(getattr(scheme, "keeps_connections", False))


def of_communicator(
    placed: Placement | Choice | WhileLit, communicator: int
) -> Placement | Choice | WhileLit:
    """Return what a scheme decided, on the queue pairs of a communicator: no scheme has to name it."""
    if not communicator:
        return placed
    own = partial(replace, communicator=communicator)
    return _changed(placed, own, own)


def _changed(
    placed: Placement | Choice | WhileLit,
    pair: Callable[[QueuePair], QueuePair],
    lanes: Callable[[LaneSet], LaneSet],
) -> Placement | Choice | WhileLit:
    """Return what a scheme decided on other queue pairs or lanes; messages that share some still do."""
    if isinstance(placed, Placement):
        return replace(placed, queue_pairs=tuple(map(pair, placed.queue_pairs)))
    shared = cache(lambda sets: tuple(map(lanes, sets)))
    return replace(placed, lanes=tuple(map(shared, placed.lanes)))


class WholeMessages:
    """Each message on one queue pair, by the servers of its two GPUs.

    Parameters
    ----------
    queue_pair
        Returns the queue pair for what is seen, a source server and a destination server.
    """

    def __init__(self, queue_pair: Callable[[View, int, int], QueuePair]) -> None:
        self._queue_pair = queue_pair

    def place(self, view: View, messages: Messages) -> Placement:
        """Return one parcel per message."""
        chosen = (self._queue_pair(view, *ends) for ends in servers_of(view.fabric, messages))
        return placement_of(zip(chosen, count(), messages.bytes.tolist(), strict=False))


class OverLight(ABC):
    """Places each message in equal parts over lanes of light; one that has no lane waits in the dark.

    What is left of messages it places anew when the circuits change that join their servers.
    """

    spreads: bool
    """Whether they are spread anew over more lanes then, and not only led away from dark ones."""
    lacks = ("no circuit joins", "light circuits between them, or have the message wait for light")
    """What joins no servers where a message has to go, and what to do."""

    @abstractmethod
    def lanes_now(self, view: View, messages: Messages) -> Sequence[Sequence[QueuePair]]:
        """Return the lanes on which it would place each message now; none where nothing joins its servers."""

    def lower(self, ops: Ops, view: View) -> Ops:
        """Return the operations, with each message held in the dark that has no lane."""

        def lowered(part: Part) -> Ops:
            lit = np.array([bool(lanes) for lanes in self.lanes_now(view, part.moves)], dtype=bool)
            return Ops((part,) if lit.all() else (part.select(lit), replace(part.select(~lit), medium=DARK)))

        return ops.each_under_way(lowered)

    def place(self, view: View, messages: Messages) -> Placement:
        """Return a parcel per message and lane; ScenarioError if nothing joins its servers."""
        lanes = self.lanes_now(view, messages)
        if not all(lanes):
            near, far = servers_of(view.fabric, messages)[list(map(bool, lanes)).index(False)]
            raise ScenarioError(f"{self.lacks[0]} server {near} to server {far}", self.lacks[1])
        return in_equal_parts(messages, lanes)


class Routed(OverLight):
    """Each message on one queue pair over circuits, from the NIC from which the shortest route starts.

    Of equally short ones it is that of the lowest source NIC, then of the lowest destination NIC; where a
    routing says by which NIC a server sends to another, it is one of those. The route is that over what is
    lit when the message starts; the queue pair stays the same while it has a route. What is left of it then
    goes on another one, and what is under way and has no route waits for light.
    """

    spreads = False
    lacks = (
        "no route over what is lit joins",
        "light circuits that do before messages start, or have servers forward",
    )

    def lanes_now(self, view: View, messages: Messages) -> Sequence[Sequence[QueuePair]]:
        """Return the lane of each message; none where no route joins its servers."""
        shortest = cache(partial(_shortest, view.fabric, view.routes()))
        return [shortest(*ends) for ends in servers_of(view.fabric, messages)]


def _shortest(fabric: Fabric, routes: Routes, near: int, far: int) -> list[QueuePair]:
    """Return the queue pair between two servers whose route crosses the fewest light paths, if any.

    If a routing says by which NIC the first sends, it begins there. Without one, the first light path between
    the two is it: 48 NICs to 48 others have 2,304 routes.
    """
    if not routes.has_routing:
        joined = (routes.next_nic(Nic(near, nic)) for nic in range(fabric.servers[near].nics))
        for nic, reached in enumerate(joined):
            if reached and reached.server == far:
                return [QueuePair(Nic(near, nic), reached)]
    nics = ([Nic(server, nic) for nic in range(fabric.servers[server].nics)] for server in (near, far))
    hops = routed(routes, *nics)
    named = [lane for lane in hops if routes.leaves_by(lane.source, lane.destination) == lane.source]
    return [min(named or hops, key=hops.__getitem__)] if hops else []


def routed(routes: Routes, sources: Iterable[Nic], destinations: Iterable[Nic]) -> dict[QueuePair, int]:
    """Return the queue pairs between NICs that have routes, and how many light paths each crosses."""
    return {
        QueuePair(source, destination): len(route.light)
        for source, destination in product(sources, destinations)
        if (route := routes.sending(source, destination))
    }


class OnceLit(OverLight):
    """Each message over the light paths that join its two servers, in equal parts, once there is one.

    A light path counts that is lit both ways, so that acknowledgements come back. Which ones carry a message
    is decided when it starts, and for what is left of it when others are lit.
    """

    spreads = True

    def lanes_now(self, view: View, messages: Messages) -> Sequence[Sequence[QueuePair]]:
        """Return the light paths of each message."""
        routes = view.routes()

        @cache
        def direct(near: int, far: int) -> list[QueuePair]:
            nics = [Nic(near, nic) for nic in range(view.fabric.servers[near].nics)]
            reached = [(nic, to) for nic in nics if (to := routes.next_nic(nic)) and to.server == far]
            return [QueuePair(nic, to) for nic, to in reached if routes.next_nic(to) == nic]

        return [direct(*ends) for ends in servers_of(view.fabric, messages)]


def in_equal_parts(messages: Messages, lanes: Sequence[Sequence[QueuePair]]) -> Placement:
    """Return each message in equal parts over its lanes, of which it has one at least."""
    return placement_of(
        (lane, message, size * (part + 1) // len(mine) - size * part // len(mine))
        for message, (size, mine) in enumerate(zip(messages.bytes.tolist(), lanes, strict=True))
        for part, lane in enumerate(mine)
    )


def placement_of(parcels: Iterable[tuple[QueuePair, int, int]]) -> Placement:
    """Return parcels in order: of each its queue pair, the index of its message, its bytes; none of 0."""
    numbers: dict[QueuePair, int] = {}
    some = [(numbers.setdefault(qp, len(numbers)), message, size) for qp, message, size in parcels if size]
    qp, message_of, sizes = np.array(some, dtype=np.int64).reshape(-1, 3).T
    return Placement(tuple(numbers), qp, message_of, sizes)


def servers_of(fabric: Fabric, messages: Messages) -> list[tuple[int, int]]:
    """Return the servers of each message's GPUs."""
    servers = fabric.server_of_gpu
    return list(zip(servers[messages.source].tolist(), servers[messages.destination].tolist(), strict=True))


class OverCircuits:
    """Each message over all circuits that could join its servers, whenever one is lit.

    Parameters
    ----------
    rest
        Places over packets what circuits leave over, and at once the messages between servers that no
        circuit can join; without it all have to go over circuits.
    """

    def __init__(self, rest: Scheme | None = None) -> None:
        self._rest = rest

    def place(self, view: View, messages: Messages) -> WhileLit:
        """Return a lane for each two NICs that light can join."""
        joined: dict[tuple[int, int], list[LaneSet]] = defaultdict(list)
        for near in view.fabric.nics:
            for far in light_peers(view.fabric, near):
                joined[near.server, far.server].append(LaneSet((near,), (far,)))
        shared = {pair: tuple(lanes) for pair, lanes in joined.items()}
        ends = servers_of(view.fabric, messages)
        return WhileLit(tuple(shared.get(pair, ()) for pair in ends), self._rest)


def name_of(scheme: Scheme) -> str:
    """Return what a scheme is called in a sentence: its own name, or that of its class."""
    return str(getattr(scheme, "name", type(scheme).__name__))


class Sprayed:
    """The chunks of messages as a spraying policy has them carried, over packets where a fabric has both.

    It is made for one run. Each communicator has a policy and random numbers of its own, kept for the run, so
    what is drawn for one does not depend on when others send. They begin anew when it becomes known that
    something has failed or is back, since queue pairs are closed then. A policy sees a fabric without what is
    known to have failed.

    Parameters
    ----------
    policy
        Returns a new policy.
    seed
        Of the random numbers.
    chunk_bytes
        A message's atomic piece [bytes].
    """

    def __init__(self, policy: Callable[[], Policy], seed: int = 0, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._policy, self._seed, self._chunk_bytes = policy, seed, chunk_bytes
        self._kept: dict[int, _Kept] = {}
        """What each communicator has."""
        self._memory = 0
        self._rehearsed = False
        """Whether the policy was asked on made-up states, where nothing depends on it: once is enough."""

    @property
    def name(self) -> str:
        """The policy's."""
        return self._policy().name

    @property
    def keeps_connections(self) -> bool:
        """Whether the policy says so."""
        return keeps_connections(self._policy())

    @property
    def memory(self) -> int:
        """Another number after each draw, and after all that a policy decided that is not steady."""
        return self._memory

    def place(self, view: View, messages: Messages) -> Placement | Choice | WhileLit:
        """Return a proactive policy's chunks in order, or what a reactive one may choose from."""
        part = None
        if view.failed or is_mixed(view.fabric):
            part = packet_part(view.fabric, view.failed)
        kept = self._kept_of(view, part.fabric if part else view.fabric)
        before = kept.rng.bit_generator.state
        placed = (
            self._place_in(part, kept, view, messages)
            if part
            else self._place(view.fabric, kept, view.backlog_bytes, messages)
        )
        is_steady = bool(getattr(kept.policy, "steady", False))
        self._memory += not is_steady or kept.rng.bit_generator.state != before
        return placed

    def _kept_of(self, view: View, fabric: Fabric) -> "_Kept":
        number = view.communicator
        kept = self._kept.get(number)
        if kept is None or kept.failed != view.failed:
            # That of number 0 is what a job of one communicator always had.
            own = np.random.SeedSequence(self._seed, spawn_key=(number,) if number else ())
            kept = self._kept[number] = _Kept(self._policy(), np.random.default_rng(own), view.failed)
            if not isinstance(kept.policy, ProactivePolicy):
                kept.policy.open(fabric=fabric, rng=kept.rng)
        return kept

    def _place(
        self, fabric: Fabric, kept: "_Kept", backlog_bytes: Callable[[Nic], int], messages: Messages
    ) -> Placement | Choice:
        policy, chunks = kept.policy, chunks_of(messages, self._chunk_bytes)
        if isinstance(policy, ProactivePolicy):
            if isinstance(policy, SeesBacklogs):
                policy.goes_on_from(backlog_bytes)
            found = policy.assign(fabric=fabric, messages=messages, chunks=chunks, rng=kept.rng)
            return _parcels(found, chunks)
        if not self._rehearsed:
            self._rehearsed, other = True, self._policy()
            assert not isinstance(other, ProactivePolicy)  # as this one
            rehearse(other, fabric, messages)
        first, kept.admitted = kept.admitted, kept.admitted + len(messages)
        admitted = each_message(messages, first)
        return Choice(policy, first, tuple(policy.admit(message=each) for each in admitted), chunks)

    def _place_in(
        self, part: PacketPart, kept: "_Kept", view: View, messages: Messages
    ) -> Placement | Choice | WhileLit:
        """Place messages as the policy does that sees a packet part only."""
        gpus = np.asarray(part.gpus)
        source, destination = gpus[messages.source], gpus[messages.destination]
        if min(source.min(initial=0), destination.min(initial=0)) < 0:
            raise ScenarioError(
                "a message that no circuit carries is of a server without a working NIC on a packet switch",
                "give the server one, or its demand circuits; if all have failed, let its GPUs go for good,"
                " as by --fail server:1@40%, or be back before it is known",
            )
        renumbered = Messages(source, destination, messages.bytes)
        placed = self._place(part.fabric, kept, lambda nic: view.backlog_bytes(part.nics[nic]), renumbered)

        def there(nic: Nic) -> Nic:
            if nic not in part.nics:
                raise refusal(
                    self.name, f"used NIC {nic}, which is not there or has failed", "see Fabric.nics"
                )
            return part.nics[nic]

        def pair(each: QueuePair) -> QueuePair:
            return replace(each, source=there(each.source), destination=there(each.destination))

        def inside(lanes: LaneSet) -> LaneSet:
            sources, destinations = (tuple(map(there, nics)) for nics in (lanes.sources, lanes.destinations))
            return replace(lanes, sources=sources, destinations=destinations)

        return _changed(placed, pair, inside)


@dataclass(slots=True, eq=False)
class _Kept:
    """What a communicator has for the run, as long as the same is known to have failed."""

    policy: Policy
    rng: np.random.Generator
    failed: frozenset[Port]
    admitted: int = 0
    """How many messages."""


def _parcels(found: Assignment, chunks: Chunks) -> Placement:
    """Return chunks in order, those of a message that follow each other on a queue pair as one parcel."""
    by_qp = found.order[np.argsort(found.chunk_qp[found.order], kind="stable")]
    qp, message = found.chunk_qp[by_qp], chunks.message[by_qp]
    first = np.flatnonzero(np.diff(qp, prepend=-1) | np.diff(message, prepend=-1))
    sizes = np.add.reduceat(chunks.bytes[by_qp], first) if len(first) else np.zeros(0, dtype=np.int64)
    return Placement(found.queue_pairs, qp[first], message[first], sizes)
