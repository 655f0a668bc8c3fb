"""The feeder of reactive policies over datagrams: a packet is bound to a lane when its NIC can send it.

As an RDMA NIC pulls work from its queue pairs, a NIC here takes the next packet when it has sent nearly all
that it was given and the packet's receiver has granted it; the messages that may use it take turns, and the
policy says by which of their lanes each goes. A lane is an entropy from a NIC to another: nothing is opened
for it, and nothing is kept for one that no packet took.

A policy that is asked per packet chooses for each packet of the emulation, one that is asked per chunk for
each chunk, or for what fits in a packet where dilation makes chunks smaller than that. It sees the fabric,
backlogs and times at real scale, so that what it decides does not depend on the emulation's.
"""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise, takewhile
from math import ceil
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Nic
from traffic.scheme import Choice
from traffic.spraying.checks import choice as lane_chosen
from traffic.spraying.policy import HearsLosses, Lanes, LaneState, QueuePair, entropies_between
from traffic.spraying.states import States
from traffic.transports.late_binding import SMOOTHING, SWEEP_PACKETS
from traffic.transports.round_trips import Begun, Crossing, RoundTrips
from traffic.transports.transport import packet_s

NEW = -1
"""Stands for the place in its message of what was never sent."""
Group = tuple[tuple[Nic, ...], Nic, int]
"""What is granted together, of a communicator: all from some NICs of a server to another NIC that may go by
any of them. What may go by one NIC only has grants of its own: others' paths do not hold it up."""


@dataclass(slots=True, eq=False)
class Burst:
    """Bytes of a message that go by one lane: a packet, or a chunk of several."""

    message: int
    """As the feeder numbers it."""
    name: int
    """As the carrier does."""
    lane: int
    """As the policy does."""
    number: int
    """The carrier's of the lane's two NICs."""
    group: Group
    entropy: int
    real: int
    """Its bytes at real scale that neither arrived nor were lost."""
    size: int
    """The same at emulated scale."""
    begun: Begun
    order: int
    """Which packet of its message it is, if it was sent before; else `NEW`."""

    def take(self, size: int) -> int:
        """Take off it what arrived or was lost; return how many real bytes these emulated ones are."""
        part = self.real - self.real * (self.size - size) // self.size
        self.real, self.size = self.real - part, self.size - size
        return part


class Carrier(Protocol):
    """What a feeder sees of the engine; it calls NIC pairs and messages by the engine's numbers."""

    def room(self, nic: Nic) -> bool:
        """Return whether a NIC takes another packet."""

    def takes(self, number: int, group: Group) -> bool:
        """Return whether a packet between two NICs may leave: it was granted, and its NIC has room."""

    def put(self, feeder: "PacketFeeder", burst: Burst) -> None:
        """Send bytes by a lane."""


