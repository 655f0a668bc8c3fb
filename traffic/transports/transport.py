"""Sizes and times in which transports reckon: those of a packet.

The times of a congestion control are multiples of `packet_s` or of a path's round trip, never seconds:
packets are not dilated, so one with times in seconds would be another on a machine that emulates faster or
slower NICs.
"""

from collections.abc import Callable

from topologies.fabric import Nic
from traffic.packets import DEFAULT_MTU, ETHERNET_HEADER_BYTES, TCP_HEADER_BYTES, packet_bytes

PACKET_BYTES = packet_bytes(DEFAULT_MTU)
"""Payload of a packet of the default MTU: windows are whole packets."""
HEADER_BYTES = ETHERNET_HEADER_BYTES + TCP_HEADER_BYTES
"""Of a packet."""
LEAST_PACKET_S = 0.001
"""For how long a packet counts at least: sockets are served in turns of about this time [s]."""
UNLIMITED_BYTES = 1 << 62
"""No limit, where a number of bytes is one."""
NicRate = Callable[[Nic], float]
"""The rate of a NIC at emulated scale [bit/s]."""


def packet_s(rate_bps: float, packet_bytes: int = PACKET_BYTES) -> float:
    """Return the time in which transports reckon: what a full packet takes at a rate [s].

    Parameters
    ----------
    rate_bps
        At emulated scale [bit/s].
    packet_bytes
        Payload of a packet [bytes].

    Notes
    -----
    Above 72 Mbit/s, with the default MTU, it is `LEAST_PACKET_S`, since nothing here acts faster; there a
    transport's constants are of more packets the faster NICs are (`testbed.trust.constants` says so).
    """
    return max(8 * (packet_bytes + HEADER_BYTES) / rate_bps, LEAST_PACKET_S)
