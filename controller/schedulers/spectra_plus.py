"""Spectra+: below Spectra's makespan, for more computing time; this project's own, not the paper's.

1. Rebuild Spectra's permutations for less weight (`lighter`): a large neighbourhood search. A round
   takes out slots of like weight, because only among these can entries change places without making a
   short slot long. What they leave uncovered is decomposed anew, by a matching that looks at little
   but the largest entries: a slot lasts as long as its largest, so the large ones belong together.
2. Cut the longest slots, at lengths with which the pieces fill the switches evenly, and rebuild the
   pieces, which may then share what they carry.
3. Spread them as Spectra does, and reweigh them where they are: the linear program of Spectra's
   equation (5), asked for the makespan of a schedule. A piece on an idle switch grows wherever this
   lets one on a busy switch shrink.
4. Rebuild the best of these schedules for its makespan.

References
----------
Spectra, sections III-B (equation 5) and III-D; P. Shaw, "Using Constraint Programming and Local Search
Methods to Solve Vehicle Routing Problems", CP 1998 (large neighbourhood search, and that what is taken
out be related).
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import scipy  # loads its parts when they are used
from numpy.typing import ArrayLike, NDArray

from controller.schedulers.bounds import split_lower_bound
from controller.schedulers.demand import Matrix, checked_demand
from controller.schedulers.schedule import Schedule, Slot, frozen_schedule, served
from controller.schedulers.spectra import ROUNDING, critical_matching, decompose, equalize, refine, schedule

ROUNDS = 300
"""Subsets of whole slots that are rebuilt; 0.9 ms each for 100 ports."""

PIECE_ROUNDS = 100
"""Subsets of the pieces that are rebuilt, for each length to which slots are cut."""

ROUNDS_PER_SLOT = 20
"""Most rounds, over the number of slots: a handful of slots has few subsets."""

TAKEN_OUT = (3, 4, 5)
"""How many slots a round takes out; 2 or 3 gain 0.4 % less weight, 4 to 7 no more."""

STEEPNESS = (8, 16, 32)
"""Powers to which entries are raised before they are matched; with 1 the gain is 0.6 % less."""

SHORTFALL = 1e-12
"""A shortfall of an entry that counts as none, relative to the largest entry."""

BANDS = ((0.8, 1.0), (0.55, 0.8), (0.3, 0.55))
"""Where slots are cut, as shares of the longest: short pieces, middling ones, or three of them and more."""

CUTS = 20
"""Lengths tried in each band."""

Cost = Callable[[Sequence[Slot]], tuple[float, ...]]
"""What slots cost; tuples are compared from the left."""


def spectra_plus(demand: ArrayLike, switches: int, delay: float) -> Schedule:
    """Return a schedule that is never longer than Spectra's, and mostly shorter.

    Parameters
    ----------
    demand, switches, delay
        As of `spectra`.

    Notes
    -----
    The random choices are drawn from a fixed seed: equal demands give equal schedules.
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


def rebuilt(
    demand: Matrix, slots: Sequence[Slot], longest: float, cost: Cost, rounds: int, rng: np.random.Generator
) -> tuple[Slot, ...]:
    """Return slots that cover the demand and cost as little as was found, never more than those given.

    Parameters
    ----------
    demand
        Demand matrix, n x n, checked.
    slots
        Slots that cover it.
    longest
        Entries longer than this are cut when they are rebuilt; infinite if they may stay whole.
    cost
        What is to be made small.
    rounds
        How many subsets are tried; fewer where so few slots have not as many.
    rng
        Draws them.
    """
    best, least = tuple(slots), cost(slots)
    for _ in range(min(rounds, ROUNDS_PER_SLOT * len(best))):
        weights = np.array([slot.weight for slot in best])
        related = np.argsort(np.abs(weights - rng.choice(weights)) * rng.random(weights.size))
        kept = [best[index] for index in sorted(related[rng.choice(TAKEN_OUT) :])]
        carried = served(kept, len(demand))
        rounding = np.where(carried > 0, SHORTFALL * demand.max(), 0.0)
        uncovered = np.where(demand - carried > rounding, demand - carried, 0.0)
        other = (*kept, *pieced(uncovered, longest, int(rng.choice(STEEPNESS))))
        if (price := cost(other)) <= least:  # equally good ones too: they lead on
            best, least = other, price
    return best


