"""No lower bound is above the least makespan, which brute force finds for 2 and 3 ports."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from controller.schedulers.bounds import (
    degree,
    lines,
    lower_bound_1,
    lower_bound_2,
    makespan_lower_bound,
    ranked_weight,
    split_lower_bound,
)
from controller.schedulers.demand import LARGEST, Matrix
from controller.schedulers.registry import SCHEDULERS, scheduler_named
from tests.controller.schedulers.brute_force import TOLERANCE, least_makespan, least_weights
from tests.controller.schedulers.implementations import ENTRIES
from tests.examples import examples

VANISHING = np.array([[1e100, 1e-250], [0.0, 1e100]])
"""Over any slot that serves the others, the small entry is less than the smallest number."""


def demands(ports: int) -> st.SearchStrategy[Matrix]:
    entries = st.one_of(ENTRIES, st.sampled_from([1e-250, 1e-9, 1.0, 1e100]))
    return arrays(np.float64, (ports, ports), elements=entries).filter(lambda demand: demand.max() > 1e-100)


DELAYS = st.sampled_from([0.0, 1e-3, 0.1, 0.5, 1.0, 10.0])
"""Over the largest entry."""


def assert_bounds_hold(demand: Matrix, switches: int, share: float) -> None:
    delay = min(share * demand.max(), LARGEST)
    least = least_makespan(demand, switches, delay) * (1 + TOLERANCE)
    busy = lines(demand)
    busy = busy[busy[:, 0] > 0]
    exact = busy[np.count_nonzero(busy, axis=1) == switches]
    assert (lower_bound_1(busy, switches, delay) <= least).all()
    assert (lower_bound_2(exact, switches, delay) <= least).all()
    assert makespan_lower_bound(demand, switches, delay) <= least
    assert split_lower_bound(demand, switches, delay) <= least


@settings(max_examples=examples(18, 60), deadline=None)
@example(demand=VANISHING, switches=1, share=0.1)
@example(demand=VANISHING, switches=1, share=1.0)
@given(demand=demands(2), switches=st.integers(1, 3), share=DELAYS)
def test_bounds_hold_for_two_ports(demand: Matrix, switches: int, share: float) -> None:
    assert_bounds_hold(demand, switches, share)


@settings(max_examples=examples(6, 20), deadline=None)
@given(demand=demands(3), switches=st.integers(1, 2), share=DELAYS)
def test_bounds_hold_for_three_ports(demand: Matrix, switches: int, share: float) -> None:
    assert_bounds_hold(demand, switches, share)


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_bounds_hold_for_three_ports_and_three_switches(share: float) -> None:
    rng = np.random.default_rng(int(10 * share))
    assert_bounds_hold(rng.random((3, 3)) * (rng.random((3, 3)) < 0.8), 3, share)


@settings(max_examples=examples(6, 20), deadline=None)
@given(demand=demands(3))
def test_ranks_bound_the_weight_of_so_many_slots(demand: Matrix) -> None:
    unit = demand.max()
    least = least_weights(demand / unit, demand > 0) * unit
    slots = np.bitwise_count(np.arange(len(least)))
    for count in range(degree(demand), 2 * degree(demand) + 1):
        of_so_many = least[slots <= count].min()
        assert ranked_weight(lines(demand), count) <= of_so_many * (1 + TOLERANCE)


def test_entry_that_vanishes_beside_another_still_needs_a_slot() -> None:
    for delay in (1e99, 1e100):
        assert split_lower_bound(VANISHING, 1, delay) == pytest.approx(1e100 + 2 * delay)


@pytest.mark.parametrize(
    ("demand", "switches", "delay", "least"),
    [
        ([[0.5, 0.5], [0.5, 0.5]], 1, 0.1, 1.2),  # both permutations, one after the other
        ([[0.5, 0.5], [0.5, 0.5]], 2, 0.1, 0.6),  # one on each switch
        ([[0.9, 0.0], [0.0, 0.9]], 3, 0.1, 0.4),  # cut in three
        ([[0.9, 0.0], [0.0, 0.9]], 3, 2.0, 2.3),  # cut in three: every switch pays its delay at once
        ([[0.9, 0.3], [0.0, 0.0]], 2, 0.0, 0.6),
    ],
)
def test_brute_force_finds_known_makespans(
    demand: list[list[float]], switches: int, delay: float, least: float
) -> None:
    assert least_makespan(np.array(demand), switches, delay) == pytest.approx(least)


@settings(max_examples=examples(5, 10), deadline=None)
@given(demand=demands(2), switches=st.integers(1, 2), share=DELAYS)
def test_no_scheduler_beats_brute_force(demand: Matrix, switches: int, share: float) -> None:
    delay = min(share * demand.max(), LARGEST)
    least = least_makespan(demand, switches, delay) * (1 - TOLERANCE)
    for scheduler in map(scheduler_named, SCHEDULERS):
        assert scheduler(demand, switches, delay).makespan >= least
