"""Acknowledgements, announcements and grants as packets of their own, where these are asked for.

Each is a datagram whose frame has 64 bytes from Ethernet's header on, as shapers and counters have it; of
Ethernet's least frame the checksum is part, which no link here has. It leaves from the NIC that sends it,
before data where ports can do so (`testbed.machine.netlink.priority_requests`), crosses the same switches,
and counts once it was received and its path's delay is over. An acknowledgement leaves as soon as its packet
was received, so that the delays of both ways stand behind the queues (`traffic.transports.propagation`); it
takes the entropy of that packet.

A packet names a *line*, which is the news of one kind on one path, and how many things were ever sent on it.
So it brings what was sent before, as a selective acknowledgement does: nothing is missing for ever, and
nothing comes twice, whatever is lost, doubled or overtaken. The last packet of a line is sent again while
nothing is heard of it for some round trips. That stands for the probe of a sender that hears nothing. How
long a packet took that was sent twice is not known, since either may have come (P. Karn and C. Partridge,
"Improving round-trip time estimates in reliable transport protocols", SIGCOMM 1987): it counts as the one
before it.
"""

from array import array
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from topologies.addresses import ENTROPIES
from topologies.fabric import Nic
from traffic.spraying.policy import SPRAYED, QueuePair
from traffic.transports.control_packets import ControlPackets
from traffic.transports.datagram_lane import PacketPath, Source
from traffic.transports.datagram_sockets import CONTROL, Address, DatagramEndpoints, acknowledging
from traffic.transports.propagation import Received
from traffic.transports.transport import packet_s

FRAME_BYTES = 64
"""Size of each on a link [bytes]."""
REPEAT_ROUND_TRIPS, REPEAT_PACKETS = 8.0, 50
"""For how many round trips nothing is heard of a line's last packet before it is sent again, and for how many
packets' time of its NIC at least: as long as a packet is missing where links lose some."""
Comes = Callable[[float, float], None]
"""Takes when a thing came, and how long its packet took, or would have if it was lost at first [s]."""
Sends = Callable[[bytes, Address], int]
"""Sends a packet from a NIC to an address."""


@dataclass(eq=False)
class NewsLine:
    """Things that go by one path, each once and in order."""

    number: int
    source: Source
    """The source that they are about."""
    send: Sends
    to: Address
    waiting: deque[tuple[float, Comes]] = field(default_factory=deque)
    """Those that have not come, and when each was sent [s]."""
    sent: int = 0
    """How many were ever sent."""
    took_s: float = 0.0
    """How long the last packet took that was sent once [s]."""

    @property
    def came(self) -> int:
        """How many have come."""
        return self.sent - len(self.waiting)


