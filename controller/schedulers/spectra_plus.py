"""Spectra+: below Spectra's makespan, for more computing time; this project's own, not the paper's.

Rebuild the permutations for less weight. Cut the longest ones, at lengths with which the pieces fill
the switches evenly, and rebuild the pieces, which may then share what they carry. Spread them as
Spectra does, and reweigh them where they are. Rebuild the best of these schedules for its makespan.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from controller.schedulers.bounds import split_lower_bound
from controller.schedulers.decompose import decompose
from controller.schedulers.demand import Matrix, checked_demand
from controller.schedulers.rebuild import Cost, rebuilt
from controller.schedulers.reweigh import reweighed
from controller.schedulers.schedule import Schedule, Slot
from controller.schedulers.spectra import ROUNDING, equalize, schedule

ROUNDS = 300
"""Subsets of whole slots that are rebuilt; 0.9 ms each for 100 ports."""

PIECE_ROUNDS = 100
"""Subsets of the pieces that are rebuilt, for each length to which slots are cut."""

BANDS = ((0.8, 1.0), (0.55, 0.8), (0.3, 0.55))
"""Where slots are cut, as shares of the longest: short pieces, middling ones, or three of them and more."""

CUTS = 20
"""Lengths tried in each band."""


def spectra_plus(demand: ArrayLike, switches: int, delay: float) -> Schedule:
    """Return a schedule that is never longer than Spectra's, and mostly shorter.

    Parameters
    ----------
    demand, switches, delay
        As of `spectra`.

    Notes
    -----
    The random choices are drawn from a fixed seed: equal demands give equal schedules.

    References
    ----------
    Spectra, sections III-B (equation 5) and III-D, on which it builds.
    """
    matrix = checked_demand(demand, switches, delay)
    slots = decompose(matrix)
    plain = equalize(schedule(slots, switches, delay))
    if plain.makespan <= split_lower_bound(matrix, switches, delay) * (1 + ROUNDING):
        return plain
    return min(plain, spread(matrix, lighter(matrix, slots), switches, delay), key=lambda plan: plan.makespan)


def lighter(demand: Matrix, slots: Sequence[Slot]) -> tuple[Slot, ...]:
    """Return the slots rebuilt for less weight, whatever the switches and the delay."""
    return rebuilt(demand, slots, np.inf, _number_and_weight, ROUNDS, np.random.default_rng(0))


def spread(demand: Matrix, slots: Sequence[Slot], switches: int, delay: float) -> Schedule:
    """Return the shortest schedule found for the slots, whole or cut.

    Parameters
    ----------
    demand
        Demand matrix, n x n, checked.
    slots
        Weighted permutations that cover it.
    switches, delay
        As of `spectra`.
    """

    def planned(slots: Sequence[Slot]) -> Schedule:
        return equalize(schedule(slots, switches, delay))

    def makespan(slots: Sequence[Slot]) -> tuple[float, ...]:
        return (planned(slots).makespan,)

    plans = [reweighed(demand, planned(slots))]
    for longest in promising_cuts(slots, switches, delay):
        pieces = cut(slots, longest)
        if sum(piece.weight + delay for piece in pieces) < switches * plans[0].makespan:
            again = _again(demand, pieces, longest, _number_and_weight)
            plans.append(reweighed(demand, planned(again)))
    best = min(plans, key=lambda plan: plan.makespan)
    pieces = tuple(slot for queue in best.switches for slot in queue)
    again = _again(demand, pieces, best.makespan - delay, makespan)
    return min(best, reweighed(demand, planned(again)), key=lambda plan: plan.makespan)


def promising_cuts(slots: Sequence[Slot], switches: int, delay: float) -> Iterator[float]:
    """Yield for each band the length to which slots are cut for the least makespan.

    None, if no slot alone outlasts the mean load: then whole slots fill the switches as well.
    """
    most = max((slot.weight for slot in slots), default=0.0)
    mean = sum(slot.weight + delay for slot in slots) / switches
    for low, high in BANDS if most + delay > mean else ():
        lengths = most * np.linspace(low, high, CUTS, endpoint=False)
        yield min(lengths, key=lambda length: schedule(cut(slots, length), switches, delay).makespan)


def cut(slots: Sequence[Slot], longest: float) -> tuple[Slot, ...]:
    """Return the slots in pieces of at most a length: whole pieces of it, and what is left.

    Examples
    --------
    >>> [piece.weight for piece in cut([Slot(np.array([1, 0]), 2.5)], 1.0)]
    [1.0, 1.0, 0.5]
    """
    pieces = []
    for permutation, weight in slots:
        while weight > longest:
            pieces.append(Slot(permutation, longest))
            weight -= longest
        pieces.append(Slot(permutation, weight))
    return tuple(pieces)


def _again(demand: Matrix, pieces: Sequence[Slot], longest: float, cost: Cost) -> tuple[Slot, ...]:
    return rebuilt(demand, pieces, longest, cost, PIECE_ROUNDS, np.random.default_rng(0))


def _number_and_weight(slots: Sequence[Slot]) -> tuple[float, ...]:
    return len(slots), sum(slot.weight for slot in slots)
