"""Studies whose points are no experiments: calls of functions, which workers carry out.

A search, a trace, a sweep of a model: each point is a function of a module and what it is called with. What
it returns is a file of the results directory, there whole or not at all; when all are there, the study says
what they mean. Processes of this machine or of a cluster share the points, as those of experiments.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import pandas as pd

from testbed.machine.files import read_whole
from testbed.machine.shortage import shortage
from testbed.report.checksums import content_of, with_checksum
from testbed.report.kept_points import FOLDER, KeptFiles
from testbed.report.page import Findings, Page
from testbed.report.results import RunDirectory
from testbed.report.run_json import settings_of
from testbed.study.call_json import call_text, check_result, result_bytes, result_of
from testbed.study.directories import (
    OTHER_OPTIONS,
    PartDirectory,
    check_code,
    new_run,
    with_all_readings,
)
from testbed.study.going_on import say_how_to_join
from testbed.study.output import print_results, progress_bar, sheet_table
from testbed.study.prediction import executor_of
from testbed.study.study import RUN, Options
from topologies.errors import LightrailError, ScenarioError

LONG, SHORT = 32, 12
"""Letters of keys, and of what stands for all of them."""


@dataclass(frozen=True)
class Call:
    """A point: those of one key are one.

    Raises
    ------
    ScenarioError
        If the function is not annotated to return what a file can hold.
    """

    function: Callable[..., object]
    """Of a module, where a worker of another machine finds it; pure, and annotated with what it returns."""
    arguments: tuple[object, ...]
    """Frozen dataclasses, tuples, numbers and texts: with the function, all that decides the result."""

    def __post_init__(self) -> None:
        """Refuse a function whose results could not be kept, before any is carried out."""
        check_result(self.function)

    @cached_property
    def key(self) -> str:
        """Of its file: the same whenever the same study is described."""
        return sha256(call_text(self.function, self.arguments).encode()).hexdigest()[:LONG]

    def carried_out(self) -> object:
        """Return the result of the function."""
        return self.function(*self.arguments)


Found = Sequence[Any]
"""The results of calls, in their order."""


@dataclass(frozen=True)
class ComputedReport:
    """The report of the results of a study."""

    sentence: str
    """A sentence on the calls that were made."""
    findings: Findings
    """Its tables, of which there is one at least, its plots and claims."""
    rows: Sequence[Mapping[Any, object]]
    """Of ``summary.csv``, by the names of its columns; each has a seed and a verdict."""
    files: str
    """A sentence on its files and where they are."""
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    """Further numbers, by the name of their file without the ending."""
    definitions: Sequence[tuple[str, str]] = ()
    """Words of its tables, explained."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """The parameters of the computation, for ``run.json``."""


@dataclass(frozen=True)
class ComputedStudy:
    """A study whose points are calls."""

    name: str
    """Of its file and its results."""
    title: str
    """The title of its report."""
    points: Sequence[Call]
    """The calls to carry out, in this order; a call that is there twice is carried out once."""
    report: Callable[[Found], ComputedReport]
    """Returns the report on the points' results; it is called once all are there."""


class ReportDirectory(RunDirectory):
    """The directory of a study that says itself what its results mean."""

    _report: ComputedReport

    def add(self, report: ComputedReport) -> None:
        """Write the rows and tables of a report."""
        if not report.findings.sheets:
            raise ScenarioError("a report without a table", "have the study say something")
        self._report = report
        self.describe(settings={**self.run.settings, **report.settings})
        self.write(report.rows, tables=report.tables)

    def page(self) -> Page:
        """Return the page of the report."""
        report = self._report
        results, *more = report.findings.sheets
        return Page(
            run=self.run,
            sentence=report.sentence,
            table=self.table,
            results=results,
            claims=report.findings.claims,
            plots=report.findings.plots,
            definitions=report.definitions,
            files=report.files,
            more=more,
        )


