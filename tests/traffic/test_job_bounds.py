"""Bounds of jobs: by hand, and that no run beats them (tests/testbed/test_composed.py)."""

import numpy as np
import pytest

from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.job import Collective, Compute, Job
from traffic.job_bounds import job_bound_s, node_bounds_s


def test_bounds_are_the_longest_path_or_the_busiest_gpu() -> None:
    fabric = rail_fabric(2, 2, rate_bps=8.0)  # a byte a second on each of two NICs
    owed = np.zeros((4, 4), dtype=np.int64)
    owed[0, 1], owed[0, 2] = 100, 30
    nodes = (
        Compute("a", (0, 1), 1.0, durations_s=(2.0, 5.0)),
        Collective("b", AllToAll(Demand("b", owed)), ("a",)),
        Collective("c", Ring(((0, 1),), 100), ("b",)),
        Compute("d", (0,), 40.0),
    )
    job = Job("drawn", 4, nodes)
    bounds_s = node_bounds_s(job, fabric)
    assert bounds_s == {"a": 5.0, "b": 15.0, "c": 0.0, "d": 40.0}
    assert job_bound_s(job, bounds_s) == pytest.approx(42.0)  # a and d on GPU 0
    shorter = Job("drawn", 4, (*nodes[:3], Compute("d", (0,), 0.0)))
    assert job_bound_s(shorter, node_bounds_s(shorter, fabric)) == pytest.approx(20.0)  # a, b, c
