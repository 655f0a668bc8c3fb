"""Spectra's steps: decompose, refine, schedule, equalize."""

import numpy as np
import pytest
from hypothesis import given, settings

from controller.schedulers.decompose import decompose, refine
from controller.schedulers.demand import Matrix, degree
from controller.schedulers.schedule import Schedule, Slot, served
from controller.schedulers.spectra import equalize, schedule, spectra
from controller.schedulers.spectra_plus import reweighed, spectra_plus
from tests.controller.schedulers.implementations import DEMANDS

HOLD, SWAP, TURN, BACK = (np.array(order) for order in ([0, 1, 2], [1, 0, 2], [1, 2, 0], [2, 0, 1]))


def weights(plan: Schedule) -> list[list[float]]:
    return [[round(slot.weight, 9) for slot in slots] for slots in plan.switches]


@settings(max_examples=100, deadline=None)
@given(demand=DEMANDS)
def test_decompose_returns_as_many_permutations_as_the_degree(demand: Matrix) -> None:
    slots = decompose(demand)
    assert len(slots) == degree(demand)
    for slot in slots:
        assert sorted(slot.permutation) == list(range(len(demand)))
    assert (demand - served(slots, len(demand)) <= 1e-9 * demand.max()).all()


def test_weights_of_disjoint_permutations_are_found_again() -> None:
    demand = served([Slot(HOLD, 0.6), Slot(TURN, 0.3), Slot(BACK, 0.1)], 3)
    found = {(tuple(slot.permutation.tolist()), slot.weight) for slot in decompose(demand)}
    assert found == {((0, 1, 2), 0.6), ((1, 2, 0), 0.3), ((2, 0, 1), 0.1)}


def test_refine_raises_only_what_is_short() -> None:
    demand = np.array([[0.5, 0.25], [0.0, 0.5]])
    hold, swap = np.array([0, 1]), np.array([1, 0])
    refined = refine(demand, [Slot(hold, 0.5), Slot(swap, 0.125)])
    assert [slot.weight for slot in refined] == [0.5, 0.25]


def test_refine_raises_a_shared_entry_by_the_last_slot_that_holds_it() -> None:
    hold, swap = np.array([0, 1, 2]), np.array([0, 2, 1])
    demand = served([Slot(hold, 0.25), Slot(swap, 0.5)], 3)
    refined = refine(demand, [Slot(hold, 0.125), Slot(swap, 0.125)])
    assert [slot.weight for slot in refined] == [0.25, 0.5], "the first would have ended 0.625 long"


def test_paper_example_loads_after_schedule_and_after_equalize() -> None:
    plan = schedule([Slot(HOLD, 0.61), Slot(TURN, 0.3), Slot(BACK, 0.1)], 2, 0.01)
    assert weights(plan) == [[0.61], [0.3, 0.1]]
    assert plan.loads == pytest.approx((0.62, 0.42))
    equal = equalize(plan)
    assert weights(equal) == [[0.515], [0.3, 0.1, 0.095]]
    assert equal.loads == pytest.approx((0.525, 0.525))
    assert equal.switches[1][2].permutation.tolist() == HOLD.tolist()


def test_equalize_leaves_a_lead_of_a_delay() -> None:
    plan = Schedule(((Slot(HOLD, 1.5),), (Slot(TURN, 1.25),)), 0.25)
    assert equalize(plan) == plan


def test_equalize_stops_where_the_longest_slot_is_too_short_to_cut() -> None:
    many = tuple(Slot(order, 0.25) for order in (HOLD, TURN, BACK, SWAP))
    plan = Schedule((many, ()), 0.0)
    assert equalize(plan) == plan


def test_equalize_joins_an_equal_permutation_without_a_delay() -> None:
    plan = Schedule(((Slot(HOLD, 2.0),), (Slot(HOLD, 1.0),)), 0.5)
    assert weights(equalize(plan)) == [[1.75], [1.25]]


@pytest.mark.parametrize("seed", range(5))
def test_spectra_plus_is_never_longer_than_spectra(seed: int) -> None:
    rng = np.random.default_rng(seed)
    demand = rng.random((8, 8)) * (rng.random((8, 8)) < 0.4)
    switches, delay = int(rng.integers(1, 5)), float(rng.choice([0.01, 0.1]))
    assert spectra_plus(demand, switches, delay).makespan <= spectra(demand, switches, delay).makespan


def test_reweighed_slot_shrinks_where_another_may_grow() -> None:
    demand = np.array([[0.9, 0.0], [0.0, 0.9]])
    plan = Schedule(((Slot(np.array([0, 1]), 0.8),), (Slot(np.array([0, 1]), 0.1),)), 0.01)
    assert reweighed(demand, plan).loads == pytest.approx((0.46, 0.46))
