"""A congestion control that takes no notice of anything: an incast of it fills the queue of a switch."""

from traffic.congestion.control import PerPacket, Red


class WideWindow(PerPacket):
    """A source with 10 packets on its way, some of which are marked."""

    marks = Red(0.0, 0.0, 5.0)

    @property
    def window_bytes(self) -> float:  # type: ignore[override]  # it is read only
        """W."""
        return 10.0 * self.pipe.packet_bytes
