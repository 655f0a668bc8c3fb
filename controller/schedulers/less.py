"""LESS: split the demand into one sparse, balanced matrix per switch, each decomposed by itself."""

import numpy as np
from numpy.typing import ArrayLike

from controller.schedulers.demand import Matrix, checked_demand
from controller.schedulers.schedule import Schedule, frozen_schedule
from controller.schedulers.spectra import decompose

ROUNDING = 1e-9
"""Room that counts as none, relative to a part's share."""


def less(demand: ArrayLike, switches: int, delay: float) -> Schedule:
    """Return the schedule where switch h serves the h-th matrix of a balanced sparse split.

    Parameters
    ----------
    demand, switches, delay
        As of `spectra`.

    References
    ----------
    L. Liu, J. J. Xu, M. Singh, "LESS: A matrix split and balance algorithm for parallel circuit
    (optical) or hybrid data center switching and more", UCC 2019, in the form in which Spectra,
    section V-A, compares with it ("Baseline").
    """
    matrix = checked_demand(demand, switches, delay)
    return frozen_schedule([decompose(part) for part in balanced_split(matrix, switches)], delay)


def balanced_split(demand: Matrix, parts: int) -> tuple[Matrix, ...]:
    """Return matrices that sum to the demand, with line sums of at most a share of the largest.

    An entry stays whole wherever it fits, so that as few nonzeros as possible arise; it is split
    only where no part has room for it in its row and its column. Largest entries first, each to the
    part with most room.

    Parameters
    ----------
    demand
        Demand matrix, n x n, checked.
    parts
        How many matrices.
    """
    split = np.zeros((parts, *demand.shape))
    share = max(demand.sum(axis=0).max(), demand.sum(axis=1).max()) / parts
    room_in, room_out = np.full((2, parts, len(demand)), share)
    for entry in np.argsort(-demand, axis=None)[: np.count_nonzero(demand)]:
        row, column = divmod(int(entry), len(demand))
        rest = float(demand[row, column])
        while rest > 0:
            room = np.minimum(room_in[:, row], room_out[:, column])
            part = int(room.argmax())
            # Where no part has room left, because rows and columns fill up unequally, one overflows.
            piece = min(rest, float(room[part])) if room[part] > ROUNDING * share else rest
            split[part, row, column] += piece
            room_in[part, row] -= piece
            room_out[part, column] -= piece
            rest -= piece
    return tuple(split)
