"""A message between two servers as datagrams: which are still to send, on their way, or delivered.

A circuit goes one way, and a permutation has no way back for TCP's acknowledgements. So messages
go over circuits as numbered datagrams; who sends learns out of band, as over a management network,
which arrived, and sends the others again in a later slot.
"""

import struct
from collections import deque
from dataclasses import dataclass, field

from topologies.fabric import Nic
from traffic.packets import DEFAULT_MTU, ETHERNET_HEADER_BYTES

Ends = tuple[Nic, Nic]
"""The NIC that sends, and the NIC that receives."""
HEADER = struct.Struct("!II")
"""Number of the message, and of the datagram in it."""
UDP_HEADER_BYTES = 28
"""IP and UDP, within the MTU."""
OVERHEAD_BYTES = ETHERNET_HEADER_BYTES + UDP_HEADER_BYTES
"""Headers that the NIC's rate has room for too."""
PACKET_S = 0.002
"""How long a datagram takes at the NIC's rate: short against a slot, long against what it costs to send."""


@dataclass(slots=True)
class Datagrams:
    """All of one message."""

    message: int
    """Its number."""
    size: int
    """Bytes, headers of datagrams among them."""
    payload: int
    """Bytes of each datagram but the last."""
    todo: deque[int] = field(default_factory=deque)
    """Datagrams to send, in order."""
    delivered: set[int] = field(default_factory=set)
    delivered_bytes: int = 0
    by_ends: dict[Ends, int] = field(default_factory=dict)
    """Bytes that arrived from each NIC at each other."""

    def __post_init__(self) -> None:
        """Queue all datagrams."""
        self.todo.extend(range(-(-self.size // self.payload)))

    def bytes_of(self, number: int) -> int:
        """Return the size of a datagram."""
        return max(min(self.payload, self.size - number * self.payload), HEADER.size)

    def arrived(self, number: int, ends: Ends) -> int:
        """Record a datagram that arrived; return its size if it is the first of its number, else 0."""
        if number in self.delivered:
            return 0
        self.delivered.add(number)
        size = min(self.payload, self.size - number * self.payload)
        self.delivered_bytes += size
        self.by_ends[ends] = self.by_ends.get(ends, 0) + size
        return size

    def cut(self) -> None:
        """Make the message as large as what has arrived; what arrives later counts as there before."""
        self.delivered.update(range(-(-self.size // self.payload)))
        self.todo.clear()
        self.size = self.delivered_bytes

    @property
    def missing_bytes(self) -> int:
        """What has not arrived."""
        return self.size - self.delivered_bytes


def header_share(rate_bps: float, mtu: int = DEFAULT_MTU) -> float:
    """Return bytes on the wire over bytes of messages at a NIC's rate [bit/s]."""
    return 1 + OVERHEAD_BYTES / payload_bytes(rate_bps, mtu)


def payload_bytes(rate_bps: float, mtu: int = DEFAULT_MTU) -> int:
    """Return what a full datagram carries at a NIC's rate: `PACKET_S` of it, within what a frame can hold."""
    return int(min(mtu - UDP_HEADER_BYTES, max(rate_bps / 8 * PACKET_S - OVERHEAD_BYTES, 256)))
