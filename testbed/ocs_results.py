"""What runs over parallel OCSes leave behind, executed or only planned: `testbed.results` for both."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from testbed.claims import Claim
from testbed.claims_circuits import circuit_claims
from testbed.ocs_outcome import BIG_SWITCH, Executed, executed_row, switched_row
from testbed.ocs_report import circuit_page
from testbed.outcome import Outcome
from testbed.report import Page
from testbed.results import RESULTS, RunDirectory, records_table
from testbed.run import Planned, Run
from testbed.sweep_report import sweep_page


class CircuitResults(RunDirectory):
    """The directory of a run that executes schedules; parameters as of `ResultsDirectory`."""

    def __init__(
        self,
        run: Run,
        *,
        planned: Sequence[Planned] = (),
        out: Path | None = None,
        root: Path = RESULTS,
        claims: Callable[[pd.DataFrame], list[Claim]] = circuit_claims,
    ) -> None:
        super().__init__(run, planned=planned, out=out, root=root)
        self._claims = claims
        self._results: list[Executed] = []

    def add(self, result: Executed) -> None:
        """Write an execution: its records, its row of the summary, its experiment."""
        self._results.append(result)
        records, experiment = records_table(result.outcome), result.execution.experiment
        self.write([executed_row(result)], records=records, experiment=experiment)

    def add_big_switch(self, outcome: Outcome, ocses: int) -> None:
        """Write what one packet switch does in the place of some OCSes, of which there is an execution."""
        records = records_table(outcome).assign(scheme=BIG_SWITCH)
        self.write([switched_row(outcome, ocses)], records=records, experiment=outcome.experiment)

    def page(self) -> Page:
        """Return the report of the executions."""
        return circuit_page(self.run, self._results, self.table, self._claims(self.table))


class SweepResults(RunDirectory):
    """The directory of a run that plans and sends nothing."""

    def add(self, table: pd.DataFrame) -> None:
        """Write a table of `testbed.ocs_sweep`: its rows are the summary."""
        rows = table.assign(verdict="model").to_dict("records")
        self.write([{str(name): value for name, value in row.items()} for row in rows])

    def page(self) -> Page:
        """Return the report of the plans."""
        return sweep_page(self.run, self.table)
