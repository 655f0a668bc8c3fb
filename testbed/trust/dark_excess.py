"""The OCSes' dark excess: how much longer than its device an emulated OCS is dark on this machine.

One daemon changes the rules of all OCSes, and one controller orders and proves it, so that dark times
depend on the machine and on how many OCSes change at once. They are read off the wire
(`testbed.network.ocs_bench`), once per machine, where a scenario needs OCSes. What follows from them: the
shortest delay beside which they are small, what a slot is longer for, and how long slots are at least.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from controller.circuits.devices import LEAST_DELAY_S
from testbed.machine.datapath import Datapath
from testbed.network.ocs_bench import ocs_figures
from testbed.trust.evidence import cpu_pressure_s
from testbed.trust.fidelity import PRESSED
from testbed.trust.kept import KeptMeasurements, Measured, machine_name
from traffic.transports.slots import GUARD_S, START_S, Margins

FORMAT_VERSION = 1
OCSES = (1, 4)
"""How many OCSes change at once in a measurement."""
PORTS, ROUNDS, TRAFFIC_NICS = 8, 36, 4
"""Of each: ports, reconfigurations, and how many NICs send at full rate meanwhile."""
PARTS = 3
"""Of the reconfigurations. The median of the parts' 99th percentiles counts: of so few the percentile is the
latest, and one reconfiguration that other work held up said 40.8 ms where others said 5."""
TIMES = 10.0
"""A delay is so many times the dark excess at least where the scale is automatic."""
NEWS_S = START_S - GUARD_S
"""What a slot loses at its start beside what the switch is late: a round of the engine, a datagram."""
SLOT_TIMES = 20.0
"""A slot is so many times its margins at least, so that these take a twentieth of the time."""


@dataclass(frozen=True)
class Excess:
    """What was measured with so many OCSes at once."""

    ocses: int
    p50_s: float
    """Median of what dark times exceed the device's delay by [s]."""
    p99_s: Annotated[float, Field(gt=0, strict=True)]
    """99th percentile of it [s]."""


@dataclass(frozen=True)
class DarkExcess(Measured):
    """How much longer than their devices OCSes are dark on a machine."""

    by_ocses: Annotated[tuple[Excess, ...], Field(min_length=1)]
    """By how many change at once, rising."""

    def p99_s(self, ocses: int) -> float:
        """Return the 99th percentile where so many OCSes change at once; between those measured it is linear.

        Beyond the most it is theirs, and fewer are never later than more.
        """
        late_s = np.maximum.accumulate([each.p99_s for each in self.by_ocses])
        return float(np.interp(ocses, [each.ocses for each in self.by_ocses], late_s))

    def least_delay_s(self, ocses: int) -> float:
        """Return the shortest delay beside which it is small [emulated s]."""
        return max(TIMES * self.p99_s(ocses), LEAST_DELAY_S)

    def margins(self, ocses: int) -> Margins:
        """Return what slots are longer for."""
        late_s = max(self.p99_s(ocses), GUARD_S)
        return Margins(late_s, late_s + NEWS_S)

    def least_slot_s(self, ocses: int) -> float:
        """Return how long a slot is at least, so that its margins are a small part of it [emulated s]."""
        margins = self.margins(ocses)
        return SLOT_TIMES * (margins.guard_s + margins.start_s)

    def sentence(self, now: datetime) -> str:
        """Return what it is, and how old."""
        most = self.by_ocses[-1].ocses
        return (
            f"OCSes here are dark for up to {self.p99_s(1) * 1e3:.1f} ms longer than their devices, "
            f"{most} at once for {self.p99_s(most) * 1e3:.1f} ms; that was measured {self.age(now)}"
        )


def measure(datapath: Datapath) -> DarkExcess:
    """Reconfigure OCSes at random, one and then several at once, and read their dark times off the wire."""
    began, waited_s = time.monotonic(), cpu_pressure_s()
    rows = tuple(_measured(ocses, datapath) for ocses in OCSES)
    pressure = (cpu_pressure_s() - waited_s) / (time.monotonic() - began)
    alone = not pressure > PRESSED.strained
    return DarkExcess(machine_name(datapath), datetime.now(UTC).isoformat(timespec="seconds"), alone, rows)


def _measured(ocses: int, datapath: Datapath) -> Excess:
    figures = ocs_figures(ports=PORTS, ocses=ocses, rounds=ROUNDS, traffic=TRAFFIC_NICS, datapath=datapath)
    excess_s = figures.dark_s - figures.delay_s
    return Excess(ocses, float(np.median(excess_s)), usual_p99(excess_s, figures.number))


def usual_p99(excess_s: NDArray[np.float64], number: NDArray[np.int64]) -> float:
    """Return a 99th percentile that no single reconfiguration decides.

    Parameters
    ----------
    excess_s
        What dark times exceed the delay by [s].
    number
        Of which reconfiguration each is.
    """
    parts = np.array_split(np.unique(number), PARTS)
    return float(np.median([np.percentile(excess_s[np.isin(number, part)], 99) for part in parts]))


DARK_EXCESSES = KeptMeasurements("dark_excess", FORMAT_VERSION, DarkExcess, measure)
"""Those of the machines of a user's home; one is measured in 8 s."""
