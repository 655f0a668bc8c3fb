"""The points of a run, a file each: what a run that was cut off goes on from, and what its report reads.

A file is there whole or not at all, so that parts of a run may write into one directory at once. An outcome
that is read has its verdict and its times; its tables are read when they are asked for, and soon forgotten.
"""

import sys
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Protocol, cast

import pandas as pd

from testbed.audit.finding import Audit
from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from testbed.machine.files import exists, make_directory, read_whole, remove_begun, write_whole
from testbed.machine.shortage import shortage
from testbed.machine.walk import own_folder
from testbed.report.checksums import Sums, content_of
from testbed.report.finished import Finished
from testbed.report.point_file import PointFile, with_head_of
from testbed.trust.outcome import Outcome
from topologies.errors import MachineError, ScenarioError
from topologies.fabric import Port
from topologies.printable import printable
from traffic.records import Records
from traffic.tables import Tables

FOLDER = "points"
PARTS = "parts"
"""The folder of what parts read back, where parts share the directory."""
TRACES = "traces"
"""The folder of what happened when, in some points."""
LOCK = "lock"
"""A file in it: which part changes what all share."""
LOG = ".events"
"""The end of the names of event logs, which stand beside the points of their runs."""
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


class Keyed(Protocol):
    """A point, whatever it is of."""

    @property
    def key(self) -> str:
        """The name of its file: points of one key are one."""


class InvalidPoint(ScenarioError):
    """The file of a point that is not one of this version, or holds what cannot be."""


class KeptFiles:
    """Files of points in a results directory.

    Parameters
    ----------
    directory
        The results directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self._folder = directory, directory / FOLDER
        self._sums = Sums(directory, directory / PARTS / LOCK)
        self._folders = [directory / name for name in (FOLDER, PARTS, TRACES)]
        self._agrees: dict[str, bool] = {}
        """Whether the file of each point that was looked at is what was written."""

    def __contains__(self, point: Keyed) -> bool:
        """Return whether a point is there as it was written; of one that is not it is said, once.

        MachineError if something else than a plain file of this user has its place.
        """
        key, file = point.key, self.file(point)
        if key not in self._agrees:
            try:
                self._agrees[key] = self._is_listed(key, read_whole(file))
                said = "is damaged"
            except FileNotFoundError:
                return False
            except OSError as error:
                self._agrees[key], said = False, f"cannot be read ({error.strerror})"
            if not self._agrees[key]:
                sys.stderr.write(f"{printable(str(file))} {said}: it is carried out anew\n")
        return self._agrees[key]

    def begin(self) -> None:
        """List the checksums of points alone: everything else is written anew.

        MachineError if a folder of the directory is a link, or another user could exchange what lies in it.
        """
        for folder in self._folders:
            with suppress(FileNotFoundError), own_folder(folder):
                pass
        try:
            self._sums.keep(lambda name: name.startswith(f"{FOLDER}/"))
        except ScenarioError as error:
            sys.stderr.write(
                f"{printable(error.sentence)}: points have their own checksums, and it is made anew\n"
            )
            self._sums.clear()

    def remove_begun(self) -> None:
        """Remove what a killed run had begun to write: no other writes into the directory now."""
        for folder in (self._directory, *self._folders):
            remove_begun(folder)

    def close(self, files: Iterable[Path]) -> None:
        """List the checksums of all files of the directory."""
        self._sums.close(files)

    @cached_property
    def _listed(self) -> Mapping[str, str]:
        return self._sums.listed

    def _is_listed(self, key: str, data: bytes) -> bool:
        """Return whether a file is what its own checksum, and the one that is listed, are of."""
        with suppress(ScenarioError):
            content_of(data, key)
            return self._listed.get(f"{FOLDER}/{key}") in (None, sha256(data).hexdigest())
        return False

    def file(self, point: Keyed) -> Path:
        """Return where a point is, or would be."""
        return self._folder / point.key

    def put(self, point: Keyed, content: bytes) -> None:
        """Write the file of a point, or leave the one that is there; MachineError if it cannot be written."""
        self.put_beside(point, "", content)
        self._agrees[point.key] = True

    def put_beside(self, point: Keyed, suffix: str, content: bytes) -> None:
        """Write a file whose name is a point's with a suffix; errors as of `put`."""
        make_directory(self._folder)
        name = f"{FOLDER}/{point.key}{suffix}"
        file = self._directory / name
        if exists(file):  # listed no more while it changes, or a kill in between would make it damaged
            self._sums.keep(lambda listed: listed != name)
        write_whole(file, content)
        self._sums.add(name, content)


class KeptPoints(KeptFiles):
    """The points of experiments in a results directory; parameters as of `KeptFiles`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._recent: OrderedDict[str, Runs] = OrderedDict()

    def write(self, experiment: Experiment, point: Finished) -> None:
        """Write a point, or leave the one that is there; MachineError if it cannot be written."""
        for name, packed in point.logs.items():  # first: a point that is there is not carried out again
            self.put_beside(experiment, f".{name}{LOG}", zlib.decompress(packed))
        if point.file:
            self.put(experiment, point.file)

    def outcome(self, experiment: Experiment) -> Outcome:
        """Return what came of an experiment; ScenarioError if its file is not one of this version."""
        with self.valid(experiment) as file:
            point = PointFile(read_whole(file), experiment)
            return point.outcome(lambda name, audit: KeptRun(audit, partial(self._run, experiment, name)))

    def judge(self, outcome: Outcome) -> None:
        """Write what is known now of a point that is there."""
        with self.valid(outcome.experiment) as file:
            judged = with_head_of(read_whole(file), outcome)
        self.put(outcome.experiment, judged)

    @contextmanager
    def valid(self, experiment: Experiment) -> Iterator[Path]:
        """Yield a point's file; whatever its content raises becomes an InvalidPoint."""
        file = self.file(experiment)
        try:
            yield file
        except (InvalidPoint, MachineError):  # another user could exchange it
            raise
        except FileNotFoundError as error:
            removed = f"{file} was removed while this run went on"
            raise ScenarioError(removed, f"--resume {file.parent.parent} carries it out again") from error
        except Exception as error:
            if shortage(error):
                raise
            raise InvalidPoint(f"{file} is not a valid point: {error}", HINT) from error

    def _run(self, experiment: Experiment, name: str) -> Run:
        key = experiment.key
        if key not in self._recent:
            with self.valid(experiment) as file:
                found = PointFile(read_whole(file), experiment).tables()
                self._recent[key] = {each: Run(found[each]) for each in {name, *found}}
        self._recent.move_to_end(key)
        while len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)
        return self._recent[key][name]
