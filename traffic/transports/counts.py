"""What an engine tells its transport of all queue pairs, kept as arrays: there may be thousands of them."""

from collections.abc import Sequence

import numpy as np

from traffic.transports.late_binding import ReactiveFeeder
from traffic.transports.transport import Offered


class Counts:
    """Counts of queue pairs by number; arrays of shape (queue pairs,)."""

    def __init__(self) -> None:
        self._size = 0
        self.posted = np.zeros(0, dtype=np.int64)
        """All bytes that each was ever given."""
        self.arrived = np.zeros(0, dtype=np.int64)
        """Those of them that have arrived."""
        self.sent = np.zeros(0, dtype=np.int64)
        """Those of them that were handed to its socket."""
        self.held = np.zeros(0, dtype=np.bool_)
        """Whether each may send nothing for now."""
        self.round_trip_s = np.zeros(0)
        """How long the links of its path take there and back [s]."""
        self.lossy = np.zeros(0, dtype=np.bool_)
        """Whether they lose packets."""

    def reserve(self, size: int) -> None:
        """Make room for so many queue pairs, new ones with nothing posted."""
        self._size = size
        if size > len(self.posted):
            more = max(size, 64)
            for name in ("posted", "arrived", "sent", "held", "round_trip_s", "lossy"):
                array = getattr(self, name)
                setattr(self, name, np.append(array, np.zeros(more, dtype=array.dtype)))

    def offered(self, feeders: Sequence[ReactiveFeeder], now_s: float, anew: bool) -> Offered:
        """Return what queue pairs have to deliver, what waits with feeders included."""
        size = self._size
        left, waiting = self.posted[:size] - self.arrived[:size], np.zeros(size, dtype=np.int64)
        among, group = np.ones(size), np.arange(size)
        for feeder in feeders:
            waiting[feeder.numbers] += feeder.waiting_bytes
            among[feeder.numbers], group[feeder.numbers] = feeder.among, feeder.group
        left[self.held[:size]] = 0
        return Offered(
            left,
            waiting,
            self.arrived[:size].copy(),
            self.sent[:size].copy(),
            among,
            group,
            self.round_trip_s[:size],
            self.lossy[:size],
            now_s,
            anew,
        )
