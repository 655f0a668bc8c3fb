"""Runs without a backend, and the one place that names what carries them out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from controller.circuits.rule import Decides
from testbed.core.backend import Backend
from testbed.core.event_log import EventLog
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.experiment.experiment import Experiment
from testbed.model.backend import FluidBackend
from topologies.fabric import Fabric
from topologies.light import Configuration
from topologies.own_routing import CheckedRouting
from traffic.communicators import Communicators
from traffic.faults import AS_IT_WAS, Fault, Revisions
from traffic.job import Job
from traffic.scheme import Scheme
from traffic.transports.registry import sends_datagrams


@dataclass(frozen=True, eq=False)
class Case:
    """A run without a backend."""

    fabric: Fabric
    job: Job
    scheme: Callable[[], Scheme]
    """Returns a new scheme for each run."""
    circuits: Decides | None = None
    faults: tuple[Fault, ...] = ()
    revisions: Revisions = AS_IT_WAS
    lit: Configuration | None = None
    routing: CheckedRouting | None = None
    communicators: Callable[[], Communicators | None] = lambda: None
    """Returns those of one run; by default the job's."""
    delay_s: Mapping[str, float] = field(default_factory=dict)
    """How long each OCS is dark [s]."""
    flip_s: Mapping[str, float] = field(default_factory=dict)
    """How long each is dark when it flips [s]."""
    datagrams: bool = False
    """Whether packets have an entropy each."""
    couples: bool = False
    """Whether what moves in lock step goes together."""
    log: EventLog | None = None
    """Where what happens is written down."""

    def fluid(self) -> FluidBackend:
        """Return a fluid backend for one run."""
        return FluidBackend(
            self.fabric,
            self.delay_s,
            flip_s=self.flip_s,
            by_bytes=False,
            routing=self.routing,
            datagrams=self.datagrams,
        )

    def over(self, backend: Backend) -> Run:
        """Return the run over a backend."""
        return Simulation(
            self.fabric,
            self.job,
            backend,
            self.scheme(),
            circuits=self.circuits,
            faults=self.faults,
            revisions=self.revisions,
            lit=self.lit,
            routing=self.routing,
            communicators=self.communicators(),
            couples=self.couples,
            log=self.log,
        ).run()


def case_of(experiment: Experiment, *, couples: bool = False) -> Case:
    """Return the case of an experiment."""
    rule = experiment.rule
    delays = experiment.ocs_delays.items()
    return Case(
        experiment.fabric,
        experiment.job,
        experiment.new_scheme,
        rule.decides if rule else None,
        experiment.faults,
        experiment.revisions,
        rule.first if rule else None,
        experiment.bound_routing,
        lambda: experiment.communicators,
        {ocs: delay.mean_s for ocs, delay in delays},
        {ocs: delay.flip_s for ocs, delay in delays},
        sends_datagrams(experiment.transport.name),
        couples,
    )
