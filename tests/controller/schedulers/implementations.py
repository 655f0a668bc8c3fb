"""Every registered scheduler, random demands for them, and an independent checker."""

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from controller.schedulers.bounds import makespan_lower_bound, split_lower_bound
from controller.schedulers.demand import Matrix
from controller.schedulers.registry import SCHEDULERS, Scheduler, scheduler_named
from controller.schedulers.schedule import Schedule

each_scheduler = pytest.mark.parametrize("scheduler", [*map(scheduler_named, SCHEDULERS)], ids=SCHEDULERS)

ENTRIES = st.one_of(
    st.just(0.0),
    st.floats(1e-3, 1.0),
    st.sampled_from([0.25, 0.5, 1.0]),  # equal entries: ties in every sort and every matching
    st.floats(1e-12, 1e9),  # entries of very unequal size
)

DEMANDS = st.integers(1, 7).flatmap(lambda ports: arrays(np.float64, (ports, ports), elements=ENTRIES))


def check(scheduler: Scheduler, demand: Matrix, switches: int, delay: float) -> None:
    """Assert that a scheduler covers a demand by a feasible schedule, and beats no bound."""
    plan = scheduler(demand, switches, delay)
    carried, end = replayed(plan, len(demand))
    assert len(plan.switches) == switches
    assert (demand - carried <= 1e-9 * demand.max()).all()
    assert plan.covers(demand)
    assert plan.makespan == pytest.approx(end)
    assert end >= split_lower_bound(demand, switches, delay) * (1 - 1e-8)
    assert split_lower_bound(demand, switches, delay) >= makespan_lower_bound(demand, switches, delay)


def replayed(plan: Schedule, ports: int) -> tuple[Matrix, float]:
    """Return what a schedule carries and when it ends, by stepping through it port by port."""
    carried = np.zeros((ports, ports))
    end = 0.0
    for slots in plan.switches:
        now = 0.0
        for permutation, weight in slots:
            outputs = [int(output) for output in permutation]
            lit = [output for output in outputs if output != -1]
            assert len(outputs) == ports
            assert len(set(lit)) == len(lit), "two circuits end in one port"
            assert set(lit) <= set(range(ports))
            assert weight > 0
            now += plan.delay + weight
            for source, destination in enumerate(outputs):
                if destination != -1:
                    carried[source, destination] += weight
        end = max(end, now)
    return carried, end
