"""A transport: how much a queue pair may have on its way, and how fast it sends.

The engine (`traffic.transports.engine`) moves bytes over TCP connections and asks its transport every
`Transport.period_s`, and when something was posted, what each of them may do. What a transport decides
from is its own affair: `ideal` knows what all senders owe, `credit` what each receiver was told, and `tcp`
leaves it to the kernel.

The times of a transport are multiples of `packet_s`, never seconds: packets are not dilated, so one with
times in seconds would be another transport on a machine that emulates faster or slower NICs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Nic
from traffic.packets import DEFAULT_MTU, ETHERNET_HEADER_BYTES, TCP_HEADER_BYTES, packet_bytes
from traffic.spraying.policy import QueuePair

PACKET_BYTES = packet_bytes(DEFAULT_MTU)
"""Payload of a packet of the default MTU: windows are whole packets."""
HEADER_BYTES = ETHERNET_HEADER_BYTES + TCP_HEADER_BYTES
"""Of a packet."""
LEAST_PACKET_S = 0.001
"""For how long a packet counts at least: sockets are served in turns of about this time [s]."""
UNLIMITED_BYTES = 1 << 62
"""No limit, where a number of bytes is one."""


@dataclass(frozen=True, eq=False)
class Offered:
    """What queue pairs have to deliver now; arrays of shape (queue pairs,)."""

    left_bytes: NDArray[np.int64]
    """What was posted and has not arrived; 0 where nothing may be sent."""
    waiting_bytes: NDArray[np.int64]
    """What may choose each queue pair among others, and is on none yet."""
    arrived_bytes: NDArray[np.int64]
    """All that ever arrived."""
    sent_bytes: NDArray[np.int64]
    """All that was ever handed to its socket."""
    among: NDArray[np.float64]
    """Among how many queue pairs that may choose, in the mean; 1 where nothing chooses."""
    group: NDArray[np.int64]
    """Equal for a communicator's queue pairs from one server to one NIC among which bytes choose: the number
    of the first of them. Of another queue pair it is its own."""
    round_trip_s: NDArray[np.float64]
    """How long the links of each one's path take there and back [s]."""
    lossy: NDArray[np.bool_]
    """Whether links of its path lose packets."""
    now_s: float
    """When this is so, on a clock that never goes back [s]."""
    anew: bool
    """Whether something was posted since the last time."""


@dataclass(frozen=True, eq=False)
class Limits:
    """What queue pairs may do until the next time; arrays of shape (queue pairs,)."""

    window_bytes: NDArray[np.int64]
    """What each may have on its way; what arrives makes room at once."""
    pace_bytes_s: NDArray[np.float64]
    """How fast each may send [bytes/s], positive; infinite where TCP itself decides."""
    sent_bytes: NDArray[np.int64]
    """What each may have sent, of all that it ever sends. Those of a group share what lies above what each
    was given."""

    @classmethod
    def none(cls, queue_pairs: int) -> "Limits":
        """Return no limits for so many queue pairs."""
        window, sent = np.full((2, queue_pairs), UNLIMITED_BYTES)
        return cls(window, np.full(queue_pairs, np.inf), sent)


class Transport(Protocol):
    """Limits queue pairs; made for one run.

    A user's own is a class that is made with two arguments, the rate of a NIC at emulated scale (`NicRate`)
    and the payload of a packet [bytes]; it is named ``module:Class``.
    """

    @property
    def period_s(self) -> float:
        """Say how often it is asked while bytes are under way [s]; infinite: only when something was posted.

        It is looked at after `limits`.
        """
        ...

    by_bytes: bool
    """Whether queue pairs that meet share by what each has left, instead of evenly: for the prediction."""

    def know(self, queue_pairs: Sequence[QueuePair]) -> None:
        """Record all queue pairs, by number; some have come since the last time."""
        ...

    def limits(self, offered: Offered) -> Limits:
        """Return what queue pairs may do that have bytes left; at least one has."""
        ...


@runtime_checkable
class FollowsRates(Protocol):
    """A transport that reckons with the rates of NICs, and asks for them anew when they have changed."""

    def rates_changed(self) -> None:
        """Ask anew how fast NICs are (`NicRate`)."""
        ...


NicRate = Callable[[Nic], float]
"""The rate of a NIC at emulated scale [bit/s]."""


def packet_s(rate_bps: float, packet_bytes: int = PACKET_BYTES) -> float:
    """Return the time in which transports reckon: what a full packet takes at a rate [s].

    Parameters
    ----------
    rate_bps
        At emulated scale [bit/s].
    packet_bytes
        Payload of a packet [bytes].

    Notes
    -----
    Above 72 Mbit/s, with the default MTU, it is `LEAST_PACKET_S`, since nothing here acts faster; there a
    transport's constants are of more packets the faster NICs are (`testbed.trust.constants` says so).
    """
    return max(8 * (packet_bytes + HEADER_BYTES) / rate_bps, LEAST_PACKET_S)
