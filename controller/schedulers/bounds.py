"""Lower bounds on the makespan of any schedule over parallel switches.

Every row and every column must be served by itself: what its entries need, whatever the rest of
the matrix, bounds the makespan from below; the largest bound of a line is that of the matrix.
"""

import numpy as np
from numpy.typing import ArrayLike

from controller.schedulers.demand import Matrix, checked_demand


def makespan_lower_bound(demand: ArrayLike, switches: int, delay: float) -> float:
    """Return the larger of both lower bounds; 0 for a demand of zero.

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
    """Return a bound that looks at all lines together and counts their slots; this project's own.

    It stands beside `makespan_lower_bound`, not in it, so that ratios to the paper's bound stay
    comparable. It is larger where entries are longer than the makespan could be without cutting,
    and where unequal lines must share few slots.

    Notes
    -----
    N slots of weights a_1 >= ... >= a_N fit into a makespan T only if s T >= N delta + sum_r a_r.

    N: a slot carries at most T - delta of one entry of a line, so a line of entries w_j needs
    ceil(w_j / (T - delta)) slots for each, none for two; N is at least the largest line's sum.

    sum_r a_r: at least the largest line's W. And at least what `ranked_weight` returns.

    T is possible if some N satisfies both. Larger T allow smaller N, so bisection finds the least.
    """
    matrix = checked_demand(demand, switches, delay)
    sorted_lines = lines(matrix)
    low = makespan_lower_bound(matrix, switches, delay)
    if not low:
        return low
    most = degree(matrix)
    fullest = float(sorted_lines.sum(axis=1).max())
    busy = [max(fullest, ranked_weight(sorted_lines, n)) + n * delay for n in range(most, 2 * most + 1)]
    least_busy = np.minimum.accumulate(busy[::-1])[::-1]  # of so many slots or more
    high = float(sorted_lines.max()) + delay + busy[0]  # nothing is cut: possible
    for _ in range(50):
        middle = (low + high) / 2
        slots = _slots_needed(sorted_lines, middle - delay)
        needed = least_busy[int(slots) - most] if slots <= 2 * most else fullest + slots * delay
        low, high = (low, middle) if switches * middle >= needed else (middle, high)
    return low


def ranked_weight(sorted_lines: Matrix, slots: int) -> float:
    """Return a weight that no fewer than so much of so many slots can have, from the ranks of entries.

    Parameters
    ----------
    sorted_lines
        One row or column of the demand per row, sorted downwards.
    slots
        How many slots there are, N; no fewer than any line has entries.

    Notes
    -----
    A slot holds one entry of a line at most, so of a line's k entries at most N - k are in several
    slots. Of its r + N - k largest, then, r at least are in one slot each, which is as long: the r-th
    longest slot lasts no less than the entry w_(r + N - k), of any line. The sum over r of the
    largest of these, over all lines, is the bound. With N = k it compares like with like: 1.051 on
    the benchmark workload, where the fullest line has 1.032.
    """
    entries = np.count_nonzero(sorted_lines, axis=1)
    rank = np.arange(sorted_lines.shape[1]) + (slots - entries)[:, None]
    padded = np.pad(sorted_lines, ((0, 0), (0, 1)))
    shifted = np.take_along_axis(padded, np.minimum(rank, sorted_lines.shape[1]), axis=1)
    return float(shifted.max(axis=0).sum())


def degree(demand: Matrix) -> int:
    """Return the largest number of nonzeros in a row or a column.

    So many permutations are needed, and suffice, to serve every nonzero (König).
    """
    support = demand > 0
    return int(max(support.sum(axis=0).max(), support.sum(axis=1).max()))


def lines(demand: Matrix) -> Matrix:
    """Return all rows and all columns as the 2n rows of one matrix, each sorted downwards."""
    return -np.sort(-np.concatenate([demand, demand.T]), axis=1)


def _slots_needed(sorted_lines: Matrix, longest: float) -> float:
    """Return how many slots some line needs if none lasts longer; 1e-12 less, so that rounding errs low.

    An entry needs a slot also where its share of the longest slot underflows to 0.
    """
    if longest <= 0:
        return np.inf
    pieces = np.ceil(sorted_lines / longest * (1 - 1e-12))
    return float(np.maximum(pieces, sorted_lines > 0).sum(axis=1).max())