class PacketFeeder:
    """Sends packet by packet what a reactive policy chooses, messages taking turns at every NIC.

    Parameters
    ----------
    choice
        The scheme, the messages' chunks, and the lanes that each may use.
    chunk_bytes
        Size of each chunk at emulated scale [bytes], shape (chunks,).
    nic_rate_bps
        The rate of a NIC at emulated scale [bit/s].
    numbers
        What the carrier calls the pairs of NICs that each message may use, in the order of its lanes.
    names
        What the carrier calls the messages.
    began_at
        When it began, on the carrier's clock [s].
    real_s
        Returns what the policy calls a time on the carrier's clock [s].
    packet
        Payload of a packet [bytes].
    crossing
        Returns the path of a pair of NICs.
    volume, time
        Emulated over real bytes, and over real time: the policy sees real ones.
    """

    def __init__(
        self,
        choice: Choice,
        chunk_bytes: NDArray[np.int64],
        nic_rate_bps: Callable[[Nic], float],
        *,
        numbers: Sequence[tuple[int, ...]],
        names: Sequence[int],
        pairs: Mapping[int, QueuePair],
        began_at: float,
        real_s: Callable[[float], float],
        packet: int,
        crossing: Callable[[QueuePair], Crossing],
        volume: float = 1.0,
        time: float = 1.0,
    ) -> None:
        self.began_at, self._policy, self._first = began_at, choice.policy, choice.first
        self._hears = choice.policy if isinstance(choice.policy, HearsLosses) else None
        self._real_s, self._nic_rate_bps, self._packet = real_s, nic_rate_bps, packet
        self._volume, self._time = volume, time
        self.pairs = {number: pairs[number] for among in dict.fromkeys(numbers) for number in among}
        """The pairs of NICs that its messages may use, by the carrier's numbers."""
        self._place = {number: place for place, number in enumerate(self.pairs)}
        self._round_trips = RoundTrips(list(map(crossing, self.pairs.values())), packet)
        self._per_packet = bool(getattr(choice.policy, "per_packet", False))
        among = {each: _Among(self, *each) for each in dict.fromkeys(zip(choice.lanes, numbers, strict=True))}
        bursts = _cut(choice, chunk_bytes, packet, per_packet=self._per_packet)
        rows = zip(names, zip(choice.lanes, numbers, strict=True), bursts, strict=True)
        self._messages = [_Message(name, among[each], deque(own)) for name, each, own in rows]
        self._message_of = {name: number for number, name in enumerate(names)}
        self._ready: dict[Nic, deque[int]] = {pair.source: deque() for pair in self.pairs.values()}
        self.groups: dict[Group, int] = {}
        """What its messages are granted with, and a pair of NICs of each."""
        self._sharing: dict[Group, list[int]] = defaultdict(list)
        self._parked: dict[int, list[Nic]] = {}
        for number in self._staggered():
            for pair, group in self._messages[number].among.group_of.items():
                self.groups.setdefault(group, pair)
            for group in self._messages[number].among.groups:
                self._sharing[group].append(number)
            for nic in self._messages[number].among.nics:
                self._ready[nic].append(number)
        self._open = sum(bool(message.left) for message in self._messages)
        self._backlog: dict[tuple[int, int], int] = defaultdict(int)
        """What each lane has on its way, by pair of NICs and entropy [emulated bytes]."""
        self._rtt_s: dict[tuple[int, int], float] = {}
        self._sweep_s = 0.0
        self.rates_changed()

    @property
    def done(self) -> bool:
        """Whether all messages have arrived."""
        return not self._open

    def unbound(self, group: Group) -> int:
        """Return what is on no lane yet and may go by a group [bytes]."""
        return sum(self._messages[number].unbound for number in self._sharing[group])

    def carried(self, name: int) -> dict[tuple[int, int | None], int]:
        """Return how many real bytes of a message arrived by each pair of NICs and entropy."""
        return self._messages[self._message_of[name]].carried

    def other_groups(self, burst: Burst) -> list[Group]:
        """Return the groups by which a burst's message may go besides its own."""
        return [each for each in self._messages[burst.message].among.groups if each != burst.group]

    def real_bytes(self, name: int) -> int:
        """Return the size of a message [real bytes]."""
        return self._messages[self._message_of[name]].real

    def lacks(self, name: int) -> bool:
        """Return whether a message has not arrived."""
        return self._messages[self._message_of[name]].left > 0

    def rates_changed(self) -> None:
        """Reckon with the rates that NICs have now."""
        rate_bps = self._nic_rate_bps
        ends = [(rate_bps(each.source), rate_bps(each.destination)) for each in self.pairs.values()]
        self._round_trips.rates_changed(ends)
        self._sweeps_s = SWEEP_PACKETS * min((packet_s(bps, self._packet) for bps, _ in ends), default=0.0)

    def forget(self, names: Iterable[int]) -> None:
        """Bind no more of some messages that are under way."""
        for message in (self._messages[self._message_of[name]] for name in names):
            message.bursts.clear()
            self._open -= message.left > 0
            message.left = message.unbound = 0

    # Packets leave

    def turn(self, carrier: Carrier, at: float) -> None:
        """Give NICs that have sent nearly all of theirs what messages are ready to send."""
        self._carrier = carrier
        if at >= self._sweep_s:  # policies may wait for time
            self._sweep_s = at + self._sweeps_s
            for number in list(self._parked):
                self._wake(number)
        for nic, ready in self._ready.items():
            while ready and carrier.room(nic):
                self._offer(nic, ready, at)

    def granted(self, group: Group) -> None:
        """Let the messages of a group be asked again: it may send more now."""
        for number in self._sharing.get(group, ()):
            self._wake(number)

    def _wake(self, number: int) -> None:
        for nic in self._parked.pop(number, ()):
            self._ready[nic].append(number)

    def _offer(self, nic: Nic, ready: deque[int], at: float) -> None:
        """Give the next message its turn at a NIC; it waits for a grant if it may send nothing."""
        number = ready.popleft()
        message = self._messages[number]
        if not message.bursts:
            return
        among, named = message.among, self._first + number
        lane = None
        if among.may_send(self._carrier):
            lane = lane_chosen(self._policy, named, len(among.states), among.states, self._real_s(at))
        if lane is None:
            self._parked.setdefault(number, []).append(nic)
            return
        ready.append(number)
        pair, entropy = among.where(lane)
        real, size, order = message.bursts.popleft()
        message.unbound -= size
        self._backlog[pair, entropy] += size
        begun = self._round_trips.begun(self._place[pair], size, at)
        group = among.group_of[pair]
        burst = Burst(number, message.name, lane, pair, group, entropy, real, size, begun, order)
        self._carrier.put(self, burst)

    def state(self, lane: tuple[int, int], group: Group) -> LaneState:
        """Return what a policy may know of a lane, by pair of NICs and entropy."""
        backlog = ceil(self._backlog.get(lane, 0) / self._volume)
        return LaneState(backlog, self._rtt_s.get(lane, 0.0), self._carrier.takes(lane[0], group))

    # Packets arrive, or are lost

    def landed(self, burst: Burst, size: int, at: float) -> bool:
        """Record bytes that arrived of a burst; return whether its message has arrived whole now."""
        message, lane = self._messages[burst.message], (burst.number, burst.entropy)
        message.carried[lane] = message.carried.get(lane, 0) + burst.take(size)
        message.left -= size
        self._leave(lane, size)
        if self._per_packet or not burst.size:
            self._acknowledge(burst, lane, at)
        self._open -= not message.left
        return not message.left

    def _acknowledge(self, burst: Burst, lane: tuple[int, int], at: float) -> None:
        emulated_s, marked = self._round_trips.ended(self._place[burst.number], burst.begun, at)
        rtt_s = emulated_s / self._time
        before_s = self._rtt_s.get(lane, rtt_s)  # smoothed as TCP does (RFC 6298, 2.2 and 2.3)
        self._rtt_s[lane] = before_s + SMOOTHING * (rtt_s - before_s)
        self._policy.acknowledged(
            message=self._first + burst.message,
            lane=burst.lane,
            rtt_s=rtt_s,
            marked=marked,
            now=self._real_s(at),
        )

    def lost(self, burst: Burst, size: int, order: int, at: float) -> None:
        """Send bytes of a burst again, by a lane that is chosen anew, before what was never sent.

        ``order`` says which packet of their message they were.
        """
        message = self._messages[burst.message]
        again = sum(1 for _ in takewhile(lambda each: each[2] != NEW, message.bursts))
        message.bursts.insert(again, (burst.take(size), size, order))
        message.unbound += size
        self._leave((burst.number, burst.entropy), size)
        self._wake(burst.message)
        for nic in message.among.nics:  # it may have none to send, and no turn
            if burst.message not in self._ready[nic]:
                self._ready[nic].append(burst.message)
        if self._hears:
            named = self._first + burst.message
            self._hears.lost(message=named, lane=burst.lane, now=self._real_s(at))

    def dropped(self, burst: Burst, size: int) -> None:
        """Have bytes of a burst leave its lane that were taken back."""
        self._leave((burst.number, burst.entropy), size)

    def _leave(self, lane: tuple[int, int], size: int) -> None:
        self._backlog[lane] -= size
        if not self._backlog[lane]:
            del self._backlog[lane]

    def _staggered(self) -> list[int]:
        """Return the messages in the order of their first turn: every server begins with the one after it.

        Else all would send to the same NIC first, and to the same next.
        """

        def distance(number: int) -> tuple[int, int, int]:
            pair = self.pairs[self._messages[number].among.numbers[0]]
            return (pair.destination.server - pair.source.server) % servers, pair.destination.nic, number

        servers = max((pair.destination.server for pair in self.pairs.values()), default=0) + 1
        return sorted((n for n, message in enumerate(self._messages) if message.left), key=distance)


