"""An experiment over a backend: what predicts it and what emulates it run the same."""

import os

from testbed.core.backend import Backend
from testbed.core.event_log import EventLog
from testbed.core.simulation import Simulation
from testbed.experiment.experiment import Experiment
from topologies.routes import light_leads
from traffic.communicators import Communicators
from traffic.job import Job
from traffic.scheme import OverLight, Scheme

CHECKS = "LIGHTRAIL_CHECKS"
"""The environment variable that has the state of each run checked at its end; ``--debug`` sets it."""


def simulation_of(
    experiment: Experiment,
    backend: Backend,
    *,
    job: Job | None = None,
    scheme: Scheme | None = None,
    communicators: Communicators | None = None,
    couples: bool = False,
    log: EventLog | None = None,
) -> Simulation:
    """Return what runs an experiment once over a backend.

    Parameters
    ----------
    experiment, backend, log
        As of `testbed.core.simulation.Simulation`.
    couples
        As there; but nothing goes together whose circuits may change under it and then lead its lanes
        elsewhere, or have its scheme place messages on others, as one flow stays on its own.
    job
        What runs of it; by default its own job.
    scheme, communicators
        Those of a run that this one is part of; by default new ones.
    """
    rule, scheme = experiment.rule, scheme or experiment.new_scheme()
    lanes_stay = rule is None or rule.stays or rule.keeps
    leads = isinstance(scheme, OverLight) or light_leads(experiment.fabric)
    return Simulation(
        experiment.fabric,
        job or experiment.job,
        backend,
        scheme,
        circuits=rule.decides if rule else None,
        faults=experiment.faults,
        revisions=experiment.revisions,
        lit=rule.first if rule else None,
        routing=experiment.bound_routing,
        communicators=communicators or experiment.communicators,
        couples=couples and (lanes_stay or not leads),
        log=log,
        checks=CHECKS in os.environ,
    )
