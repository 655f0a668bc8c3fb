"""The value Schedule: what it refuses, what it carries, what it equals."""

import numpy as np
import pytest

from controller.circuits.circuits import IDLE
from controller.schedulers.schedule import Schedule, Slot
from topologies.errors import DemandError


def one_slot(*outputs: int, weight: float = 1.0) -> Schedule:
    return Schedule(((Slot(np.array(outputs), weight),),), 0.5)


def test_idle_port_carries_nothing() -> None:
    plan = one_slot(1, IDLE, weight=2.0)
    assert plan.served(2).tolist() == [[0, 2], [0, 0]]
    assert plan.covers([[0, 2], [0, 0]])
    assert not plan.covers([[0, 2], [1, 0]])
    assert plan.makespan == 2.5


def test_schedule_of_other_size_covers_nothing() -> None:
    assert not one_slot(0, 1).covers([[1.0]])


@pytest.mark.parametrize(
    ("outputs", "weight", "sentence"),
    [
        ((0, 0), 1.0, "output port 0 twice"),
        ((0, 2), 1.0, "names port 2"),
        ((0, -2), 1.0, "names port -2"),
        ((0, 1), 0.0, "weight 0.0"),
        ((0, 1), float("nan"), "weight nan"),
    ],
)
def test_impossible_slot_is_refused(outputs: tuple[int, ...], weight: float, sentence: str) -> None:
    with pytest.raises(DemandError, match=sentence):
        one_slot(*outputs, weight=weight)


def test_slots_of_different_sizes_are_refused() -> None:
    with pytest.raises(DemandError, match="one size"):
        Schedule(((Slot(np.array([0]), 1.0), Slot(np.array([0, 1]), 1.0)),), 0.0)


def test_equal_schedules_are_equal_values() -> None:
    assert one_slot(0, 1) == one_slot(0, 1)
    assert len({one_slot(0, 1), one_slot(0, 1), one_slot(1, 0)}) == 2
    assert one_slot(0, 1) != one_slot(0, 1, weight=2.0)


def test_permutations_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        one_slot(0, 1).switches[0][0].permutation[0] = 1
