"""REPS: every chunk takes an entropy of its own; those that were good a moment ago are used again.

An entropy whose chunk was acknowledged without congestion goes into a ring of ``cache`` places and
is used once more; with none left, a random one is drawn. If one falls silent, the connection
*freezes*: for some round trips only entropies of the ring are used, round robin, whether used before or
not; then the ring is emptied and ``explore`` random ones come first.

What TCP queue pairs change. An entropy is a connection of its own, so there are ``per_nic`` of them
from each NIC of the source server (the reference has 64 to 65,536 per connection). A chunk stands
for a packet. No switch marks: a chunk met congestion if it queued for longer than a switch would let
pass unmarked (`traffic.transports.round_trips`). REPS has one congestion window per connection and TCP
one per queue pair, so all messages from a server to a NIC together keep at most ``in_flight`` chunks in
flight; a queue pair that owes an acknowledgement for longer than ``silent_round_trips`` of the
connection's smoothed RTT counts as failed, and its chunks no longer count as in flight. Both times are in
round trips, since a time in seconds would be another one on another fabric. TCP itself delivers the
chunks when it can; they are not sent again elsewhere, as REPS' transport would.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from topologies.fabric import Fabric, Nic
from traffic.spraying.policy import Lanes, LaneState, Message
from traffic.spraying.subflows import Subflows

SMOOTHING = 1 / 8
"""How much the last round trip weighs in the smoothed one (RFC 6298)."""


class Reps:
    """Recycled entropies over every NIC of the source server, to the NIC beside the destination.

    Parameters
    ----------
    per_nic
        Entropies from each NIC of the source server to each destination NIC.
    cache
        Places of the ring (the reference's 8).
    in_flight
        The most chunks that a connection has in flight.
    silent_round_trips
        For how many round trips a queue pair may owe an acknowledgement before it counts as failed.
    freeze_round_trips
        For how many round trips a connection stays frozen (the reference: 10 ms, far more than its
        time-out; here only twice ``silent_round_trips``, or it would outlast most collectives).
    explore
        How many random entropies follow a freeze (the reference's 16).

    References
    ----------
    T. Bonato et al., "REPS: recycled entropy packet spraying for adaptive load balancing and failure
    mitigation", arXiv:2407.21625; uet-htsim, buffer_reps.cpp and uec_mp.cpp. RailS, section VI-A.
    """

    name = "reps"
    steady = True

    def __init__(
        self,
        *,
        per_nic: int = 2,
        cache: int = 8,
        in_flight: int = 16,
        silent_round_trips: float = 8.0,
        freeze_round_trips: float = 16.0,
        explore: int = 16,
    ) -> None:
        self.per_nic = per_nic
        self.cache = cache
        self.in_flight = in_flight
        self.silent_round_trips = silent_round_trips
        self.freeze_round_trips = freeze_round_trips
        self.explore = explore
        self._connections: dict[tuple[int, Nic], _Connection] = {}
        """That of each server to each NIC, for the run."""
        self._of: dict[int, _Connection] = {}
        """That of each message under way."""
        self._most_decisions = 0
        self._chosen = self._recycled = self._acknowledged = self._marked = 0

    def open(self, *, fabric: Fabric, rng: np.random.Generator) -> None:
        """Begin without a connection."""
        self._fabric, self._subflows = fabric, Subflows(fabric, rng, self.per_nic)
        # Choices draw from numbers of their own: which connections follow depends on no timing.
        self._rng = rng.spawn(1)[0]

    def admit(self, *, message: Message) -> Lanes:
        """Return ``per_nic`` lanes from every NIC of the source server to the destination's."""
        ends = self._fabric.gpu_servers[message.source], self._fabric.pinned_nic(message.destination)
        if ends not in self._connections:
            self._connections[ends] = _Connection(_Ring(self.cache))
        self._of[message.number] = self._connections[ends]
        self._connections[ends].messages.add(message.number)
        return self._subflows.from_server(message.source, message.destination)

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Return a recycled entropy, or a random one, unless enough is in flight."""
        connection = self._of[message]
        failed = connection.failed(now, self.silent_round_trips)
        if connection.chunks_in_flight(failed) >= self.in_flight:
            return None
        if connection.frozen_until_s is not None and now > connection.frozen_until_s:
            connection.thaw(self.explore)
        elif connection.frozen_until_s is None and failed and not connection.explore:
            connection.frozen_until_s = now + self.freeze_round_trips * connection.rtt_s
        room = [lane for lane, state in enumerate(states) if state.room and lane not in failed]
        if not room:
            return None
        lane = connection.recycled(room)
        self._chosen += 1
        self._recycled += lane is not None
        if lane is None:
            lane = room[int(self._rng.integers(len(room)))]
        connection.in_flight.setdefault(lane, []).append((now, message))
        connection.decisions += 1
        self._most_decisions = max(self._most_decisions, connection.decisions)
        return lane

    def acknowledged(self, *, message: int, lane: int, rtt_s: float, marked: bool, now: float) -> None:
        """Recycle the entropy of a chunk that met no congestion."""
        connection = self._of[message]
        connection.arrived(lane, now)
        connection.measured(rtt_s)
        self._acknowledged += 1
        self._marked += marked
        if not marked:
            connection.ring.add(lane)

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
        sizes = {
            f"REPS' window of {self.in_flight} chunks": self.in_flight,
            f"REPS' ring of {self.cache} places": self.cache,
        }
        most = self._most_decisions
        return {name: (most, size + 1) for name, size in sizes.items() if 0 < most <= size}


@dataclass(slots=True)
class _Ring:
    """The last good entropies: written at the head, taken from the earliest that is still fresh."""

    places: int
    entries: list[int] = field(default_factory=list)
    head: int = 0
    fresh: int = 0
    next_frozen: int = 0

    def empty(self) -> None:
        """Forget all."""
        self.entries.clear()
        self.head = self.fresh = self.next_frozen = 0

    def add(self, entropy: int) -> None:
        """Put one at the head, over the oldest."""
        if len(self.entries) < self.places:
            self.entries.append(entropy)
        else:
            self.entries[self.head] = entropy
        self.head = (self.head + 1) % self.places
        self.fresh = min(self.fresh + 1, self.places)

    def earliest_fresh(self) -> int | None:
        """Take the earliest that was not used again yet."""
        if not self.fresh:
            return None
        entropy = self.entries[(self.head - self.fresh) % self.places]
        self.fresh -= 1
        return entropy

    def any_in_turn(self) -> int:
        """Return the next of all, used or not."""
        self.next_frozen = (self.next_frozen + 1) % len(self.entries)
        return self.entries[self.next_frozen]


@dataclass(slots=True)
class _Connection:
    """All messages from one server to one NIC."""

    ring: _Ring
    messages: set[int] = field(default_factory=set)
    """Those that are under way."""
    in_flight: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    """Since when each lane owes each of its chunks an acknowledgement [s], and of which message, oldest
    first."""
    rtt_s: float = 0.0
    """The smoothed round-trip time of its chunks [s]; 0 before the first."""
    frozen_until_s: float | None = None
    explore: int = 0
    decisions: int = 0
    """How many there were since nothing was under way."""

    def failed(self, now: float, round_trips: float) -> set[int]:
        """Return the lanes whose oldest chunk has been owed for longer than so many round trips.

        Before one was measured there is nothing to tell silence from a long path by.
        """
        if not self.rtt_s:
            return set()
        since_s = now - round_trips * self.rtt_s
        return {lane for lane, owed in self.in_flight.items() if owed[0][0] < since_s}

    def measured(self, rtt_s: float) -> None:
        """Smooth the round-trip time as TCP does."""
        self.rtt_s += SMOOTHING * (rtt_s - self.rtt_s) if self.rtt_s else rtt_s

    def chunks_in_flight(self, failed: set[int]) -> int:
        """Return how many chunks are in flight on lanes that have not failed."""
        return sum(len(owed) for lane, owed in self.in_flight.items() if lane not in failed)

    def arrived(self, lane: int, now: float) -> None:
        """Take the oldest chunk off a lane; what follows it is owed from now on."""
        owed = self.in_flight.pop(lane)[1:]
        if owed:
            self.in_flight[lane] = [(now, message) for _, message in owed]

    def forget(self, message: int) -> None:
        """Forget what a message has in flight; when none is left, how much was decided."""
        left = {lane: [each for each in owed if each[1] != message] for lane, owed in self.in_flight.items()}
        self.in_flight = {lane: owed for lane, owed in left.items() if owed}
        self.messages.remove(message)
        self.decisions *= bool(self.messages)

    def thaw(self, explore: int) -> None:
        """Leave the frozen mode: forget the ring, and explore."""
        self.ring.empty()
        self.frozen_until_s, self.explore = None, explore

    def recycled(self, room: Sequence[int]) -> int | None:
        """Return the entropy to use again, if there is one with room; None for a random one."""
        if self.explore:
            self.explore -= 1
            return None
        tries = len(self.ring.entries) if self.frozen_until_s is not None else self.ring.fresh
        for _ in range(tries):
            is_frozen = self.frozen_until_s is not None
            entropy = self.ring.any_in_turn() if is_frozen else self.ring.earliest_fresh()
            if entropy is not None and entropy in room:
                return entropy
        return None
