"""What a run leaves behind that plans the paper's figures and sends nothing."""

import pandas as pd

from scenarios._spectra.sweep_report import sweep_page
from testbed.report.page import Page
from testbed.report.results import RunDirectory


class SweepResults(RunDirectory):
    """The directory of a run that plans and sends nothing."""

    def add(self, table: pd.DataFrame) -> None:
        """Write a table of `scenarios._spectra.ocs_sweep`: its rows are the summary."""
        rows = table.assign(verdict="model").to_dict("records")
        self.write([{str(name): value for name, value in row.items()} for row in rows])

    def page(self) -> Page:
        """Return the report of the plans."""
        return sweep_page(self.run, self.table)
