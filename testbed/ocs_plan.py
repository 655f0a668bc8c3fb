"""What is executed on parallel OCSes: a demand, a scheduler's plan for it, and the emulation's scale."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from controller.circuits import Circuits
from controller.devices import LEAST_DELAY_S, Darkness
from controller.programs import Day, Program
from controller.schedulers.bounds import makespan_lower_bound
from controller.schedulers.bvn import bvn
from controller.schedulers.eclipse import eclipse
from controller.schedulers.less import less
from controller.schedulers.rotor import rotor
from controller.schedulers.schedule import Schedule
from controller.schedulers.solstice import solstice
from controller.schedulers.spectra import spectra
from controller.schedulers.spectra_plus import spectra_plus
from testbed.dilation import Dilation
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from traffic.circuit_engine import Meeting
from traffic.datagrams import header_share
from traffic.demand import Demand

Scheduler = Callable[[ArrayLike, int, float], Schedule]
SCHEDULERS: dict[str, Scheduler] = {
    "spectra": spectra,
    "spectra_plus": spectra_plus,
    "less": less,
    "eclipse": eclipse,
    "bvn": bvn,
    "solstice": solstice,
    "rotor": rotor,
}
GUARD_S = 0.003
"""How long before the dark senders stop, at emulated scale: a NIC's queue and the switch's work."""
START_S = 0.004
"""What a slot loses besides: the news, a round of the engine, a datagram that no longer fits."""
LAST_SHARE, LAST_S = 0.1, 0.05
"""How much longer an OCS' last slot may be lit, so that what is late needs no slot of its own: as a share of
the slot, and on top [s]. It ends with the last byte."""


@dataclass(frozen=True)
class CircuitExperiment:
    """A demand over parallel OCSes under a scheduler, at a scale; times and rates are real.

    Raises
    ------
    ScenarioError
        If the parts do not fit, or the delay is too short to be emulated.
    """

    fabric: Fabric
    """Servers of one GPU, NIC k of each on OCS k."""
    demand: Demand
    """Bytes between the servers."""
    scheduler: str
    """A name in `SCHEDULERS`."""
    delay_s: float
    """The OCSes' reconfiguration delay [s]."""
    dilation: Dilation
    meeting: Meeting = "drain"
    """How senders meet the dark."""

    def __post_init__(self) -> None:
        """Check that the parts fit."""
        if self.scheduler not in SCHEDULERS:
            raise ScenarioError(
                f"nobody knows the scheduler {self.scheduler!r}", f"take one of {', '.join(SCHEDULERS)}"
            )
        if self.demand.gpus != len(self.fabric.servers) or not self.ocses:
            raise ScenarioError(
                f"a demand between {self.demand.gpus} over {len(self.fabric.servers)} servers and "
                f"{len(self.ocses)} OCSes",
                "give a row and a column per server, and at least one OCS",
            )
        if self.darkness.delay_s < LEAST_DELAY_S:
            volume = LEAST_DELAY_S * self.dilation.rate / self.delay_s if self.delay_s else float("inf")
            raise ScenarioError(
                f"a delay of {self.delay_s:g} s would be {self.darkness.delay_s:.2g} s in the emulation, "
                f"which honours {LEAST_DELAY_S:g} s and more",
                f"a volume dilation of V = {volume * 1.01:.3g} at this rate would do",
            )

    @property
    def ocses(self) -> tuple[str, ...]:
        """The names of the OCSes."""
        return tuple(switch.name for switch in self.fabric.switches if switch.kind == "ocs")

    @property
    def rate_bps(self) -> float:
        """The rate of a NIC [bit/s]."""
        return self.fabric.nic_rate_bps(self.fabric.nics[0])

    @property
    def darkness(self) -> Darkness:
        """How long an OCS is dark at emulated scale."""
        return Darkness("delay", self.dilation.emulated_s(self.delay_s))

    @property
    def line_s(self) -> NDArray[np.float64]:
        """The demand in seconds at a NIC's rate."""
        line: NDArray[np.float64] = off_diagonal(self.demand.matrix) * 8 / self.rate_bps
        return line

    @cached_property
    def schedule(self) -> Schedule:
        """What the scheduler makes of the demand [real seconds]."""
        return SCHEDULERS[self.scheduler](self.line_s, len(self.ocses), self.delay_s)

    @property
    def lower_bound_s(self) -> float:
        """What no schedule beats [real seconds]."""
        return makespan_lower_bound(self.line_s, len(self.ocses), self.delay_s)

    def emulated_bytes(self) -> NDArray[np.int64]:
        """Return the demand at emulated scale, at least a byte where there is any [bytes]."""
        real = off_diagonal(self.demand.matrix)
        return np.where(real > 0, np.maximum(np.rint(real * self.dilation.volume), 1), 0).astype(np.int64)

    def programs(self, schedule: Schedule) -> tuple[Program, ...]:
        """Return what each OCS shows at emulated scale: slots a little longer than planned, see `slot_s`."""
        return tuple(
            Program(
                tuple(
                    Day(
                        Circuits.of_permutation(slot.permutation), self.slot_s(slot.weight, slot is slots[-1])
                    )
                    for slot in slots
                )
            )
            for slots in schedule.switches
        )

    def slot_s(self, weight_s: float, last: bool = False) -> float:
        """Return how long a slot is lit for a weight: headers and guard times on top [emulated s]."""
        guard_s = GUARD_S if self.meeting == "drain" else 0.0
        carries_s = self.dilation.emulated_s(weight_s) * header_share(self.emulated_rate_bps)
        return carries_s + guard_s + START_S + (carries_s * LAST_SHARE + LAST_S if last else 0.0)

    @property
    def emulated_rate_bps(self) -> float:
        """The rate of a NIC at emulated scale [bit/s]."""
        return self.rate_bps * self.dilation.rate


def off_diagonal(matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a matrix without what servers owe themselves."""
    return np.where(np.eye(len(matrix), dtype=bool), 0, matrix)


def dilation_for(line_s: NDArray[np.float64], plans: list[Schedule], rate: float, slot_s: float) -> Dilation:
    """Return the dilation at which the shortest slot of some schedules lasts at least ``slot_s``.

    Parameters
    ----------
    line_s
        The demand, for the advice alone [real seconds].
    plans
        Schedules in real seconds.
    rate
        Emulated rate over real rate.
    slot_s
        How long the shortest slot shall be lit [emulated seconds].
    """
    shortest = min(slot.weight for plan in plans for slots in plan.switches for slot in slots)
    if not shortest > 0:
        raise ScenarioError(f"schedules without a slot for a demand of {line_s.sum():g} s", "send something")
    return Dilation(rate, slot_s / shortest * rate)
