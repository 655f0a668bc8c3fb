"""The ideal transport: NICs share their rates by what is left to deliver, as windows and paces.

It is ideal because it is clairvoyant: shares follow what all senders still owe each destination,
which no NIC knows. Queues in the fabric therefore stay short, nothing is lost, and queue pairs of one
communicator that meet at a bottleneck share it by what they have left, which is what the fluid model
computes.

Communicators are served fairly (`traffic.fair_weights`): the queue pair of each that has most left counts as
one, its others in proportion. So one with a long backlog takes no more of a NIC than with a short one, and at
most as much as its queue pairs get under transports that serve all of them alike.

The pace of a queue pair is its share of the NIC that sends, and a tenth more, so that what one
cannot use another can. Its window, what it may have on its way at once, is the lesser of its shares
at both ends times a time: what is on its way to a NIC never makes it wait longer than that
time, however many send to it. (Windows by the sender's share alone let ten senders overflow a
port's 2 MiB at 17 Mbit/s, and a loss costs TCP a second.)

Measured as emulated over predicted time, uniform all-to-all: TCP's own windows behind 2 MiB queues 1.15;
windows of 25 packets without pace 1.25 at 40 Mbit/s a NIC; both, as here, 1.04.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Nic
from traffic.fair_weights import fair_weights
from traffic.spraying.policy import QueuePair
from traffic.transports.transport import PACKET_BYTES, Limits, NicRate, Offered, packet_s

HEADROOM = 1.1
WINDOW_SHARE, LEAST_WINDOW_PACKETS, MOST_WINDOW_PACKETS = 0.1, 10, 25
"""A uniform all-to-all at 36 Mbit/s a NIC took 1.036 times its bound with windows of 25 packets, 1.058 of 50,
1.10 of 100."""
PERIOD_PACKETS = 10
"""After how many packets' time of the fastest NIC they are shared anew."""


class Ideal:
    """Windows and paces by what is left everywhere.

    Parameters
    ----------
    nic_rate_bps
        The rate of a NIC at emulated scale [bit/s].
    packet_bytes
        Payload of a packet [bytes].
    """

    by_bytes = True

    def __init__(self, nic_rate_bps: NicRate, packet_bytes: int = PACKET_BYTES) -> None:
        self.period_s = inf
        """How often NICs are shared anew, once they are known [s]."""
        self._nic_rate_bps, self._packet_bytes = nic_rate_bps, packet_bytes
        self._queue_pairs: Sequence[QueuePair] = ()
        self._window_s = 0.0

    def know(self, queue_pairs: Sequence[QueuePair]) -> None:
        """Record all queue pairs, by number."""
        self._queue_pairs = list(queue_pairs)
        self._sending = _End((qp.source for qp in queue_pairs), self._nic_rate_bps)
        self._receiving = _End((qp.destination for qp in queue_pairs), self._nic_rate_bps)
        self._packet_s = packet_s(self._sending.fastest_bps, self._packet_bytes)
        """The time of a packet at the fastest NIC that sends [s]."""
        self.period_s = PERIOD_PACKETS * self._packet_s
        self._communicator = np.array([each.communicator for each in queue_pairs], dtype=np.int64)

    def rates_changed(self) -> None:
        """Share NICs by the rates that they have now."""
        self.know(self._queue_pairs)

    def limits(self, offered: Offered) -> Limits:
        """Return what the bytes left entitle queue pairs to."""
        left = offered.left_bytes + offered.waiting_bytes / offered.among
        if offered.anew:  # else as long as before: what is left shrinks, and windows with it
            self._window_s = self.window_s(left)
        window_s = self._window_s + offered.round_trip_s
        left = fair_weights(left, self._communicator)
        # TCP finds a lost packet by those behind it; with one at a time it would wait for a timeout.
        windows = self.windows_bytes(left, window_s, 1 + offered.lossy)
        # What may choose takes the queue pairs that are quickest, so none has a pace of its own.
        paces = np.where(offered.among > 1, np.inf, self.paces_bytes_s(left))
        return replace(Limits.none(len(left)), window_bytes=windows, pace_bytes_s=paces)

    def window_s(self, left_bytes: NDArray[np.float64]) -> float:
        """Return for how long what is on its way may keep a NIC busy: a tenth of all it has, within limits.

        With more, short messages leave as bursts, one behind the other, instead of side by side.
        """
        longest_s = self._sending.busy_s(left_bytes)
        least_s, most_s = LEAST_WINDOW_PACKETS * self._packet_s, MOST_WINDOW_PACKETS * self._packet_s
        return float(np.clip(WINDOW_SHARE * longest_s, least_s, most_s))

    def paces_bytes_s(self, left_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how fast each queue pair may send [bytes/s].

        At least its even part of its NIC, or a packet in the longest time that a packet may wait if that is
        less: TCP paces what it sends next by what was said before, so that a last packet at a pace of next to
        nothing would come a second late.
        """
        even = self._sending.rates_bytes_s((left_bytes > 0).astype(np.float64))
        least = np.clip(HEADROOM * even, 1.0, self._packet_bytes / (MOST_WINDOW_PACKETS * self._packet_s))
        return np.asarray(np.maximum(HEADROOM * self._sending.rates_bytes_s(left_bytes), least))

    def windows_bytes(
        self,
        left_bytes: NDArray[np.float64],
        window_s: float | NDArray[np.float64],
        least_packets: int | NDArray[np.int64] = 1,
    ) -> NDArray[np.int64]:
        """Return what each queue pair may have on its way [bytes]: whole packets, and so many at least."""
        rates = np.minimum(self._sending.rates_bytes_s(left_bytes), self._receiving.rates_bytes_s(left_bytes))
        packets = np.maximum(np.rint(rates * window_s / self._packet_bytes), least_packets)
        return np.asarray(packets * self._packet_bytes, dtype=np.int64)


class _End:
    """The NICs at one end of the queue pairs."""

    def __init__(self, nics: Iterable[Nic], nic_rate_bps: NicRate) -> None:
        numbers: dict[Nic, int] = {}
        self._nic = np.array([numbers.setdefault(nic, len(numbers)) for nic in nics], dtype=np.int64)
        self._bytes_s = np.array([nic_rate_bps(nic) / 8 for nic in numbers])

    @property
    def fastest_bps(self) -> float:
        """The rate of the fastest of them [bit/s]; infinite if there is none."""
        return float(8 * self._bytes_s.max()) if len(self._bytes_s) else inf

    def busy_s(self, left_bytes: NDArray[np.float64]) -> float:
        """Return how long the busiest NIC needs for what is left [s]."""
        return float((np.bincount(self._nic, left_bytes) / self._bytes_s).max(initial=0.0))

    def rates_bytes_s(self, left_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return each queue pair's share of its NIC's rate [bytes/s]."""
        total = np.bincount(self._nic, left_bytes)
        share = left_bytes / np.maximum(total, 1.0)[self._nic]
        return np.asarray(share * self._bytes_s[self._nic])
