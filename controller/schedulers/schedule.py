"""A schedule: which permutation every parallel OCS shows, in which order and for how long."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from controller.circuits.circuits import IDLE
from controller.schedulers.demand import Matrix, checked_matrix
from topologies.errors import DemandError

Permutation = NDArray[np.intp]

COVER_TOLERANCE = 1e-9
"""Shortfall that counts as rounding, relative to the largest entry of the demand."""


class Slot(NamedTuple):
    """One permutation and how long it is lit."""

    permutation: Permutation
    """Output port of each input port, or ``IDLE``; no output port twice."""
    weight: float
    """Time lit [the demand's unit], more than zero."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """The slots of every switch, one after another, each behind a reconfiguration delay."""

    switches: tuple[tuple[Slot, ...], ...]
    """For each switch its slots in the order shown; a switch without slots stays dark."""
    delay: float
    """Reconfiguration delay before every slot [the demand's unit]."""

    def __post_init__(self) -> None:
        slots = [slot for slots in self.switches for slot in slots]
        if len({slot.permutation.size for slot in slots}) > 1:
            raise DemandError("a schedule whose permutations are not all of one size")
        for slot in slots:
            _check(slot)
            slot.permutation.setflags(write=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    @property
    def loads(self) -> tuple[float, ...]:
        """How long each switch is busy, delays included: the sum of weight + delay over its slots."""
        return tuple(sum(slot.weight + self.delay for slot in slots) for slots in self.switches)

    @property
    def makespan(self) -> float:
        """When the last switch is done: the largest load, 0 without slots."""
        return max(self.loads, default=0.0)

    def served(self, ports: int) -> Matrix:
        """Return what the circuits can carry from each input port to each output port."""
        return served([slot for slots in self.switches for slot in slots], ports)

    def covers(self, demand: ArrayLike) -> bool:
        """Return whether the circuits can carry the whole demand, up to ``COVER_TOLERANCE``."""
        matrix = checked_matrix(demand)
        if any(slot.permutation.size != len(matrix) for slots in self.switches for slot in slots):
            return False
        return bool((matrix - self.served(len(matrix)) <= COVER_TOLERANCE * matrix.max()).all())

    def _key(self) -> tuple[object, ...]:
        slots = (
            [(tuple(slot.permutation.tolist()), slot.weight) for slot in slots] for slots in self.switches
        )
        return self.delay, tuple(tuple(switch) for switch in slots)


def served(slots: Iterable[Slot], ports: int) -> Matrix:
    """Return the weighted sum of the slots' permutation matrices."""
    total = np.zeros((ports, ports))
    for permutation, weight in slots:
        lit = np.flatnonzero(permutation != IDLE)
        total[lit, permutation[lit]] += weight
    return total


def frozen_schedule(switches: Sequence[Sequence[Slot]], delay: float) -> Schedule:
    """Return the schedule with these slots, those without weight left out."""
    return Schedule(tuple(tuple(slot for slot in slots if slot.weight > 0) for slots in switches), delay)


def _check(slot: Slot) -> None:
    lit = slot.permutation[slot.permutation != IDLE]
    foreign = lit[(lit < 0) | (lit >= slot.permutation.size)]
    if foreign.size:
        raise DemandError(f"a permutation of {slot.permutation.size} ports names port {foreign[0]}")
    if np.bincount(lit, minlength=1).max() > 1:
        raise DemandError(f"a permutation lights output port {np.bincount(lit).argmax()} twice")
    if not slot.weight > 0:
        raise DemandError(f"a slot of weight {slot.weight}", "a permutation is lit for more than no time")