def pieced(demand: Matrix, longest: float, steepness: int) -> tuple[Slot, ...]:
    """Return slots that cover the demand, no more than its degree with every entry cut into pieces.

    Parameters
    ----------
    demand
        Demand matrix, n x n; may be zero.
    longest
        No piece of an entry is longer.
    steepness
        Power to which the pieces are raised before they are matched.

    Notes
    -----
    It is `decompose` for entries that need several slots: a line's degree is its number of pieces.
    """
    rows = np.arange(len(demand))
    rest = demand.copy()
    pieces: NDArray[np.intp] = np.maximum(np.ceil(demand / longest * (1 - SHORTFALL)), demand > 0).astype(
        np.intp
    )
    slots = []
    while pieces.any():
        piece = np.minimum(rest, longest)
        permutation = critical_matching(_steep(piece, steepness), pieces)
        weight = float(piece[rows, permutation][pieces[rows, permutation] > 0].min())
        rest[rows, permutation] = np.maximum(rest[rows, permutation] - weight, 0)
        pieces[rows, permutation] = np.maximum(pieces[rows, permutation] - 1, 0)
        pieces[rest <= 0] = 0
        slots.append(Slot(permutation, weight))
    return refine(demand, slots)


def reweighed(demand: Matrix, plan: Schedule) -> Schedule:
    """Return the schedule with the weights of least makespan for its permutations where they are.

    Notes
    -----
    Minimise T such that the weights of the slots that hold an entry sum to at least its demand, and
    those of a switch's slots, with their delays, to at most T. The solver is exact to 1e-7, so
    `refine` has the last word on coverage.
    """
    slots = [slot for queue in plan.switches for slot in queue]
    homes = [switch for switch, queue in enumerate(plan.switches) for _ in queue]
    if not slots:
        return plan
    unit = demand.max()
    # One row per switch, one column per slot and one for T: weights - T <= -delays.
    on_switch = np.arange(len(plan.switches))[:, None] == homes
    switch_rows = np.hstack([on_switch, np.full((len(on_switch), 1), -1.0)])
    coverage = _coverage(demand, slots)
    solution = scipy.optimize.linprog(
        [0.0] * len(slots) + [1.0],
        A_ub=np.vstack([np.hstack([-coverage, np.zeros((len(coverage), 1))]), switch_rows]),
        b_ub=np.concatenate([-demand[demand > 0], -on_switch.sum(axis=1) * plan.delay]) / unit,
        method="highs",
    )
    if solution.x is None:  # the solver gave up
        return plan
    weights = np.maximum(solution.x[:-1], 0) * unit
    refined = refine(demand, [Slot(slots[index].permutation, float(w)) for index, w in enumerate(weights)])
    queues: list[list[Slot]] = [[] for _ in plan.switches]
    for slot, home in zip(refined, homes, strict=True):
        queues[home].append(slot)
    return frozen_schedule(queues, plan.delay)


def _again(demand: Matrix, pieces: Sequence[Slot], longest: float, cost: Cost) -> tuple[Slot, ...]:
    return rebuilt(demand, pieces, longest, cost, PIECE_ROUNDS, np.random.default_rng(0))


def _number_and_weight(slots: Sequence[Slot]) -> tuple[float, ...]:
    return len(slots), sum(slot.weight for slot in slots)


def _steep(piece: Matrix, steepness: int) -> Matrix:
    """Return the pieces, relative to the longest, to a power; zeros are not raised: twice as fast."""
    steep = np.zeros_like(piece)
    some = piece > 0
    steep[some] = (piece[some] / piece.max()) ** steepness
    return steep


def _coverage(demand: Matrix, slots: Sequence[Slot]) -> Matrix:
    """Return which slot (column) holds which nonzero of the demand (row), as zeros and ones."""
    held = [served([Slot(slot.permutation, 1.0)], len(demand))[demand > 0] for slot in slots]
    return np.stack(held, axis=1)
