"""Spectra: decompose the demand, schedule the permutations over the switches, equalize the loads."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from controller.schedulers.decompose import decompose
from controller.schedulers.demand import checked_demand
from controller.schedulers.schedule import Schedule, Slot, frozen_schedule

ROUNDING = 1e-9
"""A surplus that counts as none, relative to the load; without a delay the cuts would never end."""


def spectra(demand: ArrayLike, switches: int, delay: float) -> Schedule:
    """Return Spectra's schedule of a demand matrix over parallel switches.

    Parameters
    ----------
    demand
        What input port i owes output port j [seconds at line rate, or any one unit], n x n.
    switches
        How many parallel OCSes there are, each with a circuit per port.
    delay
        Reconfiguration delay before every permutation [the demand's unit].

    Raises
    ------
    DemandError
        If the matrix is not square, or an entry or the delay is negative or not finite, or there
        is no switch.

    References
    ----------
    K. Liang, L. Qiao, I. Keslassy, B. Lin, "Scheduling Parallel Optical Circuit Switches for AI
    Training" (Spectra), section III.

    Examples
    --------
    >>> spectra([[0, 2, 0], [0, 0, 2], [2, 0, 0]], switches=2, delay=0.5).loads
    (1.5, 1.5)
    """
    matrix = checked_demand(demand, switches, delay)
    return equalize(schedule(decompose(matrix), switches, delay))


def schedule(slots: Sequence[Slot], switches: int, delay: float) -> Schedule:
    """Return the slots spread over the switches: longest first, each to the least loaded switch.

    References
    ----------
    Spectra, section III-C, algorithm 3; longest processing time first for identical machines.
    """
    queues: list[list[Slot]] = [[] for _ in range(switches)]
    loads = np.zeros(switches)
    for slot in sorted(slots, key=lambda slot: -slot.weight):
        idlest = int(loads.argmin())
        queues[idlest].append(slot)
        loads[idlest] += slot.weight + delay
    return frozen_schedule(queues, delay)


def equalize(plan: Schedule) -> Schedule:
    """Return the schedule after moving parts of the longest slots from busy to idle switches.

    Notes
    -----
    As long as the most loaded switch leads the least loaded by more than a delay, the part that
    makes both equal is cut off its longest slot; if that slot is too short for it, this is the end.
    Where the least loaded switch already shows the very permutation, the part joins it and needs
    no delay; the target is still computed with one, as in the paper.

    References
    ----------
    Spectra, section III-D, algorithm 4.
    """
    queues = [list(slots) for slots in plan.switches]
    loads = np.array(plan.loads)
    while loads.size:
        busiest, idlest = int(loads.argmax()), int(loads.argmin())
        surplus = float(loads[busiest] - loads[idlest] - plan.delay) / 2
        if surplus <= ROUNDING * loads[busiest]:
            break
        longest = max(range(len(queues[busiest])), key=lambda index: queues[busiest][index].weight)
        permutation, weight = queues[busiest][longest]
        if weight <= surplus:
            break
        queues[busiest][longest] = Slot(permutation, weight - surplus)
        loads[busiest] -= surplus
        loads[idlest] += surplus + add(queues[idlest], Slot(permutation, surplus), plan.delay)
    return frozen_schedule(queues, plan.delay)


def add(queue: list[Slot], slot: Slot, delay: float) -> float:
    """Add a slot to a switch's queue and return the delay it costs: none if its permutation is shown."""
    for index, shown in enumerate(queue):
        if np.array_equal(shown.permutation, slot.permutation):
            queue[index] = Slot(shown.permutation, shown.weight + slot.weight)
            return 0.0
    queue.append(slot)
    return delay
