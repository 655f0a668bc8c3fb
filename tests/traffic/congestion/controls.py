"""Congestion controls to compare the algorithms with, which are none of this project's own."""

import numpy as np

from traffic.congestion.control import Acknowledged, PerPacket, Pipe, Red
from traffic.congestion.nscc import Nscc


class Constant(PerPacket):
    """A window that never shrinks: as large as that of NSCC at first."""

    def __init__(self, pipe: Pipe, rng: np.random.Generator) -> None:
        super().__init__(pipe, rng)
        self.window_bytes = 1.5 * pipe.bdp_bytes


class Late(Nscc):
    """NSCC with T = 4 R."""

    def __init__(self, pipe: Pipe, rng: np.random.Generator) -> None:
        super().__init__(pipe, rng, target=4.0)


class ThirdPerMark(Constant):
    """The rule that uet-htsim calls DCTCP (commit 40ccb05, sim/uec.cpp, updateCwndOnAck_DCTCP)."""

    marks = Red(0.2, 0.8)

    def on_acknowledged(self, packet: Acknowledged, now_s: float) -> None:
        m, n = self.pipe.packet_bytes, packet.bytes
        if packet.marked:
            self.window_bytes = max(self.window_bytes - n / 3, m)
        else:
            self.window_bytes += n * m / self.window_bytes
