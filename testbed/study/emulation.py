"""A study emulated: a worker boots each network in turn, and each point is written and judged as it comes."""

import platform
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from functools import partial
from typing import cast

from rich.progress import Progress

from testbed.experiment.experiment import Experiment
from testbed.experiment.run_time import boots
from testbed.study.directories import (
    Directory,
    comparison_of,
    directory_of,
    of_part,
    planned_before,
)
from testbed.study.emulating import Asked, Begun, Described, Event, check_able, emulated, where_of
from testbed.study.machine import Machine, machine_by, weakest, worker_for
from testbed.study.output import progress_bar, say
from testbed.study.prediction import kept_point
from testbed.study.ray_cluster import RayCluster, opened
from testbed.study.scaling import prepared
from testbed.study.study import Options, Study
from testbed.study.worker import EmulationWorker
from testbed.trust.calibrate import Calibration, ContradictedError
from testbed.trust.control import Control
from testbed.trust.fidelity import with_control
from testbed.trust.outcome import Outcome
from topologies.errors import ScenarioError
from traffic.transports.registry import sends_datagrams


def emulated_study(study: Study, options: Options) -> Directory:
    """Emulate what is missing of a study; return the directory of its results."""
    if options.cluster:
        with opened(options.cluster) as cluster:
            return _on_cluster(study, options, cluster)
    with worker_for(study.fabrics, options) as worker:
        machine = checked_machine(worker, study, options).told()
        try:
            doubtful = machine.calibration
            return _emulated(study, options, machine, lambda to, mine: to.carry_out(worker, mine, doubtful))
        except ContradictedError as error:
            say(f"{error}: it is calibrated anew")
        anew = replace(options, calibrate=True)
        machine = machine_by(worker, study, anew).told()
        return _emulated(study, options, machine, lambda to, mine: to.carry_out(worker, mine, None))


def _on_cluster(study: Study, options: Options, cluster: RayCluster) -> Directory:
    """Emulate a study on machines that offer a slot each, at the scale that the weakest of them carries."""
    local = replace(options, cluster=None)
    asked = [cluster.emulating(name).submit(machine_checked, study, local) for name in cluster.emulators]
    machine = weakest([each.result() for each in asked]).told()
    return _emulated(study, options, machine, lambda to, mine: to.carry_out_on(cluster, mine))


def events_of(asked: Sequence[Asked], options: Options, real_link_delay_s: float) -> list[Event]:
    """Return what an emulation worker of this machine has to say of the points of one network."""
    settings = options.datapath, real_link_delay_s, None, True
    with worker_for([each.experiment.fabric for each in asked], options) as worker:
        return list(worker.call(emulated, asked, *settings))


def machine_checked(study: Study, options: Options) -> Machine:
    """Return what this machine carries, as of `checked_machine`, by a worker of its own."""
    with worker_for(study.fabrics, options) as worker:
        return checked_machine(worker, study, options)


def checked_machine(worker: EmulationWorker, study: Study, options: Options) -> Machine:
    """Return what this machine carries.

    MachineError if it lacks what a study needs, before anything is predicted for it.
    """
    written = study.failures.faults if study.failures else ()
    own = [fault.name for each in study.experiments for fault in each.faults if fault.loses]
    lossy = [*own, *(fault.text for fault in written if fault.loses)]
    transports = list({(each.transport, each.mtu) for each in study.experiments})
    wired = list({(each.fabric, not sends_datagrams(each.transport.name)) for each in study.experiments})
    list(worker.call(check_able, wired, transports, lossy, options.datapath))
    return machine_by(worker, study, options)


def _emulated(
    study: Study,
    options: Options,
    machine: Machine,
    carry_out: Callable[["EmulatedStudy", Sequence[Experiment]], None],
) -> Directory:
    """Return the results of a study; ContradictedError if it has to be scaled by a new calibration."""
    with progress_bar() as progress:
        planned = planned_before(study, options) or prepared(study, options, machine, progress)
        for experiment in planned:
            if experiment.rule:
                experiment.rule.prepare()  # here: a user's own scheduler fails before anything boots
        mine = of_part(planned, options.part, emulated=True)
        with directory_of(study, options, planned) as results:
            results.describe(calibration=asdict(machine.calibration))
            carry_out(EmulatedStudy(results, options, progress, len(mine)), mine)
    return results


