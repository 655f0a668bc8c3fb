"""Receiver credits: every NIC grants what it can take, to the queue pairs that announced bytes to it.

A sender announces what it has for a destination NIC. The NIC grants a packet at a time, round robin over the
queue pairs that have announced more than they were granted, at its own rate; a sender sends what it was
granted, in the order in which grants came. Queue pairs from one server to one NIC among which bytes choose
announce together, and the sender spends a grant on whichever of them its scheme chooses. So an incast's queue
stands at the senders, and NICs need to know nothing of each other: a receiver knows what was announced to it
and what arrived, no more.

What a queue pair may have been granted and not yet delivered is limited, since its sender may be busy
with the grants of others: the queue pairs of a NIC share `QUEUE_PACKETS` evenly, and what links take
there and back comes on top. Grants that cannot be used are not saved up. All this is in packets at the NIC's
rate (`traffic.transports.transport.packet_s`).

Announcements and grants are headers that wait in no queue, as with priority: each takes half of what
the links of its path take there and back. They are not packets here: the engine holds both ends, and
passes them on when that time is over.

References
----------
M. Handley et al., "Re-architecting datacenter networks and stacks for low latency and high performance"
(NDP), SIGCOMM 2017; V. Olteanu et al., "An edge-queued datagram service for all datacenter traffic" (EQDS),
NSDI 2022; Ultra Ethernet Specification 1.0, section 3.6.14, receiver-credit congestion control (RCCC).
"""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Nic
from traffic.spraying.policy import QueuePair
from traffic.transports.transport import (
    HEADER_BYTES,
    LEAST_PACKET_S,
    PACKET_BYTES,
    Limits,
    NicRate,
    Offered,
    packet_s,
)

QUEUE_PACKETS = 25
"""What a NIC's queue pairs may have been granted together and not delivered."""
LEAST_PACKETS = 2
"""What each of them may have at least."""
SAVED_PACKETS = 10
"""What a NIC grants at once at most: what it could not while this process was late."""
FIRST_PACKETS = 2
"""What it grants at once at most after nobody asked. With as many as above, grants of several NICs met at the
same senders at first: of 167 packets a NIC, a uniform all-to-all took 1.06 times its bound, and now 1.035."""
PERIOD_PACKETS = 2
"""After how many packets' time the fastest NIC grants again."""


