"""Swift, a window of a sender that keeps round trips at a target, and a pace where it is below a packet.

Vocabulary: R base round trip [s]; BDP bandwidth-delay product [bytes]; m payload of a packet [bytes]; W
window (the paper's cwnd) [bytes]; n acknowledged bytes; rtt measured round trip of a packet, R at least
[s]; srtt its smoothed value [s]; target of rtt [s].

The target has three parts: a base, a part for each link (the paper's hop), and flow scaling, since sources
are many where windows are small: it grows with 1 / sqrt(W / m), from nothing at 100 m to `RANGE` at 0.1 m.

An acknowledgement with rtt below the target has W grow: by m in a window of them, and by n where W is below
m. One with a later rtt shrinks W, by `BETA` times the share of rtt that is above the target, by half at
most, and once in srtt. A packet that was overtaken halves W likewise (fast recovery), and so does a
timeout; after several timeouts in a row W is as small as can be. Marks are not used.

From m on W is a window. Below, packets are paced: one every srtt m / W, as in the paper. With R for srtt a
source would send faster than its window lets it, by srtt / R, as soon as that is below m: just where queues
are longest. A packet that is due waits until no other is on its way, so one that is lost holds up the next
until the engine counts it as lost.

Nothing here is in seconds: targets are multiples of R. They have the proportions of the reference
simulator, where the base is 20 us and R about 16 us; the paper's are of its testbed.

What the text leaves open, and where uet-htsim (commit 40ccb05, sim/swift.cpp) is another:

- W starts at 1.5 BDP and never exceeds it, as in `traffic.congestion.nscc`, so that the first round trip is
  the same under both. There it is 15 packets at first (datacenter/main_swift.cpp), and 1,000 at most.
- W is 0.1 m at least, where the target no longer grows: at 16 packets a BDP a thousand sources still meet
  it. There it is 10 bytes, with which a packet waits for 900 round trips.
- Flow scaling there goes by whole packets, so that it is `RANGE` for every W below m.
- A loss halves W at once, as in Algorithm 1; there at the end of fast recovery.
- The engine says what is lost. All that was on its way at a timeout is of that timeout.
- When a paced packet is due follows W and srtt until it leaves; there it is fixed when the one before
  leaves.
- The window is that of the fabric. The paper has one for delays in hosts too, which are not emulated.

References
----------
G. Kumar et al., "Swift: Delay is simple and effective for congestion control in the datacenter", SIGCOMM
2020, section 3 and Algorithm 1; for constants that it does not give, the simulator above.
"""

from collections.abc import Mapping
from math import inf, sqrt
from typing import ClassVar

import numpy as np

from traffic.congestion.control import SILENT, Acknowledged, Lost, PerPacket, Pipe, Sent

MOST_BDP = 1.5
"""W_max, and W at first [BDP]."""
LEAST_PACKETS = 0.1
"""W_min, at which the target is latest [m]."""
UNSCALED_PACKETS = 100
"""W from which on the target is not scaled by flows [m]."""
BASE = 1.25
"""The target without links and flow scaling [R]."""
HOP = BASE / 6.55
"""h: what each link adds to the target [R]."""
RANGE = 5 * BASE
"""Most that flow scaling adds to the target [R]."""
GROWTH = 1.0
"""ai: growth of W while a window of packets comes back in time [m]."""
BETA = 0.8
"""beta: share of W that is lost, of how far a round trip is above the target."""
LEAST_KEPT = 0.5
"""1 - max_mdf: least share of W that a decrease keeps."""
SEVERAL = 5
"""Timeouts without an acknowledgement between them that set W to its least."""
SMOOTHING = 1 / 8
"""Share of the smoothed round trip that the latest has."""


