"""The ideal congestion control: sources share NICs by what is left to deliver, as windows.

It is ideal because it is clairvoyant: shares follow what all senders still owe each destination,
which no NIC knows. Queues in the fabric therefore stay short, nothing is lost, and sources of one
communicator that meet at a bottleneck share it by what they have left, which is what the fluid model
computes.

Communicators are served fairly (`traffic.fair_weights`): the source of each that has most left counts as
one, its others in proportion. So one with a long backlog takes no more of a NIC than with a short one, and at
most as much as its sources get under congestion controls that serve all of them alike.

The window of a source is the lesser of its shares at both ends times a time, which is the same for all: what
is on its way to a NIC never makes it wait longer than that, however many send to it. Where links take time,
that comes on top.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Nic
from traffic.congestion.control import AllSources, PerPacket, Pipe
from traffic.fair_weights import fair_weights
from traffic.transports.transport import packet_s

WINDOW_PACKETS = 25
"""For how many packets' time of the fastest NIC what is on its way may keep a NIC busy."""
PERIOD_PACKETS = 10
"""After how many packets' time of the fastest NIC they are shared anew."""


class Shares:
    """The share of NICs that each source has, computed once a period for all.

    Parameters
    ----------
    sources
        What is seen.
    packet_bytes
        Payload of a packet [bytes].
    """

    def __init__(self, sources: AllSources, packet_bytes: int) -> None:
        self._sources, self._packet_bytes = sources, packet_bytes
        self._bytes_s = list[float]()
        self._next_s = 0.0
        self.window_s = 0.0
        """For how long what is on its way may keep a NIC busy [s]."""

    def of(self, number: int, now_s: float) -> float:
        """Return the lesser of a source's shares at its two ends [bytes/s]; 0 if it has no bytes left."""
        if number >= len(self._bytes_s):
            self._know()
        if now_s >= self._next_s or (not self._bytes_s[number] and self._sources.left_bytes(number)):
            self._share(now_s)
        return self._bytes_s[number]

    def _know(self) -> None:
        """Record all sources, of which some have come; they are shared next."""
        ends = self._sources.ends
        self._sending = _End([each.sources for each in ends])
        self._receiving = _End([(each.destination,) for each in ends])
        self._communicator = np.array([each.communicator for each in ends], dtype=np.int64)
        self._bytes_s, self._next_s = [0.0] * len(ends), 0.0

    def _share(self, now_s: float) -> None:
        view, numbers = self._sources, range(len(self._bytes_s))
        left = np.array([view.left_bytes(number) for number in numbers], dtype=np.float64)
        sending, receiving = (
            np.array([view.rate_bytes_s(nic) for nic in end.nics]) for end in (self._sending, self._receiving)
        )
        weights = fair_weights(left, self._communicator)
        shares = self._sending.shares(weights, sending), self._receiving.shares(weights, receiving)
        self._bytes_s = np.minimum(*shares).tolist()
        time_s = packet_s(8 * sending.max(), self._packet_bytes)
        self.window_s, self._next_s = WINDOW_PACKETS * time_s, now_s + PERIOD_PACKETS * time_s


class Ideal(PerPacket):
    """A source that has on its way what its share of NICs sends in a time.

    Parameters
    ----------
    pipe, rng
        As of every congestion control; nothing is random.
    shares
        Those of all sources.
    number
        The source's.
    """

    overview = Shares
    by_bytes = True
    in_packet_times: ClassVar[Mapping[str, float]] = {
        "on its way to a NIC": WINDOW_PACKETS,
        "between looks at what is left": PERIOD_PACKETS,
    }

    def __init__(self, pipe: Pipe, rng: np.random.Generator, shares: Shares, number: int) -> None:
        super().__init__(pipe, rng)
        self._shares, self._number = shares, number

    def may_send(self, now_s: float) -> int:
        """Return what its share leaves room for: whole packets, and one at least is on its way."""
        share_bytes_s, m = self._shares.of(self._number, now_s), self.pipe.packet_bytes
        window_s = self._shares.window_s + self.pipe.propagation_s
        self.window_bytes = max(round(share_bytes_s * window_s / m), 1) * m
        return super().may_send(now_s)


class _End:
    """The NICs at one end of all sources; one that may use several has an even part of its bytes at each."""

    def __init__(self, nics: Sequence[tuple[Nic, ...]]) -> None:
        numbers: dict[Nic, int] = {}
        self._nic = np.array([numbers.setdefault(nic, len(numbers)) for each in nics for nic in each])
        """Of each part its NIC."""
        counts = np.array([len(each) for each in nics])
        self._source, self._part = np.repeat(np.arange(len(nics)), counts), np.repeat(1 / counts, counts)
        """Of each part its source, and the share that it has of its bytes."""
        self.nics = list(numbers)

    def shares(self, weights: NDArray[np.float64], bytes_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return each source's share of the rates of its NICs [bytes/s]."""
        parts = weights[self._source] * self._part
        total = np.bincount(self._nic, parts, len(self.nics))
        rates = parts / np.maximum(total, 1.0)[self._nic] * bytes_s[self._nic]
        return np.asarray(np.bincount(self._source, rates, len(weights)), dtype=np.float64)
