"""Parts of a run: which points are whose, and the directory that all parts write into."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from testbed.machine.files import directory_lock, make_directory, write_whole
from testbed.report.finished import Finished
from testbed.report.kept_points import KeptPoints
from testbed.report.results import ResultsDirectory
from testbed.report.run_json import (
    Known,
    Run,
    datapath_of,
    experiments_of,
    planned_lines,
    real_link_delay_of,
    run_json,
    settings_of,
)
from testbed.run.experiment import Experiment
from testbed.run.outcome import Outcome
from testbed.study.output import say
from testbed.study.resume import check_code
from topologies.errors import ScenarioError

RUN, PARTS = "run.json", "parts"
"""What describes a run, and the folder of what its parts read back."""
NOTHING_PLANNED = planned_lines([])


def comparison_of(experiment: Experiment) -> tuple[object, ...]:
    """Return what a point is compared within: one machine carries all of it out, at one scale."""
    return experiment.fabric, experiment.job.name


def of_part(
    experiments: Sequence[Experiment], part: tuple[int, int] | None, *, emulated: bool
) -> list[Experiment]:
    """Return the points of a part: every N-th; where they are emulated every N-th comparison."""
    if part is None:
        return list(experiments)
    number, count = part
    if not emulated:
        return list(experiments[number - 1 :: count])
    comparisons = list(dict.fromkeys(map(comparison_of, experiments)))[number - 1 :: count]
    return [each for each in experiments if comparison_of(each) in comparisons]


def begun_on(results: "PartDirectory | ResultsDirectory", points: Sequence[Experiment]) -> str | None:
    """Return the machine that emulated points of one comparison; None if there is none yet."""
    return next((results.kept(each).machine for each in points if results.has(each)), None)


def say_how_to_join(points: int, directory: Path) -> None:
    """Say what a part left, and what makes one run of all parts."""
    say(f"{points} points are in {directory}; --resume {directory} joins all parts")


class PartDirectory:
    """The directory of a run while a part writes its points: joining the parts makes tables and report.

    The first part to come writes ``run.json``, with all points of the run; each keeps what it read back of
    its machine in a file of its own.

    Parameters
    ----------
    run, planned, out
        As of `ResultsDirectory`; all parts plan the same.
    name
        Of the part.
    """

    def __init__(self, run: Run, planned: Sequence[Experiment], out: Path, name: str) -> None:
        self.run, self.path = run, out
        self._planned, self._name = planned, name
        self._points = KeptPoints(out)
        self._outcomes: list[Outcome] = []
        self._lock = ExitStack()

    def __enter__(self) -> "PartDirectory":
        """Make the directory and what describes the run, unless another part has."""
        make_directory(self.path / PARTS)
        self._lock.enter_context(directory_lock(self.path, shared=True))
        with directory_lock(self.path / PARTS, waits=True):
            if not (self.path / RUN).exists():
                write_whole(self.path / RUN, run_json(self.run, planned_lines(self._planned)))
        self._check_same()
        self.describe()
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

    def has(self, experiment: Experiment) -> bool:
        """Return whether a point is there, whichever part wrote it."""
        return experiment in self._points

    def wants_trace(self, _experiment: Experiment) -> bool:
        """Return that a part keeps no trace: which seed is the first, the whole run knows."""
        return False

    def add_finished(self, experiment: Experiment, point: Finished) -> None:
        """Write a point."""
        self._points.write(experiment, point)
        self._outcomes.append(self._points.outcome(experiment))

    def kept(self, experiment: Experiment) -> Outcome:
        """Return what came of a point that is there."""
        return self._points.outcome(experiment)

    @property
    def points(self) -> int:
        """How many were added."""
        return len(self._outcomes)

    def judge_again(self, since: int, again: Callable[[Outcome], Outcome]) -> None:
        """Replace the outcomes from a number on by what is known of them now."""
        self._outcomes[since:] = map(again, self._outcomes[since:])
        for outcome in self._outcomes[since:]:
            self._points.judge(outcome)
