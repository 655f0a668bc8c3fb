"""The feeder of reactive policies over datagrams: a packet is bound to a lane when its NIC can send it.

A packet waits until its receiver has granted it, too. A lane is an entropy from a NIC to another: nothing is
opened for it, and nothing is kept for one that no packet took. What else holds of it is in `feeder`.

A policy that is asked per packet chooses for each packet of the emulation, one that is asked per chunk for
each chunk, or for what fits in a packet where dilation makes chunks smaller than that.
"""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, pairwise, takewhile
from math import ceil
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Nic
from traffic.congestion.control import SourceEnds
from traffic.spraying.policy import (
    HearsLosses,
    Lanes,
    LaneState,
    QueuePair,
    between_nics,
    entropies_between,
)
from traffic.spraying.states import States
from traffic.transports.feeder import Fed, Feeder, LaneUse, NicTurns, Offer

NEW = -1
"""Stands for the place in its message of what was never sent."""


@dataclass(eq=False)
class NicGroup:
    """Sources that are granted together: all from some NICs of a server to a NIC that may go by any of them.

    What may go by one NIC only has grants of its own: others' paths do not hold it up. There is one for equal
    ends (`group_between`), so that it is looked up by identity: a hash of its NICs took 0.5 us.
    """

    ends: SourceEnds


@cache
def group_between(ends: SourceEnds) -> NicGroup:
    """Return the group of all that goes between some ends."""
    return NicGroup(ends)


class Burst:
    """Bytes of a message that go by one lane: a packet, or a chunk of several.

    Parameters
    ----------
    message, name
        The message, as the feeder numbers it, and as the carrier does.
    lane
        As the policy numbers it.
    number
        The carrier's of the lane's two NICs.
    group, use, entropy
        Those of the lane.
    real, size
        Its bytes that neither arrived nor were lost, at real scale and at emulated scale.
    bound_s
        When it was bound [s].
    order
        Which packet of its message it is, if it was sent before; else `NEW`.
    """

    def __init__(
        self,
        message: int,
        name: int,
        lane: int,
        number: int,
        group: NicGroup,
        use: LaneUse,
        entropy: int,
        real: int,
        size: int,
        bound_s: float,
        order: int,
    ) -> None:  # of a dataclass it is interpreted: 0.2 us more
        self.message, self.name, self.lane, self.number = message, name, lane, number
        self.group, self.use, self.entropy = group, use, entropy
        self.real, self.size, self.bound_s, self.order = real, size, bound_s, order
        self.unheard = size
        """Its bytes that are neither acknowledged nor lost [emulated bytes]."""
        self.marked = False
        """Whether a packet of it was."""

    def take(self, size: int) -> int:
        """Take off it what arrived or was lost; return how many real bytes these emulated ones are."""
        part = self.real - self.real * (self.size - size) // self.size
        self.real, self.size = self.real - part, self.size - size
        return part


class PacketCarrier(Protocol):
    """What a feeder sees of the engine; it calls NIC pairs and messages by the engine's numbers."""

    def room(self, nic: Nic) -> bool:
        """Return whether a NIC takes another packet."""

    def allows(self, group: NicGroup) -> bool:
        """Return whether a packet of a group may leave, by any of its NICs that has room."""

    def takes(self, number: int, group: NicGroup, size: int) -> bool:
        """Return whether so many bytes between two NICs may leave: they are allowed, and the NIC has room."""

    @property
    def turn_is_over(self) -> bool:
        """Return whether a turn has taken so long that what else NICs have room for waits for the next."""

    def put(self, feeder: "PacketFeeder", burst: Burst) -> None:
        """Send bytes by a lane."""


@dataclass(eq=False)
class _Message(Fed):
    """A message under way, whose emulated bytes are counted; a burst has its place in it, or `NEW`."""

    among: "_Among" = field(kw_only=True)
    unbound: int = field(init=False)
    """What is on no lane yet [emulated bytes]."""

    def __post_init__(self) -> None:
        Fed.__post_init__(self)
        self.left = self.unbound = sum(size for _, size, _ in self.bursts)


