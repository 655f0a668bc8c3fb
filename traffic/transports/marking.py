"""Marks: what an ECN switch would say of a packet, from how long it queued.

A packet's queue delay is its round trip, from leaving its NIC, less its path's base round trip. Times the
rate of the path's slowest link it is the queue that the packet met. A token bucket lends a burst that passes
without delay, so that no shorter queue is seen: that is the least length from which packets are marked.
"""

from array import array

import numpy as np

from traffic.congestion.control import Red
from traffic.transports.round_trips import MARK_PACKETS

USUAL = Red(0.0, 0.0, MARK_PACKETS)
"""The marks of a congestion control that has none of its own, for schemes that move away from queues."""


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
        self.marked = 0
        """How many were marked."""

    def met(self, queue_s: float, packet_s: float, bdp_packets: float, lent_packets: float) -> bool:
        """Return whether a packet is marked.

        Parameters
        ----------
        queue_s
            How long it queued [s].
        packet_s
            The time of a packet at the path's slowest link [s].
        bdp_packets
            The path's bandwidth-delay product [packets].
        lent_packets
            What a token bucket lends at that link [packets].
        """
        self.queues_s.append(queue_s)
        length = queue_s / packet_s
        least = max(self._red.least * bdp_packets, self._red.least_packets, lent_packets)
        most = max(self._red.most * bdp_packets, least)
        if length <= least:
            return False
        marked = length >= most or self._rng.random() < (length - least) / (most - least)
        self.marked += marked
        return marked
