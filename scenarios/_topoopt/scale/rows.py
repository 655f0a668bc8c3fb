"""The numbers that figures of simulations read from rows of points, and how they judge and draw them."""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from testbed.report.claims import Claim, Range, predicted

MS = 1e3
ALIKE: Range = (0.90, 1.10)
FIGURE = "TopoOpt, Figure {}"
"""The source of a claim."""
Ratios = Mapping[float, float]


def times(table: pd.DataFrame, model: str, fabric: str, degree: int) -> Ratios:
    """Return the iteration times of section 5.3 by the rate of an interface [s]."""
    own = table[
        (table["model"] == model)
        & (table["fabric"] == fabric)
        & (table["degree"] == degree)
        & (table["section"].astype(str) == "5.3")
        & (table["delay_s"] == 10e-3)
        & table["forwards"].astype(bool)
    ]
    return dict(zip(own["rate_bps"], own["iteration_s"], strict=True))


def mean_ratio(one: Ratios, other: Ratios) -> float:
    """Return the mean of a ratio over the rates that both have; NaN if there are none."""
    common = one.keys() & other.keys()
    return float(np.mean([one[rate] / other[rate] for rate in common])) if common else math.nan


def figure_claim(text: str, figure: str, expected: Range, predicted_value: float) -> Claim:
    """Return a claim of a figure beside what is predicted; one whose points are not there was not run."""
    return predicted(text, FIGURE.format(figure), expected, predicted_value)
