"""What holds for the schedule of any scheduler: it covers, it is feasible, no bound is beaten."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.schedulers.demand import LARGEST, SMALLEST, Matrix
from controller.schedulers.registry import Scheduler
from tests.controller.schedulers.implementations import DEMANDS, check, each_scheduler
from tests.examples import examples
from topologies.errors import DemandError

SWITCHES, DELAYS = st.integers(1, 5), st.sampled_from([0.0, 1e-3, 0.1, 1.0])


@each_scheduler
@settings(max_examples=examples(25, 400), deadline=None)
@given(demand=DEMANDS, switches=SWITCHES, delay=DELAYS)
def test_covers_and_is_no_shorter_than_the_bound(
    scheduler: Scheduler, demand: Matrix, switches: int, delay: float
) -> None:
    check(scheduler, demand, switches, delay)


@each_scheduler
def test_demand_of_nothing_takes_no_time(scheduler: Scheduler) -> None:
    plan = scheduler(np.zeros((3, 3)), 2, 0.1)
    assert plan.switches == ((), ())
    assert plan.makespan == 0
    assert plan.covers(np.zeros((3, 3)))


@each_scheduler
def test_same_demand_gives_the_same_schedule(scheduler: Scheduler) -> None:
    demand = np.random.default_rng(0).random((8, 8))
    given_demand = demand.copy()
    assert scheduler(demand, 3, 0.01) == scheduler(demand, 3, 0.01)
    assert (demand == given_demand).all(), "the caller's matrix was written to"


@each_scheduler
def test_unit_of_the_demand_does_not_matter(scheduler: Scheduler) -> None:
    demand = np.random.default_rng(1).random((6, 6))
    seconds, nanoseconds = scheduler(demand, 2, 0.125), scheduler(demand * 2**30, 2, 0.125 * 2**30)
    assert nanoseconds.makespan == pytest.approx(seconds.makespan * 2**30, rel=1e-6)


@each_scheduler
@pytest.mark.parametrize("largest", [SMALLEST, LARGEST])
def test_largest_and_smallest_units_are_scheduled(scheduler: Scheduler, largest: float) -> None:
    demand = np.random.default_rng(2).random((4, 4))
    demand *= largest / demand.max()
    for delay in (0.0, 0.1 * largest, 0.1, LARGEST):
        check(scheduler, demand, 2, delay)


@each_scheduler
@pytest.mark.parametrize("least", [1e-250, 5e-324])
def test_entry_next_to_nothing_is_no_reason_to_refuse_the_others(scheduler: Scheduler, least: float) -> None:
    demand = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, least], [0.5, least, least]])
    for switches in (1, 2, 5):
        check(scheduler, demand, switches, 0.01)


@each_scheduler
@pytest.mark.parametrize(
    ("demand", "switches", "delay", "sentence"),
    [
        ([[0.0, 1.0, 2.0]], 1, 0.0, "shape 1 x 3"),
        ([], 1, 0.0, "shape 0"),
        (1.0, 1, 0.0, "a single number"),
        ([[0.0, -1.0], [0.0, 0.0]], 1, 0.0, r"demand\[0, 1\] is -1.0"),
        ([[0.0, 1.0], [np.nan, 0.0]], 1, 0.0, r"demand\[1, 0\] is nan"),
        ([[np.inf]], 1, 0.0, r"demand\[0, 0\] is inf"),
        ([["a lot"]], 1, 0.0, "not a table of numbers"),
        ([[10**400]], 1, 0.0, "not a table of numbers"),
        (np.full((3, 3), 1e-320), 1, 0.0, "at most .*e-32"),
        (np.full((3, 3), 1e308), 1, 0.0, r"up to 1e\+308"),
        ([[1.0]], 0, 0.0, "0 switches"),
        ([[1.0]], 2.5, 0.0, "2.5 switches; ask for a whole number"),
        ([[1.0]], float("nan"), 0.0, "nan switches; ask for a whole number"),
        ([[1.0]], 1, None, "delay of None"),
        ([[1.0]], 1, "0.1", "delay of 0.1; it must be a finite number"),
        ([[1.0]], 1, 1e300, r"delay of 1e\+300; take a unit"),
        ([[1.0]], 1, -0.1, "delay of -0.1"),
        ([[1.0]], 1, float("nan"), "delay of nan"),
    ],
)
def test_nonsense_is_refused_with_its_value(
    scheduler: Scheduler, demand: Matrix, switches: int, delay: float, sentence: str
) -> None:
    with pytest.raises(DemandError, match=sentence):
        scheduler(demand, switches, delay)
