"""Large neighbourhood search over slots: take a few out, rebuild what they leave uncovered, keep gains.

A round takes out slots of like weight, because only among these can entries change places without
making a short slot long. What they leave uncovered is decomposed anew, by a matching that looks at
little but the largest entries: a slot lasts as long as its largest, so the large ones belong together.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from controller.schedulers.decompose import critical_matching, refine
from controller.schedulers.demand import Matrix
from controller.schedulers.schedule import Slot, served

TAKEN_OUT = (3, 4, 5)
"""How many slots a round takes out; 2 or 3 gain 0.4 % less weight, 4 to 7 no more."""

STEEPNESS = (8, 16, 32)
"""Powers to which entries are raised before they are matched; with 1 the gain is 0.6 % less."""

ROUNDS_PER_SLOT = 20
"""Most rounds, over the number of slots: a handful of slots has few subsets."""

ROUNDING = 1e-12
"""A shortfall of a carried entry that counts as none, relative to the largest entry."""

Cost = Callable[[Sequence[Slot]], tuple[float, ...]]
"""What slots cost; tuples are compared from the left."""


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

    References
    ----------
    P. Shaw, "Using Constraint Programming and Local Search Methods to Solve Vehicle Routing
    Problems", CP 1998 (large neighbourhood search, and that what is taken out be related).
    """
    best, least = tuple(slots), cost(slots)
    for _ in range(min(rounds, ROUNDS_PER_SLOT * len(best))):
        weights = np.array([slot.weight for slot in best])
        related = np.argsort(np.abs(weights - rng.choice(weights)) * rng.random(weights.size))
        kept = [best[index] for index in sorted(related[rng.choice(TAKEN_OUT) :])]
        carried = served(kept, len(demand))
        rounding = np.where(carried > 0, ROUNDING * demand.max(), 0.0)
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
    pieces: NDArray[np.intp] = np.maximum(np.ceil(demand / longest * (1 - ROUNDING)), demand > 0).astype(
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


def _steep(piece: Matrix, steepness: int) -> Matrix:
    """Return the pieces, relative to the longest, to a power; zeros are not raised: twice as fast."""
    steep = np.zeros_like(piece)
    some = piece > 0
    steep[some] = (piece[some] / piece.max()) ** steepness
    return steep
