"""The known-answer control of schedules: two slots on each OCS, which all ports fill, over the same OCSes.

In each slot every server sends to one other and receives from one, as many bytes as its light carries. So
each OCS is dark for its device's delay and lit for these bytes, twice, whatever a scheduler or the model
says. What the control takes longer, this machine added: to dark times, to news of light, to the bytes.
"""

import time
from dataclasses import replace
from functools import partial

import numpy as np

from controller.circuits.devices import LEAST_DELAY_S, ReconfigurationDelay
from controller.circuits.planned import Planned
from controller.schedulers.schedule import Schedule, Slot
from testbed.core.simulation import Simulation
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import plan_of
from testbed.live.backend import LiveBackend
from testbed.live.programs import slot_s
from testbed.machine.garbage import no_garbage_collection
from testbed.network.network import Network
from testbed.trust.control import Control
from testbed.trust.evidence import cpu_pressure_s
from traffic.demand import Demand
from traffic.job import Job
from traffic.scheme import OverCircuits
from traffic.steps import single

SLOTS = 2
LIT_S = 0.3
"""How long the bytes of a slot take: long beside what a turn of the engine is late, short for a user [s]."""
LONGEST_DELAY_S = 0.1
"""Between slots an OCS is dark for the delay of what is judged, or for so long: longer shows no more [s]."""


class FilledSlots:
    """Slots on the OCSes of an experiment, and the demand that fills them; times are emulated.

    Parameters
    ----------
    experiment
        A schedule over OCSes, of two servers or more.
    """

    def __init__(self, experiment: Experiment) -> None:
        plan = self._plan = plan_of(experiment.rule)
        self.dilation = Dilation(experiment.dilation.rate, experiment.dilation.rate)
        """At which real and emulated seconds are the same."""
        self.delay_s = float(np.clip(plan.emulated_delay.mean_s, LEAST_DELAY_S, LONGEST_DELAY_S))
        """How long an OCS is dark before a slot."""
        self._experiment, self._servers = experiment, len(plan.fabric.servers)
        shifts = [1 + number % (self._servers - 1) for number in range(SLOTS * len(plan.ocses))]
        slots = [Slot((np.arange(self._servers) + shift) % self._servers, LIT_S) for shift in shifts]
        switches = tuple(tuple(slots[at : at + SLOTS]) for at in range(0, len(slots), SLOTS))
        self._schedule = Schedule(switches, self.delay_s)

    @property
    def job(self) -> Job:
        """What fills them."""
        served_s = self._schedule.served(self._servers)
        sizes = np.floor(served_s * self._plan.rate_bps / 8).astype(np.int64)
        return single(Demand("control", sizes))

    @property
    def circuits(self) -> Planned:
        """The slots as decisions; what is late goes into clean-up rounds."""
        cleanup = partial(self._plan.cleanup, delay_s=self.delay_s)
        return Planned(self._plan.ocses, self._schedule, cleanup)

    @property
    def known_s(self) -> float:
        """From the first dark to the last byte, with headers, and with its margins where a slot follows."""
        bytes_s = slot_s(LIT_S, self.dilation, self._plan.emulated_rate_bps, 0.0, self._experiment.mtu)
        between_s = self._experiment.sending.margins.slot_s("drain")
        return SLOTS * (self.delay_s + bytes_s) + (SLOTS - 1) * between_s


def light_control(network: Network, experiment: Experiment) -> Control | None:
    """Return what came of a control over a network's OCSes; None where there is one server.

    Parameters
    ----------
    network
        Booted for the experiment, and idle.
    experiment
        A schedule that is judged by it.
    """
    plan = plan_of(experiment.rule)
    if len(plan.fabric.servers) < 2:
        return None
    slots = FilledSlots(experiment)
    _planned = plan.schedule  # now: what a scheduler loads first would hold up a clean-up round for 0.15 s
    for ocs in plan.ocses:
        network.northbound.set_delay(ocs, ReconfigurationDelay("control", slots.delay_s))
    backed = LiveBackend(network, slots.dilation, sending=replace(experiment.sending, meeting="drain"))
    began, waited_s = time.monotonic(), cpu_pressure_s()
    with backed as backend, no_garbage_collection():
        simulation = Simulation(plan.fabric, slots.job, backend, OverCircuits(), circuits=slots.circuits)
        took_s = float(simulation.run().messages["end_s"].max())
    pressure = (cpu_pressure_s() - waited_s) / (time.monotonic() - began)
    senders = len(plan.fabric.servers) * len(plan.ocses)
    return Control(senders * plan.emulated_rate_bps, senders, took_s / slots.known_s - 1, pressure)
