"""Samples of sources over time: what was sent and delivered, the window, and the queue that packets met."""

from collections.abc import Iterable
from math import nan
from typing import NamedTuple

from traffic.transports.datagram_lane import Source

PERIOD_PACKETS = 4
"""In how many packets' time of the fastest NIC a sample is taken."""
MOST_SOURCES = 64
"""With more sources nothing is sampled."""
MOST_SAMPLES = 40_000
"""With more samples every second time is forgotten, and half as many are taken from then on."""


class Sample(NamedTuple):
    """One source at one time; bytes count from its first one on."""

    source: int
    at_s: float
    sent_bytes: int
    delivered_bytes: int
    window_bytes: float
    """Infinite without a window."""
    queue_s: float
    """Mean queue delay of the packets acknowledged since the sample before; NaN if there were none."""


class FlowLog:
    """The samples of a run."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._period_s = 0.0
        self._next_s = 0.0

    def take(self, sources: Iterable[Source], now_s: float, packet_s: float, *, anyway: bool = False) -> None:
        """Take a sample of each source that has sent or has to send something, if it is time.

        Parameters
        ----------
        sources
            All.
        now_s
            When [s].
        packet_s
            A packet's time at the fastest NIC [s].
        anyway
            Whether to take one though it is not time.
        """
        if now_s < self._next_s and not anyway:
            return
        self._period_s = max(self._period_s, PERIOD_PACKETS * packet_s)
        self.samples += [_sample(source, now_s) for source in sources if source.sent or source.wants]
        if len(self.samples) > MOST_SAMPLES:
            self._thin()
        self._next_s = now_s + self._period_s

    def _thin(self) -> None:
        times = sorted({each.at_s for each in self.samples})
        kept = set(times[::2])
        self.samples = [each for each in self.samples if each.at_s in kept]
        self._period_s *= 2


def _sample(source: Source, now_s: float) -> Sample:
    queue_s = source.queued_s / source.queued if source.queued else nan
    source.queued_s, source.queued = 0.0, 0
    return Sample(source.number, now_s, source.sent, source.delivered, source.window_bytes, queue_s)
