"""Solstice: long slots first, by perfect matchings of the entries above a threshold that halves."""

from collections.abc import Iterator

from numpy.typing import ArrayLike

from controller.schedulers.demand import checked_demand
from controller.schedulers.schedule import Permutation, Schedule
from controller.schedulers.spectra import equalize, schedule
from controller.schedulers.stuffing import Units, heaviest_perfect_matching, peeled


def solstice(demand: ArrayLike, switches: int, delay: float) -> Schedule:
    """Return the schedule of Solstice's decomposition, spread over the switches as Spectra spreads.

    Parameters
    ----------
    demand, switches, delay
        As of `spectra`.

    Notes
    -----
    Solstice leaves small entries to a packet switch beside the OCS. There is none here: the
    threshold halves until all is served, so short slots follow the long ones.

    References
    ----------
    H. Liu et al., "Scheduling Techniques for Hybrid Circuit/Packet Networks", CoNEXT 2015, section
    4 (QuickStuff, BigSlice).
    """
    matrix = checked_demand(demand, switches, delay)
    return equalize(schedule(peeled(matrix, _matchings), switches, delay))


def _matchings(units: Units) -> Iterator[Permutation]:
    threshold = 1 << int(units.max()).bit_length()
    while units.any():
        permutation = heaviest_perfect_matching(units >= threshold, units)
        if permutation is None:
            threshold //= 2
        else:
            yield permutation
