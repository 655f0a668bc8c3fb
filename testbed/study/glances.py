"""What predictions say of points before any is emulated: their load, how long they take, when shares fail.

Each point is predicted once, by two processes; points that are predicted alike share a prediction. A dry
run has a moment only: it predicts some points, of all workloads and schemes evenly, and takes the others to
be like them.
"""

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from statistics import fmean
from typing import Any

from rich.progress import Progress

from testbed.experiment.experiment import Experiment
from testbed.machine.processes import PROCESSES, in_processes
from testbed.model.predict import predict
from testbed.report.means import BIG_SWITCH
from testbed.trust.calibrate import CarriedLoad
from testbed.trust.scale import busy_s, load_of, plain
from testbed.trust.similitude import Facts, facts_of
from topologies.fabric import Fabric
from traffic.fault_text import WrittenFault
from traffic.faults import Fault
from traffic.metrics import crossed_bytes
from traffic.transports.registry import by_bytes, waits_for_grants


@dataclass(frozen=True)
class PlannedFailures:
    """What fails in points that are run without and with it."""

    faults: tuple[WrittenFault, ...]
    """As users write them; shares are of a point's prediction without them."""
    detect_s: float
    """How long until each is known [real s]."""

    def in_run(self, experiment: Experiment, iteration_s: float) -> tuple[Fault, ...]:
        """Return what fails in a point that takes so long without; nothing in the baseline of circuits."""
        if experiment.label == BIG_SWITCH:
            return ()
        return tuple(fault.over(experiment.fabric, iteration_s, self.detect_s) for fault in self.faults)


@dataclass(frozen=True, eq=False)
class Glance:
    """What the prediction of a point says, at real scale."""

    faults: tuple[Fault, ...]
    """What fails in it."""
    iteration_s: float
    """How long its job takes [s]."""
    busy_s: float
    """How long it keeps an emulation busy [s]."""
    level_s: float
    """The same over links without delay and loss, which decides its scale [s]."""
    load: CarriedLoad
    """Its load over such links (`testbed.trust.scale.load_of`)."""
    messages: float
    """How many it has."""
    queue_pairs: float
    """How many queue pairs they open."""
    sent_bytes: float
    """What crosses the network [bytes]."""
    took_s: float
    """How long it takes to predict [s]."""
    facts: Facts
    """What its dimensionless numbers are made of."""
    predicted: bool = True
    """Whether it was predicted, and is not taken to be like others."""


def glances(
    experiments: Sequence[Experiment],
    failures: PlannedFailures | None,
    progress: Progress,
    within_s: float = math.inf,
    jobs: int = PROCESSES,
) -> list[tuple[Experiment, Glance]]:
    """Return each point with what its prediction says, and after it the same with what fails.

    Parameters
    ----------
    experiments
        The points, without faults of ``failures``.
    failures
        What fails, if something does.
    progress
        Where a bar is shown.
    within_s
        No prediction is begun or waited for later than this, but for the first of each workload [s].
    jobs
        How many processes predict at once.
    """
    alike = {predicted_by(each): each for each in reversed(experiments)}
    seen = _seen(list(alike.values())[::-1], failures, progress, within_s, jobs)
    found = {key: seen.get(key) or _like(each, failures, alike, seen) for key, each in alike.items()}
    return [
        (replace(each, faults=glance.faults), glance)
        for each in experiments
        for glance in found[predicted_by(each)]
    ]


def predicted_by(experiment: Experiment) -> tuple[object, ...]:
    """Return what a prediction follows from."""
    return (
        experiment.fabric,
        id(experiment.job),
        experiment.name,
        experiment.seed,
        by_bytes(experiment.transport.name),
        experiment.fabric.impaired and waits_for_grants(experiment.transport.name),
        experiment.transport.sprays,
        experiment.faults,
        experiment.circuits,
        id(experiment.revisions),
        experiment.scheme,
        experiment.routing,
        experiment.shared_queue_pairs,
        experiment.hashing,
    )


