"""The points of a run, a file each: what a run that was cut off goes on from, and what its report reads.

A file is there whole or not at all, so that parts of a run may write into one directory at once. An outcome
that is read has its verdict and its times; its tables are read when they are asked for, and soon forgotten.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import cast

import pandas as pd

from testbed.audit.finding import Audit
from testbed.machine.files import make_directory, write_whole
from testbed.report.finished import KNOWN, Finished, head_of
from testbed.run.experiment import Experiment
from testbed.run.outcome import Outcome
from testbed.run.packed import LENGTH_BYTES, unpack
from testbed.run.run import Run
from topologies.errors import ScenarioError
from topologies.fabric import Port
from traffic.records import Records
from traffic.tables import Tables

FOLDER = "points"
HINT = "delete it: --resume then carries it out again"
REMEMBERED = 8
"""Of so many points the tables are remembered: plots ask for those of a few again and again."""
Runs = Mapping[str, Run]


class KeptRun(Run):
    """A run whose tables are in a file."""

    def __init__(self, audit: Audit | None, read: Callable[[], Run]) -> None:
        object.__setattr__(self, "audit", audit)
        object.__setattr__(self, "_read", read)

    @property
    def tables(self) -> Tables:
        """Its tables, read now."""
        return self._kept.tables

    @property
    def messages(self) -> pd.DataFrame:
        """As of `Run`."""
        return self._kept.messages

    @property
    def tasks(self) -> pd.DataFrame:
        """As of `Run`."""
        return self._kept.tasks

    @property
    def events(self) -> pd.DataFrame:
        """As of `Run`."""
        return self._kept.events

    @property
    def records(self) -> Records:
        """As of `Run`."""
        return self._kept.records

    @property
    def link_bytes(self) -> dict[Port, int]:
        """As of `Run`."""
        return self._kept.link_bytes

    @property
    def _kept(self) -> Run:
        return cast(Callable[[], Run], vars(self)["_read"])()


class KeptPoints:
    """The points in a results directory.

    Parameters
    ----------
    directory
        The results directory.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = directory / FOLDER
        self._recent: OrderedDict[str, Runs] = OrderedDict()

    def __contains__(self, experiment: Experiment) -> bool:
        """Return whether a point is there."""
        return self._file(experiment).exists()

    def write(self, experiment: Experiment, point: Finished) -> None:
        """Write a point, or leave the one that is there; MachineError if it cannot be written."""
        if point.runs:
            make_directory(self._folder)
            self._write(experiment, point.head, point.runs)

    def outcome(self, experiment: Experiment) -> Outcome:
        """Return what came of an experiment; ScenarioError if its file is not one of this version."""
        with self._valid(experiment) as path, path.open("rb") as file:
            head = file.read(int.from_bytes(file.read(LENGTH_BYTES), "little"))
            key, found = cast(tuple[str, Outcome], unpack(head, experiment))
        if key != experiment.key:
            raise ScenarioError(f"{path} holds the point {key}", HINT)
        outcome = found.with_runs(lambda name, run: KeptRun(run.audit, partial(self._run, experiment, name)))
        vars(outcome).update({name: vars(found)[name] for name in KNOWN})
        return outcome

    def judge(self, outcome: Outcome) -> None:
        """Write what is known now of a point that is there."""
        data = self._file(outcome.experiment).read_bytes()
        start = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
        self._write(outcome.experiment, head_of(outcome), data[start:])

    def _write(self, experiment: Experiment, head: bytes, runs: bytes) -> None:
        write_whole(self._file(experiment), len(head).to_bytes(LENGTH_BYTES, "little") + head + runs)

    def _run(self, experiment: Experiment, name: str) -> Run:
        key = experiment.key
        if key not in self._recent:
            with self._valid(experiment) as path:
                data = memoryview(path.read_bytes())
                start = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
                self._recent[key] = cast(Runs, unpack(data[start:], experiment))
        self._recent.move_to_end(key)
        while len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)
        return self._recent[key][name]

    @contextmanager
    def _valid(self, experiment: Experiment) -> Iterator[Path]:
        """Yield a point's file; an error while it is read becomes a ScenarioError."""
        file = self._file(experiment)
        try:
            yield file
        except Exception as error:  # whatever a foreign file makes of unpickling
            raise ScenarioError(f"{file} is not a valid point: {error}", HINT) from error

    def _file(self, experiment: Experiment) -> Path:
        return self._folder / experiment.key
