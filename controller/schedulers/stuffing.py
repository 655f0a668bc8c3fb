"""Stuffing: dummy demand that brings every row and column to one sum, so that perfect matchings exist.

The classics (Birkhoff-von Neumann, Solstice) peel perfect matchings off a matrix whose lines all
have the same sum. Here the matrix holds whole multiples of a unit, so that peeling is exact and
ends; with floats it ends in a tail of rounding errors.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from controller.schedulers.demand import Matrix
from controller.schedulers.matching import heaviest_permutation
from controller.schedulers.schedule import Permutation, Slot
from controller.schedulers.spectra import completed

UNITS = 2**20
"""Units in the largest entry: rounding errs by 5e-7 of it, and the tail of ever shorter slots ends."""

Units = NDArray[np.int64]


def stuffed(units: Units) -> Units:
    """Return the matrix with dummy demand added until every row and column has the largest line's sum.

    Nonzeros are raised first, empty entries are filled only with what is then still missing: each
    of those may cost a permutation.

    References
    ----------
    Solstice, section 4.1, QuickStuff.
    """
    matrix = units.copy()
    goal = max(matrix.sum(axis=0).max(), matrix.sum(axis=1).max())
    room_in, room_out = goal - matrix.sum(axis=1), goal - matrix.sum(axis=0)
    for row, column in [*np.argwhere(units > 0), *np.argwhere(units == 0)]:
        dummy = min(room_in[row], room_out[column])
        matrix[row, column] += dummy
        room_in[row] -= dummy
        room_out[column] -= dummy
    return matrix


def peeled(demand: Matrix, matchings: Callable[[Units], Iterator[Permutation]]) -> tuple[Slot, ...]:
    """Return the slots made of perfect matchings, each lit as long as its smallest stuffed entry.

    Parameters
    ----------
    demand
        Demand matrix, n x n, checked.
    matchings
        Yields perfect matchings of the nonzeros of its argument, which shrinks meanwhile,
        until nothing is left.

    Notes
    -----
    Slots that carry next to nothing but dummy demand are left out, and the weights of the others
    raised to cover what that, and rounding to units, took away.
    """
    if not demand.any():
        return ()
    unit = demand.max() / UNITS
    real = np.rint(demand / unit).astype(np.int64)
    dust = int(2 * len(demand))  # what rounding can leave in a line's sum: below, no slot is worth a delay
    matrix = stuffed(real)
    rows = np.arange(len(demand))
    slots = []
    for permutation in matchings(matrix):
        length = int(matrix[rows, permutation].min())
        matrix[rows, permutation] -= length
        if np.minimum(real[rows, permutation], length).max() > dust:
            real[rows, permutation] = np.maximum(real[rows, permutation] - length, 0)
            slots.append(Slot(permutation, length * unit))
    return completed(demand, slots)


def heaviest_perfect_matching(allowed: NDArray[np.bool_], weights: Units) -> Permutation | None:
    """Return the perfect matching of most weight within the allowed entries, None without any."""
    forbidden = -1.0 - float(weights.max()) * len(weights)
    permutation = heaviest_permutation(np.where(allowed, weights, forbidden))
    return permutation if allowed[np.arange(len(allowed)), permutation].all() else None
