"""A study emulated: a worker boots each network in turn, and each point is written and judged as it comes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from typing import cast

from rich.progress import Progress

from testbed.run.calibrate import Calibration, ContradictedError
from testbed.run.experiment import Experiment
from testbed.run.fidelity import with_control
from testbed.run.run_time import boots
from testbed.study.controlled import Controlled
from testbed.study.directories import Directory, directory_of, planned_before
from testbed.study.emulating import Asked, Begun, Booted, Event, check_able, emulated, where_of
from testbed.study.machine import Machine, machine_for
from testbed.study.output import progress_bar, say
from testbed.study.parts import check_not_mixed, of_part
from testbed.study.prediction import kept_point
from testbed.study.scaling import prepared, waits_for_light
from testbed.study.study import Options, Study
from testbed.study.worker import EmulationWorker


def emulated_study(study: Study, options: Options) -> Directory:
    """Emulate what is missing of a study; return the directory of its results."""
    check_machine(study, options)
    machine = machine_for(options, relights=waits_for_light(study, options))
    try:
        return _emulated(study, options, machine, machine.calibration)
    except ContradictedError as error:
        say(f"{error}: it is calibrated anew")
    machine = machine_for(replace(options, calibrate=True), relights=waits_for_light(study, options))
    return _emulated(study, options, machine, None)


def check_machine(study: Study, options: Options) -> None:
    """Raise MachineError if this machine lacks what a study needs, before anything is predicted for it."""
    written = study.failures.faults if study.failures else ()
    own = [fault.name for each in study.experiments for fault in each.faults if fault.loses]
    lossy = [*own, *(fault.text for fault in written if fault.loses)]
    transports = list({(each.transport.name, each.mtu) for each in study.experiments})
    with EmulationWorker(sandbox=options.sandbox) as worker:
        list(worker.call(check_able, study.fabrics, transports, lossy, options.datapath))


def _emulated(study: Study, options: Options, machine: Machine, doubtful: Calibration | None) -> Directory:
    """Return the results of a study; ContradictedError if it has to be scaled by a new calibration."""
    with progress_bar() as progress:
        planned = planned_before(study, options) or prepared(study, options, machine, progress)
        for experiment in planned:
            if experiment.rule:
                experiment.rule.prepare()  # here: a user's own scheduler fails before anything boots
        mine = of_part(planned, options.part, emulated=True)
        with directory_of(study, options, planned) as results:
            results.describe(calibration=asdict(machine.calibration))
            emulation = Emulation(results, options, progress, len(mine))
            with EmulationWorker(sandbox=options.sandbox) as worker:
                emulation.carry_out(worker, mine, doubtful)
    return results


class Emulation:
    """Takes what a worker yields into a directory of results."""

    def __init__(self, results: Directory, options: Options, progress: Progress, points: int) -> None:
        self._results, self._options, self._progress = results, options, progress
        self._task = progress.add_task("emulate", total=points)
        self._since = 0
        """The first point that the next control judges."""

    def carry_out(
        self, worker: EmulationWorker, points: Sequence[Experiment], doubtful: Calibration | None
    ) -> None:
        """Carry out those points that are missing, network by network."""
        check_not_mixed(self._results, points)
        for some in boots(points):
            missing = [each for each in some if not self._results.has(each)]
            self._go_on([each for each in some if each not in missing])
            if missing:
                self._emulate(worker, missing, doubtful)

    def _go_on(self, there: Sequence[Experiment]) -> None:
        """Take points that are there already."""
        for experiment in there:
            traced = self._results.wants_trace(experiment)
            self._results.add_finished(experiment, kept_point(self._results.path, Asked(experiment, traced)))
            self._progress.advance(self._task)

    def _emulate(
        self, worker: EmulationWorker, some: Sequence[Experiment], doubtful: Calibration | None
    ) -> None:
        """Have the worker boot the network of some points, and carry out one after the other."""
        asked = [Asked(each, self._results.wants_trace(each)) for each in some]
        begun, upcoming = self._results.points > 0, iter(some)
        self._since = self._results.points
        settings = self._options.datapath, self._options.real_link_delay_s, doubtful, begun
        with closing(worker.call(emulated, asked, *settings)) as events:
            for event in events:
                self._take(event, where_of(some[0]), upcoming)

    def _take(self, event: Event, where: str, upcoming: Iterator[Experiment]) -> None:
        """Write what a worker has to say of a network."""
        if isinstance(event, Booted):
            self._describe(where, event.settings)
        elif isinstance(event, Begun):
            self._progress.update(self._task, description=f"emulate {event.words}")
        elif isinstance(event, Controlled):
            self._describe(where, {"controls": event.settings})
            self._results.judge_again(self._since, lambda outcome: with_control(outcome, event.control))
            self._since = self._results.points
        else:
            self._results.add_finished(next(upcoming), event.point)
            numbers = {**event.numbers, **self._results.run.similitude}
            if len(numbers) > len(self._results.run.similitude):
                self._results.describe(similitude=numbers)
            self._progress.advance(self._task)

    def _describe(self, where: str, settings: Mapping[str, object]) -> None:
        """Record settings of a network."""
        known = self._results.run.settings
        about = cast(Mapping[str, object], known.get(where, {}))
        self._results.describe(settings={**known, where: {**about, **settings}})
