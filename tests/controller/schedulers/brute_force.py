"""The least makespan of all schedules of a few ports, by trying every choice of permutations.

A partial matching is never better than the permutation that completes it, so a switch shows a subset
of all permutations, each once. A linear program finds the weights of least makespan for a choice. The
weight that a set of permutations needs bounds the makespan of the choices that use them; choices are
tried in the order of this bound, until it reaches the best makespan found.
"""

from functools import cache
from itertools import combinations_with_replacement, permutations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from controller.schedulers.demand import Matrix

ROUNDING = 1e-9
"""A gain that counts as none, relative to the makespan."""

TOLERANCE = 1e-6
"""What the solver's tolerance of 1e-7 can add up to, relative to the makespan."""


def least_makespan(demand: Matrix, switches: int, delay: float) -> float:
    """Return the least makespan of any schedule that covers a demand other than zero."""
    unit = max(demand.max(), delay)
    shown, slots = _choices(len(demand), switches)
    weight_of = least_weights(demand / unit, demand > 0)
    bounds = (weight_of[np.bitwise_or.reduce(shown, axis=1)] + slots * (delay / unit)) / switches
    best = np.inf
    for choice in np.lexsort((-slots, bounds)):
        if bounds[choice] >= best * (1 - ROUNDING):
            break
        best = min(best, _least_load(demand / unit, shown[choice], delay / unit))
    return float(best * unit)


def least_weights(demand: Matrix, support: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the least total weight with which each subset of the permutations covers a demand.

    Subset 5 holds the permutations 0 and 2. The weight is infinite if a subset misses an entry of the
    support, which may hold entries that the unit of the demand made zero.
    """
    subsets = np.arange(1 << len(_permutations(len(demand))))
    return np.array([_least_load(demand, np.array([subset]), 0.0, support) for subset in subsets])


def _least_load(
    demand: Matrix, shown: NDArray[np.int64], delay: float, support: NDArray[np.bool_] | None = None
) -> float:
    """Return the least makespan if each switch shows its subset of the permutations."""
    matrices = _permutations(len(demand))
    pairs = [(h, p) for h, subset in enumerate(shown) for p in range(len(matrices)) if subset >> p & 1]
    held = np.array([matrices[p].ravel() for _, p in pairs]).reshape(len(pairs), demand.size).T
    if support is not None and not held[support.ravel()].any(axis=1).all():
        return np.inf
    on_switch = np.array([[h == home for home, _ in pairs] for h in range(len(shown))], dtype=float)
    solution = linprog(
        [0.0] * len(pairs) + [1.0],
        A_ub=np.block([[-held, np.zeros((demand.size, 1))], [on_switch, np.full((len(shown), 1), -1.0)]]),
        b_ub=np.concatenate([-demand.ravel(), -delay * on_switch.sum(axis=1)]),
        method="highs",
    )
    assert solution.x is not None, solution.message
    return float(solution.x[-1])


@cache
def _permutations(ports: int) -> list[Matrix]:
    return [np.eye(ports)[list(order)] for order in permutations(range(ports))]


@cache
def _choices(ports: int, switches: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all choices of a subset per switch, and how many slots each has."""
    subsets = range(1 << len(_permutations(ports)))
    shown = np.array(list(combinations_with_replacement(subsets, switches)))
    return shown, np.bitwise_count(shown).sum(axis=1).astype(np.int64)
