"""From a run's outcomes to its report: the page of its kind, its plots drawn, one HTML file."""

from collections.abc import Sequence

import pandas as pd

from testbed.machine.processes import PROCESSES, in_processes
from testbed.report.claims import Claim
from testbed.report.collective_report import collective_page
from testbed.report.figures import png_of
from testbed.report.node_report import node_page
from testbed.report.ocs_report import circuit_page
from testbed.report.page import Page, Plot
from testbed.report.ring_report import ring_page
from testbed.report.run_json import Run
from testbed.run.outcome import Outcome

PAGES = {"schemes": collective_page, "circuits": circuit_page, "nodes": node_page, "rings": ring_page}
"""What makes the report of each kind (`testbed.report.run_json.Kind`)."""


def page_of(run: Run, outcomes: Sequence[Outcome], table: pd.DataFrame, judged: Sequence[Claim]) -> Page:
    """Return the report of a run's kind."""
    return PAGES[run.report](run, outcomes, table, judged)


def drawn(page: Page, jobs: int = PROCESSES) -> dict[str, bytes]:
    """Return the PNG of each plot of a page, by its name; so many processes draw."""
    with in_processes(_drawn, page.plots, jobs) as images:
        return {plot.name: image for plot, image in zip(page.plots, images, strict=True)}


def _drawn(plot: Plot) -> bytes:
    return png_of(plot.draw())
