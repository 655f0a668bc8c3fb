"""The results directory of a run: whole files at any time, in the end tables, plots and a report.

============ ====================================================================================
file         what it holds
============ ====================================================================================
faults.csv   a row per outcome and fault, if something failed: `testbed.report.faults.fault_table`
records.csv  a row per message and backend: workload, scheme, circuits, transport, seed, backend, then
             `traffic.records`
nodes.csv    a row per node of a point's job: workload, scheme, circuits, transport, seed, then
             `testbed.report.nodes`
summary.csv  a row per point: `testbed.trust.outcome.summary`, and what its kind of run has besides
wire.csv     a row per circuit that an OCS had lit and time that it had, where circuits follow the job:
             workload, scheme, circuits, transport, seed, then `testbed.trust.carried.carried`
run.json     all that is needed to run it again: `testbed.report.run_json`
traces/*     what happened when, for Perfetto, of the first point of each workload, scheme and transport:
             `testbed.report.chrome_trace`
report.html  the report; it and the plots (``*.png``, or as asked ``*.pdf`` and ``*.svg``) are written when
             the run ends, however it ends
SHA256SUMS   the checksum of every other file: `testbed.report.checksums`
============ ====================================================================================

`docs/reference/results.md` has every column. `RunDirectory` is that for any run; the class derived from it
for a kind of run says what a result's rows and records are, and what the report says.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

import pandas as pd

from testbed.experiment.experiment import Experiment
from testbed.experiment.repetitions import check_named_apart
from testbed.machine.files import GrowingFile, directory_lock, exists, make_directory, remove, write_whole
from testbed.machine.processes import PROCESSES, interrupt_deferred
from testbed.report.checksums import SUMS
from testbed.report.claims import Claim, under_each_transport
from testbed.report.csv_text import csv_text
from testbed.report.faults import fault_sheets, fault_table
from testbed.report.finished import Finished, finished
from testbed.report.kept_points import FOLDER, TRACES, KeptFiles, KeptPoints
from testbed.report.order import order_sheets
from testbed.report.page import Findings, Format, Page, apart, slug
from testbed.report.rows import GrowingTable
from testbed.report.run_json import Known, RunRecord, congestion_of, planned_lines, run_json
from testbed.report.slow_links import slow_text
from testbed.report.transports import alike_text, choices_text, transport_sheets
from testbed.trust.outcome import Outcome, summary_row
from topologies.errors import MachineError, ScenarioError

WRITTEN = (
    "run.json",
    SUMS,
    "faults.csv",
    "nodes.csv",
    "records.csv",
    "summary.csv",
    "summary.parquet",
    "points/*",
    "wire.csv",
    "report.html",
    "*.png",
    "*.pdf",
    "*.svg",
    "traces/*",
    "parts/*",
)
"""What is written, as in the table above: nothing of it may be there before."""
RESULTS = Path("results")
"""Where results go by default: in the directory that a run was started in."""
ENTERED: list[Path] = []
"""The directories of runs that this process has begun and not completed; one without results may be gone."""


class RunDirectory(ABC):
    """The directory of a run, from its first point to its report.

    Parameters
    ----------
    run
        What is run; `describe` completes it.
    planned
        The experiments, so that a run that was killed can be repeated too.
    out
        The directory; by default ``<root>/<scenario>/<time>``, with a number behind it where a run
        has started in the same second.
    root
        Of the default.
    jobs
        How many processes draw the report's plots.
    resume
        Whether ``out`` holds the run that is gone on with: its points stay, its tables are written anew.
    plots
        The formats of the plots' files; the report embeds PNGs in any case.

    Raises
    ------
    ScenarioError
        If tables would take different experiments for one with several seeds.
    """

    def __init__(
        self,
        run: RunRecord,
        *,
        planned: Sequence[Experiment] = (),
        out: Path | None = None,
        root: Path = RESULTS,
        jobs: int = PROCESSES,
        resume: bool = False,
        plots: Sequence[Format] = ("png",),
    ) -> None:
        self.run = run
        """What is run, as far as it is known."""
        check_named_apart(planned)
        self._out, self._root, self._resume = out, root, resume
        self._experiments = {experiment.key: experiment for experiment in planned}
        self._tables: dict[str, GrowingFile] = {}
        """The tables of this run's rows, by name: they have their places when it closes."""
        self._planned = planned_lines(planned)
        """As run.json has them: a run is described again and again, and experiments take long to write."""
        self._finished: list[str] = []
        self._processes, self._formats = jobs, plots
        self._rows = GrowingTable()
        self._path: Path | None = None
        self._ends = ExitStack()
        self._page: Page | None = None
        """The content of its report, once there is one."""
        self._written = Path()
        """Where its report is, wherever the process goes then."""

    @abstractmethod
    def page(self) -> Page:
        """Return the report of all that was written."""

    @property
    def path(self) -> Path:
        """Where it is; there is one between entering and leaving, and after."""
        if self._path is None:
            raise ScenarioError("the results have no directory yet", "enter them with `with`")
        return self._path

    @property
    def table(self) -> pd.DataFrame:
        """The summary so far, a row per outcome."""
        return self._rows.table

    def _repr_html_(self) -> str | None:
        """Return the HTML that a notebook shows of it; None, so its `repr`, before there is a report."""
        from testbed.report.report_html import notebook_html  # here as in `_close`

        return None if self._page is None else notebook_html(self._page, self.path, self._written)

    def __enter__(self) -> Self:
        """Make the directory, so that a run that could not write ends before it starts."""
        if self._path is not None:
            raise ScenarioError(f"{self._path} was entered twice", "make a new ResultsDirectory per run")
        self._path = self._directory()
        self._ends.enter_context(directory_lock(self._path))
        try:
            self._check_free()
            files = KeptFiles(self._path)
            files.begin()
            files.remove_begun()
            self._write_run()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        ENTERED.append(self._path)  # now: what is refused here has not begun
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Draw the plots and write the report of all that was finished, also after an error."""
        try:
            if self._rows:
                self._close()
            elif error is not None:
                self._forget()
        finally:
            self._ends.close()

    def _forget(self) -> None:
        """Leave nothing of a run without results, unless another can go on with its points."""
        if self._resume or exists(self.path / FOLDER):
            return
        remove(self.path / "run.json")
        remove(self.path / "summary.csv")
        for folder in (self.path, *([self.path.parent, self._root] if self._out is None else [])):
            with suppress(MachineError):  # something else is in it
                remove(folder)

    def describe(self, **known: Unpack[Known]) -> None:
        """Record what is known only once the network stands."""
        self.run = replace(self.run, **known)
        self._write_run()

    def write(
        self,
        rows: Sequence[Mapping[str, object]],
        *,
        tables: Mapping[str, pd.DataFrame] | None = None,
        experiment: Experiment | None = None,
    ) -> None:
        """Write a result: its rows of the summary, of other tables by name, its experiment as finished."""
        for name, table in (tables or {}).items():
            self._append(name, csv_text(table))
        self._write_rows(rows, experiment)

    def _write_rows(self, rows: Sequence[Mapping[str, object]], experiment: Experiment | None) -> None:
        self._rows.append(rows, self.path / "summary.csv")
        if experiment is not None:
            if experiment.key not in self._experiments:
                self._experiments[experiment.key] = experiment
                self._planned = planned_lines(list(self._experiments.values()))
                self._write_run()
            self._finished.append(experiment.key)

    def _append(self, name: str, text: str) -> None:
        """Append the rows of a table, CSV with a header, which its first ones keep."""
        if name in self._tables:
            self._tables[name].append(text.partition("\n")[2])
        else:
            growing = GrowingFile(self.path / f"{name}.csv")
            self._tables[name] = self._ends.enter_context(growing)
            self._tables[name].append(text)

    def _directory(self) -> Path:
        """Make the directory, or take the one that is there."""
        if self._resume and self._out:
            return self._out
        if self._out is None:
            return directory_by_time(self.run.scenario, self.run.started, self._root)
        return directory_asked_for(self._out)

    def _check_free(self) -> None:
        """Raise MachineError if a directory has the place of a file, before anything is carried out."""
        for file in (self.path / name for name in WRITTEN if "*" not in name):
            if file.is_dir() and not file.is_symlink():
                raise MachineError(f"{file} is a directory, where a file is written", "remove it")

    def _write_run(self) -> None:
        write_whole(self.path / "run.json", run_json(self.run, self._planned))

    def _close(self) -> None:
        # Here: matplotlib takes longer to import than a dry run takes.
        from testbed.report.pages import drawn
        from testbed.report.report_html import report_html

        self._write_run()
        self._rows.write(self.path / "summary.csv")
        for table in self._tables.values():
            table.place()
        page = self.page()
        plots = apart([*page.fabrics, *page.plots])
        first = len(page.fabrics)
        page = replace(page, fabrics=plots[:first], plots=plots[first:])
        images = drawn(plots, tuple(dict.fromkeys(("png", *self._formats))), self._processes)
        for form in self._formats:
            for name, image in images[form].items():
                write_whole(self.path / f"{name}.{form}", image)
        unfinished = len(self._experiments) - len(set(self._finished))
        write_whole(self.path / "report.html", report_html(page, images["png"], unfinished))
        tables = [f"{name}.csv" for name in self._tables]
        there = {file for pattern in (*WRITTEN, *tables) for file in self.path.glob(pattern)}
        self._page, self._written = page, self.path.absolute()
        KeptFiles(self.path).close(each for each in there if each.name != SUMS and each.name[0] != ".")
        if not unfinished and self.path in ENTERED:
            ENTERED.remove(self.path)


class ResultsDirectory(RunDirectory):
    """The directory of a run of experiments.

    Parameters
    ----------
    run, planned, out, root, jobs, resume, plots
        As of `RunDirectory`.
    claims
        What judges the claims that the summary of one transport can be held against; by default there
        are none.
    findings
        What the scenario has to say of the outcomes itself; by default nothing.
    parameters
        What a study varies in a point: more columns of its row.

    Examples
    --------
    >>> with ResultsDirectory(run, planned=experiments) as results:  # doctest: +SKIP
    ...     for experiment in experiments:
    ...         results.add(emulate(experiment))
    """

    def __init__(
        self,
        run: RunRecord,
        *,
        planned: Sequence[Experiment] = (),
        out: Path | None = None,
        root: Path = RESULTS,
        claims: Callable[[pd.DataFrame], list[Claim]] = lambda _table: [],
        findings: Callable[[Sequence[Outcome]], Findings] = lambda _outcomes: Findings(),
        parameters: Callable[[Experiment], Mapping[str, object]] = lambda _experiment: {},
        resume: bool = False,
        jobs: int = PROCESSES,
        plots: Sequence[Format] = ("png",),
    ) -> None:
        super().__init__(run, planned=planned, out=out, root=root, jobs=jobs, resume=resume, plots=plots)
        self.outcomes: list[Outcome] = []
        """What was added."""
        self.judged: list[Claim] = []
        """What the summary says of claims under each transport; none before the report is written."""
        self.found = Findings()
        """What the scenario says itself; nothing before the report is written."""
        self._claims, self._findings, self._parameters = claims, findings, parameters
        self._traced = set[Path]()

    def __enter__(self) -> Self:
        """Make the directory, as of `RunDirectory`, and its place for points."""
        super().__enter__()
        self.kept = KeptPoints(self.path)
        """The points that are there, of this run or of the one that it goes on with."""
        return self

    def add(self, outcome: Outcome) -> None:
        """Write an outcome: its records, its nodes, its row of the summary, its experiment.

        Raises
        ------
        ScenarioError
            If tables would take it and another experiment for one with several seeds.
        """
        self.add_finished(outcome.experiment, finished(outcome, traced=self.wants_trace(outcome.experiment)))

    def add_finished(self, experiment: Experiment, point: Finished) -> None:
        """Write a point that a worker has finished; errors as of `add`."""
        if experiment.key not in self._experiments:
            check_named_apart([*self._experiments.values(), experiment])
        with interrupt_deferred():  # or the report's outcomes and rows would not be the same
            self.kept.write(experiment, point)
            if point.trace:
                file = self._trace_file(experiment)
                make_directory(file.parent)
                write_whole(file, point.trace)
            self._take(self.kept.outcome(experiment), point)

    def _take(self, outcome: Outcome, point: Finished) -> None:
        experiment = outcome.experiment
        self.outcomes.append(outcome)
        for name, text in point.texts.items():
            self._append(name, text)
        if outcome.inert:
            under = f"{experiment.name}, {experiment.transport_name}"
            self.run = replace(self.run, inert={**self.run.inert, under: outcome.inert})
        if known := congestion_of(outcome):
            words = experiment.job.name, experiment.name, experiment.transport_name, f"seed {experiment.seed}"
            congestion = {**self.run.congestion, ", ".join(words): known}
            self.run = replace(self.run, congestion=congestion)
        self._write_rows([self._row(point.row, experiment)], experiment)

    def _row(self, row: Mapping[str, object], experiment: Experiment) -> Mapping[str, object]:
        """Return a row with a study's own parameters behind it, but for those that it says already."""
        own = self._parameters(experiment)
        return {**row, **{name: value for name, value in own.items() if name not in row}}

    def wants_trace(self, experiment: Experiment) -> bool:
        """Return whether a point's trace is kept: of one seed, since all seeds' would be too much."""
        file = self._trace_file(experiment)
        wanted = file not in self._traced
        self._traced.add(file)
        return wanted

    def _trace_file(self, experiment: Experiment) -> Path:
        words = experiment.job.name, experiment.name, experiment.transport_name
        return self.path / TRACES / f"{slug(*words)}.json.gz"

    def _close(self) -> None:
        write_whole(self.path / "summary.parquet", self.table.to_parquet())
        if not (faults := fault_table(self.outcomes)).empty:
            write_whole(self.path / "faults.csv", csv_text(faults))
        super()._close()

    def judge_again(self, since: int, again: Callable[[Outcome], Outcome]) -> None:
        """Replace the outcomes from a number on by what is known of them now, and write their rows anew."""
        self.outcomes[since:] = map(again, self.outcomes[since:])
        for outcome in self.outcomes[since:]:
            self.kept.judge(outcome)
        if len(self.outcomes) == since:
            return
        rows = [self._row(summary_row(each), each.experiment) for each in self.outcomes[since:]]
        self._rows.replace(since, rows, self.path / "summary.csv")

    def page(self) -> Page:
        """Return the report of the outcomes."""
        from testbed.report.pages import fabric_plots, page_of  # here as in `_close`

        found = self.found = self._findings(self.outcomes)
        self.judged = [*under_each_transport(self._claims, self.table), *found.claims]
        page = page_of(self.run, self.outcomes, self.table, self.judged)
        fabrics = list(dict.fromkeys(each.experiment.fabric for each in self.outcomes))
        slow = slow_text(set(fabrics))
        texts = [page.results.caption, alike_text(self.run.alike), choices_text(self.table), slow]
        said = " ".join(filter(None, texts))
        of_kind = [replace(page.results, caption=said)]
        first, *more = [*found.sheets, *of_kind] if found.leads else [*of_kind, *found.sheets]
        more += [*page.more, *transport_sheets(self.outcomes)]
        more += [*order_sheets(self.table), *fault_sheets(self.outcomes)]
        plots = [*found.plots, *page.plots]
        return replace(page, results=first, more=more, plots=plots, fabrics=fabric_plots(fabrics))


def directory_by_time(name: str, started: datetime, root: Path = RESULTS) -> Path:
    """Make a directory named by the time at which a run started, below one named by what ran."""
    stamp = started.strftime("%Y-%m-%dT%H-%M-%S")
    names = (stamp if number == 1 else f"{stamp}.{number}" for number in count(1))
    return next(path for each in names if make_directory(path := root / name / each))


def directory_asked_for(out: Path, written: Sequence[str] = WRITTEN) -> Path:
    """Make a directory that somebody asked for, or take the one that is there.

    Raises
    ------
    ScenarioError
        If it is not a directory, or holds a file of those that a run writes, given as patterns.
    """
    hint = "choose another directory with --out"
    if not make_directory(out) and not out.is_dir():
        raise ScenarioError(f"{out} is not a directory", hint)
    there = sorted(path.name for pattern in written for path in out.glob(pattern))
    if "run.json" in there:
        raise ScenarioError(f"{out} holds the results of another run", hint)
    if there:
        raise ScenarioError(f"{out} has {there[0]}, which a run could overwrite", hint)
    return out
