"""What a run leaves behind: a directory that is valid after every point, closed by plots and a report.

============ ====================================================================================
file         what it holds
============ ====================================================================================
records.csv  a row per message and backend: workload, scheme, seed, backend, then `traffic.records`
summary.csv  a row per point: `testbed.outcome.summary`
run.json     all that is needed to run it again: `testbed.run`
report.html  the report; it and the plots (``*.png``) are written when the run ends, however it ends
============ ====================================================================================
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import pandas as pd

from testbed.claims import Claim
from testbed.claims_rails import rails_claims
from testbed.experiment import Experiment
from testbed.figures import figures, png_of
from testbed.files import append_whole, make_directory, write_whole
from testbed.outcome import Outcome, summary_row
from testbed.report import report_html
from testbed.run import Run, run_json
from topologies.errors import ScenarioError

RESULTS = Path(__file__).parent.parent / "results"
"""Where results go unless told otherwise: beside the rooms."""


class ResultsDirectory:
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
    claims
        What finds the claims that a summary can be held against.

    Examples
    --------
    >>> with ResultsDirectory(run, planned=experiments) as results:  # doctest: +SKIP
    ...     for experiment in experiments:
    ...         results.add(emulate(experiment))
    """

    def __init__(
        self,
        run: Run,
        *,
        planned: Sequence[Experiment] = (),
        out: Path | None = None,
        root: Path = RESULTS,
        claims: Callable[[pd.DataFrame], list[Claim]] = rails_claims,
    ) -> None:
        self.outcomes: list[Outcome] = []
        """What was added."""
        self._run, self._claims, self._out, self._root = run, claims, out, root
        self._experiments = {experiment.key: experiment for experiment in planned}
        self._finished: list[str] = []
        self._rows: list[dict[str, object]] = []
        self._path: Path | None = None

    @property
    def path(self) -> Path:
        """Where it is; there is one between entering and leaving, and after."""
        if self._path is None:
            raise ScenarioError("the results have no directory yet", "enter them with `with`")
        return self._path

    @property
    def table(self) -> pd.DataFrame:
        """The summary so far, a row per outcome."""
        return pd.DataFrame(self._rows)

    def __enter__(self) -> Self:
        """Make the directory, so that a run that could not write ends before it starts."""
        if self._path is not None:
            raise ScenarioError(f"{self._path} was entered twice", "make a new ResultsDirectory per run")
        self._path = _made(self._run, self._root) if self._out is None else _taken(self._out)
        self._write_run()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Draw the plots and write the report of all that was finished, also after an error."""
        if self._rows:
            self._close()
        elif error is not None:
            (self.path / "run.json").unlink()
            if not any(self.path.iterdir()):
                self.path.rmdir()

    def describe(
        self, *, calibration: Mapping[str, object] | None = None, settings: Mapping[str, object] | None = None
    ) -> None:
        """Note what is known only once the network stands; None leaves it as it is."""
        if calibration is not None:
            self._run = replace(self._run, calibration=calibration)
        if settings is not None:
            self._run = replace(self._run, settings=settings)
        self._write_run()

    def add(self, outcome: Outcome) -> None:
        """Write an outcome: its records, its row of the summary, its experiment."""
        key = outcome.experiment.key
        first = not self._rows
        append_whole(self.path / "records.csv", records_table(outcome).to_csv(index=False, header=first))
        self.outcomes.append(outcome)
        self._rows.append(summary_row(outcome))
        self._experiments.setdefault(key, outcome.experiment)
        self._finished.append(key)
        write_whole(self.path / "summary.csv", self.table.to_csv(index=False))
        self._write_run()

    def _write_run(self) -> None:
        text = run_json(self._run, list(self._experiments.values()), self._finished)
        write_whole(self.path / "run.json", text)

    def _close(self) -> None:
        plots = figures(self.outcomes, self.table, self._run.baseline)
        images = {plot.name: png_of(plot.figure) for plot in plots}
        for name, image in images.items():
            write_whole(self.path / f"{name}.png", image)
        unfinished = len(self._experiments) - len(set(self._finished))
        html = report_html(
            run=self._run,
            outcomes=self.outcomes,
            table=self.table,
            claims=self._claims(self.table),
            plots=[(plot, images[plot.name]) for plot in plots],
            unfinished=unfinished,
        )
        write_whole(self.path / "report.html", html)


def records_table(outcome: Outcome) -> pd.DataFrame:
    """Return the records of both backends, with columns that say whose they are."""
    experiment = outcome.experiment
    backends = {"emulated": outcome.records, "predicted": outcome.predicted}
    tables = {name: records for name, records in backends.items() if records is not None}
    rows = pd.concat(tables, names=["backend"]).reset_index(level="backend")
    rows.insert(0, "workload", experiment.collective.name)
    rows.insert(1, "scheme", experiment.policy)
    rows.insert(2, "seed", experiment.seed)
    return rows


def _made(run: Run, root: Path) -> Path:
    """Make a directory named by the time at which the run started."""
    name = run.started.strftime("%Y-%m-%dT%H-%M-%S")
    names = (name if number == 1 else f"{name}.{number}" for number in count(1))
    return next(path for each in names if make_directory(path := root / run.scenario / each))


def _taken(out: Path) -> Path:
    """Make a directory that somebody asked for, or take the one that is there."""
    hint = "choose another directory with --out"
    if not make_directory(out) and not out.is_dir():
        raise ScenarioError(f"{out} is no directory", hint)
    if (out / "run.json").exists():
        raise ScenarioError(f"{out} holds the results of another run", hint)
    return out
