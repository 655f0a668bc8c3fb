"""Where the points of a study go: a results directory, new or gone on with, or one that parts share.

What is gone on with has the points of the study, at the scale that it began with, and is of the same code.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Unpack

from testbed.experiment.dilation import UNSCALED
from testbed.experiment.experiment import Experiment
from testbed.machine.datapath import Datapath
from testbed.machine.files import directory_lock, exists, file_lock, make_directory, write_whole
from testbed.machine.versions import sources
from testbed.report.finished import Finished
from testbed.report.kept_points import LOCK, PARTS, KeptPoints
from testbed.report.means import BIG_SWITCH
from testbed.report.results import ENTERED, ResultsDirectory
from testbed.report.run_json import (
    Kind,
    Known,
    RunRecord,
    changed_modules,
    datapath_of,
    experiments_of,
    planned_lines,
    real_link_delay_of,
    run_json,
    settings_of,
    sources_of,
    with_readings,
)
from testbed.study.glances import PlannedFailures
from testbed.study.study import RUN, Options, Study, StudyPart
from testbed.trust.outcome import Outcome
from topologies.errors import ScenarioError
from topologies.own import own_sources

NOTHING_PLANNED = planned_lines([])
PART_FILE = "{}-of-{}.json"
"""The file of what a part read back of its machine: which it is, and of how many."""
OTHER_OPTIONS = "give the options and the files of that run, or another --out without --resume"


def planned_before(study: Study, options: Options) -> list[Experiment] | None:
    """Return the points of the run that is gone on with, at its scale; None if a new one begins.

    Raises
    ------
    ScenarioError
        If it is the run of another study, or of other code, lightrail's or a user's own, or was emulated and
        is now to be predicted, or the reverse.
    """
    if (directory := options.begun) is None:
        return None
    file = directory / RUN
    planned = experiments_of(file) if exists(file) else []
    check_code(directory, planned)
    emulated = not options.model_only
    if emulated != any(each.dilation != UNSCALED for each in planned):
        did, now_does = ("predicted", "emulated") if emulated else ("emulated", "predicted")
        raise ScenarioError(f"{directory} was {did}, and would now be {now_does}", OTHER_OPTIONS)
    would_fail = _failing(study.experiments, study.failures)
    if real_keys(planned) != real_keys(study.experiments) or _failing(planned) != would_fail:
        raise ScenarioError(f"{directory} holds the points of another study", OTHER_OPTIONS)
    if (datapath_of(file), real_link_delay_of(file)) != (options.datapath, study.real_link_delay_s):
        raise ScenarioError(
            f"{directory} was run with another --datapath or --real-link-delay-us", OTHER_OPTIONS
        )
    return planned


def check_code(directory: Path, planned: Sequence[Experiment]) -> None:
    """Raise ScenarioError if a directory holds no run, or one of other code: both are not mixed."""
    file, now = directory / RUN, sources()
    if not exists(file):
        raise ScenarioError(f"{directory} holds no run to go on with", "give the directory of one")
    if (before := sources_of(file)) != now:
        raise ScenarioError(
            f"{directory} was begun by lightrail {before}, and this is {now}: their numbers are not mixed",
            "go on with that one, or begin anew",
        )
    own = own_sources(name for each in planned for name in each.own)
    if changed := changed_modules(file, own):
        raise ScenarioError(
            f"the source of {' and '.join(changed)} has changed since {directory} was begun: numbers of both"
            " are not mixed",
            "put the old one back, or begin anew",
        )


def _failing(
    planned: Sequence[Experiment], failures: PlannedFailures | None = None
) -> set[tuple[str, float]]:
    own = {(fault.name, fault.detect_s) for each in planned for fault in each.faults}
    return own if failures is None else own | {(fault.text, failures.detect_s) for fault in failures.faults}


def real_keys(experiments: Sequence[Experiment]) -> list[str]:
    """Return the keys of points whatever their scale, in order."""
    return sorted({replace(each.unscaled, faults=()).key for each in experiments})


def directory_of(
    study: Study,
    options: Options,
    planned: Sequence[Experiment],
    alike: Mapping[str, Sequence[str]] | None = None,
) -> "Directory":
    """Return where the points of a study go.

    Parameters
    ----------
    study, options
        What is carried out, and how.
    planned
        All of its points.
    alike
        By transport, those that are predicted as it is and left out.
    """
    # Only an emulation knows what circuits did: schedules that are predicted get the report of schemes.
    report = "schemes" if options.model_only and study.report == "circuits" else study.report
    run = replace(new_run(study.name, study.title, options.datapath, report), typed=options.typed)
    own = own_sources(name for each in planned for name in each.own)
    run = replace(run, own_modules=own, alike=alike or {}, real_link_delay_s=study.real_link_delay_s)
    if study.baseline:
        run = replace(run, baseline=study.baseline)
    out = options.resume or options.out
    if options.part and out:
        return PartDirectory(run, planned, out, options.part)
    return ResultsDirectory(
        with_all_readings(run, options.resume) if options.resume else run,
        planned=planned,
        out=out,
        claims=study.claims,
        findings=study.findings,
        parameters=study.parameters_of,
        resume=options.resume is not None,
        jobs=options.jobs,
        plots=options.formats,
    )


def new_run(name: str, title: str, datapath: Datapath = "netdev", report: Kind = "schemes") -> RunRecord:
    """Return a run that starts now."""
    words = [
        word.encode(errors="backslashreplace").decode() for word in sys.argv
    ]  # a file's name may be bytes
    run = RunRecord(name, title, ["python", *words], datetime.now(), report=report, datapath=datapath)
    return replace(run, baseline=BIG_SWITCH) if report == "circuits" else run


def with_all_readings(run: RunRecord, directory: Path) -> RunRecord:
    """Return a run with what the one before, and each of its parts, read back of its machine."""
    with directory_lock(directory, shared=True):  # so that no link in it is followed
        run = with_readings(run, directory / RUN)
        for file in sorted((directory / PARTS).glob(PART_FILE.format("*", "*"))):
            try:
                run = with_readings(run, file)
            except ScenarioError as error:
                forgotten = "delete it: what its part read back of its machine is then in no run.json"
                raise ScenarioError(error.sentence, forgotten) from error
    return run


def comparison_of(experiment: Experiment) -> tuple[object, ...]:
    """Return what a point is compared within: one machine carries all of it out, at one scale."""
    return experiment.fabric, experiment.job.name


def of_part(
    experiments: Sequence[Experiment], part: StudyPart | None, *, emulated: bool
) -> Sequence[Experiment]:
    """Return the points of a part: every N-th; where they are emulated every N-th comparison."""
    if part is None or not emulated:
        return experiments if part is None else part.share(experiments)
    comparisons = part.share([*dict.fromkeys(map(comparison_of, experiments))])
    return [each for each in experiments if comparison_of(each) in comparisons]


class PartDirectory:
    """The directory of a run while a part writes its points: joining the parts makes tables and report.

    The first part to come writes ``run.json``, with all points of the run; each keeps what it read back of
    its machine in a file of its own.

    Parameters
    ----------
    run, planned, out
        As of `ResultsDirectory`; all parts plan the same.
    part
        Which it is.
    """

    def __init__(self, run: RunRecord, planned: Sequence[Experiment], out: Path, part: StudyPart) -> None:
        self.run, self.path = run, out
        self._planned, self._name = planned, PART_FILE.format(part.number, part.parts)
        self.kept = KeptPoints(out)
        """The points that are there, whichever part wrote them."""
        self.outcomes: list[Outcome] = []
        """What was added."""
        self._lock = ExitStack()

    def __enter__(self) -> "PartDirectory":
        """Make the directory and what describes the run, unless another part has."""
        make_directory(self.path)
        self._lock.enter_context(directory_lock(self.path, shared=True))
        make_directory(self.path / PARTS)
        with file_lock(self.path / PARTS / LOCK):
            if not exists(self.path / RUN):
                write_whole(self.path / RUN, run_json(self.run, planned_lines(self._planned)))
        self._check_same()
        self.kept.begin()
        self.describe()
        ENTERED.append(self.path)
        return self

    def _check_same(self) -> None:
        """Refuse what another part has begun meanwhile with other code, points or options."""
        file, run = self.path / RUN, self.run
        check_code(self.path, self._planned)
        theirs = datapath_of(file), real_link_delay_of(file), settings_of(file).get("points")
        mine = run.datapath, run.real_link_delay_s, run.settings.get("points")
        there, here = ({each.key for each in some} for some in (experiments_of(file), self._planned))
        if (there, theirs) != (here, mine):
            raise ScenarioError(
                f"another part began the run in {self.path} meanwhile, with other options or another scale",
                "start this part again",
            )

    def __exit__(self, *_error: object) -> None:
        """Leave the points where they are."""
        self._lock.close()

    def describe(self, **known: Unpack[Known]) -> None:
        """Record what is known only once a network stands, as `RunDirectory.describe` does."""
        self.run = replace(self.run, **known)
        write_whole(self.path / PARTS / self._name, run_json(self.run, NOTHING_PLANNED))

    def wants_trace(self, _experiment: Experiment) -> bool:
        """Return that a part keeps no trace: which seed is the first, the whole run knows."""
        return False

    def add_finished(self, experiment: Experiment, point: Finished) -> None:
        """Write a point."""
        self.kept.write(experiment, point)
        self.outcomes.append(self.kept.outcome(experiment))

    def judge_again(self, since: int, again: Callable[[Outcome], Outcome]) -> None:
        """Replace the outcomes from a number on by what is known of them now."""
        self.outcomes[since:] = map(again, self.outcomes[since:])
        for outcome in self.outcomes[since:]:
            self.kept.judge(outcome)


Directory = ResultsDirectory | PartDirectory
