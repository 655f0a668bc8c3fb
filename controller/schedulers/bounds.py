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


def split_lower_bound(demand: ArrayLike, switches: int, delay: float) -> float:
    """Return a bound that counts the slots into which long entries must be cut; this project's own.

    It stands beside `makespan_lower_bound`, not in it, so that ratios to the paper's bound stay
    comparable. It is larger where entries are longer than the makespan could be without cutting.

    Notes
    -----
    A slot of a schedule of makespan T carries at most T - delta of an entry, so an entry w needs at
    least ceil(w / (T - delta)) slots, and each of a line's slots, of any switch, costs a delay: T is
    possible only if s T >= W + delta sum_j ceil(w_j / (T - delta)). The right side falls as T grows,
    so bisection finds the least such T.
    """
    matrix = checked_demand(demand, switches, delay)
    sorted_lines = lines(matrix)
    low = makespan_lower_bound(matrix, switches, delay)
    if not low:
        return low
    high = float(sorted_lines.sum(axis=1).max() + delay * (np.count_nonzero(sorted_lines, axis=1).max() + 1))
    for _ in range(50):
        middle = (low + high) / 2
        slots = (
            np.ceil(sorted_lines / (middle - delay) * (1 - 1e-12)).sum(axis=1) if middle > delay else np.inf
        )
        possible = (switches * middle >= sorted_lines.sum(axis=1) + delay * slots).all()
        low, high = (low, middle) if possible else (middle, high)
    return low
