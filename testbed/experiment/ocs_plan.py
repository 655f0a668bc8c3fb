"""A collective over parallel OCSes: how these are reconfigured, and what a scheduler makes of the demand."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from controller.circuits.devices import LEAST_DELAY_S, ReconfigurationDelay
from controller.circuits.planned import Planned
from controller.circuits.rule import Rule
from controller.schedulers.bounds import makespan_lower_bound
from controller.schedulers.registry import scheduler_named
from controller.schedulers.schedule import Schedule
from testbed.experiment.dilation import Dilation
from topologies.errors import ScenarioError
from topologies.events import Event, Order, View
from topologies.fabric import Fabric
from topologies.packet_part import is_mixed
from traffic.bounds import nic_rates
from traffic.collectives.pattern import bytes_between
from traffic.demand import Demand
from traffic.job import Job
from traffic.steps import Step, job_of_steps

LONGEST_S, PATIENT_S = 5.0, 15.0
"""How long the lower bound of a demand takes at most at emulated scale, however short its shortest slot; and
for delays to be long beside what this machine adds to them [s]."""


@dataclass(frozen=True)
class Scheduled:
    """A schedule of parallel OCSes for a job of one collective; times are real."""

    scheduler: str
    """A name (`controller.schedulers.registry`)."""
    delay: ReconfigurationDelay
    """How long they are dark when they are reconfigured; what is planned takes the mean."""
    partial: bool = False
    """Whether circuits that two slots share stay lit between them; in Spectra's model all go dark."""

    def bind(self, fabric: Fabric, job: Job, scale: Dilation, _seed: int, _moves: object) -> Rule:
        """Return what the runner asks; ScenarioError as of `OcsPlan`, and for several collectives."""
        plan = OcsPlan(fabric, scheduled_bytes(job), self, scale)
        delays = dict.fromkeys(plan.ocses, self.delay)
        bound_s = partial(plan.lower_bound_with, plan.delay_s)
        return Rule(
            plan,
            delays,
            carries="while lit",
            leaves=plan.has_rest,
            bound_s=bound_s,
            prepare=lambda: plan.schedule,
        )

    @property
    def words(self) -> list[str]:
        """How tables name it."""
        return [self.scheduler, *["partial"] * self.partial]

    @property
    def undrawn(self) -> object:
        """What of it no seed decides: all."""
        return self


def scheduled_bytes(job: Job) -> NDArray[np.int64]:
    """Return what the GPUs of a job of one collective owe each other; ScenarioError for several."""
    if len(job.collectives) != 1:
        raise ScenarioError(
            f"job {job.name!r} has {len(job.collectives)} collectives, a schedule is of one",
            "give a job of one collective",
        )
    return bytes_between(job.collectives[0].pattern, job.gpus)


def plan_of(rule: Rule | None) -> "OcsPlan":
    """Return the schedule that a rule shows; ScenarioError if it shows none."""
    if rule is None or not isinstance(rule.decides, OcsPlan):
        raise ScenarioError("there is no schedule", "light circuits by Scheduled (rule = 'scheduled')")
    return rule.decides


