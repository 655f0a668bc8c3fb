"""Measures of flows that share a network: when each completes, and how evenly they share.

A flow is a message that crosses the network and was not given up; those inside a server are modelled alone.
What is undefined, as of no flow, is NaN.

References
----------
R. Jain, D. Chiu and W. Hawe, "A quantitative measure of fairness and discrimination for resource allocation
in shared computer systems", DEC-TR-301, 1984.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from traffic.clock import NEVER, SECOND
from traffic.tables import Tables


def completion_times_s(tables: Tables) -> NDArray[np.float64]:
    """Return how long each flow took since its release, in the order of the messages [s]."""
    released_ps, end_ps = _flows_ps(tables)
    return np.asarray((end_ps - released_ps) / SECOND)


def first_completion_s(tables: Tables) -> float:
    """Return when the first flow ended, since the first was released [s]."""
    released_ps, end_ps = _flows_ps(tables)
    return int(end_ps.min() - released_ps.min()) / SECOND if len(end_ps) else math.nan


def p99_completion_s(tables: Tables) -> float:
    """Return the 99th percentile of `completion_times_s` [s]."""
    times_s = completion_times_s(tables)
    return float(np.percentile(times_s, 99)) if len(times_s) else math.nan


def late_completion_s(tables: Tables) -> float:
    """Return the mean of `completion_times_s` over the flows that were released after the first [s].

    Messages of one node are released together; nodes that start at one time are apart by what a live clock
    takes between them.
    """
    released_ps, end_ps = _flows_ps(tables)
    late = released_ps > released_ps.min(initial=NEVER)
    return float((end_ps - released_ps)[late].mean()) / SECOND if late.any() else math.nan


def jain_index(delivered_bytes: ArrayLike) -> float:
    """Return how evenly flows share: 1 is evenly, 1 / n is all for one of n flows.

    Parameters
    ----------
    delivered_bytes
        The bytes of each flow that had arrived by one time, such as the end of the first flow.

    Examples
    --------
    >>> jain_index([5, 5, 5, 5]), jain_index([7, 0])
    (1.0, 0.5)
    """
    delivered = np.asarray(delivered_bytes, dtype=np.float64)
    squares = len(delivered) * float((delivered**2).sum())
    return float(delivered.sum()) ** 2 / squares if squares else math.nan


def _flows_ps(tables: Tables) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return when each flow was released, and when it ended."""
    messages = tables.messages[tables.messages["crosses"] & ~tables.messages["given_up"]]
    return messages["released_ps"].to_numpy(), messages["end_ps"].to_numpy()