class Credit:
    """Grants from receivers, and nothing else: what a sender may send is what it was granted."""

    by_bytes = False

    def __init__(self, nic_rate_bps: NicRate, packet_bytes: int = PACKET_BYTES) -> None:
        self.period_s = inf
        """How often receivers grant, once they are known [s]."""
        self._nic_rate_bps, self._packet_bytes = nic_rate_bps, packet_bytes
        self._queue_pairs: Sequence[QueuePair] = ()
        self._receivers: dict[Nic, Receiver] = {}
        self._announced = np.zeros(0, dtype=np.int64)
        """What each queue pair's sender has announced of all that it ever sends [bytes]."""
        self._granted = np.zeros(0, dtype=np.int64)
        """What each sender knows that it was granted, of all that it ever sends [bytes]."""
        self._news: list[tuple[float, int, _Announcement | _Grant]] = []
        """What is under way between senders and receivers, by when it comes."""
        self._tickets = count()
        self._sent = np.zeros(0, dtype=np.int64)
        """The most that each was seen to have sent [bytes]."""
        self._take_backs = np.zeros(0, dtype=np.int64)
        """How often each sender took back what it had announced: grants from before are void."""
        self._order = np.zeros(0, dtype=np.int64)
        """The order in which queue pairs announce."""
        self._group = np.zeros(0, dtype=np.int64)
        """`Offered.group` of the last time."""

    def know(self, queue_pairs: Sequence[QueuePair]) -> None:
        """Record all queue pairs, by number."""
        for number, queue_pair in enumerate(queue_pairs[len(self._queue_pairs) :], len(self._queue_pairs)):
            nic = queue_pair.destination
            if nic not in self._receivers:
                self._receivers[nic] = Receiver(self._nic_rate_bps(nic) / 8, self._packet_bytes)
            self._receivers[nic].expect(number)
        self._set_period()
        known, more = len(self._queue_pairs), len(queue_pairs) - len(self._queue_pairs)
        self._group = np.append(self._group, np.arange(known, known + more))
        self._queue_pairs = list(queue_pairs)
        self._announced, self._granted, self._sent, self._take_backs = (
            np.append(array, np.zeros(more, dtype=np.int64))
            for array in (self._announced, self._granted, self._sent, self._take_backs)
        )
        self._order = _staggered(queue_pairs)

    def rates_changed(self) -> None:
        """Have receivers grant at the rates that their NICs have now."""
        for nic, receiver in self._receivers.items():
            receiver.grant_at(self._nic_rate_bps(nic) / 8)
        self._set_period()

    def _set_period(self) -> None:
        if self._receivers:
            fastest_bps = max(map(self._nic_rate_bps, self._receivers))
            self.period_s = PERIOD_PACKETS * packet_s(fastest_bps, self._packet_bytes)

    @property
    def granted_bytes(self) -> NDArray[np.int64]:
        """All that was granted to each, and not taken back unused (`Granting`)."""
        granted = np.zeros(len(self._queue_pairs), dtype=np.int64)
        for receiver in self._receivers.values():
            for number, size in receiver.given():
                granted[number] = size
        return granted

    def was_reset(self, number: int, sent_bytes: int) -> None:
        """Note what a queue pair had sent, some of it perhaps since the last time."""
        self._sent[number] = max(int(self._sent[number]), sent_bytes)

    def limits(self, offered: Offered) -> Limits:
        """Return what senders were granted until now."""
        arrived, posted, total = _of_groups(offered)
        self._granted = np.maximum(self._granted, arrived)
        self._sent = np.maximum(self._sent, offered.sent_bytes)
        self._regroup(offered)
        fewer = (total < self._announced) & (total <= self._granted)
        for takes_back, which in ((True, fewer), (False, total > self._announced)):
            numbers = self._order[which[self._order]]
            self._announce(numbers, total, self._sent_of_groups(), offered, takes_back=takes_back)
        self._pass_on(offered.now_s)
        for receiver in self._receivers.values():
            for number, granted in receiver.grants(arrived, offered.now_s):
                news = _Grant(number, granted, receiver.take_backs(number))
                self._send(offered.now_s + offered.round_trip_s[number] / 2, news)
        self._pass_on(offered.now_s)
        spare = (self._granted - posted)[offered.group]
        sent_bytes = offered.arrived_bytes + offered.left_bytes + spare
        return replace(Limits.none(len(spare)), sent_bytes=sent_bytes)

    def _regroup(self, offered: Offered) -> None:
        """Have those whose group is another now take back what the group before was granted and has not used.

        Else one that goes on alone would take for its own grants all that the others ever carried.
        """
        changed = offered.group != self._group
        firsts = np.unique(np.append(offered.group[changed], self._group[changed]))
        sent = self._sent_of_groups()  # by the groups before, which sent it
        total = np.bincount(offered.group, offered.sent_bytes, len(sent)).astype(np.int64)
        self._announce(firsts, total, sent, offered, takes_back=True)
        self._group = offered.group

    def _sent_of_groups(self) -> NDArray[np.int64]:
        return np.bincount(self._group, self._sent, len(self._group)).astype(np.int64)

    def _announce(
        self,
        numbers: NDArray[np.int64],
        total: NDArray[np.int64],
        sent: NDArray[np.int64],
        offered: Offered,
        *,
        takes_back: bool,
    ) -> None:
        """Have senders announce what they have now, and what they have sent of what they had before."""
        self._take_backs[numbers] += takes_back
        for number in numbers.tolist():
            round_trip_s = float(offered.round_trip_s[number])
            news = _Announcement(
                number, int(total[number]), int(sent[number]), int(self._take_backs[number]), round_trip_s
            )
            self._send(offered.now_s + round_trip_s / 2, news)
        self._announced[numbers] = total[numbers]
        self._granted[numbers] = np.minimum(self._granted, total)[numbers]

    def _send(self, at_s: float, news: "_Announcement | _Grant") -> None:
        heapq.heappush(self._news, (at_s, next(self._tickets), news))

    def _pass_on(self, now_s: float) -> None:
        """Hand over what has come by now."""
        while self._news and self._news[0][0] <= now_s:
            news = heapq.heappop(self._news)[2]
            if isinstance(news, _Announcement):
                self._receivers[self._queue_pairs[news.number].destination].announced(
                    news.number, news.total_bytes, news.round_trip_s, news.sent_bytes, news.take_backs
                )
            elif news.take_backs == self._take_backs[news.number]:
                # What was taken back meanwhile the receiver does not count as granted.
                self._granted[news.number] = max(int(self._granted[news.number]), news.granted_bytes)


