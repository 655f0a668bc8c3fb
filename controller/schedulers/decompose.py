"""Decompose a demand matrix into as few weighted permutations as its degree, then refine the weights.

Each round takes one permutation that lowers the degree of what is still to be served by one, so
the number of permutations is the least possible. Among these it takes the one that carries most.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from controller.schedulers.demand import Matrix, checked_matrix
from controller.schedulers.matching import heaviest_permutation
from controller.schedulers.schedule import Permutation, Slot, served


def decompose(demand: ArrayLike) -> tuple[Slot, ...]:
    """Return exactly degree(demand) weighted permutations that cover the demand.

    Parameters
    ----------
    demand
        Demand matrix D, n x n.

    Returns
    -------
    tuple of Slot
        Full permutations in the order found; none for a demand of nothing.

    Notes
    -----
    S: entries of D not yet in any permutation; R: demand not yet carried; k: degree of S. A row or
    column with k entries in S is critical, and must be matched within S. That is asked for by a
    bonus, larger than any matching's weight, for each critical line that an entry of S serves; so
    one assignment per round does it. The weights of *all* entries count, also of those which S no
    longer holds: leaving these out makes the schedule of the benchmark workload 40 % longer.

    References
    ----------
    Spectra, section III-B, algorithm 1; A. Schrijver, Combinatorial Optimization, volume A (matchings
    that cover given nodes).

    Examples
    --------
    >>> [float(slot.weight) for slot in decompose([[0, 3], [1, 0]])]
    [3.0]
    """
    matrix = checked_matrix(demand)
    rest, unserved = matrix.copy(), matrix > 0
    rows = np.arange(len(matrix))
    slots = []
    while unserved.any():
        permutation = critical_matching(rest, unserved)
        weight = float(rest[rows, permutation][unserved[rows, permutation]].min())
        rest[rows, permutation] = np.maximum(rest[rows, permutation] - weight, 0)
        unserved[rows, permutation] = False
        slots.append(Slot(permutation, weight))
    return refine(matrix, slots)


def critical_matching(weights: Matrix, unserved: NDArray[np.bool_] | NDArray[np.intp]) -> Permutation:
    """Return the permutation of most weight among those that lower the degree of ``unserved``.

    Parameters
    ----------
    weights
        What is to be matched, n x n.
    unserved
        Which entries are still to be in a permutation, or in how many; the degree counts them.
    """
    in_row, in_column = unserved.sum(axis=1), unserved.sum(axis=0)
    most = max(in_row.max(), in_column.max())
    critical_lines = (in_row == most)[:, None].astype(np.float64) + (in_column == most)
    bonus = 2 * weights.max(axis=1).sum() or 1.0  # twice: with once, rounding can make it a tie
    return heaviest_permutation(weights + bonus * ((unserved > 0) * critical_lines))


def refine(demand: ArrayLike, slots: Sequence[Slot]) -> tuple[Slot, ...]:
    """Raise weights until the slots cover the demand, each just enough when its turn comes.

    Parameters
    ----------
    demand
        Demand matrix, n x n.
    slots
        Weighted permutations; every nonzero of the demand must be in one of them.

    Notes
    -----
    An entry that is short waits for the last slot that holds it: until then others may have raised
    what it needs. On the benchmark workload this brings the total weight from 1.097 to 1.091, as far
    as the linear program of equation (5) would, which takes 20 times as long.

    References
    ----------
    Spectra, section III-B, algorithm 2.
    """
    matrix = checked_matrix(demand)
    rows = np.arange(len(matrix))
    short = matrix - served(slots, len(matrix))
    last = np.full(matrix.shape, -1)
    for index, slot in enumerate(slots):
        last[rows, slot.permutation] = index
    refined = []
    for index, (permutation, weight) in enumerate(slots):
        waiting = last[rows, permutation] == index
        missing = float(short[rows, permutation].max(initial=0.0, where=waiting))
        short[rows, permutation] -= missing
        refined.append(Slot(permutation, weight + missing))
    return tuple(refined)


def completed(demand: Matrix, slots: Sequence[Slot]) -> tuple[Slot, ...]:
    """Return the slots, refined, with permutations for the entries of the demand that none of them holds."""
    reached = served(slots, len(demand)) > 0
    return refine(demand, [*slots, *decompose(np.where(reached, 0.0, demand))])
