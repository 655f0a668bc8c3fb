"""Birkhoff-von Neumann: a doubly stochastic matrix is a weighted sum of permutations."""

from collections.abc import Iterator

from numpy.typing import ArrayLike

from controller.schedulers.demand import checked_demand
from controller.schedulers.schedule import Permutation, Schedule
from controller.schedulers.spectra import equalize, schedule
from controller.schedulers.stuffing import Units, heaviest_perfect_matching, peeled


def bvn(demand: ArrayLike, switches: int, delay: float) -> Schedule:
    """Return the schedule of a Birkhoff-von Neumann decomposition, spread as Spectra spreads.

    The sum of the weights is the least possible, the largest line's; the number of permutations,
    up to (n - 1)^2 + 1, is not looked at. With a delay of 0 nothing is shorter.

    Parameters
    ----------
    demand, switches, delay
        As of `spectra`.

    References
    ----------
    G. Birkhoff, "Tres observaciones sobre el algebra lineal", 1946; C.-S. Chang, W.-J. Chen,
    H.-Y. Huang, "Birkhoff-von Neumann input buffered crossbar switches", INFOCOM 2000.
    """
    matrix = checked_demand(demand, switches, delay)
    return equalize(schedule(peeled(matrix, _matchings), switches, delay))


def _matchings(units: Units) -> Iterator[Permutation]:
    while units.any():
        permutation = heaviest_perfect_matching(units > 0, units)
        assert permutation is not None, "lines of equal sum have a perfect matching (Birkhoff)"
        yield permutation