class OcsPlan:
    """What a scheduler makes of a demand between servers; times and rates are real.

    Parameters
    ----------
    fabric
        Servers of one GPU, NIC k of each on OCS k, and others on packet switches if something sends there.
    demand
        Bytes between the servers; what they owe themselves is not sent.
    setup, dilation
        Of the OCSes, and of the emulation.

    Raises
    ------
    ScenarioError
        If the parts do not fit.
    """

    def __init__(
        self, fabric: Fabric, demand: NDArray[np.int64], setup: Scheduled, dilation: Dilation
    ) -> None:
        self.fabric, self.setup = fabric, setup
        self.has_rest = is_mixed(fabric)
        """Whether what it leaves over goes over packets."""
        self._scheduler = scheduler_named(setup.scheduler, covering=not self.has_rest)
        self.ocses = tuple(switch.name for switch in fabric.switches if switch.kind == "ocs")
        """The names of the OCSes."""
        self.rate_bps = _rate_bps(fabric, self.ocses)
        """The rate of a NIC on an OCS [bit/s]."""
        self.emulated_rate_bps = self.rate_bps * dilation.rate
        """The same at emulated scale."""
        self.delay_s = setup.delay.mean_s
        """The OCSes' reconfiguration delay, its mean where it varies [s]."""
        self.emulated_delay = setup.delay.scaled(dilation.time)
        """How long an OCS is dark at emulated scale."""
        self._check(len(demand))
        self.line_s: NDArray[np.float64] = off_diagonal(demand) * 8 / self.rate_bps
        """The demand in seconds at a NIC's rate."""

    @cached_property
    def schedule(self) -> Schedule:
        """What the scheduler makes of the demand."""
        return self._scheduler(self.line_s, len(self.ocses), self.delay_s)

    @property
    def busiest_s(self) -> float:
        """How long the busiest server would send or receive over one NIC alone [s]."""
        return float(max(self.line_s.sum(axis=0).max(), self.line_s.sum(axis=1).max()))

    @property
    def lower_bound_s(self) -> float:
        """What no schedule beats, with the OCSes' mean delay."""
        return self.lower_bound_with(self.delay_s)

    def lower_bound_with(self, delay_s: float) -> float:
        """Return what no schedule beats on OCSes of a delay; with packets beside circuits, no server [s]."""
        if self.has_rest:
            lines_s = np.maximum(self.line_s.sum(axis=0), self.line_s.sum(axis=1))
            return float((lines_s * self.rate_bps / nic_rates(self.fabric).sum(axis=1)).max())
        return makespan_lower_bound(self.line_s, len(self.ocses), delay_s)

    def decide(self, state: object, view: View, event: Event) -> tuple[object, Sequence[Order]]:
        """Return the orders of an event; what the schedule leaves over goes over packets or into rounds."""
        return self._planned.decide(state, view, event)

    def cleanup(self, missing: NDArray[np.int64], ocses: int, delay_s: float) -> Schedule:
        """Return what the scheduler makes of what is missing between servers [bytes], over so many OCSes."""
        return self._scheduler(missing * 8 / self.rate_bps, ocses, delay_s)

    @cached_property
    def _planned(self) -> Planned:
        cleanup = partial(self.cleanup, delay_s=self.delay_s)
        return Planned(self.ocses, self.schedule, cleanup, partial=self.setup.partial, rest=self.has_rest)

    def _check(self, servers: int) -> None:
        if self.fabric.impaired:
            raise ScenarioError(
                "the fabric's links have delay or loss, which schedules over OCSes do not reckon with",
                "leave them out (Fabric.with_links(delay_s=0, loss=0))",
            )
        if servers != len(self.fabric.servers) or not self.ocses:
            raise ScenarioError(
                f"a demand between {servers} over {len(self.fabric.servers)} servers and "
                f"{len(self.ocses)} OCSes",
                "give a row and a column per server, and at least one OCS",
            )


def _rate_bps(fabric: Fabric, ocses: Collection[str]) -> float:
    """Return the rate of all NICs on OCSes; ScenarioError if there are none or they differ."""
    nodes = {nic: fabric.peer(fabric.nic_port(nic)).node for nic in fabric.nics}
    rates = sorted({fabric.nic_rate_bps(nic) for nic, node in nodes.items() if node in ocses})
    if len(rates) != 1:
        said = " and ".join(f"{rate / 1e9:g}" for rate in rates)
        raise ScenarioError(
            f"NICs of {said} Gbit/s on OCSes" if rates else "no NIC is on an OCS",
            "schedules are for NICs of one rate on OCSes",
        )
    return rates[0]


def over_ocses(demand: Demand, ocses: int) -> Job:
    """Return a demand as a job that is named after the number of OCSes: ``benchmark, 2 OCSes``."""
    name = f"{demand.name}, {ocses} OCS{'es' if ocses > 1 else ''}"
    sent = Demand(demand.name, off_diagonal(demand.matrix), demand.note)
    return job_of_steps(name, (Step(sent),), demand.note)


def off_diagonal(matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a matrix without what servers owe themselves."""
    return np.where(np.eye(len(matrix), dtype=bool), 0, matrix)


def dilation_for(
    line_s: NDArray[np.float64],
    ocses: int,
    delay_s: float,
    *,
    rate: float,
    slot_s: float,
    least_delay_s: float = LEAST_DELAY_S,
) -> Dilation:
    """Return the dilation at which Spectra's shortest slot lasts ``slot_s``, and a delay long enough.

    It is less where the demand's lower bound would take longer than `LONGEST_S`, or `PATIENT_S` for delays.

    Parameters
    ----------
    line_s
        The demand [real seconds].
    ocses, delay_s
        What it is scheduled on [real seconds].
    rate
        Emulated rate over real rate.
    slot_s
        How long the shortest slot is to be lit [emulated seconds].
    least_delay_s
        How long a delay is to be at least [emulated seconds].
    """
    plan = scheduler_named("spectra")(line_s, ocses, delay_s)
    shortest = min((slot.weight for slots in plan.switches for slot in slots), default=0.0)
    if not shortest > 0:
        raise ScenarioError(f"schedules without a slot for a demand of {line_s.sum():g} s", "send something")
    bound_s = makespan_lower_bound(line_s, ocses, delay_s)
    honoured = 1.001 * least_delay_s / delay_s if delay_s else 0.0  # not at the edge, where it rounds
    time = max(min(slot_s / shortest, LONGEST_S / bound_s), min(honoured, PATIENT_S / bound_s))
    return Dilation(rate, time * rate)