class _Among:
    """The lanes that some messages may use: entropies between pairs of NICs."""

    def __init__(self, feeder: PacketFeeder, lanes: Lanes, numbers: tuple[int, ...]) -> None:
        self.numbers = numbers
        self._entropies = entropies_between(lanes)
        self._first = list(accumulate(map(len, self._entropies), initial=0))
        pairs = [feeder.pairs[number] for number in numbers]
        self.nics = tuple(dict.fromkeys(pair.source for pair in pairs))
        self.group_of = _groups(dict(zip(numbers, pairs, strict=True)))
        """The group of each pair of NICs, by number."""
        self.groups = tuple(dict.fromkeys(self.group_of.values()))
        self.states = States(self._first[-1], partial(self._state, feeder))

    def _state(self, feeder: PacketFeeder, lane: int) -> LaneState:
        where = self.where(lane)
        return feeder.state(where, self.group_of[where[0]])

    def where(self, lane: int) -> tuple[int, int]:
        """Return the number of a lane's pair of NICs, and its entropy."""
        place = bisect_right(self._first, lane) - 1
        return self.numbers[place], self._entropies[place][lane - self._first[place]]

    def may_send(self, carrier: Carrier) -> bool:
        """Return whether any lane takes a packet."""
        return any(carrier.takes(number, group) for number, group in self.group_of.items())


