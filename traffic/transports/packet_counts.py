"""How many packets an engine of datagrams sent, and what it saw of them."""

from dataclasses import dataclass

from traffic.transports.engine import Health


@dataclass(frozen=True)
class PacketCounts:
    """The packets of a run; those that carry nothing, to see paths by, are none of them."""

    sent: int = 0
    """Those that NICs were given."""
    arrived: int = 0
    """Those that arrived and counted."""
    anew: int = 0
    """Those that counted as lost, so that their bytes were granted anew."""
    late: int = 0
    """Those that arrived and did not count: they counted as lost, were taken back, or came twice."""

    @property
    def taken_back(self) -> int:
        """How many were taken back while they were on their way, or still are there."""
        return self.sent - self.arrived - self.anew


@dataclass(frozen=True)
class DatagramHealth(Health):
    """How an engine of datagrams fared; what is sent again is what is granted anew."""

    packets: PacketCounts = PacketCounts()
    """What became of its packets."""
