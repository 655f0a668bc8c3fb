"""Measures that tell congestion controls apart: completions, fairness, what was marked and resent."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from testbed.trust.outcome import Outcome, summary_row
from traffic.clock import SECOND
from traffic.flow_measures import first_completion_s, jain_index, late_completion_s, p99_completion_s
from traffic.tables import Tables


def table_of(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Return the summary of outcomes with the measures of their flows as columns."""
    return pd.DataFrame([{**summary_row(each), **_measures(each)} for each in outcomes])


def _measures(outcome: Outcome) -> dict[str, float]:
    """Return the measures of an outcome: those of times over its bound too; NaN where it is unsound."""
    found = flow_measures(outcome.run.tables)
    if not outcome.is_sound:
        found = dict.fromkeys(found, math.nan)
    over = {f"{name}_over_bound": found[f"{name}_s"] / outcome.bound_s for name in ("first", "p99")}
    return {**found, **over}


def flow_measures(tables: Tables) -> dict[str, float]:
    """Return the measures of a run in which each message is a flow; NaN where one is not known.

    Returns
    -------
    dict
        first_s, p99_s, late_mean_s, as of `traffic.flow_measures` [s]; jain, the index over the bytes that
        had arrived of each flow when the first ended; marked_share, the share of packets that were marked;
        resent, the packets that were sent again.
    """
    first_s, sources = first_completion_s(tables), tables.sources
    acknowledged = int(sources["acknowledged"].sum())
    return {
        "first_s": first_s,
        "p99_s": p99_completion_s(tables),
        "late_mean_s": late_completion_s(tables),
        "jain": jain_index(delivered_bytes(tables, first_s)),
        "marked_share": int(sources["marked"].sum()) / acknowledged if acknowledged else math.nan,
        "resent": int(sources["resent"].sum()) if acknowledged else math.nan,
    }


def delivered_bytes(tables: Tables, after_s: float) -> NDArray[np.float64]:
    """Return the bytes of each source that had arrived some time after the first message was released.

    Sources that had nothing to send by then are left out. It is as of the first sample from then on: the
    engine takes one when a message ends.
    """
    flows = tables.flows
    at_ps = tables.messages["released_ps"].min() + after_s * SECOND
    sampled_ps = flows.loc[flows["at_ps"] >= round(at_ps), "at_ps"].min() if len(flows) else math.nan
    by_then = flows[flows["at_ps"] <= sampled_ps].groupby("source")["delivered_bytes"].max()
    return np.asarray(by_then, dtype=float)
