"""Studies of many points: predicted by two processes, kept as they come, and taken from an earlier run."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from scenarios._topoopt.costs import cost_table
from scenarios._topoopt.fabrics import OCS_RECONFIG, SIP_ML
from scenarios._topoopt.scale_points import ScalePoint, Setting, row_of
from testbed.machine.processes import in_processes
from testbed.report.page import Findings, Page
from testbed.report.results import RunDirectory
from testbed.report.run_json import Run
from topologies.errors import ScenarioError

POINT = [field.name for field in fields(ScalePoint)]
"""The columns of a summary that say which point it is."""
Row = dict[str, object]


class PointResults(RunDirectory):
    """The directory of a study: a row of ``summary.csv`` per point.

    Parameters
    ----------
    run, out
        As of `RunDirectory`.
    findings
        What the rows say, when all are there or the run ends.
    """

    def __init__(self, run: Run, findings: Callable[[pd.DataFrame], Findings], *, out: Path | None) -> None:
        super().__init__(run, out=out)
        self._findings = findings
        self.found = Findings()
        """What the study says; nothing before its report is written."""

    def add(self, point: ScalePoint, row: Row, seed: int) -> None:
        """Write a point."""
        self.write([{**asdict(point), **row, "seed": seed, "verdict": "model"}])

    def add_costs(self) -> None:
        """Write what interconnects cost, ``costs.csv``, which needs no point."""
        self.write([{"model": pd.NA, "seed": pd.NA, "verdict": "model"}], tables={"costs": cost_table()})

    def page(self) -> Page:
        """Return the report of all points that are there."""
        points = self.table[self.table["model"].notna()]
        self.found = self._findings(points)
        sheets = self.found.sheets
        return Page(
            run=self.run,
            sentence=f"{self.run.title}: {len(points)} iterations by the fluid model. Nothing was sent.",
            table=self.table,
            results=sheets[0],
            claims=self.found.claims,
            plots=self.found.plots,
            definitions=(),
            files="summary.csv has a row per point with what was predicted, costs.csv what fabrics cost.",
            more=sheets[1:],
        )


def kept_rows(directory: Path | None, setting: Setting) -> dict[ScalePoint, Row]:
    """Return the rows of a run that was cut off, by their points; none without one.

    Raises
    ------
    ScenarioError
        If it has no summary of such points, or another setting.
    """
    if directory is None:
        return {}
    try:
        table = pd.read_csv(directory / "summary.csv")
        rows = {_point(row): row for row in table[table["model"].notna()].to_dict("records")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ScenarioError(
            f"{directory} has no points to go on from: {error}", "give the results directory of such a run"
        ) from error
    keys = ("budget", "seed", "rule", "fat_tree_bps")
    known = {tuple(row.get(key) for key in keys) for row in rows.values()}
    if known - {(setting.budget, setting.seed, setting.rule, setting.fat_tree_bps)}:
        raise ScenarioError(
            f"the points in {directory} are of another budget, seed or rule", "give the same, or begin anew"
        )
    return {point: {str(k): v for k, v in row.items() if k not in POINT} for point, row in rows.items()}


def predicted(
    points: Sequence[ScalePoint], setting: Setting, known: dict[ScalePoint, Row]
) -> Iterator[tuple[ScalePoint, Row]]:
    """Yield what the prediction of each point says, behind a progress bar; what is known is not predicted."""
    distinct = list(dict.fromkeys(points))
    yield from ((point, known[point]) for point in distinct if point in known)
    # Points of one network follow each other, so that a process searches its strategies once; those whose
    # circuits follow demand take longest and come last, since rows are written in this order.
    left = sorted(
        (point for point in distinct if point not in known),
        key=lambda p: (p.fabric in (OCS_RECONFIG, SIP_ML), p.model, p.degree, p.rate_bps),
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        in_processes(partial(row_of, setting), left) as found,
        Progress(*columns, console=Console(stderr=True), transient=True) as progress,
    ):
        tracked = progress.track(found, total=len(left), description="predict iterations")
        yield from zip(left, tracked, strict=True)


def _point(row: Mapping[Hashable, object]) -> ScalePoint:
    """Return the point of a row; a section is read as a number, as is what stands beside empty cells."""
    cells = {str(name): str(value) for name, value in row.items()}
    return ScalePoint(
        model=cells["model"],
        fabric=cells["fabric"],
        degree=round(float(cells["degree"])),
        rate_bps=float(cells["rate_bps"]),
        section=cells["section"],
        batch=round(float(cells["batch"])),
        delay_s=float(cells["delay_s"]),
        forwards=cells["forwards"] == "True",
        servers=round(float(cells["servers"])),
    )
