"""From a run's outcomes to its report: the page of its kind, its plots drawn, one HTML file."""

from collections.abc import Sequence
from functools import partial

import pandas as pd

from testbed.machine.processes import PROCESSES, in_processes
from testbed.report.claims import Claim
from testbed.report.collective_report import collective_page
from testbed.report.fabric_drawing import fabric_caption, fabric_figure
from testbed.report.images import image_of
from testbed.report.node_report import node_page
from testbed.report.ocs_report import circuit_page
from testbed.report.page import Format, Page, Plot
from testbed.report.ring_report import ring_page
from testbed.report.run_json import RunRecord
from testbed.trust.outcome import Outcome
from topologies.fabric import Fabric

PAGES = {"schemes": collective_page, "circuits": circuit_page, "nodes": node_page, "rings": ring_page}
"""What makes the report of each kind (`testbed.report.run_json.Kind`)."""

MOST_FABRICS = 4
"""Drawn of a run's fabrics: the first ones; run.json has all."""


def page_of(
    run: RunRecord, outcomes: Sequence[Outcome], table: pd.DataFrame, judged: Sequence[Claim]
) -> Page:
    """Return the report of a run's kind."""
    return PAGES[run.report](run, outcomes, table, judged)


def fabric_plots(fabrics: Sequence[Fabric]) -> list[Plot]:
    """Return the drawings of a run's fabrics, each wiring once, and no more than a page has room for."""
    wirings = {
        (
            fabric.name,
            fabric.servers,
            fabric.switches,
            *((link.a, link.b, link.rate_bps) for link in fabric.links),
        ): fabric
        for fabric in fabrics
    }
    return [
        Plot("fabric", partial(fabric_figure, fabric), fabric_caption(fabric))
        for fabric in [*wirings.values()][:MOST_FABRICS]
    ]


def drawn(
    plots: Sequence[Plot], formats: Sequence[Format], jobs: int = PROCESSES
) -> dict[Format, dict[str, bytes]]:
    """Return the images of plots in each format, by their names; so many processes draw."""
    with in_processes(partial(_drawn, formats), plots, jobs) as images:
        by_plot = dict(zip([plot.name for plot in plots], images, strict=True))
    return {form: {name: some[form] for name, some in by_plot.items()} for form in formats}


def _drawn(formats: Sequence[Format], plot: Plot) -> dict[Format, bytes]:
    figure = plot.draw()
    return {form: image_of(figure, form) for form in formats}