class EmulatedStudy:
    """Takes what a worker yields into a directory of results."""

    def __init__(self, results: Directory, options: Options, progress: Progress, points: int) -> None:
        self._results, self._options, self._progress = results, options, progress
        self._task = progress.add_task("emulate", total=points)
        self._since = 0
        """The first point that the next control judges."""
        self._made = set[str]()
        """The points that were not there already."""

    def carry_out(
        self, worker: EmulationWorker, points: Sequence[Experiment], doubtful: Calibration | None
    ) -> None:
        """Carry out those points that are missing, network by network."""
        self._check_not_mixed(points)
        for some in boots(points):
            asked, begun = self._asked(some), any(each in self._results.kept for each in points)
            settings = self._options.datapath, self._results.run.real_link_delay_s, doubtful, begun
            missing = self._missing(asked)
            with closing(worker.call(emulated, missing, *settings)) if missing else nullcontext(()) as events:
                self._write(asked, events)

    def carry_out_on(self, cluster: RayCluster, points: Sequence[Experiment]) -> None:
        """Carry out those points that are missing on other machines, a comparison's network by network.

        What a machine has begun it goes on with; everything else is anyone's.
        """
        begun = {about: self._begun_on(some) for about, some in _compared(points).items()}
        groups = [
            (begun[about], asked, self._missing(asked))
            for of_network in boots(points)
            for about, some in _compared(of_network).items()
            for asked in [self._asked(some)]
        ]
        due = defaultdict[str | None, list[list[Asked]]](list)
        for machine, _, missing in groups:
            if missing:
                due[machine].append(missing)
        delay_s, options = self._results.run.real_link_delay_s, replace(self._options, cluster=None)
        there = partial(events_of, options=options, real_link_delay_s=delay_s)
        found = {machine: cluster.emulating(machine).map(there, some) for machine, some in due.items()}
        for machine, asked, missing in groups:
            self._write(asked, next(found[machine]) if missing else ())

    def _check_not_mixed(self, points: Sequence[Experiment]) -> None:
        """Raise ScenarioError if points are missing of a comparison that another machine began."""
        here = platform.node()
        for some in _compared(points).values():
            there = self._begun_on(some) or here
            if there != here and not all(each in self._results.kept for each in some):
                raise ScenarioError(
                    f"points of {some[0].job.name} were emulated on {there}, and this is {here}: they are not"
                    " mixed",
                    f"go on with them on {there}, or begin anew",
                )

    def _begun_on(self, points: Sequence[Experiment]) -> str | None:
        """Return the machine that emulated points of one comparison; None if there is none yet."""
        kept = self._results.kept
        return next((kept.outcome(each).machine for each in points if each in kept), None)

    def _asked(self, points: Sequence[Experiment]) -> list[Asked]:
        return [Asked(each, self._results.wants_trace(each), self._options.events) for each in points]

    def _missing(self, asked: Sequence[Asked]) -> list[Asked]:
        return [each for each in asked if each.experiment not in self._results.kept]

    def _write(self, asked: Sequence[Asked], events: Iterable[Event]) -> None:
        """Write the points of a network in order: those that are there, and those that a worker makes."""
        self._since, missing = len(self._results.outcomes), self._written_between(asked)
        for event in events:
            self._take(event, where_of([each.experiment for each in asked]), missing)
        list(missing)

    def _written_between(self, asked: Sequence[Asked]) -> Iterator[Experiment]:
        """Yield the points that are missing; those that are there are written on the way."""
        for each in asked:
            if each.experiment in self._results.kept:
                self._results.add_finished(each.experiment, kept_point(self._results.path, each))
                self._progress.advance(self._task)
            else:
                self._made.add(each.experiment.key)
                yield each.experiment

    def _take(self, event: Event, where: str, missing: Iterator[Experiment]) -> None:
        """Write what a worker has to say of a network."""
        if isinstance(event, Described):
            self._describe(where, event.settings)
        elif isinstance(event, Begun):
            self._progress.update(self._task, description=f"emulate {event.words}")
        elif isinstance(event, Control):
            self._results.judge_again(self._since, partial(self._controlled, event))
            self._since = len(self._results.outcomes)
        else:
            self._results.add_finished(next(missing), event.point)
            self._progress.advance(self._task)
            numbers = {**event.numbers, **self._results.run.similitude}
            if len(numbers) > len(self._results.run.similitude):
                self._results.describe(similitude=numbers)

    def _controlled(self, control: Control, outcome: Outcome) -> Outcome:
        """Return an outcome judged by a control, unless it was there already."""
        return with_control(outcome, control) if outcome.experiment.key in self._made else outcome

    def _describe(self, where: str, settings: Mapping[str, object]) -> None:
        """Record settings of a network."""
        known = self._results.run.settings
        about = cast(Mapping[str, object], known.get(where, {}))
        self._results.describe(settings={**known, where: {**about, **settings}})


def _compared(points: Sequence[Experiment]) -> dict[object, list[Experiment]]:
    """Return points by what they are compared within."""
    compared = defaultdict[object, list[Experiment]](list)
    for each in points:
        compared[comparison_of(each)].append(each)
    return compared
