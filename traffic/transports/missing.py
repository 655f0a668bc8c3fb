"""Which packets are missing: paths keep their order, and what is not back after some round trips is lost."""

from collections import defaultdict, deque
from collections.abc import Callable

from traffic.transports.datagram_lane import Packet


class UnderWay:
    """The packets under way, by path and by when they left."""

    def __init__(self) -> None:
        self._of_path: dict[tuple[int, int], deque[Packet]] = defaultdict(deque)
        """Those of each path, in the order in which they left."""
        self._oldest: deque[Packet] = deque()
        """All, in that order."""

    def left(self, packet: Packet) -> None:
        """Follow a packet that leaves now."""
        self._of_path[packet.path].append(packet)
        self._oldest.append(packet)

    def overtaken_by(self, packet: Packet) -> list[Packet]:
        """Return what left before a packet that arrived, by the same path, and has not: it is lost."""
        in_order, lost = self._of_path[packet.path], list[Packet]()
        while in_order and in_order[0] is not packet:
            before = in_order.popleft()
            if not before.over:
                lost.append(before)
        if in_order:
            in_order.popleft()
        if not in_order:
            del self._of_path[packet.path]
        return lost

    def missing(self, now: float, patience_s: Callable[[Packet], float]) -> list[Packet]:
        """Return what left longer ago than one has patience for it [s], and is not back: it is lost."""
        lost = list[Packet]()
        while self._oldest:
            packet = self._oldest[0]
            if not packet.over:
                if now - packet.sent_at < patience_s(packet):
                    break
                lost.append(packet)
            self._oldest.popleft()
        return lost