@dataclass(slots=True, eq=False)
class _Message:
    """A message under way."""

    name: int
    among: _Among
    bursts: deque[tuple[int, int, int]]
    """What is on no lane yet: real and emulated bytes of what is bound at once, and its place or `NEW`."""
    carried: dict[tuple[int, int | None], int] = field(default_factory=dict)
    """Its real bytes that arrived, by pair of NICs and entropy."""
    left: int = field(init=False)
    """What has not arrived [emulated bytes]."""
    unbound: int = field(init=False)
    """What is on no lane yet [emulated bytes]."""
    real: int = field(init=False)
    """All its real bytes."""

    def __post_init__(self) -> None:
        self.left = self.unbound = sum(size for _, size, _ in self.bursts)
        self.real = sum(real for real, *_ in self.bursts)


def _groups(pairs: Mapping[int, QueuePair]) -> dict[int, Group]:
    """Return what each of a message's pairs of NICs is granted with: all to the same NIC."""
    sources: dict[tuple[Nic, int], dict[Nic, None]] = defaultdict(dict)
    for pair in pairs.values():
        sources[pair.destination, pair.communicator][pair.source] = None
    return {
        number: (tuple(sources[pair.destination, pair.communicator]), pair.destination, pair.communicator)
        for number, pair in pairs.items()
    }


def _cut(
    choice: Choice, chunk_bytes: NDArray[np.int64], packet: int, *, per_packet: bool
) -> list[list[tuple[int, int, int]]]:
    """Return for each message what each decision covers: its real and its emulated bytes, and `NEW`.

    A packet, or a chunk that is larger, unless the policy is asked for each packet.
    """
    chunks = choice.chunks
    real = np.bincount(chunks.message, chunks.bytes, len(choice.lanes)).astype(np.int64)
    emulated = np.bincount(chunks.message, chunk_bytes, len(choice.lanes)).astype(np.int64)
    largest = np.zeros(len(choice.lanes), dtype=np.int64)
    np.maximum.at(largest, chunks.message, chunk_bytes)
    each = np.full(len(largest), packet) if per_packet else np.maximum(largest, packet)
    return [_pieces(*row) for row in zip(real.tolist(), emulated.tolist(), each.tolist(), strict=True)]


def _pieces(real: int, size: int, most: int) -> list[tuple[int, int, int]]:
    """Return bytes in pieces of so many emulated ones, and what of the real ones each has.

    Examples
    --------
    >>> _pieces(100, 25, 10)
    [(40, 10, -1), (40, 10, -1), (20, 5, -1)]
    """
    edges = [*range(0, size, most), size]
    return [
        (real * end // size - real * begin // size, end - begin, NEW)
        for begin, end in pairwise(edges)
        if size
    ]
