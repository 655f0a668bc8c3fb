"""Feeders decide which bytes a queue pair carries next, for the engine: one per kind of policy.

That of reactive policies is in `traffic.late_binding`.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from traffic.spraying.policy import Assignment


class Carrier(Protocol):
    """What a feeder sees of the engine."""

    def post(self, qp: int, size: int) -> None:
        """Put bytes behind what a queue pair carries already."""

    def posted(self, qp: int) -> int:
        """Return how many bytes were posted on a queue pair."""

    def counted(self, qp: int) -> int:
        """Return how many bytes of a queue pair were counted at its receiver."""

    def rtt_s(self, qp: int) -> float:
        """Return TCP's smoothed round-trip time of a queue pair [s]."""


class Feeder(Protocol):
    """Posts chunks on queue pairs."""

    chunk_qp: NDArray[np.int64]
    """Index of each chunk's queue pair, shape (chunks,); -1 while it has none."""

    @property
    def tick_s(self) -> float | None:
        """How often it wants its turn [s]; None if it posts everything at the start."""

    @property
    def waiting(self) -> bool:
        """Whether there are bytes that were not posted yet."""

    @property
    def order(self) -> NDArray[np.int64]:
        """The chunks in the order in which they were posted."""

    def start(self, carrier: Carrier) -> None:
        """Post what goes first."""

    def arrived(self, carrier: Carrier, qp: int, now: float) -> None:
        """Take note that bytes of a queue pair were counted at its receiver."""

    def turn(self, carrier: Carrier, now: float) -> None:
        """Post what can be sent now."""


class ProactiveFeeder:
    """Posts everything at the start, as a proactive policy assigned it.

    Parameters
    ----------
    assignment
        Which queue pair carries which chunk.
    chunk_bytes
        Size of each chunk at emulated scale [bytes], shape (chunks,).
    """

    tick_s: float | None = None
    waiting = False

    def __init__(self, assignment: Assignment, chunk_bytes: NDArray[np.int64]) -> None:
        self.chunk_qp, self.order = assignment.chunk_qp, assignment.order
        self._load = np.bincount(assignment.chunk_qp, chunk_bytes, len(assignment.queue_pairs))

    def start(self, carrier: Carrier) -> None:
        """Post everything."""
        for qp, load in enumerate(self._load.astype(np.int64).tolist()):
            carrier.post(qp, load)

    def arrived(self, carrier: Carrier, qp: int, now: float) -> None:
        """Nothing is decided later."""

    def turn(self, carrier: Carrier, now: float) -> None:
        """Nothing is posted later."""