class Swift(PerPacket):
    """A window by delay, and a pace where it is below a packet."""

    in_packets: ClassVar[Mapping[str, float]] = {
        "least window": LEAST_PACKETS,
        "growth of a window in time": GROWTH,
        "window from which on the target is least": UNSCALED_PACKETS,
    }
    in_round_trips: ClassVar[Mapping[str, float]] = {
        "largest window, and the first": MOST_BDP,
        "round trip aimed at, on top for each link": HOP,
        "round trip aimed at, without links": BASE,
        "round trip aimed at, on top for the least window": RANGE,
    }

    def __init__(self, pipe: Pipe, rng: np.random.Generator) -> None:
        super().__init__(pipe, rng)
        self.cwnd_bytes = inf
        """W [bytes]; `window_bytes`, what may be on the way, is a packet where W is less."""
        self._set_window(inf)
        self._rtt_s = pipe.round_trip_s
        """The smoothed round trip [s]."""
        self._last_decrease_s = -inf
        self._sent = 0
        """Bytes ever sent."""
        self._timeouts = 0
        """How many there were since the last acknowledgement."""
        self._sent_at_timeout = 0
        """Bytes ever sent at the last of them."""
        self._asked_s = self._left_s = -inf
        """When it was asked last, and when its last packet left [s]."""

    def rates_changed(self, pipe: Pipe) -> None:
        """Reckon with another path from now on, within its bounds."""
        super().rates_changed(pipe)
        self._set_window(self.cwnd_bytes)

    def target_s(self) -> float:
        """Return the round trip that a packet may take now [s]."""
        scaled = 1 / sqrt(self.cwnd_bytes / self.pipe.packet_bytes) - 1 / sqrt(UNSCALED_PACKETS)
        most = 1 / sqrt(LEAST_PACKETS) - 1 / sqrt(UNSCALED_PACKETS)
        target = BASE + HOP * self.pipe.links + RANGE * max(scaled / most, 0.0)
        return target * self.pipe.round_trip_s

    def on_sent(self, packet: Sent, now_s: float) -> None:
        """Count a packet, which left after `may_send` was asked, within a packet's time."""
        self._sent += packet.bytes
        packet_s = self.pipe.round_trip_s - self.pipe.propagation_s
        self._left_s = max(self._asked_s, now_s - packet_s)

    def on_acknowledged(self, packet: Acknowledged, now_s: float) -> None:
        """Move the window by a packet's round trip."""
        rtt_s = max(packet.rtt_s, self.pipe.round_trip_s)  # it may have met links that were idle
        self._rtt_s += SMOOTHING * (rtt_s - self._rtt_s)
        self._timeouts = 0
        target_s = self.target_s()
        if rtt_s < target_s:
            share = min(self.pipe.packet_bytes / self.cwnd_bytes, 1.0)
            self._set_window(self.cwnd_bytes + GROWTH * share * packet.bytes)
        else:
            self._decrease(1 - BETA * (rtt_s - target_s) / rtt_s, now_s)

    def on_lost(self, packet: Lost, now_s: float) -> None:
        """Halve the window, or start from the least after several timeouts."""
        if packet.how == SILENT:
            if self._sent - self.on_the_way <= self._sent_at_timeout:
                return  # it was on its way at the last timeout
            self._timeouts, self._sent_at_timeout = self._timeouts + 1, self._sent
        else:
            self._timeouts = 0
        if self._timeouts >= SEVERAL:
            self._shrink(0.0, now_s)
        else:
            self._decrease(LEAST_KEPT, now_s)

    def may_send(self, now_s: float) -> int:
        """Return the room in the window, if the next packet is due."""
        self._asked_s = now_s
        return super().may_send(now_s) if now_s >= self._due_s() else 0

    def next_s(self, now_s: float) -> float:
        """Return when the next packet is due."""
        due_s = self._due_s()
        return due_s if due_s > now_s else inf

    def _due_s(self) -> float:
        """Return when the next packet may leave [s]: at once unless it is paced."""
        m = self.pipe.packet_bytes
        return self._left_s + self._rtt_s * m / self.cwnd_bytes if self.cwnd_bytes < m else -inf

    def _decrease(self, kept: float, now_s: float) -> None:
        """Keep a share of W, unless it has shrunk within a round trip."""
        if now_s - self._last_decrease_s >= self._rtt_s:
            self._shrink(self.cwnd_bytes * max(kept, LEAST_KEPT), now_s)

    def _shrink(self, cwnd_bytes: float, now_s: float) -> None:
        before = self.cwnd_bytes
        self._set_window(cwnd_bytes)
        if self.cwnd_bytes < before:
            self._last_decrease_s = now_s

    def _set_window(self, cwnd_bytes: float) -> None:
        m = self.pipe.packet_bytes
        most = max(MOST_BDP * self.pipe.bdp_bytes, m)
        self.cwnd_bytes = min(max(cwnd_bytes, LEAST_PACKETS * m), most)
        self.window_bytes = max(self.cwnd_bytes, m)
