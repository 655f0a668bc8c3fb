"""NSCC, Ultra Ethernet's window of a sender: packets' delays move it, and their marks say in which direction.

Vocabulary: B rate of the NIC [bytes/s]; R base round trip [s]; BDP = B R; m payload of a packet [bytes]; W
window [bytes]; n acknowledged bytes; q = round trip - R, the queueing delay of an acknowledged packet [s]; T
target of q, R [s]; D average of q [s]; inc pending increase of W, times W [bytes^2].

Nothing here is in seconds. The specification scales its increases from a network of 100 Gbit/s and 12 us: all
by a = BDP / 150,000 bytes, and alpha by b = T / 12 us besides, so that alpha (T - q) = 4 m a (T - q) / 12 us.
An emulated BDP has the real number of bytes, so a is right at every emulated rate. An emulated round trip has
not the real number of microseconds, and a `Pipe` does not have it, so R stands for the 12 us: without a queue
W grows by 4 m a in one R, whichever the path. At 100 Gbit/s and R = 12 us, a and b are 1.

What the text leaves open is as in the reference simulator. The first window is the largest. The first
acknowledgement begins the first period of quick adapt. A loss is remembered until quick adapt answers it.
After a whole window with nearly no delay W grows fast until there is a delay. A packet that was silent for
long only takes its bytes off W.

References
----------
Ultra Ethernet Specification 1.0, section 3.6.13, network-signal-based congestion control (NSCC); for what it
leaves open, the simulator uet-htsim at commit 40ccb05, sim/uec.cpp.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import ClassVar

import numpy as np
from mypy_extensions import mypyc_attr

from traffic.congestion.control import SILENT, TAKEN_BACK, Acknowledged, Lost, Pipe, Red, Sent

REFERENCE_BDP_BYTES = 150_000
"""Bandwidth-delay product of 100 Gbit/s and 12 us, where a is 1 [bytes]."""
MOST_BDP = 1.5
"""W_max, and W at first [BDP]."""
AVERAGED = 0.0125
"""g, share of D that the latest packet has."""
GOOD_DELAY = 0.25
"""Sample of D from an unmarked packet with q > T, since other paths have no queue [R]."""
QUICK_DELAY = 4.0
"""Delay q above which quick adapt answers [T]."""
QUICK_SHARE = 1 / 8
"""Share of W_max: quick adapt answers if less was acknowledged in R + T."""
PROPORTIONAL = 4.0
"""alpha R: growth of W in R where q is R below T [m a]."""
FAIR = 5.0
"""fi: growth of W in R where packets are late and not marked [m a]."""
ETA = 0.15
"""eta: growth of W in R in any case [m a]."""
FAST = 0.25
"""fast: growth of W for each byte acknowledged with nearly no delay [a]."""
NO_DELAY = 1 / 12
"""Delay q under which there is nearly none [R]."""
TARGET = 1.0
"""T where no switch trims packets [R]."""
GAMMA = 0.8
"""gamma: share of (D - T) / D that W loses in a decrease."""
LEAST_KEPT = 0.5
"""Least share of W that a decrease keeps."""
ADJUST_PACKETS = 8
"""Packets whose bytes are acknowledged before W takes what is pending, if that is sooner than R."""


# `PerPacket` would keep it from being compiled whole: users derive from that, so it stays interpreted.
@mypyc_attr(allow_interpreted_subclasses=True)
class Nscc:
    """A window that quick adapt, four increases and one decrease move, an acknowledgement at a time."""

    marks: ClassVar[Red] = Red(0.2, 0.8)
    in_packets: ClassVar[Mapping[str, float]] = {
        "least window": 1,
        "acknowledged before a window grows, at most": ADJUST_PACKETS,
    }
    in_round_trips: ClassVar[Mapping[str, float]] = {
        "largest window, and the first": MOST_BDP,
        "queue delay aimed at": TARGET,
        "queue delay that counts as none": NO_DELAY,
        "queue delay that quick adapt answers": QUICK_DELAY * TARGET,
    }

    # Compiled, a default that is no literal would leave classes derived from it without a signature.
    def __init__(self, pipe: Pipe, rng: np.random.Generator, target: float = 1.0) -> None:
        self.pipe, self.rng, self._target = pipe, rng, target
        self._scale(pipe)
        self.window_bytes: float = self._most
        self.on_the_way = 0
        """The bytes sent that neither arrived nor are lost."""
        self._delay_s = 0.0
        """D [s]."""
        self._increase = 0.0
        """inc [bytes^2]."""
        self._since_adjusted = 0
        """Bytes acknowledged since W last took what was pending."""
        self._undelayed = 0.0
        """Bytes acknowledged with nearly no delay in a row; infinity once they were more than W."""
        self._last_eta_s = -inf
        self._last_decrease_s = -inf
        self._sent = 0
        """Bytes ever sent."""
        self._ignored_until = 0
        """Bytes, of all ever sent, that must have passed before acknowledgements count again."""
        self._quick_s = inf
        """End of the period of quick adapt; infinity before the first acknowledgement [s]."""
        self._achieved = 0
        """Bytes acknowledged in that period."""
        self._loss_seen = False
        """True from a loss until quick adapt has answered it."""

    def _scale(self, pipe: Pipe) -> None:
        """Reckon the constants of a path."""
        self._most = max(MOST_BDP * pipe.bdp_bytes, float(pipe.packet_bytes))
        self._a = pipe.bdp_bytes / REFERENCE_BDP_BYTES
        self._m_a = pipe.packet_bytes * self._a
        self._target_s = self._target * pipe.round_trip_s

    def rates_changed(self, pipe: Pipe) -> None:
        """Reckon with another path from now on, within its bounds."""
        self.pipe = pipe
        self._scale(pipe)
        self._set_window(self.window_bytes)

    def on_events(
        self,
        sent: Sequence[Sent],
        acknowledged: Sequence[Acknowledged],
        lost: Sequence[Lost],
        now_s: float,
    ) -> None:
        """Hear a packet at a time what was sent, acknowledged and lost."""
        for packet in sent:
            self.on_the_way += packet.bytes
            self._sent += packet.bytes
            self.on_sent(packet, now_s)
        for each in acknowledged:
            self.on_the_way -= each.bytes
            self.on_acknowledged(each, now_s)
        for gone in lost:
            self.on_the_way -= gone.bytes
            if gone.how != TAKEN_BACK:
                self.on_lost(gone, now_s)

    def may_send(self, now_s: float) -> int:
        """Return the room in the window beside what is on the way."""
        return max(int(self.window_bytes - self.on_the_way), 0)

    def next_s(self, now_s: float) -> float:
        """Return infinity: a window opens when something happens."""
        return inf

    def on_sent(self, packet: Sent, now_s: float) -> None:
        """Hear that a packet was sent, where a class is derived from this one."""

    def on_acknowledged(self, packet: Acknowledged, now_s: float) -> None:
        """Move the window by a packet's delay and mark."""
        delay_s, n = max(0.0, packet.rtt_s - self.pipe.round_trip_s), packet.bytes
        self._average(delay_s, packet.marked)
        self._achieved += n
        if self._quick_adapt(delay_s, now_s):
            return
        self._since_adjusted += n
        late = delay_s >= self._target_s
        if delay_s >= NO_DELAY * self.pipe.round_trip_s:
            self._undelayed = 0.0
        if not packet.marked and late:
            self._increase += FAIR * self._m_a * n
        elif not packet.marked:
            self._increase_below_target(n, delay_s)
        elif late:
            self._decrease(now_s)
        self._adjust(now_s)

    def on_lost(self, packet: Lost, now_s: float) -> None:
        """Take a packet that was overtaken for a trimmed one: late by R, and a reason for quick adapt."""
        if packet.how != SILENT:
            self._average(self.pipe.round_trip_s, marked=True)
            self._loss_seen = True
            if self._quick_adapt(0.0, now_s):
                return
        self._set_window(self.window_bytes - packet.bytes)

    def _average(self, delay_s: float, marked: bool) -> None:
        good = not marked and delay_s > self._target_s
        sample_s = GOOD_DELAY * self.pipe.round_trip_s if good else delay_s
        self._delay_s += AVERAGED * (sample_s - self._delay_s)

    def _quick_adapt(self, delay_s: float, now_s: float) -> bool:
        """Return True if W was set to what came through in a period, or waits for the effect of that."""
        if self._sent - self.on_the_way < self._ignored_until:
            return True
        first = self._quick_s == inf
        if not first and now_s <= self._quick_s:
            return False
        congested = self._loss_seen or delay_s > QUICK_DELAY * self._target_s
        adapts = not first and congested and self._achieved < QUICK_SHARE * self._most
        if adapts:
            self._set_window(float(self._achieved))
            self._ignored_until = self._sent
            self._loss_seen = False
            self._increase, self._since_adjusted = 0.0, 0
        self._achieved = 0
        self._quick_s = now_s + self.pipe.round_trip_s + self._target_s
        return adapts

    def _increase_below_target(self, n: int, delay_s: float) -> None:
        if delay_s < NO_DELAY * self.pipe.round_trip_s:
            self._undelayed += n
            if self._undelayed > self.window_bytes:
                self._undelayed = inf
                self._set_window(self.window_bytes + FAST * self._a * n)
                return
        self._increase += PROPORTIONAL * self._m_a * n * (self._target_s - delay_s) / self.pipe.round_trip_s

    def _decrease(self, now_s: float) -> None:
        above = 1 - self._target_s / self._delay_s
        if above > 0 and now_s - self._last_decrease_s > self.pipe.round_trip_s:
            self._set_window(self.window_bytes * max(1 - GAMMA * above, LEAST_KEPT))
            self._last_decrease_s = now_s

    def _adjust(self, now_s: float) -> None:
        """Have W take what is pending, after some packets or R."""
        due = now_s - self._last_eta_s >= self.pipe.round_trip_s
        if due or self._since_adjusted >= ADJUST_PACKETS * self.pipe.packet_bytes:
            window = self.window_bytes + self._increase / self.window_bytes
            self._set_window(window + ETA * self._m_a * due)
            self._increase, self._since_adjusted = 0.0, 0
            if due:
                self._last_eta_s = now_s

    def _set_window(self, window_bytes: float) -> None:
        self.window_bytes = min(max(window_bytes, float(self.pipe.packet_bytes)), self._most)