def _seen(
    experiments: Sequence[Experiment],
    failures: PlannedFailures | None,
    progress: Progress,
    within_s: float,
    jobs: int,
) -> dict[tuple[object, ...], list[Glance]]:
    """Return what predictions say of points, as far as there is time."""
    until = time.monotonic() + within_s
    first, order = len({_workload(each) for each in experiments}), _in_turn(experiments)
    found = {}
    with in_processes(partial(_glances, failures, first, until), list(enumerate(order)), jobs) as results:
        task = progress.add_task("predict", total=len(order))
        for number, each in enumerate(order):
            # Not waited for although it has begun: beside an ECMP of 40 s it may be a REPS of minutes.
            if number >= first and time.monotonic() > until:
                break
            progress.update(task, description=f"predict {each.job.name}, {each.name}, seed {each.seed}")
            if (glance := next(results)) is None:
                break
            found[predicted_by(each)] = glance
            progress.advance(task)
        progress.remove_task(task)
    return found


def _in_turn(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Return points of each workload in turn, first each one's first; under another scheme each time."""
    workloads = defaultdict[object, list[Experiment]](list)
    # Ordered so that neighbours differ in scheme.
    for each in sorted(experiments, key=lambda each: each.transport_name):
        workloads[_workload(each)].append(each)
    return [
        points[(turn + number) % len(points)]
        for turn in range(len(experiments))
        for number, points in enumerate(workloads.values())
        if turn < len(points)
    ]


def _glances(
    failures: PlannedFailures | None, first: int, until: float, item: tuple[int, Experiment]
) -> list[Glance] | None:
    """Return what is said of a point, and of the same with what fails; None where it is too late."""
    number, experiment = item
    if number >= first and time.monotonic() > until:
        return None
    healthy = _glance(experiment)
    faults = failures.in_run(experiment, healthy.iteration_s) if failures else ()
    return [healthy, _glance(replace(experiment, faults=faults))] if faults else [healthy]


def _glance(experiment: Experiment) -> Glance:
    began_at = time.monotonic()
    predicted = predict(experiment)
    took_s = time.monotonic() - began_at
    even = replace(experiment, fabric=plain(experiment.fabric))
    level = predicted if even.fabric == experiment.fabric else predict(even)
    return Glance(
        faults=experiment.faults,
        iteration_s=predicted.iteration_s,
        busy_s=busy_s(experiment.job, predicted),
        level_s=busy_s(even.job, level),
        load=load_of(even, level),
        messages=int((~predicted.tables.messages["given_up"]).sum()),
        queue_pairs=len(predicted.tables.lanes),
        sent_bytes=crossed_bytes(predicted.tables),
        took_s=took_s,
        facts=facts_of(experiment, predicted),
    )


def _like(
    experiment: Experiment,
    failures: PlannedFailures | None,
    experiments: Mapping[tuple[object, ...], Experiment],
    seen: Mapping[tuple[object, ...], list[Glance]],
) -> list[Glance]:
    """Return what is likely of a point: the mean of those of its workload, of its scheme if there are."""
    workload = {key: seen[key] for key in seen if _workload(experiments[key]) == _workload(experiment)}
    scheme = [workload[key] for key in workload if experiments[key].scheme == experiment.scheme]
    healthy, *failed = zip(*(scheme or workload.values()), strict=True)
    faults = failures.in_run(experiment, _mean(healthy).iteration_s) if failures else ()
    return [
        replace(_mean(healthy), faults=experiment.faults),
        *(replace(_mean(each), faults=faults) for each in failed),
    ]


def _mean(looked: Sequence[Glance]) -> Glance:
    """Return the mean of what was said of points, with what else is said of the first."""
    numbers = [each.name for each in fields(Glance) if each.type is float]
    mean: dict[str, Any] = {name: fmean(getattr(each, name) for each in looked) for name in numbers}
    return replace(looked[0], **mean, predicted=False)


def _workload(experiment: Experiment) -> tuple[str, Fabric]:
    return experiment.job.name, experiment.fabric
