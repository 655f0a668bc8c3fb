"""How large packets are: the emulation's MTU, and what a packet of it carries."""

from topologies.errors import ScenarioError

DEFAULT_MTU = 9000
"""Few packets are cheap: forwarding one costs the daemon much the same at any size."""
LEAST_MTU, MOST_MTU = 1500, 9000
"""From Ethernet's to that of jumbo frames, which buffers of sockets and datagrams are made for [bytes]."""
ETHERNET_HEADER_BYTES = 14
TCP_HEADER_BYTES = 52
"""IP, TCP and its timestamps, within the MTU."""

BURST_S, MIN_BURST_PACKETS = 0.004, 2


def packet_bytes(mtu: int) -> int:
    """Return the payload of a full TCP packet [bytes]: windows are whole packets."""
    return mtu - TCP_HEADER_BYTES


def mtu_of(packet: int) -> int:
    """Return the MTU whose full packets carry so much [bytes]."""
    return packet + TCP_HEADER_BYTES


def frame_bytes(mtu: int) -> int:
    """Return what a full packet takes of a link's rate and of a queue [bytes]."""
    return mtu + ETHERNET_HEADER_BYTES


def burst_bytes(rate_bps: float, mtu: int = DEFAULT_MTU) -> int:
    """Return the token bucket for a rate: 4 ms of it, to forgive a late timer, and at least two packets."""
    return max(int(rate_bps / 8 * BURST_S), MIN_BURST_PACKETS * frame_bytes(mtu))


def check_mtu(mtu: int) -> None:
    """Raise ScenarioError for an MTU that is not emulated."""
    if not LEAST_MTU <= mtu <= MOST_MTU:
        raise ScenarioError(f"an MTU of {mtu} bytes", f"give --mtu from {LEAST_MTU} to {MOST_MTU}")
