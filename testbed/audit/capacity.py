"""Whether a link could have carried what it is said to have carried: earliest deadline first.

What crossed a link are jobs for a machine: each may begin when its bytes were released, and was done when
the last of them arrived. If any order of work is in time, earliest deadline first is (Horn 1974), so what it
misses nothing can have done: there is no false alarm.

Time is counted in the bytes that the link could have carried by then, in which it works at rate 1, whatever
its rate over time; a token bucket that lends so many bytes makes all deadlines later by as many.
"""

import heapq
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

ROUNDING = 1e-6
"""How much more may be done in time, as a part of a job and beside a byte: for times and sums are rounded."""


def first_missed(
    released: NDArray[np.float64], due: NDArray[np.float64], sizes: NDArray[np.float64]
) -> int | None:
    """Return the number of the first job that no order of work can have done in time; None if there is none.

    Parameters
    ----------
    released, due
        What the link could have carried when each job may begin, and when it was done; shape (jobs,).
    sizes
        The bytes of each.

    Notes
    -----
    O(k log k) for k jobs.
    """
    order = np.argsort(released, kind="stable").tolist()
    deadline = (due + ROUNDING * sizes + 1).tolist()
    begins, left = released.tolist(), sizes.tolist()
    waiting: list[tuple[float, int]] = []
    now = 0.0
    for job, then in pairwise([*order, None]):
        assert job is not None
        heapq.heappush(waiting, (deadline[job], job))
        now, until = max(now, begins[job]), float("inf") if then is None else begins[then]
        while waiting and now < until:
            end, first = waiting[0]
            done = min(left[first], until - now)
            now, left[first] = now + done, left[first] - done
            if now > end:
                return first
            if left[first] <= 0:
                heapq.heappop(waiting)
    return None
