"""Receiver credits: every NIC grants what it can take, to the sources that announced bytes to it.

A source announces what it has for a destination NIC. The NIC grants a packet at a time, round robin over the
sources that have announced more than they were granted, at its own rate; a source sends what it was granted.
A source is a queue pair, or those NICs of a server together by any of which bytes may go that choose as they
go. So an incast's queue stands at the senders, and NICs need to know nothing of each other: a receiver knows
what was announced to it, what arrived, and what is missing, no more.

What a source may have been granted and not yet delivered is limited, since its sender may be busy
with the grants of others: the sources of a NIC share `QUEUE_PACKETS` evenly, and what links take
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
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import count, islice

from topologies.fabric import Nic
from traffic.transports.transport import (
    HEADER_BYTES,
    LEAST_PACKET_S,
    PACKET_BYTES,
    NicRate,
)

QUEUE_PACKETS = 25
"""What a NIC's sources may have been granted together and not delivered."""
LEAST_PACKETS = 2
"""What each of them may have at least."""
SAVED_PACKETS = 10
"""What a NIC grants at once at most: what it could not while this process was late."""
FIRST_PACKETS = 2
"""What it grants at once at most after nobody asked. With as many as above, grants of several NICs met at the
same senders at first: of 167 packets a NIC, a uniform all-to-all took 1.06 times its bound, and now 1.035."""


@dataclass(frozen=True, slots=True)
class Has:
    """What a source has, all counted from its first byte on."""

    source: int
    total_bytes: int
    """What it has sent and has to send: what was lost counts once more."""
    sent_bytes: int
    """What of that it has sent."""
    round_trip_s: float
    """How long the links between it and its destination take there and back [s]."""
    take_backs: int = 0
    """How often it has taken back what it had announced, as `Credits` counts it."""


