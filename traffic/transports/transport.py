"""A transport: how much a queue pair may have on its way, and how fast it sends.

The engine (`traffic.transports.engine`) moves bytes over TCP connections and asks its transport, every 20 ms
and when something was posted, what each of them may do. What a transport decides from is its own
affair: `ideal` knows what all senders owe.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from traffic.packets import DEFAULT_MTU, packet_bytes
from traffic.spraying.policy import QueuePair

PACKET_BYTES = packet_bytes(DEFAULT_MTU)
"""Payload of a packet of the default MTU: windows are whole packets."""


@dataclass(frozen=True, eq=False)
class Offered:
    """What queue pairs have to deliver now; arrays of shape (queue pairs,)."""

    left_bytes: NDArray[np.float64]
    """What has not arrived; 0 where nothing may be sent."""
    round_trip_s: NDArray[np.float64]
    """How long the links of each one's path take there and back [s]."""
    anew: bool
    """Whether something was posted since the last time."""


@dataclass(frozen=True, eq=False)
class Limits:
    """What queue pairs may do until the next time; arrays of shape (queue pairs,)."""

    window_bytes: NDArray[np.int64]
    """What each may have on its way."""
    pace_bytes_s: NDArray[np.float64]
    """How fast each may send [bytes/s], positive."""


class Transport(Protocol):
    """Limits queue pairs; made for one run."""

    def know(self, queue_pairs: Sequence[QueuePair]) -> None:
        """Take note of all queue pairs, by number; some have come since the last time."""
        ...

    def limits(self, offered: Offered) -> Limits:
        """Return what queue pairs may do that have bytes left; at least one has."""
        ...
