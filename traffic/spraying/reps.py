"""REPS: every packet takes an entropy of its own; those that were good a moment ago are used again.

An entropy whose packet was acknowledged without congestion goes into a ring of ``cache`` places and
is used once more; with none left, a random one is drawn. If a packet is lost or an entropy falls silent, the
connection *freezes*: for some round trips only entropies of the ring are used, round robin, whether used
before or not; then the ring is emptied and ``explore`` random ones come first.

A connection is all that a server sends to a NIC, by every NIC of the server; a random entropy is one of a
random NIC. What has no room at its NIC now is passed over and keeps its place in the ring. While frozen
nothing but the ring is used, so a message may wait for room.

No switch marks: a packet met congestion if it queued for longer than a switch would let pass unmarked
(`traffic.transports.round_trips`). An entropy is silent if it owes an acknowledgement for longer than
``silent_round_trips`` of the connection's smoothed RTT: it counts as failed, and is not used until one comes.
Both times are in round trips, since a time in seconds would be another one on another fabric.

Over datagrams a lost packet is reported, as by the reference's timeout, and is sent again on an entropy
that is chosen anew. There is no window: the receiver's grants are it.

What TCP queue pairs change. An entropy is a connection of its own, so there are few of them
from each NIC of the source server (the reference has 64 to 65,536 per connection). A chunk stands
for a packet. REPS has one congestion window per connection and TCP one per queue pair, so all messages from a
server to a NIC together keep at most ``in_flight`` chunks in flight, without those of failed queue pairs. TCP
itself delivers these when it can; they are not sent again elsewhere, as REPS' transport would.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from mypy_extensions import mypyc_attr

from topologies.fabric import Fabric, Nic
from traffic.spraying.policy import ENTROPIES, Lanes, LaneState, Message
from traffic.spraying.states import has_room
from traffic.spraying.subflows import Subflows, by_nic

SMOOTHING = 1 / 8
"""How much the last round trip weighs in the smoothed one (RFC 6298)."""
DRAWS = 4
"""How many random lanes are tried before all NICs are looked at."""
DRAWN_AT_ONCE = 1024
"""So many random numbers are drawn at once: one by one they take 0.3 us each."""


_T = TypeVar("_T")


@mypyc_attr(allow_interpreted_subclasses=True)
class Reps:
    """Recycled entropies over every NIC of the source server, to the NIC beside the destination.

    Parameters
    ----------
    per_nic
        Entropies from each NIC of the source server to each destination NIC.
    cache
        Places of the ring (the reference's 8).
    in_flight
        The most chunks that a connection has in flight; None for no window of its own.
    silent_round_trips
        For how many round trips a lane may owe an acknowledgement before it counts as failed.
    freeze_round_trips
        For how many round trips a connection stays frozen (the reference: 10 ms, far more than its
        time-out; here only twice ``silent_round_trips``, or it would outlast most collectives).
    explore
        How many random entropies follow a freeze (the reference's 16).
    entropies
        How many entropies a NIC has if lanes are of datagrams, which have room if their NIC has; None if
        each is a TCP connection.

    References
    ----------
    T. Bonato et al., "REPS: recycled entropy packet spraying for adaptive load balancing and failure
    mitigation", arXiv:2407.21625; uet-htsim, buffer_reps.cpp and uec_mp.cpp. RailS, section VI-A.
    """

    name = "reps"
    steady = True
    per_packet = True

    def __init__(
        self,
        *,
        per_nic: int = 2,
        cache: int = 8,
        in_flight: int | None = 16,
        silent_round_trips: float = 8.0,
        freeze_round_trips: float = 16.0,
        explore: int = 16,
        entropies: int | None = None,
    ) -> None:
        self.per_nic = per_nic
        self.cache = cache
        self.in_flight = in_flight
        self.silent_round_trips = silent_round_trips
        self.freeze_round_trips = freeze_round_trips
        self.explore = explore
        self.entropies = entropies
        self._connections: dict[tuple[int, Nic], _Connection] = {}
        """That of each server to each NIC, for the run."""
        self._of: dict[int, _Connection] = {}
        """That of each message under way."""
        self._most_decisions = 0
        self._chosen = self._recycled = self._acknowledged = self._marked = 0

    def open(self, *, fabric: Fabric, rng: np.random.Generator) -> None:
        """Begin without a connection."""
        self._fabric = fabric
        self._subflows = Subflows(fabric, rng, self.per_nic, self.entropies or ENTROPIES)
        # Choices draw from numbers of their own: which connections follow depends on no timing.
        self._rng, self._random = rng.spawn(1)[0], list[float]()

    def admit(self, *, message: Message) -> Lanes:
        """Return ``per_nic`` lanes from every NIC of the source server to the destination's."""
        ends = self._fabric.gpu_servers[message.source], self._fabric.pinned_nic(message.destination)
        lanes = self._subflows.from_server(message.source, message.destination)
        if ends not in self._connections:
            self._connections[ends] = _Connection(_Ring(self.cache), list(map(list, by_nic(lanes))))
        self._of[message.number] = self._connections[ends]
        self._connections[ends].in_flight[message.number] = {}
        return lanes

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Return a recycled entropy or a random one; None if nothing has room, or enough is in flight."""
        connection = self._of[message]
        is_silent = connection.falls_silent(now, self.silent_round_trips)
        self._turn_mode(connection, now, has_failed=is_silent)
        if self.in_flight is not None and connection.chunks_in_flight >= self.in_flight:
            return None

        usable = _Usable(connection.failed, states)
        lane = connection.recycled(usable)
        self._recycled += lane is not None
        if lane is None and not connection.keeps_to_ring:
            lane = self._drawn(connection, usable)
        if lane is not None:
            self._chosen += 1
            connection.sent(message, lane, now)
            self._most_decisions = max(self._most_decisions, connection.decisions)
        return lane

    def acknowledged(self, *, message: int, lane: int, rtt_s: float, marked: bool, now: float) -> None:
        """Recycle the entropy of a chunk that met no congestion."""
        connection = self._of[message]
        connection.settled(message, lane)
        connection.heard_of(lane, now)
        connection.measured(rtt_s)
        self._turn_mode(connection, now, has_failed=False)
        self._acknowledged += 1
        self._marked += marked
        if not marked:
            connection.ring.add(lane)

    def lost(self, *, message: int, lane: int, now: float) -> None:
        """Freeze: the entropy's path may have failed."""
        connection = self._of[message]
        connection.settled(message, lane)
        self._turn_mode(connection, now, has_failed=True)

    def withdraw(self, *, message: int) -> None:
        """Count no more as in flight what a message has there."""
        self._of.pop(message).forget(message)

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """How many chunks met congestion, and for how many an entropy was used again."""
        return {
            "marked": (self._marked, self._acknowledged),
            "recycled": (self._recycled, self._chosen),
        }

    @property
    def inert(self) -> dict[str, tuple[int, int]]:
        """Which of its sizes no connection had as many chunks for."""
        sizes = {f"REPS' ring of {self.cache} places": self.cache}
        if self.in_flight is not None:
            sizes = {f"REPS' window of {self.in_flight} chunks": self.in_flight} | sizes
        most = self._most_decisions
        return {name: (most, size + 1) for name, size in sizes.items() if 0 < most <= size}

    def _turn_mode(self, connection: "_Connection", now: float, *, has_failed: bool) -> None:
        """Freeze at a failure, unless frozen or exploring; leave the frozen mode when its time is over."""
        if has_failed and connection.frozen_until_s is None and not connection.explore:
            connection.frozen_until_s = now + self.freeze_round_trips * connection.rtt_s
        if connection.frozen_until_s is not None and now > connection.frozen_until_s:
            connection.thaw(self.explore)

    def _drawn(self, connection: "_Connection", usable: "_Usable") -> int | None:
        """Return a random lane of a random NIC, None if no lane may be used."""
        for _ in range(DRAWS):
            lanes = self._one_of(connection.nics)
            lane = self._one_of(lanes)
            # With datagrams a look at the first, which is made already, says it of all.
            if lane not in usable.failed and has_room(usable.states, lanes[0] if self.entropies else lane):
                return lane
        nics = [left for lanes in connection.nics if (left := self._left(lanes, usable))]
        return self._one_of(self._one_of(nics)) if nics else None

    def _left(self, lanes: list[int], usable: "_Usable") -> list[int]:
        """Return which lanes of a NIC have room and have not failed."""
        if not self.entropies:
            return [lane for lane in lanes if usable.has(lane)]
        if not has_room(usable.states, lanes[0]):
            return []
        return [lane for lane in lanes if lane not in usable.failed] if usable.failed else lanes

    def _one_of(self, these: list[_T]) -> _T:
        """Return a random one."""
        return these[int(self._next_random() * len(these))]

    def _next_random(self) -> float:
        """Return the next random number from 0 to below 1: half the time of `rng.integers`."""
        if not self._random:
            self._random = self._rng.random(DRAWN_AT_ONCE)[::-1].tolist()
        return self._random.pop()


class _Usable:
    """Which lanes may be used now: those that have room, and have not failed."""

    def __init__(self, failed: set[int], states: Sequence[LaneState]) -> None:
        self.failed, self.states = failed, states

    def has(self, lane: int) -> bool:
        """Return whether a lane is one."""
        return lane not in self.failed and has_room(self.states, lane)


@dataclass(eq=False)
class _Ring:
    """The last good entropies: written at the head, taken from the earliest that is still fresh."""

    places: int
    lanes: list[int] = field(default_factory=list)
    is_fresh: list[bool] = field(default_factory=list)
    """Whether each was not used again yet."""
    head: int = 0
    """The place that is written next."""
    turn: int = 0
    """The place that is next while frozen."""

    def add(self, lane: int) -> None:
        """Put one at the head, over the oldest."""
        if len(self.lanes) < self.places:
            self.lanes.append(lane)
            self.is_fresh.append(True)
        else:
            self.lanes[self.head], self.is_fresh[self.head] = lane, True
        self.head = (self.head + 1) % self.places

    def earliest_fresh(self, usable: _Usable) -> int | None:
        """Take the earliest usable one that was not used again yet."""
        if not any(self.is_fresh):
            return None
        for place in self._places_from(self.head):  # where the oldest is, also before the ring is full
            if self.is_fresh[place] and usable.has(self.lanes[place]):
                self.is_fresh[place] = False
                return self.lanes[place]
        return None

    def next_in_turn(self, usable: _Usable) -> int | None:
        """Return the next usable one of all, used or not."""
        for place in self._places_from(self.turn):
            if usable.has(self.lanes[place]):
                self.turn = (place + 1) % len(self.lanes)
                return self.lanes[place]
        return None

    def _places_from(self, first: int) -> list[int]:
        """Return all places once."""
        held = len(self.lanes)
        return [(first + index) % held for index in range(held)]


@dataclass(eq=False)
class _Connection:
    """All messages from one server to one NIC."""

    ring: _Ring
    nics: list[list[int]]
    """The lanes by each NIC of the server."""
    in_flight: dict[int, dict[int, int]] = field(default_factory=dict)
    """Of each message under way, how many chunks each lane owes an acknowledgement for."""
    owed: dict[int, int] = field(default_factory=dict)
    """The same of all messages together."""
    since_s: dict[int, float] = field(default_factory=dict)
    """Since when each lane that has not failed owes one, the longest first [s]."""
    failed: set[int] = field(default_factory=set)
    """The lanes that owe one for too long."""
    rtt_s: float = 0.0
    """The smoothed round-trip time of its chunks [s]; 0 before the first."""
    frozen_until_s: float | None = None
    explore: int = 0
    """How many random entropies are to come."""
    decisions: int = 0
    """How many there were since nothing was under way."""

    @property
    def chunks_in_flight(self) -> int:
        """How many chunks are in flight on lanes that have not failed."""
        return sum(self.owed[lane] for lane in self.since_s)

    @property
    def keeps_to_ring(self) -> bool:
        """Whether nothing but the ring may be used: it is frozen, and not all of the ring has failed."""
        return self.frozen_until_s is not None and not self.failed.issuperset(self.ring.lanes)

    def falls_silent(self, now: float, round_trips: float) -> bool:
        """Return whether a lane has failed now: it owes an acknowledgement for more than so many round trips.

        Before one was measured there is nothing to tell silence from a long path by.
        """
        failed = len(self.failed)
        while self.rtt_s and self.since_s:
            lane = next(iter(self.since_s))
            if now - self.since_s[lane] <= round_trips * self.rtt_s:
                break
            del self.since_s[lane]
            self.failed.add(lane)
        return len(self.failed) > failed

    def measured(self, rtt_s: float) -> None:
        """Smooth the round-trip time as TCP does."""
        self.rtt_s += SMOOTHING * (rtt_s - self.rtt_s) if self.rtt_s else rtt_s

    def sent(self, message: int, lane: int, now: float) -> None:
        """Have a lane owe one more acknowledgement."""
        mine = self.in_flight[message]
        mine[lane] = mine.get(lane, 0) + 1
        self.owed[lane] = self.owed.get(lane, 0) + 1
        self.since_s.setdefault(lane, now)
        self.decisions += 1
        self.explore = max(0, self.explore - 1)

    def settled(self, message: int, lane: int) -> None:
        """Take a chunk off a lane, acknowledged or lost."""
        mine = self.in_flight[message]
        if mine.get(lane):  # else it counted as lost, and arrived after all
            mine[lane] -= 1
            self._take_off(lane, 1)

    def heard_of(self, lane: int, now: float) -> None:
        """Have what is left on a lane be owed from now on."""
        if self.owed.get(lane):
            self.failed.discard(lane)
            self.since_s.pop(lane, None)
            self.since_s[lane] = now

    def forget(self, message: int) -> None:
        """Forget what a message has in flight; when none is left, how much was decided."""
        for lane, chunks in self.in_flight.pop(message).items():
            self._take_off(lane, chunks)
        self.decisions *= bool(self.in_flight)

    def _take_off(self, lane: int, chunks: int) -> None:
        """Take chunks off a lane; one that owes nothing has not failed."""
        left = self.owed[lane] - chunks
        self.owed[lane] = left
        if not left:
            self.failed.discard(lane)
            self.since_s.pop(lane, None)

    def thaw(self, explore: int) -> None:
        """Leave the frozen mode: forget the ring, and explore."""
        self.ring = _Ring(self.ring.places)
        self.frozen_until_s, self.explore = None, explore

    def recycled(self, usable: _Usable) -> int | None:
        """Return the entropy to use again; None for a random one, or if none of the ring is usable."""
        if self.explore:
            return None
        if self.frozen_until_s is not None:
            return self.ring.next_in_turn(usable)
        return self.ring.earliest_fresh(usable)