class PacketFeeder(Feeder[_Message]):
    """Sends packet by packet what a reactive policy chooses; parameters are those of `Feeder`."""

    @staticmethod
    def listed(lanes: Lanes) -> list[QueuePair]:
        """Return a message's queue pairs, one for each pair of NICs."""
        return between_nics(lanes)

    def _cut(
        self,
        offer: Offer,
        chunk_bytes: NDArray[np.int64],
        numbers: Sequence[tuple[int, ...]],
        names: Sequence[int],
    ) -> list[_Message]:
        self._hears = _that_hears(offer.policy)
        self._per_packet = offer.policy is None or bool(getattr(offer.policy, "per_packet", False))
        self._uses: dict[tuple[int, int], LaneUse] = {}
        """What is on each lane that was looked at, by pair of NICs and entropy."""
        self._next_bytes = 0
        """The size of what is to be bound next [emulated bytes]."""
        self.groups: dict[NicGroup, dict[int, None]] = {}
        """What its messages are granted with, and the pairs of NICs of each."""
        rows = list(zip(offer.lanes, numbers, strict=True))
        among = {each: _Among(self, self._lines, *each) for each in dict.fromkeys(rows)}
        bursts = _cut(offer, chunk_bytes, self._packet, per_packet=self._per_packet)
        return [
            _Message(name, own.states, own.lines, own.groups, deque(cut), 0, among=own)
            for name, own, cut in zip(names, map(among.__getitem__, rows), bursts, strict=True)
        ]

    def _line_up(self, number: int) -> None:
        super()._line_up(number)
        for pair, group in self._messages[number].among.group_of.items():
            self.groups.setdefault(group, {})[pair] = None

    def unbound(self, group: NicGroup) -> int:
        """Return what is on no lane yet and may go by a group [bytes]."""
        return sum(self._messages[number].unbound for number in self._sharing[group])

    def other_groups(self, burst: Burst) -> list[NicGroup]:
        """Return the groups by which a burst's message may go besides its own."""
        return self._messages[burst.message].among.others[burst.group]

    def forget(self, names: Collection[int]) -> None:
        """Bind no more of some messages that are under way."""
        super().forget(names)
        for name in names:
            self._messages[self._message_of[name]].unbound = 0

    # Packets leave

    def turn(self, carrier: PacketCarrier, at: float) -> bool:
        """Give NICs that have sent nearly all of theirs what messages are ready to send.

        Returned is whether some may have room for more.
        """
        self._carrier = carrier
        self._sweep(at)
        lines = list(self._lines.values())
        while lines and not carrier.turn_is_over:  # a packet each, so that none waits until others are full
            lines = [line for line in lines if line.waiting and self._gives(line, at)]
        return bool(lines)

    def _gives(self, line: NicTurns, at: float) -> bool:
        """Give a NIC what is next, if it has room; return whether it had."""
        if not self._carrier.room(line.nic):
            return False
        self._offer(line, at)
        return True

    def _first_with_room(self, message: _Message, line: NicTurns) -> int | None:
        """Return a lane that takes a packet; most groups allow none, so they are asked first.

        A policy may choose any, and be asked whosever turn it is.
        """
        carrier, self._next_bytes = self._carrier, message.bursts[0][1]
        among, is_blocked = message.among, True
        for group, numbers in among.of_turn[line] if self._policy else among.of_line[line]:
            if carrier.allows(group):
                is_blocked = False
                for number, lane in numbers:
                    if carrier.takes(number, group, self._next_bytes):
                        return lane
        message.blocked = is_blocked and self._policy is not None
        return None

    def _bind(self, number: int, lane: int, at: float) -> None:
        message = self._messages[number]
        chosen = message.among.lane(lane)
        real, size, order = message.bursts.popleft()
        message.unbound -= size
        use = chosen.use
        use.backlog += size
        pair, entropy = chosen.pair, chosen.entropy
        burst = Burst(number, message.name, lane, pair, chosen.group, use, entropy, real, size, at, order)
        self._carrier.put(self, burst)

    def use(self, pair: int, entropy: int) -> LaneUse:
        """Return the use of a lane by all messages that may use it."""
        if (found := self._uses.get((pair, entropy))) is None:
            found = self._uses[pair, entropy] = LaneUse(pair, entropy)
        return found

    def state(self, lane: "_Lane") -> LaneState:
        """Return a lane's state, as a policy may know it."""
        use = lane.use
        backlog = ceil(use.backlog / self._volume) if use.backlog else 0
        return LaneState(backlog, use.rtt_s, self.has_room(lane))

    def has_room(self, lane: "_Lane") -> bool:
        """Return whether a lane takes what is next."""
        return self._carrier.takes(lane.pair, lane.group, self._next_bytes)

    # Packets arrive, or are lost

    def landed(self, burst: Burst, size: int) -> bool:
        """Record bytes that arrived of a burst; return whether its message has arrived whole now."""
        message, use = self._messages[burst.message], burst.use
        message.carried[use] = message.carried.get(use, 0) + burst.take(size)
        message.left -= size
        self._open -= not message.left
        return not message.left

    def acknowledged(self, burst: Burst, size: int, rtt_s: float, marked: bool, at: float) -> None:
        """Record bytes of a burst that were acknowledged; its policy hears of a packet, or of a chunk.

        ``rtt_s`` is how long the packet took at emulated scale [s], ``marked`` whether it met a queue.
        """
        burst.use.backlog -= size
        burst.unheard -= size
        burst.marked = burst.marked or marked
        if self._per_packet:
            self._acknowledge(burst.message, burst.lane, burst.use, rtt_s, marked, at)
        elif not burst.unheard:
            took_s = at - burst.bound_s
            self._acknowledge(burst.message, burst.lane, burst.use, took_s, burst.marked, at)

    def lost(self, burst: Burst, size: int, order: int, at: float) -> None:
        """Send bytes of a burst again, by a lane that is chosen anew, before what was never sent.

        ``order`` says which packet of their message they were.
        """
        message = self._messages[burst.message]
        again = sum(1 for _ in takewhile(lambda each: each[2] != NEW, message.bursts))
        message.bursts.insert(again, (burst.take(size), size, order))
        message.unbound += size
        burst.unheard -= size
        burst.use.backlog -= size
        self._wake(burst.message)
        for line in message.lines:  # it may have none to send, and no turn
            if burst.message not in line.waiting:
                line.waiting.append(burst.message)
        if self._hears:
            named = self._first + burst.message
            self._hears.lost(message=named, lane=burst.lane, now=self._policy_s(at))

    def dropped(self, burst: Burst, size: int) -> None:
        """Have bytes of a burst leave its lane that were taken back."""
        burst.use.backlog -= size