class AckPackets:
    """The acknowledgements of a run, and its announcements and grants.

    Parameters
    ----------
    endpoints
        How sockets are made.
    token
        The run's.
    acknowledged
        Takes what was received and is acknowledged, when its acknowledgement came, and how long that took.
    """

    def __init__(
        self, endpoints: DatagramEndpoints, token: int, acknowledged: Callable[[Received, float, float], None]
    ) -> None:
        self._endpoints, self._token, self._acknowledged = endpoints, token, acknowledged
        self._senders: dict[Nic, Sends] = {}
        self._lines: list[NewsLine] = []
        self._of_path: dict[PacketPath, NewsLine] = {}
        """Those of acknowledgements."""
        self._last = deque[tuple[float, NewsLine, int]]()
        """When packets were sent, their line, and how many things were sent on it by then."""
        self.packets = 0
        """How many were sent."""
        self.took_s = array("f")
        """How long each took that came first, without its path's delay [s]."""

    @property
    def news(self) -> tuple[ControlPackets[object], ControlPackets[object]]:
        """The carriers of announcements, and of grants."""
        return NewsPackets(self, forth=True), NewsPackets(self, forth=False)

    def open(self, stack: ExitStack, nic: Nic) -> None:
        """Open a NIC's socket; ``stack`` closes it."""
        if nic not in self._senders:
            self._senders[nic] = acknowledging(stack, self._endpoints, nic).sendto

    def line(self, source: Source, near: Nic, far: Nic, entropy: int) -> NewsLine:
        """Return a new line between two NICs."""
        to = self._endpoints.address(far, entropy % ENTROPIES)
        self._lines.append(NewsLine(len(self._lines), source, self._senders[near], to))
        return self._lines[-1]

    def acknowledge(self, received: Received) -> None:
        """Acknowledge a packet that was received just now."""
        packet = received.packet
        if (line := self._of_path.get(packet.path)) is None:
            pair = packet.lane.queue_pair
            entropy = _entropy(pair, packet.path.entropy)
            line = self._of_path[packet.path] = self.line(
                packet.source, pair.destination, pair.source, entropy
            )
        self.send(line, partial(self._acknowledged, received), received.at_s)

    def send(self, line: NewsLine, comes: Comes, now_s: float) -> None:
        """Send a thing by a line."""
        line.waiting.append((now_s, comes))
        line.sent += 1
        self._put(line, now_s, again=False)

    def _put(self, line: NewsLine, now_s: float, *, again: bool) -> None:
        self._last.append((now_s, line, line.sent))
        self.packets += 1
        try:
            line.send(CONTROL.pack(self._token, line.number, line.sent, again), line.to)
        except OSError:  # what no link takes is lost, and sent again
            return

    def received(self, packet: memoryview, now_s: float) -> None:
        """Count as received all that was sent on a line until a packet that is received."""
        token, number, sent, again = CONTROL.unpack_from(packet)
        if token != self._token or number >= len(self._lines):
            return
        line = self._lines[number]
        if (count := sent - line.came) <= 0:
            return  # it came twice, or a later one has overtaken it
        if not again:
            line.took_s = now_s - line.waiting[count - 1][0]
            self.took_s.append(line.took_s)
        for _ in range(count):
            line.waiting.popleft()[1](now_s, line.took_s)

    def repeat(self, now_s: float) -> None:
        """Send the last packet of a line again if nothing was heard of it for long."""
        while self._last:
            at_s, line, sent = self._last[0]
            if line.came < sent == line.sent:
                if now_s - at_s < _patience_s(line.source):
                    return
                self._put(line, now_s, again=True)
            self._last.popleft()

    def settle(self) -> None:
        """Count all as received, each as late as the last one of its line: nobody looks for packets now.

        What reads them later would take the time until then for that of the network.
        """
        while self._last:
            _, line, _ = self._last.popleft()
            while line.waiting:
                at_s, comes = line.waiting.popleft()
                comes(at_s + line.took_s, line.took_s)


class NewsPackets(ControlPackets[object]):
    """Announcements, or grants, that are packets; the delay of their path comes on top.

    Parameters
    ----------
    packets
        What sends them.
    forth
        Whether they go as data does, and not back.
    """

    def __init__(self, packets: AckPackets, *, forth: bool) -> None:
        super().__init__()
        self._packets, self._forth = packets, forth
        self._of_source: dict[Source, NewsLine] = {}

    def send(self, source: Source, news: object, now_s: float, takes_s: float) -> None:
        """Send news of a source, or for it; it takes so long besides [s]."""
        if not source.lane.crossed.returns:
            super().send(source, news, now_s, takes_s)
            return
        if (line := self._of_source.get(source)) is None:
            pair = source.lane.queue_pair
            ends = pair.source, pair.destination
            near, far = ends if self._forth else reversed(ends)
            line = self._packets.line(source, near, far, _entropy(pair, source.number))
            self._of_source[source] = line
        self._packets.send(line, partial(self._came, source, news, takes_s), now_s)

    def _came(self, source: Source, news: object, takes_s: float, came_s: float, _took_s: float) -> None:
        super().send(source, news, came_s, takes_s)


def _entropy(pair: QueuePair, sprayed: int) -> int:
    """Return the entropy of a queue pair, or that given where its packets go by any."""
    return sprayed if pair.entropy == SPRAYED else pair.entropy


def _patience_s(source: Source) -> float:
    pipe = source.pipe
    assert pipe  # it has something to send
    least_s = REPEAT_PACKETS * packet_s(8 * pipe.rate_bytes_s, pipe.packet_bytes)
    return max(least_s, REPEAT_ROUND_TRIPS * source.rtt_s) + pipe.propagation_s
