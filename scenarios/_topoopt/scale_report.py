"""What predicted iterations say: a table, a plot and claims per figure of section 5."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pandas as pd

from scenarios._topoopt.scale_batches import all_to_all
from scenarios._topoopt.scale_costs import costs
from scenarios._topoopt.scale_delays import delays
from scenarios._topoopt.scale_sweeps import degrees, swept
from testbed.report.page import Findings

REPORTS: Mapping[str, Callable[[pd.DataFrame], Findings]] = {
    "11": partial(swept, degree=4, figure="11"),
    "12": all_to_all,
    "17": delays,
    "27": partial(swept, degree=8, figure="27"),
    "28": degrees,
}
"""By figure; 12 has what 13, 14 and 15 show too."""


def scale_findings(figures: Sequence[str], table: pd.DataFrame) -> Findings:
    """Return what the rows of `scale_study.PointResults` say of some figures, and the costs of Figure 10."""
    parts = [costs()] if "10" in figures else []
    parts += [REPORTS[figure](table) for figure in figures if figure in REPORTS and len(table)]
    return Findings(
        [sheet for part in parts for sheet in part.sheets],
        [plot for part in parts for plot in part.plots],
        [claim for part in parts for claim in part.claims],
    )
