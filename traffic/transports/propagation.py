"""Propagation delay: a packet arrives after its path's delay, its acknowledgement after the way back.

The links of an emulation have no delay of their own. So the engine holds what was received until its time has
come. The delay then stands behind the queues of the path and not before them: a queue feels a sender's
decision earlier than behind real links, and the sender hears of the queue as much later; the sum, which a
control loop sees, is the same.
"""

from collections import deque
from math import inf
from typing import Literal, NamedTuple

from traffic.transports.datagram_lane import Packet

Stage = Literal["arrives", "acknowledged"]


class Received(NamedTuple):
    """A packet that a receiver's socket was given."""

    packet: Packet
    lost: list[Packet]
    """The packets that it overtook, which are lost."""
    at_s: float
    """When it was, or its acknowledgement where that is a packet [s]."""
    delay_s: float
    """Its path's, one way [s]."""
    back_s: float = 0.0
    """How much later its acknowledgement came than it was received, where that is a packet [s]."""
    took_s: float = 0.0
    """How long that acknowledgement took, less if it was lost at first [s]."""


class Propagation:
    """The packets that were received and have yet to arrive, or to be acknowledged."""

    def __init__(self) -> None:
        self._lines: dict[tuple[Stage, float], deque[Received]] = {}
        """Those that wait for each stage, by the delay until then: in the order of time."""

    def put(self, stage: Stage, received: Received) -> None:
        """Have a packet reach a stage when its time has come."""
        delay_s = received.delay_s if stage == "arrives" else 2 * received.delay_s
        self._lines.setdefault((stage, delay_s), deque()).append(received)

    def due(self, now_s: float) -> list[tuple[Stage, Received]]:
        """Return the packets that have reached a stage by now."""
        found = list[tuple[Stage, Received]]()
        for (stage, delay_s), line in self._lines.items():
            while line and line[0].at_s + delay_s <= now_s:
                found.append((stage, line.popleft()))
        return found

    @property
    def arrives_s(self) -> float:
        """When a packet arrives next [s]; infinity if none is to. Acknowledgements wake nobody."""
        first_s = inf  # no generator, which compiled code is slow at
        for (stage, delay_s), line in self._lines.items():
            if line and stage == "arrives":
                first_s = min(first_s, line[0].at_s + delay_s)
        return first_s
