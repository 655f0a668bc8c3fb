"""Marks: what an ECN switch would say of a packet, from how long it queued.

A packet's queue delay is its round trip, from leaving its NIC, less its path's base round trip. Times the
rate of the path's slowest link it is the queue that the packet met. A token bucket lends a burst that passes
without delay, so that no shorter queue is seen: that is the least length from which packets are marked.
"""

from array import array
from dataclasses import dataclass
from math import inf

import numpy as np

from traffic.congestion.control import Red
from traffic.transports.round_trips import MARK_PACKETS

USUAL = Red(0.0, 0.0, MARK_PACKETS)
"""The marks of a congestion control that has none of its own, for schemes that move away from queues."""


@dataclass(frozen=True)
class MarkCurve:
    """The queue delays of one path from which its packets are marked."""

    base_s: float
    """A packet's round trip without a queue [s]."""
    least_s: float
    """Up to which queue delay none is marked [s]."""
    most_s: float
    """From which on all are [s]."""


UNMARKED = MarkCurve(0.0, inf, inf)


class Marking:
    """Measures the queues that packets met, and marks packets.

    Parameters
    ----------
    red
        From which length on.
    rng
        Draws between the lengths at which no packet is marked and all are.
    """

    def __init__(self, red: Red, rng: np.random.Generator) -> None:
        self._red, self._rng = red, rng
        self.queues_s = array("f")
        """The queue delay of each packet that was acknowledged [s]."""

    def curve(self, base_s: float, packet_s: float, lent_s: float) -> MarkCurve:
        """Return the curve of a path.

        Parameters
        ----------
        base_s
            A packet's round trip without a queue [s].
        packet_s
            The time of a packet at the path's slowest link [s].
        lent_s
            For how long a token bucket lets packets pass at that link at once [s].
        """
        least, most = self._red.lengths(base_s / packet_s, lent_s / packet_s)
        return MarkCurve(base_s, least * packet_s, most * packet_s)

    def met(self, queue_s: float, curve: MarkCurve) -> bool:
        """Return whether a packet is marked that queued for so long [s]."""
        self.queues_s.append(queue_s)
        if queue_s <= curve.least_s:
            return False
        over_s, within_s = queue_s - curve.least_s, curve.most_s - curve.least_s
        return over_s >= within_s or self._rng.random() * within_s < over_s