class _Lane:
    """A lane, as the messages that may use it know it.

    Parameters
    ----------
    pair
        The carrier's number of its two NICs.
    entropy, group, use
        Its own.
    """

    def __init__(self, pair: int, entropy: int, group: NicGroup, use: LaneUse) -> None:
        self.pair, self.entropy, self.group, self.use = pair, entropy, group, use


_Asked = list[tuple[NicGroup, list[tuple[int, int]]]]
"""Pairs of NICs by their groups, each with its first lane."""


class _Among:
    """The lanes that some messages may use: entropies between pairs of NICs."""

    def __init__(
        self, feeder: PacketFeeder, line_of: Mapping[Nic, NicTurns], lanes: Lanes, numbers: tuple[int, ...]
    ) -> None:
        self._feeder, self._numbers, self._entropies = feeder, numbers, entropies_between(lanes)
        self._first = list(accumulate(map(len, self._entropies), initial=0))
        self._lanes: dict[int, _Lane] = {}
        """Those that were looked at."""
        pairs = {number: feeder.pairs[number] for number in numbers}
        self.group_of = _groups(pairs)
        """The group of each pair of NICs, by number."""
        self.groups = tuple(dict.fromkeys(self.group_of.values()))
        self.others = {group: [each for each in self.groups if each is not group] for group in self.groups}
        """The groups that its messages may go by besides each group."""
        self.lines = tuple(line_of[nic] for nic in dict.fromkeys(pair.source for pair in pairs.values()))
        """Those of the NICs that send."""
        self.of_line: dict[NicTurns, _Asked] = {}
        """The pairs of each NIC that sends."""
        self.of_turn: dict[NicTurns, _Asked] = {}
        """All pairs, those of the NIC whose turn it is first: they mostly have room then."""
        for line in self.lines:
            first = dict(zip(numbers, self._first, strict=False))
            own = {each: lane for each, lane in first.items() if pairs[each].source == line.nic}
            self.of_line[line] = self._asked(own)
            self.of_turn[line] = self._asked(own | first)
        self.states = States(self._first[-1], self._state, self._has_room)

    def _asked(self, first: Mapping[int, int]) -> _Asked:
        """Return pairs of NICs, of which each has its first lane, by their groups."""
        by_group: dict[NicGroup, list[tuple[int, int]]] = defaultdict(list)
        for number, lane in first.items():
            by_group[self.group_of[number]].append((number, lane))
        return list(by_group.items())

    def _state(self, lane: int) -> LaneState:
        return self._feeder.state(self.lane(lane))

    def _has_room(self, lane: int) -> bool:
        return self._feeder.has_room(self.lane(lane))

    def lane(self, lane: int) -> _Lane:
        """Return one of the lanes."""
        if (found := self._lanes.get(lane)) is None:
            place = bisect_right(self._first, lane) - 1
            pair, entropy = self._numbers[place], self._entropies[place][lane - self._first[place]]
            found = _Lane(pair, entropy, self.group_of[pair], self._feeder.use(pair, entropy))
            self._lanes[lane] = found
        return found


def _that_hears(policy: object) -> HearsLosses | None:
    """Return a policy if it hears of losses."""
    return policy if isinstance(policy, HearsLosses) else None


def _groups(pairs: Mapping[int, QueuePair]) -> dict[int, NicGroup]:
    """Return what each of a message's pairs of NICs is granted with: all to the same NIC."""
    sources: dict[tuple[Nic, int], dict[Nic, None]] = defaultdict(dict)
    for pair in pairs.values():
        sources[pair.destination, pair.communicator][pair.source] = None
    ends = {end: group_between(SourceEnds(tuple(nics), *end)) for end, nics in sources.items()}
    return {number: ends[pair.destination, pair.communicator] for number, pair in pairs.items()}


def _cut(
    offer: Offer, chunk_bytes: NDArray[np.int64], packet: int, *, per_packet: bool
) -> list[list[tuple[int, int, int]]]:
    """Return for each message what each decision covers: its real and its emulated bytes, and `NEW`.

    A packet, or a chunk that is larger, unless the policy is asked for each packet.
    """
    chunks = offer.chunks
    real = np.bincount(chunks.message, chunks.bytes, len(offer.lanes)).astype(np.int64)
    emulated = np.bincount(chunks.message, chunk_bytes, len(offer.lanes)).astype(np.int64)
    largest = np.zeros(len(offer.lanes), dtype=np.int64)
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
