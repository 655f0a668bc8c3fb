"""What is owed between servers, as datagrams: which are still to send, on their way, or delivered.

A circuit goes one way, and a permutation has no way back for TCP's acknowledgements. So messages
go over circuits as numbered datagrams; who sends learns out of band, as over a management network,
which arrived, and sends the others again in a later slot.
"""

import struct
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

HEADER = struct.Struct("!HHI")
"""Source server, destination server, number of the datagram."""
OVERHEAD_BYTES = 14 + 20 + 8
"""Ethernet, IP and UDP headers, which the NIC's rate has room for too."""
MAX_PAYLOAD_BYTES = 9000 - 28
PACKET_S = 0.002
"""How long a datagram takes at the NIC's rate: short against a slot, long against what it costs to send."""


@dataclass(slots=True)
class Pair:
    """All that one server owes another."""

    source: int
    destination: int
    size: int
    """Bytes, headers of datagrams among them."""
    payload: int
    """Bytes of each datagram but the last."""
    todo: deque[int] = field(default_factory=deque)
    """Datagrams to send, in order."""
    delivered: set[int] = field(default_factory=set)
    delivered_bytes: int = 0
    start_s: float = np.inf
    """When the first was sent [s]."""
    end_s: float = 0.0
    """When the last arrived [s]."""
    by_ocs: dict[int, int] = field(default_factory=dict)
    """Bytes that arrived over each OCS."""

    def __post_init__(self) -> None:
        """Queue all datagrams."""
        self.todo.extend(range(-(-self.size // self.payload)))

    def bytes_of(self, number: int) -> int:
        """Return the size of a datagram."""
        return max(min(self.payload, self.size - number * self.payload), HEADER.size)

    def arrived(self, number: int, ocs: int, now: float) -> int:
        """Take note of a datagram that arrived; return its size if it is the first of its number, else 0."""
        if number in self.delivered:
            return 0
        self.delivered.add(number)
        size = min(self.payload, self.size - number * self.payload)
        self.delivered_bytes += size
        self.by_ocs[ocs] = self.by_ocs.get(ocs, 0) + size
        self.end_s = now
        return size

    @property
    def missing_bytes(self) -> int:
        """What has not arrived."""
        return self.size - self.delivered_bytes


def pairs_of(demand: NDArray[np.int64], rate_bps: float) -> dict[tuple[int, int], Pair]:
    """Return the pairs of servers that owe each other something.

    Parameters
    ----------
    demand
        Bytes from server i to server j, at emulated scale; the diagonal is not sent.
    rate_bps
        The rate of a NIC at emulated scale [bit/s].
    """
    payload = payload_bytes(rate_bps)
    return {
        (int(i), int(j)): Pair(int(i), int(j), int(demand[i, j]), payload)
        for i, j in np.argwhere(demand > 0)
        if i != j
    }


def header_share(rate_bps: float) -> float:
    """Return bytes on the wire over bytes of messages."""
    return 1 + OVERHEAD_BYTES / payload_bytes(rate_bps)


def payload_bytes(rate_bps: float) -> int:
    """Return what a full datagram carries at a NIC's rate: `PACKET_S` of it, within what a frame can hold."""
    return int(min(MAX_PAYLOAD_BYTES, max(rate_bps / 8 * PACKET_S - OVERHEAD_BYTES, 256)))
