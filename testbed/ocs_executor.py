"""A schedule through the runner: over a booted network in real time, or over fluids as its prediction.

Before each slot all circuits are dark for the delay or, where reconfigurations are partial, those that
change; where none is new the device does not move. What a round of slots does not deliver goes into a
clean-up round: a schedule of its own for what is missing.

In the prediction each circuit carries at a NIC's rate while it is lit. Where delays vary, a slot comes as
much later or earlier as the delays before it on its OCS differ from their mean; it is lit as long as planned.
Guard times, headers and what a switch takes beside its device's delay are not in it: they are what the
emulation costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from controller.planned import Planned
from controller.schedulers.bounds import makespan_lower_bound
from controller.schedulers.schedule import Schedule
from controller.schedulers.spectra import spectra
from controller.status import LogEntry
from testbed.backend import Backend
from testbed.fluid_backend import FluidBackend
from testbed.live_backend import LiveBackend
from testbed.network import Network
from testbed.ocs_plan import CircuitExperiment
from testbed.runner import Runner, records_of_run
from topologies.errors import ScenarioError
from traffic.circuit_engine import GUARD_S, Slot
from traffic.records import Records, path_text
from traffic.scheme import OverCircuits
from traffic.spraying.policy import QueuePair


@dataclass(frozen=True, eq=False)
class Execution:
    """What came of a schedule; real seconds and bytes unless said."""

    experiment: CircuitExperiment
    records: Records
    """A row per message."""
    cct_s: float
    """From the first night to the last byte."""
    undelivered_bytes: tuple[int, ...]
    """What was missing after each round of slots, the last 0 [emulated bytes]."""
    slots: tuple[Slot, ...]
    """What each slot carried [emulated seconds and bytes]."""
    logs: dict[str, list[LogEntry]]
    """What each OCS did [emulated seconds]."""
    start_s: float
    """When the first night began [emulated seconds, on the logs' clock]."""
    datagrams: int
    """Of how many the messages consist."""
    payload_bytes: int
    """What they are together [emulated bytes]."""

    @property
    def slot_utilisation(self) -> float:
        """Bytes delivered over what the circuits that were lit could have carried, 0..1."""
        rate = self.experiment.emulated_rate_bps / 8
        room = sum(self._lit_s(slot) * slot.circuits * rate for slot in self.slots)
        return sum(slot.delivered_bytes for slot in self.slots) / room if room else 0.0

    @property
    def guard_loss(self) -> float:
        """Share of the lit time in which nobody sends because the dark is near, 0..1."""
        lit_s = sum(map(self._lit_s, self.slots))
        if self.experiment.meeting != "drain" or not lit_s:
            return 0.0
        open_s = sum(self._lit_s(replace(slot, until_s=slot.until_s - GUARD_S)) for slot in self.slots)
        return 1 - open_s / lit_s

    def _lit_s(self, slot: Slot) -> float:
        """Return how long a slot was lit until the last byte had arrived [emulated s]."""
        end_s = self.start_s + self.experiment.dilation.emulated_s(self.cct_s)
        return max(min(slot.until_s, end_s) - slot.lit_s, 0.0)

    @property
    def lost_bytes(self) -> int:
        """What was sent into the dark, and sent again [emulated bytes]."""
        return sum(slot.lost_bytes for slot in self.slots)

    @property
    def lateness_s(self) -> float:
        """How long light waited until the engine heard of it, 99th percentile [emulated s]."""
        lit_s = {name: [entry.lit_s for entry in log if entry.lit_s] for name, log in self.logs.items()}
        late_s = [min((slot.lit_s - s for s in lit_s[slot.ocs]), key=abs) for slot in self.slots]
        return max(float(np.percentile(late_s, 99)), 0.0)

    @property
    def delays_s(self) -> tuple[tuple[float, ...], ...]:
        """How long each OCS was dark before each of its slots, as its device had it that time [real s]."""
        return tuple(
            tuple(self.experiment.dilation.real_s(entry.delay_s) for entry in log if entry.circuits)
            for log in self.logs.values()
        )

    @property
    def lower_bound_s(self) -> float:
        """What no schedule beats with the delays that were drawn [real s]; they may be under the mean."""
        experiment = self.experiment
        delay_s = min(chain.from_iterable(self.delays_s), default=experiment.delay_s)
        return makespan_lower_bound(experiment.line_s, len(experiment.ocses), delay_s)

    @property
    def overhead_s(self) -> float:
        """From a command to light on the wire, without the device's delay, 99th percentile [emulated s]."""
        new = [entry for log in self.logs.values() for entry in log if entry.delay_s]
        each_s = [entry.lit_s - entry.command_s - entry.delay_s for entry in new if entry.lit_s]
        return float(np.percentile(each_s or [0.0], 99))


def execute(experiment: CircuitExperiment, network: Network) -> Execution:
    """Run an experiment's schedule over a network that was booted at its scale.

    Raises
    ------
    ScenarioError
        If the network is another fabric's, or at another rate.
    NetworkError
        If a switch refuses circuits.
    StuckError
        If bytes are missing after several clean-up rounds.
    """
    if (network.fabric, network.rate_factor) != (experiment.fabric, experiment.dilation.rate):
        raise ScenarioError("the network was booted for another experiment", "boot one for this")
    northbound = network.northbound
    numbers = {name: northbound.ocs(name).number for name in experiment.ocses}
    for name in experiment.ocses:
        northbound.set_darkness(name, experiment.emulated_darkness, experiment.seed)
    with LiveBackend(network, experiment.dilation, meeting=experiment.meeting) as backend:
        records = _records(experiment, backend)
    logs = {
        name: [entry for entry in northbound.ocs_log(name) if entry.number > numbers[name]]
        for name in experiment.ocses
    }
    return Execution(
        experiment=experiment,
        records=records,
        cct_s=float(records["end_s"].max()),
        undelivered_bytes=(*backend.left_over, 0),
        slots=tuple(backend.circuits.slots),
        logs=logs,
        start_s=backend.shown_from or 0.0,
        datagrams=backend.circuits.datagrams,
        payload_bytes=backend.circuits.size_bytes,
    )


def predict_execution(experiment: CircuitExperiment, delays_s: Sequence[Sequence[float]] = ()) -> Records:
    """Return the records of a schedule that goes exactly as planned [real seconds and bytes].

    Parameters
    ----------
    experiment
        What is planned.
    delays_s
        How long each OCS was dark before each of its slots [real seconds]; the mean where that is not known.
    """
    mean_s = dict.fromkeys(experiment.ocses, experiment.delay_s)
    drawn_s = dict(zip(experiment.ocses, delays_s, strict=False))
    return _records(experiment, FluidBackend(experiment.fabric, mean_s, drawn_s=drawn_s, by_bytes=False))


def _records(experiment: CircuitExperiment, backend: Backend) -> Records:
    """Return what comes of a schedule over a backend, a leg for a message's part over each OCS."""
    fabric = experiment.fabric

    def cleanup(missing: NDArray[np.int64]) -> Schedule:
        return spectra(missing * 8 / experiment.rate_bps, len(experiment.ocses), experiment.delay_s)

    def leg(queue_pair: QueuePair) -> str:
        far = fabric.peer(fabric.nic_port(queue_pair.destination))
        return path_text((fabric.nic_port(queue_pair.source), far))

    circuits = Planned(experiment.ocses, experiment.schedule, cleanup, partial=experiment.partial)
    job = experiment.plain.job
    return records_of_run(Runner(fabric, job, backend, OverCircuits(), circuits=circuits, leg_name=leg).run())
