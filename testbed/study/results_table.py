"""The table of a run's results for the terminal."""

from collections.abc import Iterator

from rich.table import Table

from testbed.machine.datapath import Datapath
from testbed.report.collective_report import links_text
from testbed.report.doubts import doubts
from testbed.report.means import transports_of
from testbed.report.node_report import node_sheet
from testbed.report.ocs_report import executions_table
from testbed.report.order import order_text
from testbed.report.results import ResultsDirectory
from testbed.report.ring_report import ring_sheet
from testbed.report.table import summary_table
from testbed.report.transports import alike_text, choices_text, clairvoyant_text
from testbed.study.output import sheet_table

SAID = ("nodes", "rings")
"""The reports whose blocks say why a point is not faithful."""
USUAL: Datapath = "netdev"
"""The datapath that forwards unless another is named."""


def results_table(results: ResultsDirectory) -> Table:
    """Return the table of a run's results for the terminal, as its kind has it, with what it leaves out.

    Below stand the notes of traces, why points are not faithful, and what to do; blocks of nodes and rings
    have that themselves.
    """
    shown = _of_kind(results)
    table = results.table
    said = [
        str(shown.caption),
        f"Datapath: {results.run.datapath}." if results.run.datapath != USUAL else "",
        clairvoyant_text(transports_of(table)),
        alike_text(results.run.alike),
        choices_text(table),
        order_text(table),
    ]
    judged = [] if results.run.report in SAID else [each.verdict for each in results.outcomes]
    shown.caption = "\n".join([" ".join(filter(None, said)), *_notes(results), *doubts(judged)])
    return shown


def _notes(results: ResultsDirectory) -> Iterator[str]:
    """Yield each note of workloads that neither the table nor one of the scenario's own has."""
    if results.run.report == "rings":
        return
    shown = {block.note for sheet in results.found.sheets for block in sheet.blocks}
    for note in dict.fromkeys(outcome.experiment.job.note for outcome in results.outcomes):
        if note and note not in shown and not note.startswith("synthetic"):
            yield note


def _of_kind(results: ResultsDirectory) -> Table:
    if results.run.report == "nodes":
        return sheet_table(node_sheet(results.outcomes))
    if results.run.report == "rings":
        return sheet_table(ring_sheet(results.outcomes))
    if results.run.report == "circuits":
        return executions_table(results.table)
    return summary_table(
        results.table, baseline=results.run.baseline, note=links_text(results.outcomes[0].experiment.fabric)
    )
