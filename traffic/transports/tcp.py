"""The kernel's TCP: no window and no pace of ours, one connection per queue pair.

What it does depends on what its hosts are set to: `traffic.transports.host_settings`.
"""

from collections.abc import Sequence
from math import inf

from traffic.spraying.policy import QueuePair
from traffic.transports.transport import Limits, NicRate, Offered


class Tcp:
    """Leaves all to TCP's congestion control; two that meet share evenly, which is what it aims at."""

    period_s = inf
    by_bytes = False

    def __init__(self, nic_rate_bps: NicRate, packet_bytes: int = 0) -> None:
        """Take the rate of a NIC and the size of a packet, which TCP finds out by itself."""

    def know(self, queue_pairs: Sequence[QueuePair]) -> None:
        """Record nothing."""

    def limits(self, offered: Offered) -> Limits:
        """Return no limits."""
        return Limits.none(len(offered.left_bytes))
