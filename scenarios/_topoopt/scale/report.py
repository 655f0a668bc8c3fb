"""The findings of predicted iterations: a table, a plot and claims per figure of section 5."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial

import pandas as pd

from scenarios._topoopt.costs import cost_table
from scenarios._topoopt.scale.batches import all_to_all
from scenarios._topoopt.scale.costs import costs
from scenarios._topoopt.scale.delays import delays
from scenarios._topoopt.scale.points import ScalePoint
from scenarios._topoopt.scale.sweeps import degrees, swept
from testbed.report.page import Findings
from testbed.study.computed import ComputedReport, Found

COSTS = "10"
REPORTS: Mapping[str, Callable[[pd.DataFrame], Findings]] = {
    "11": partial(swept, degree=4, figure="11"),
    "12": all_to_all,
    "17": delays,
    "27": partial(swept, degree=8, figure="27"),
    "28": degrees,
}
"""By figure; 12 has what 13, 14 and 15 show too."""


def scale_report(
    figures: Sequence[str], seed: int, points: Sequence[ScalePoint], found: Found
) -> ComputedReport:
    """Return the report of points: a row each, and the costs of interconnects, which need none.

    Parameters
    ----------
    figures
        What is reported of them.
    seed, points
        What was predicted.
    found
        The row of each.
    """
    about = {"seed": seed, "verdict": "model"}
    rows = [{**asdict(point), **row, **about} for point, row in zip(points, found, strict=True)]
    without_point = [{"model": pd.NA, "seed": pd.NA, "verdict": "model"}] if COSTS in figures else []
    return ComputedReport(
        f"TopoOpt at scale: {len(rows)} iterations by the fluid model. Nothing was sent.",
        scale_findings(figures, pd.DataFrame(rows)),
        [*without_point, *rows],
        "summary.csv has a row per point with what was predicted, costs.csv what fabrics cost.",
        {"costs": cost_table()} if COSTS in figures else {},
    )


def scale_findings(figures: Sequence[str], table: pd.DataFrame) -> Findings:
    """Return the findings of some figures from the rows of points, and the costs of Figure 10."""
    parts = [costs()] if COSTS in figures else []
    parts += [REPORTS[figure](table) for figure in figures if figure in REPORTS and len(table)]
    return Findings(
        [sheet for part in parts for sheet in part.sheets],
        [plot for part in parts for plot in part.plots],
        [claim for part in parts for claim in part.claims],
    )
