"""What sets each of the compared schedulers apart."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.schedulers.bvn import bvn
from controller.schedulers.demand import Matrix
from controller.schedulers.eclipse import densest_slot, eclipse
from controller.schedulers.less import balanced_split
from controller.schedulers.rotor import rotor
from controller.schedulers.schedule import Permutation
from controller.schedulers.solstice import solstice
from controller.schedulers.stuffing import Units, stuffed
from tests.controller.schedulers.implementations import DEMANDS
from tests.examples import examples


@settings(max_examples=examples(15, 50), deadline=None)
@given(demand=DEMANDS, parts=st.integers(1, 4))
def test_split_sums_to_the_demand(demand: Matrix, parts: int) -> None:
    split = balanced_split(demand, parts)
    assert len(split) == parts
    assert np.allclose(sum(split), demand, rtol=1e-9, atol=0)


def test_split_cuts_nothing_that_balances_whole() -> None:
    split = balanced_split(np.array([[0.5, 0.5], [0.5, 0.5]]), 2)
    assert [np.count_nonzero(part) for part in split] == [2, 2]
    assert [part.sum(axis=1).tolist() for part in split] == [[0.5, 0.5], [0.5, 0.5]]


@settings(max_examples=examples(15, 50), deadline=None)
@given(units=st.integers(1, 6).flatmap(lambda n: st.lists(st.integers(0, 9), min_size=n * n, max_size=n * n)))
def test_stuffed_matrix_has_lines_of_one_sum(units: list[int]) -> None:
    ports = round(len(units) ** 0.5)
    matrix: Units = np.array(units, dtype=np.int64).reshape(ports, ports)
    full = stuffed(matrix)
    goal = max(matrix.sum(axis=0).max(), matrix.sum(axis=1).max())
    assert (full >= matrix).all()
    assert full.sum(axis=0).tolist() == full.sum(axis=1).tolist() == [goal] * ports


@settings(max_examples=examples(15, 50), deadline=None)
@given(demand=DEMANDS)
def test_bvn_without_delay_takes_as_long_as_the_fullest_line(demand: Matrix) -> None:
    fullest = max(demand.sum(axis=0).max(), demand.sum(axis=1).max())
    assert bvn(demand, 1, 0.0).makespan == pytest.approx(fullest, rel=1e-3)


def test_solstice_shows_long_slots_first() -> None:
    demand = np.array([[8.0, 1.0, 0.5], [0.5, 8.0, 1.0], [1.0, 0.5, 8.0]])
    assert [slot.weight for slot in solstice(demand, 1, 0.1).switches[0]] == pytest.approx([8.0, 1.0, 0.5])


@settings(max_examples=examples(15, 50), deadline=None)
@given(demand=DEMANDS.filter(lambda demand: bool(demand.any())), delay=st.sampled_from([0.01, 1.0]))
def test_densest_slot_is_as_dense_as_the_best_of_all_durations(demand: Matrix, delay: float) -> None:
    from_search = densest_slot(demand, delay)
    rows = np.arange(len(demand))

    def rate(permutation: Permutation, duration: float) -> float:
        return float(np.minimum(demand[rows, permutation], duration).sum()) / (duration + delay)

    every = [densest_slot(np.minimum(demand, duration), delay) for duration in np.unique(demand[demand > 0])]
    best = max(rate(slot.permutation, slot.weight) for slot in every)
    assert rate(from_search.permutation, from_search.weight) >= best * (1 - 2e-2)


def test_eclipse_takes_longer_slots_where_delays_are_longer() -> None:
    demand = np.random.default_rng(0).random((8, 8))
    slots = [len(eclipse(demand, 1, delay).switches[0]) for delay in (0.01, 0.1, 1.0)]
    assert slots == sorted(slots, reverse=True)


def test_rotor_turns_through_every_shift_once() -> None:
    demand = np.zeros((4, 4))
    demand[0, 1] = 2.0
    plan = rotor(demand, 2, 0.5)
    shown = [[slot.permutation.tolist() for slot in slots] for slots in plan.switches]
    assert shown == [[[1, 2, 3, 0], [3, 0, 1, 2]], [[2, 3, 0, 1]]]
    assert plan.makespan == 5.0


def test_rotor_leaves_switches_without_a_shift_dark() -> None:
    plan = rotor([[0.0, 1.0], [0.0, 0.0]], 3, 0.5)
    assert plan.loads == (1.5, 0, 0)