class KeptResults(KeptFiles):
    """The results of calls, in a results directory; parameters as of `KeptFiles`."""

    def write(self, call: Call, result: object) -> object:
        """Write a result, and return it as its file has it; MachineError if it cannot be written."""
        content = result_bytes(call.function, result)
        self.put(call, with_checksum(content, call.key))
        return result_of(call.function, content)

    def found(self, calls: Iterable[Call]) -> dict[str, object]:
        """Return the results that are there, by the keys of calls; what does not agree is named, not read."""
        results = {}
        for call in calls:
            if call not in self:
                continue
            try:
                results[call.key] = self._read(call)
            except (ScenarioError, OSError) as error:
                said = error.sentence if isinstance(error, ScenarioError) else error.strerror
                print(f"{self.file(call)} is carried out anew: {said}", file=sys.stderr)
        return results

    def _read(self, call: Call) -> object:
        return result_of(call.function, content_of(read_whole(self.file(call)), call.key))


def compute(study: ComputedStudy, options: Options, asked: Mapping[str, object] | None = None) -> None:
    """Carry out what is missing of a study; print and write what it says, or how to join a part.

    Parameters
    ----------
    study, options
        What is carried out, and how.
    asked
        The options of its own: what is gone on with has the same.
    """
    calls = {call.key: call for call in study.points}
    points, out = list(calls.values()), options.resume or options.out
    settings = {"points": _told(calls, asked or {})}
    run = replace(new_run(study.name, study.title), settings=settings, typed=options.typed)
    if begun := options.begun:
        check_code(begun, ())
        if settings_of(begun / RUN).get("points") != run.settings["points"]:
            raise ScenarioError(f"{begun} holds the points of another study", OTHER_OPTIONS)
    if options.part and out:
        mine = options.part.share(points)
        with PartDirectory(run, (), out, options.part):
            kept = KeptResults(out)
            _results(mine, kept, options, kept.found(mine))
        say_how_to_join(len(mine), out)
        return
    if options.resume:
        run = with_all_readings(run, options.resume)
    directory = ReportDirectory(
        run,
        out=out,
        resume=options.resume is not None,
        jobs=options.jobs,
        plots=options.formats,
    )
    read: set[str] = set()
    with _laid_to_what_was_read(directory, read), directory as results:
        kept = KeptResults(results.path)
        found = kept.found(points)
        by_key = _results(points, kept, options, found)
        read.update(found)
        report = study.report([by_key[call.key] for call in study.points])
        results.add(report)
    said = report.findings
    print_results([*map(sheet_table, said.sheets)], said.claims, results.path)


@contextmanager
def _laid_to_what_was_read(directory: ReportDirectory, read: Set[str]) -> Iterator[None]:
    """Turn what a report raises in this context into a sentence, where results of it were read.

    A result that was read is of its function's type, and may still be one that no call of it returns.
    """
    try:
        yield
    except LightrailError:
        raise
    except Exception as error:
        if not read or shortage(error):
            raise
        why = f"{type(error).__name__}: {error}"
        raise ScenarioError(
            f"{len(read)} results of {directory.path / FOLDER} make no report: {why}",
            f"delete that folder: --resume {directory.path} then carries out all of them again",
        ) from error


def _told(keys: Iterable[str], asked: Mapping[str, object]) -> str:
    """Return how many points there are, and a digest of their keys and of what was asked."""
    points = list(keys)
    return f"{len(points)} ({sha256(repr((points, sorted(asked.items()))).encode()).hexdigest()[:SHORT]})"


def _results(
    points: Sequence[Call], kept: KeptResults, options: Options, read: Mapping[str, object]
) -> dict[str, object]:
    """Return the results of calls by their keys; those that were not read are carried out and kept."""
    found = dict(read)
    missing = [call for call in points if call.key not in found]
    with executor_of(options) as workers, progress_bar() as progress:
        task = progress.add_task("compute", total=len(points), completed=len(found))
        for call, result in zip(missing, workers.map(Call.carried_out, missing), strict=True):
            found[call.key] = kept.write(call, result)
            progress.advance(task)
    return found
