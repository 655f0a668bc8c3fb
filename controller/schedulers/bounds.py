"""Lower bounds on the makespan of any schedule over parallel switches.

Every row and every column must be served by itself: what its entries need, whatever the rest of
the matrix, bounds the makespan from below; the largest bound of a line is that of the matrix.
"""

import numpy as np
from numpy.typing import ArrayLike

from controller.schedulers.demand import Matrix, checked_demand, lines


def makespan_lower_bound(demand: ArrayLike, switches: int, delay: float) -> float:
    """Return the larger of both lower bounds; 0 for a demand of nothing.

    With ``delay=0`` it is the time that one big packet switch of all the NICs' rate would need.

    References
    ----------
    Spectra, section IV, property 2.
    """
    matrix = checked_demand(demand, switches, delay)
    sorted_lines = lines(matrix)
    entries = np.count_nonzero(sorted_lines, axis=1)
    busy, exact = sorted_lines[entries > 0], sorted_lines[entries == switches]
    first = lower_bound_1(busy, switches, delay).max(initial=0.0)
    second = lower_bound_2(exact, switches, delay).max(initial=0.0)
    return float(max(first, second))


def lower_bound_1(sorted_lines: Matrix, switches: int, delay: float) -> Matrix:
    """Return Spectra's first bound of each line: its sum and its delays, shared by the switches.

    Parameters
    ----------
    sorted_lines
        One row or column of the demand per row, none of them zero.

    Notes
    -----
    s switches, k nonzeros of sum W: W/s + delta max(1, k/s).

    References
    ----------
    Spectra, section IV, theorem 1.
    """
    entries = np.count_nonzero(sorted_lines, axis=1)
    bound: Matrix = sorted_lines.sum(axis=1) / switches + delay * np.maximum(1, entries / switches)
    return bound


def lower_bound_2(sorted_lines: Matrix, switches: int, delay: float) -> Matrix:
    """Return Spectra's second bound of each line, which holds where it has one entry per switch.

    Parameters
    ----------
    sorted_lines
        One row or column of the demand per row, sorted downwards, each with s nonzeros.

    Notes
    -----
    s switches, s nonzeros w_1 >= ... >= w_s of sum W. With m reconfigurations beyond the first of
    each switch at most m entries are cut; so, after the first delay, the makespan is at least w_1
    (m = 0), max(w_2, (W + delta)/s, w_s + delta) (m = 1), max(w_{m+1}, (W + m delta)/s) (m = 2..s).

    References
    ----------
    Spectra, section IV, theorem 2.
    """
    cuts = np.arange(switches + 1)
    whole = np.zeros((len(sorted_lines), switches + 1))
    width = min(switches, sorted_lines.shape[1])
    whole[:, :width] = sorted_lines[:, :width]  # w_{m+1} in column m; w_{s+1} = 0
    shared = (sorted_lines.sum(axis=1)[:, None] + cuts * delay) / switches
    bound = np.maximum(whole, shared)
    bound[:, 0] = whole[:, 0]
    bound[:, 1] = np.maximum(bound[:, 1], whole[:, switches - 1] + delay)
    least: Matrix = delay + bound.min(axis=1)
    return least