class Receiver:
    """A NIC that grants, and all that it knows.

    Parameters
    ----------
    bytes_s
        Its rate [bytes/s].
    packet_bytes
        Payload of a packet [bytes].
    """

    def __init__(self, bytes_s: float, packet_bytes: int = PACKET_BYTES) -> None:
        self._packet_bytes = packet_bytes
        self.grant_at(bytes_s)
        self._sources: dict[int, _Source] = {}
        self._turns: deque[_Source] = deque()
        """Those that have announced more than they were granted, in the order of their turns."""
        self._packets = 0.0
        """What it may grant now."""
        self._at_s = 0.0
        self._rested = True
        """Whether nobody asked for more when it granted last."""

    def grant_at(self, bytes_s: float) -> None:
        """Grant at another rate from now on [bytes/s]."""
        self._packets_s = bytes_s / (self._packet_bytes + HEADER_BYTES)
        self._turn_packets = max(LEAST_PACKET_S * self._packets_s, 1.0)
        """How many packets count as one: 1, and more at a NIC that is faster than it is served."""

    def expect(self, number: int) -> None:
        """Record a queue pair that ends here."""
        self._sources[number] = _Source(number)

    def given(self) -> list[tuple[int, int]]:
        """Return all that each queue pair was granted and has not taken back unused [bytes]."""
        return [(source.number, source.given) for source in self._sources.values()]

    def take_backs(self, number: int) -> int:
        """Return how often it has heard that a queue pair took something back."""
        return self._sources[number].take_backs

    def announced(
        self, number: int, total_bytes: int, round_trip_s: float, sent_bytes: int = 0, take_backs: int = 0
    ) -> None:
        """Hear what a queue pair has, of all that it ever sends; what it takes back, it was not granted.

        What it has sent was granted all the same, though it has not arrived, and is left to be counted.
        """
        source = self._sources[number]
        source.given -= max(source.granted - max(total_bytes, sent_bytes), 0)
        source.total, source.round_trip_s, source.take_backs = total_bytes, round_trip_s, take_backs
        source.granted = min(source.granted, total_bytes)
        waited, source.waits = source.waits, source.granted < total_bytes
        if source.waits and not waited:
            self._turns.append(source)
        elif waited and not source.waits:
            self._turns.remove(source)

    def grants(self, arrived_bytes: NDArray[np.int64], now_s: float) -> list[tuple[int, int]]:
        """Return the queue pairs that are granted more now, and what each may have sent of all it ever sends.

        Parameters
        ----------
        arrived_bytes
            Of all that each queue pair ever sends, by number; those of others are not looked at.
        now_s
            When [s].
        """
        at_once = FIRST_PACKETS if self._rested else SAVED_PACKETS
        saved = min((now_s - self._at_s) * self._packets_s, at_once * self._turn_packets)
        self._at_s = now_s
        if not self._turns:
            self._packets, self._rested = 0.0, True
            return []
        self._packets = min(self._packets, 1.0) + saved
        share = QUEUE_PACKETS * self._turn_packets / len(self._turns)
        granted, passed = set[_Source](), 0
        while self._packets >= 1 and passed < len(self._turns):
            source = self._turns.popleft()
            source.granted = max(source.granted, int(arrived_bytes[source.number]))
            source.waits = source.granted < source.total
            if not source.waits:  # others of its group had been granted what arrived
                continue
            most = max(share, LEAST_PACKETS) + source.round_trip_s * self._packets_s
            if source.granted - int(arrived_bytes[source.number]) >= most * self._packet_bytes:
                self._turns.append(source)
                passed += 1
                continue
            passed = 0
            more = min(self._packet_bytes, source.total - source.granted)
            source.granted += more
            source.given += more
            self._packets -= 1
            granted.add(source)
            source.waits = source.granted < source.total
            if source.waits:
                self._turns.append(source)
        self._rested = not self._turns
        return [(source.number, source.granted) for source in granted]


def _of_groups(offered: Offered) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return what arrived, was posted, and is there in all, of each group at its first member's number."""
    size = len(offered.group)
    arrived, left, sent = (
        np.bincount(offered.group, each, size).astype(np.int64)
        for each in (offered.arrived_bytes, offered.left_bytes, offered.sent_bytes)
    )
    waiting = np.zeros(size, dtype=np.int64)
    np.maximum.at(waiting, offered.group, offered.waiting_bytes)  # all of them may have the same bytes
    # What is held has nothing left, and keeps the grants for what it has sent.
    return arrived, arrived + left, np.maximum(arrived + left + waiting, sent)


def _staggered(queue_pairs: Sequence[QueuePair]) -> NDArray[np.int64]:
    """Return queue pairs in an order in which those to different NICs begin with different servers.

    Else all NICs would grant to the same sender first, and to the same next.
    """
    servers = 1 + max(max(qp.source.server, qp.destination.server) for qp in queue_pairs)
    distance = [(qp.source.server - qp.destination.server) % servers for qp in queue_pairs]
    nics = [(qp.source.nic - qp.destination.nic, qp.source.nic) for qp in queue_pairs]
    return np.lexsort((*np.transpose(nics), distance))


@dataclass(slots=True, eq=False)
class _Source:
    """A queue pair or a group of them, as its receiver knows it."""

    number: int
    total: int = 0
    """What was announced, of all that it ever sends."""
    granted: int = 0
    """What it may have sent of that: what was granted, or arrived without."""
    given: int = 0
    """What it was granted in all, less what it took back unused."""
    round_trip_s: float = 0.0
    take_backs: int = 0
    waits: bool = field(default=False)
    """Whether it has a turn to come."""


@dataclass(frozen=True, slots=True)
class _Announcement:
    number: int
    total_bytes: int
    sent_bytes: int
    take_backs: int
    round_trip_s: float


@dataclass(frozen=True, slots=True)
class _Grant:
    number: int
    granted_bytes: int
    take_backs: int
    """How often the receiver had heard that something was taken back."""
