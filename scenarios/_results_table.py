"""The table of a run's results for the terminal."""

from rich.table import Table

from scenarios._output import sheet_table
from testbed.report.collective_report import links_text
from testbed.report.node_report import node_sheet
from testbed.report.ocs_report import executions_table
from testbed.report.results import ResultsDirectory
from testbed.report.ring_report import ring_sheet
from testbed.report.table import summary_table


def results_table(results: ResultsDirectory) -> Table:
    """Return the table of a run's results for the terminal, as its kind has it."""
    if results.run.report == "nodes":
        return sheet_table(node_sheet(results.outcomes))
    if results.run.report == "rings":
        return sheet_table(ring_sheet(results.outcomes))
    if results.run.report == "circuits":
        return executions_table(results.table)
    return summary_table(
        results.table, baseline=results.run.baseline, note=links_text(results.outcomes[0].experiment.fabric)
    )
