"""A NIC that sends datagrams: it takes the next one when it has nearly nothing to send.

The kernel says what waits in its queue, so that a NIC whose link became slower takes less. When a packet
leaves is reckoned from the NIC's rate: round trips begin then, and no packet of a slot may leave too late.
"""

import socket
from errno import ENOBUFS

from traffic.packets import burst_bytes, mtu_of
from traffic.transports.datagram_sockets import SEND_BUFFER_BYTES, Address, unsent_bytes
from traffic.transports.transport import HEADER_BYTES, LEAST_PACKET_S

DEPTH_PACKETS, PLACED_PACKETS = 2, 12
"""A NIC takes more while it holds less than so many packets: of what chooses lanes as it goes, and of what
was placed. With 2 of both, NICs idled until the engine had looked at all of them: of 50 random demands one
took 1.37 times its prediction at 44 Mbit/s a NIC."""


class NicSender:
    """A NIC that sends: its socket, and what it holds.

    Parameters
    ----------
    endpoint
        The socket.
    bytes_s
        Its rate [bytes/s].
    packet
        Payload of a packet [bytes].
    header
        What a packet takes of the link besides [bytes].
    """

    def __init__(
        self, endpoint: socket.socket, bytes_s: float, packet: int, header: int = HEADER_BYTES
    ) -> None:
        self.endpoint, self._packet, self._header = endpoint, packet, header
        self._memory = packet
        """What the kernel accounts for a packet [bytes]; known once two wait."""
        self._learnt, self._looked = False, -1
        self.clear_s = 0.0
        """When it will have sent what it was given, at its rate [s]."""
        self._waits = 0
        """What the kernel accounts for what waits, as it was looked at and sent since [bytes]."""
        self._bytes_s = bytes_s
        self.send_at(bytes_s)

    def send_at(self, bytes_s: float, now_s: float = 0.0) -> None:
        """Reckon with another rate from now on, at which what waits leaves too."""
        if self.clear_s > now_s:
            self.clear_s = now_s + (self.clear_s - now_s) * self._bytes_s / bytes_s
        self._turn_packets = max(1.0, LEAST_PACKET_S * bytes_s / self._packet)
        """How many packets count as one: 1, and more at a NIC that is faster than it is served."""
        self._bytes_s = bytes_s
        self._lent_s = burst_bytes(8 * bytes_s, mtu_of(self._packet)) / bytes_s
        """For how long its full token bucket lets packets leave at once [s]."""

    def look(self) -> None:
        """See what it has sent meanwhile."""
        self._waits = unsent_bytes(self.endpoint)

    def room(self, packets: int, turn: int) -> bool:
        """Return whether it holds fewer packets; once a turn it is looked at if it seems full."""
        most = packets * self._turn_packets * self._memory
        if self._waits >= most and self._looked != turn:
            self._looked = turn
            self.look()
        return self._waits < most

    def send(self, packet: bytes | memoryview, to: Address) -> bool:
        """Send a packet; return whether there was room for it. One that nothing carries is lost."""
        try:
            self.endpoint.sendto(packet, to)
        except BlockingIOError:
            self._waits = SEND_BUFFER_BYTES
            return False
        except OSError as error:
            if error.errno != ENOBUFS:  # its link is down, and with it goes what it held
                self.clear_s = 0.0
            return True
        if not self._learnt:
            self._learn()
        self._waits += self._memory
        return True

    def leaves(self, size: int, now_s: float) -> float:
        """Return when a packet of so many bytes leaves that it is given now, after what it holds [s].

        A token bucket lets packets leave as soon as it can lend for all of them (GCRA, ITU-T I.371).
        """
        begins_s = self.clear_s if self.clear_s > now_s else now_s
        self.clear_s = begins_s + (size + self._header) / self._bytes_s
        leaves_s = self.clear_s - self._lent_s
        return leaves_s if leaves_s > now_s else now_s

    def clears_s(self, now_s: float) -> float:
        """Return when it will have sent all; not before now while the kernel holds some: its link is slow."""
        if self.clear_s < now_s:
            self.look()
            if self._waits:
                self.clear_s = now_s
        return self.clear_s

    def sends_by(self, size: int, now_s: float, until_s: float) -> bool:
        """Return whether a packet of so many bytes has left by a time that it is given now.

        What its bucket lends is not counted on.
        """
        return max(self.clear_s, now_s) + (size + self._header) / self._bytes_s <= until_s

    def _learn(self) -> None:
        """Learn what the kernel accounts for a packet, once one waits."""
        before = self._waits
        self.look()
        self._memory, self._learnt = max(self._waits - before, self._memory), self._waits > before
        self._waits = before
