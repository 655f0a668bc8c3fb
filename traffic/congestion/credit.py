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
the links of its path take there and back. They are packets only where that is asked for: the engine holds
both ends, and passes them on when that time is over (`traffic.transports.control_packets`).

Unlike Ultra Ethernet's RCCC a source sends nothing before it is granted something: RCCC's reference lets a
window go first, so its first flow ends half a round trip earlier.

References
----------
M. Handley et al., "Re-architecting datacenter networks and stacks for low latency and high performance"
(NDP), SIGCOMM 2017; V. Olteanu et al., "An edge-queued datagram service for all datacenter traffic" (EQDS),
NSDI 2022; Ultra Ethernet Specification 1.0, section 3.6.14, receiver-credit congestion control (RCCC).
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, NamedTuple

import numpy as np
from mypy_extensions import mypyc_attr

from traffic.congestion.control import Acknowledged, Lost, Pipe, Red, Sent
from traffic.transports.round_trips import MARK_PACKETS
from traffic.transports.transport import HEADER_BYTES, LEAST_PACKET_S, PACKET_BYTES

QUEUE_PACKETS = 25
"""What a NIC's sources may have been granted together and not delivered."""
LEAST_PACKETS = 2
"""What each of them may have at least."""
SAVED_PACKETS = 10
"""What a NIC grants at once at most: what it could not while this process was late."""
FIRST_PACKETS = 2
"""What it grants at once at most after nobody asked. With as many as above, grants of several NICs met at the
same senders at first: of 167 packets a NIC, a uniform all-to-all took 1.06 times its bound, and now 1.035."""


class Has(NamedTuple):
    """What a source has, all counted from its first byte on."""

    total_bytes: int
    """What it has sent and has to send: what was lost counts once more."""
    sent_bytes: int
    """What of that it has sent."""
    round_trip_s: float
    """How long the links between it and its destination take there and back [s]."""
    take_backs: int = 0
    """How often it has taken back what it had announced, as it counts itself."""


class CreditGrant(NamedTuple):
    """A grant of bytes to a source, from its first one on."""

    granted_bytes: int
    """All that it may have sent."""
    take_backs: int
    """How often the receiver had heard that something was taken back."""


@mypyc_attr(allow_interpreted_subclasses=True)
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
        self.rates_changed(bytes_s)
        self._sources: dict[int, _Source] = {}
        self._turns: deque[_Source] = deque()
        """Those that have announced more than they were granted, in the order of their turns."""
        self._packets = 0.0
        """What it may grant now."""
        self._at_s = 0.0
        self._rested = True
        """Whether nobody asked for more when it granted last."""

    def rates_changed(self, rate_bytes_s: float) -> None:
        """Grant at another rate from now on [bytes/s]."""
        self._packets_s = rate_bytes_s / (self._packet_bytes + HEADER_BYTES)
        self._turn_packets = max(LEAST_PACKET_S * self._packets_s, 1.0)
        """How many packets count as one: 1, and more at a NIC that is faster than it is served."""

    def expect(self, source: int) -> None:
        """Record a source whose bytes end here."""
        self._sources[source] = _Source(source)

    def granted_bytes(self, source: int) -> int:
        """Return all that a source was granted and has not taken back unused."""
        return self._sources[source].given

    def on_arrived(self, source: int, size: int) -> None:
        """Note that bytes of a source have arrived, or are missing."""
        self._sources[source].gone += size

    def on_announced(self, source: int, announcement: Has) -> None:
        """Hear what a source has; what it takes back, it was not granted.

        What it has sent was granted all the same, though it has not arrived.
        """
        self._hear(self._sources[source], announcement)

    def _hear(self, source: "_Source", has: Has) -> None:
        source.given -= max(source.granted - max(has.total_bytes, has.sent_bytes), 0)
        source.total, source.round_trip_s = has.total_bytes, has.round_trip_s
        source.take_backs = has.take_backs
        source.granted = min(source.granted, has.total_bytes)
        waited, source.waits = source.waits, source.granted < has.total_bytes
        if source.waits and not waited:
            self._turns.append(source)
        elif waited and not source.waits:
            self._turns.remove(source)

    def grants(self, now_s: float) -> Iterable[tuple[int, CreditGrant]]:
        """Return the grants of now, and their sources."""
        if not self._may_grant(now_s):
            return []
        share = QUEUE_PACKETS * self._turn_packets / len(self._turns)
        granted: dict[_Source, None] = {}
        passed = 0
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
        return [(each.number, CreditGrant(each.granted, each.take_backs)) for each in granted]

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


@dataclass(eq=False)
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
    """True while it has a turn to come."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Credit:
    """A source that sends what it was granted.

    Parameters
    ----------
    pipe
        Its path.
    rng
        Not used: nothing is random.
    """

    receiver: ClassVar[type[Receiver]] = Receiver
    marks: ClassVar[Red] = Red(0.0, 0.0, MARK_PACKETS)
    in_packets: ClassVar[Mapping[str, float]] = {
        "granted and not delivered, of a source at least": LEAST_PACKETS
    }
    in_packet_times: ClassVar[Mapping[str, float]] = {
        "granted and not delivered, of a NIC": QUEUE_PACKETS,
        "granted at once, when asked late": SAVED_PACKETS,
        "granted at once, after a pause": FIRST_PACKETS,
    }

    def __init__(self, pipe: Pipe, rng: np.random.Generator) -> None:
        self.pipe = pipe
        self._sent = self._granted = self._announced = self._take_backs = 0
        """All that it ever sent, was granted, and announced [bytes]; and how often it took something back."""
        self._fewer = deque[tuple[int, int]]()
        """The times it took something back of which no grant has shown yet that the receiver knows: which one
        it was, and what was left announced. Of grants from before only as much counts."""

    def announcement(self, total_bytes: int, sent_bytes: int) -> Has | None:
        """Return its bytes, if they are others than it announced last."""
        if total_bytes == self._announced:
            return None
        if total_bytes < self._announced:
            self._take_back(total_bytes)
        self._announced = total_bytes
        return Has(total_bytes, sent_bytes, self.pipe.propagation_s, self._take_backs)

    def _take_back(self, left_bytes: int) -> None:
        """Have it take back all that it announced but so much."""
        self._take_backs += 1
        self._granted = min(self._granted, left_bytes)
        while self._fewer and self._fewer[-1][1] >= left_bytes:
            self._fewer.pop()
        self._fewer.append((self._take_backs, left_bytes))

    def on_granted(self, grant: CreditGrant) -> None:
        """Hear a grant: what was taken back meanwhile is not granted."""
        while self._fewer and self._fewer[0][0] <= grant.take_backs:
            self._fewer.popleft()
        counts = min(grant.granted_bytes, self._fewer[0][1]) if self._fewer else grant.granted_bytes
        self._granted = max(self._granted, counts)

    def on_events(
        self,
        sent: Sequence[Sent],
        acknowledged: Sequence[Acknowledged],
        lost: Sequence[Lost],
        now_s: float,
    ) -> None:
        """Count what it sent; the rest is its receiver's affair."""
        for packet in sent:
            self._sent += packet.bytes

    def may_send(self, now_s: float) -> int:
        """Return the bytes that it was granted and has not sent."""
        return max(self._granted - self._sent, 0)

    def next_s(self, now_s: float) -> float:
        """Return infinity: a grant is news."""
        return inf

    def rates_changed(self, pipe: Pipe) -> None:
        """Announce by another path from now on."""
        self.pipe = pipe
