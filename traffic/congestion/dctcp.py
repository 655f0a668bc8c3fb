"""DCTCP, a window of a sender that decreases by the share of its packets that are marked.

Vocabulary: BDP bandwidth-delay product [bytes]; m payload of a packet [bytes]; W window [bytes]; F share of
marked bytes among those of a window; alpha average of F; g share of alpha that the latest F has.

After each W bytes, alpha <- (1 - g) alpha + g F. If any of them was marked W <- W (1 - alpha / 2), and else W
grows by m. A window of which a packet is lost halves W, as TCP does. The paper's TCP starts slowly; here W
starts at 1.5 BDP and never exceeds it, as in `traffic.congestion.nscc`, so that the first round trip is the
same under both. alpha starts at 0; the paper leaves it open. From 1, as RFC 8257 has it behind a slow start,
windows halve at their first marks and never come back in 2 MB: a permutation takes 2.2 times its bound, and
1.3 from 0. The price is that the queue of an incast of 2 MB a source lasts until its end.

The reference simulator uet-htsim has another algorithm by this name (commit 40ccb05, sim/uec.cpp,
updateCwndOnAck_DCTCP): it has no alpha, takes a third of the bytes of each marked acknowledgement off W, and
marks by the curve of NSCC.

References
----------
M. Alizadeh et al., "Data center TCP (DCTCP)", SIGCOMM 2010, section 3.1, and section 3.4 for K and g.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from traffic.congestion.control import Acknowledged, Lost, PerPacket, Pipe, Red

K = 0.17
"""Queue from which on packets are marked: more than a seventh keeps the link busy (section 3.4) [BDP]."""
G = 1 / 16
"""g, as in the paper's measurements."""
MOST_BDP = 1.5
"""Largest W, and W at first [BDP]."""


class Dctcp(PerPacket):
    """A window that moves once in a window of data."""

    marks = Red(K, K)
    in_packets: ClassVar[Mapping[str, float]] = {"least window": 1, "growth of an unmarked window": 1}
    in_round_trips: ClassVar[Mapping[str, float]] = {"largest window, and the first": MOST_BDP}
    first_alpha = 0.0
    """alpha at first; 1 in RFC 8257."""

    def __init__(self, pipe: Pipe, rng: np.random.Generator) -> None:
        super().__init__(pipe, rng)
        self.window_bytes = max(MOST_BDP * pipe.bdp_bytes, pipe.packet_bytes)
        self._alpha = self.first_alpha
        self._passed = self._marked = self._lost = 0
        """Bytes of this window that were acknowledged or lost, that were marked, and that were lost."""

    def on_acknowledged(self, packet: Acknowledged, now_s: float) -> None:
        """Count a packet, and whether it was marked."""
        self._marked += packet.bytes * packet.marked
        self._pass(packet.bytes)

    def on_lost(self, packet: Lost, now_s: float) -> None:
        """Count a lost packet."""
        self._lost += packet.bytes
        self._pass(packet.bytes)

    def rates_changed(self, pipe: Pipe) -> None:
        """Reckon with another path from now on, within its bounds."""
        super().rates_changed(pipe)
        self._set_window(self.window_bytes)

    def _pass(self, n: int) -> None:
        """Move W if it has passed."""
        self._passed += n
        if self._passed < self.window_bytes:
            return
        self._alpha += G * (self._marked / self._passed - self._alpha)
        if self._lost:
            self._set_window(self.window_bytes / 2)
        elif self._marked:
            self._set_window(self.window_bytes * (1 - self._alpha / 2))
        else:
            self._set_window(self.window_bytes + self.pipe.packet_bytes)
        self._passed = self._marked = self._lost = 0

    def _set_window(self, window_bytes: float) -> None:
        most = max(MOST_BDP * self.pipe.bdp_bytes, self.pipe.packet_bytes)
        self.window_bytes = min(max(window_bytes, self.pipe.packet_bytes), most)
