"""Reweigh: the linear program of Spectra's equation (5), asked for the makespan of a schedule.

The permutations stay on their switches. A piece on an idle switch grows wherever this lets one on a
busy switch shrink.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog

from controller.schedulers.decompose import refine
from controller.schedulers.demand import Matrix
from controller.schedulers.schedule import Schedule, Slot, frozen_schedule, served


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
    solution = linprog(
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


def _coverage(demand: Matrix, slots: Sequence[Slot]) -> Matrix:
    """Return which slot (column) holds which nonzero of the demand (row), as zeros and ones."""
    held = [served([Slot(slot.permutation, 1.0)], len(demand))[demand > 0] for slot in slots]
    return np.stack(held, axis=1)