class Credits:
    """Grants from the NICs of a run to its sources, both by numbers that count from 0.

    Parameters
    ----------
    nic_rate_bps
        The rate of a NIC at emulated scale [bit/s].
    packet_bytes
        Payload of a packet [bytes].
    """

    def __init__(self, nic_rate_bps: NicRate, packet_bytes: int = PACKET_BYTES) -> None:
        self._nic_rate_bps, self._packet_bytes = nic_rate_bps, packet_bytes
        self._receivers: dict[Nic, Receiver] = {}
        self._next = 0
        """Which of them has the next turn."""
        self._of: list[Receiver] = []
        """The receiver of each source."""
        self._announced: list[int] = []
        """What each source has announced of all that it ever sends [bytes]."""
        self._granted: list[int] = []
        """What each source knows that it was granted, of all that it ever sends [bytes]."""
        self._take_backs: list[int] = []
        """How often each took back what it had announced."""
        self._fewer: list[deque[tuple[int, int]]] = []
        """Those of which no grant has shown yet that the receiver knows: which one it was, and what was left
        announced. Of grants from before only as much counts."""
        self._news: list[tuple[float, int, Has | _Grant]] = []
        """What is under way between sources and receivers, by when it comes."""
        self._tickets = count()
        self._last_s: dict[tuple[int, type], float] = {}
        """When the last announcement of each source comes, and the last grant: a path keeps their order."""

    def source(self, destination: Nic) -> int:
        """Return the number of a new source of what is for a NIC."""
        if destination not in self._receivers:
            self._receivers[destination] = Receiver(self._nic_rate_bps(destination) / 8, self._packet_bytes)
        self._receivers[destination].expect(len(self._of))
        self._of.append(self._receivers[destination])
        for numbers in (self._announced, self._granted, self._take_backs):
            numbers.append(0)
        self._fewer.append(deque())
        return len(self._of) - 1

    def rates_changed(self) -> None:
        """Have receivers grant at the rates that their NICs have now."""
        for nic, receiver in self._receivers.items():
            receiver.grant_at(self._nic_rate_bps(nic) / 8)

    def given_bytes(self, source: int) -> int:
        """Return all that a source was granted and did not take back unused."""
        return self._of[source].given(source)

    def announce(self, has: Has, now_s: float) -> None:
        """Have a source announce what it has, if that is not what it announced last."""
        source, before = has.source, self._announced[has.source]
        if has.total_bytes == before:
            return
        if has.total_bytes < before:
            self._take_back(source, has.total_bytes)
        self._announced[source] = has.total_bytes
        news = replace(has, take_backs=self._take_backs[source])
        if has.round_trip_s or self._news:
            self._send(source, now_s + has.round_trip_s / 2, news)
        else:
            self._hear(news, [])

    def _take_back(self, source: int, left_bytes: int) -> None:
        """Have a source take back all that it announced but so much."""
        self._take_backs[source] += 1
        self._granted[source] = min(self._granted[source], left_bytes)
        fewer = self._fewer[source]
        while fewer and fewer[-1][1] >= left_bytes:
            fewer.pop()
        fewer.append((self._take_backs[source], left_bytes))

    def gone(self, source: int, size: int) -> None:
        """Note that bytes of a source are no longer on their way: they arrived, or are known to be lost."""
        self._of[source].gone(source, size)

    def turn(self, now_s: float, most: int | None = None) -> tuple[list[tuple[int, int]], bool]:
        """Pass on what has come by now, and have receivers grant.

        Parameters
        ----------
        now_s
            When [s].
        most
            How many receivers grant now; the others do when this is called again. By default all.

        Returns
        -------
        list of tuples of source and bytes
            What sources may send more, in the order in which the grants came to their senders.
        bool
            Whether all receivers have had their turn.
        """
        came = self._pass_on(now_s)
        begin, self._next = self._next, self._next + (most or len(self._receivers))
        for receiver in islice(self._receivers.values(), begin, self._next):
            for grant, round_trip_s in receiver.grants(now_s):
                if round_trip_s or self._news:
                    self._send(grant.source, now_s + round_trip_s / 2, grant)
                else:
                    self._hear(grant, came)
        is_over = self._next >= len(self._receivers)
        self._next *= not is_over
        return came + self._pass_on(now_s), is_over

    def _send(self, source: int, at_s: float, news: "Has | _Grant") -> None:
        which = source, type(news)
        at_s = self._last_s[which] = max(at_s, self._last_s.get(which, at_s))
        heapq.heappush(self._news, (at_s, next(self._tickets), news))

    def _pass_on(self, now_s: float) -> list[tuple[int, int]]:
        """Let announcements and grants that have come by now be heard."""
        came = list[tuple[int, int]]()
        while self._news and self._news[0][0] <= now_s:
            self._hear(heapq.heappop(self._news)[2], came)
        return came

    def _hear(self, news: "Has | _Grant", came: list[tuple[int, int]]) -> None:
        """Let an announcement or a grant be heard; a grant is added to what has come."""
        if isinstance(news, Has):
            self._of[news.source].announced(news)
        elif (more := self._counting(news) - self._granted[news.source]) > 0:
            self._granted[news.source] += more
            came.append((news.source, more))

    def _counting(self, grant: "_Grant") -> int:
        """Return what a source may have sent by a grant: what it took back meanwhile is not granted."""
        fewer = self._fewer[grant.source]
        while fewer and fewer[0][0] <= grant.take_backs:
            fewer.popleft()
        return min(grant.granted_bytes, fewer[0][1]) if fewer else grant.granted_bytes


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
        """Record a source whose bytes end here."""
        self._sources[number] = _Source(number)

    def given(self, number: int) -> int:
        """Return all that a source was granted and has not taken back unused [bytes]."""
        return self._sources[number].given

    def gone(self, number: int, size: int) -> None:
        """Note that bytes of a source have arrived, or are missing."""
        self._sources[number].gone += size

    def announced(self, has: Has) -> None:
        """Hear what a source has; what it takes back, it was not granted.

        What it has sent was granted all the same, though it has not arrived.
        """
        source = self._sources[has.source]
        source.given -= max(source.granted - max(has.total_bytes, has.sent_bytes), 0)
        source.total, source.round_trip_s = has.total_bytes, has.round_trip_s
        source.take_backs = has.take_backs
        source.granted = min(source.granted, has.total_bytes)
        waited, source.waits = source.waits, source.granted < has.total_bytes
        if source.waits and not waited:
            self._turns.append(source)
        elif waited and not source.waits:
            self._turns.remove(source)

    def grants(self, now_s: float) -> Iterable[tuple["_Grant", float]]:
        """Return what is granted now, each with how long links take there and back [s]."""
        if not self._may_grant(now_s):
            return []
        share = QUEUE_PACKETS * self._turn_packets / len(self._turns)
        granted, passed = dict[_Source, None](), 0
        while self._packets >= 1 and passed < len(self._turns):
            source = self._turns.popleft()
            most = max(share, LEAST_PACKETS) + source.round_trip_s * self._packets_s
            if source.granted - source.gone >= most * self._packet_bytes:
                self._turns.append(source)
                passed += 1
                continue
            passed = 0
            more = min(self._packet_bytes, source.total - source.granted)
            source.granted += more
            source.given += more
            self._packets -= 1
            granted[source] = None
            source.waits = source.granted < source.total
            if source.waits:
                self._turns.append(source)
        self._rested = not self._turns
        return [(_Grant(each.number, each.granted, each.take_backs), each.round_trip_s) for each in granted]

    def _may_grant(self, now_s: float) -> bool:
        """Count the packets that it may grant now; return whether somebody asks for some."""
        at_once = FIRST_PACKETS if self._rested else SAVED_PACKETS
        saved = min((now_s - self._at_s) * self._packets_s, at_once * self._turn_packets)
        self._at_s = now_s
        if not self._turns:
            self._packets, self._rested = 0.0, True
            return False
        self._packets = min(self._packets, 1.0) + saved
        return True


@dataclass(slots=True, eq=False)
class _Source:
    """A source, as its receiver knows it; bytes count from its first one on."""

    number: int
    total: int = 0
    """What was announced, of all that it ever sends."""
    granted: int = 0
    """What it may have sent of that."""
    gone: int = 0
    """What of that is no longer on its way."""
    given: int = 0
    """What it was granted in all, less what it took back unused."""
    round_trip_s: float = 0.0
    take_backs: int = 0
    waits: bool = False
    """Whether it has a turn to come."""


@dataclass(frozen=True, slots=True)
class _Grant:
    source: int
    granted_bytes: int
    take_backs: int
    """How often the receiver had heard that something was taken back."""
