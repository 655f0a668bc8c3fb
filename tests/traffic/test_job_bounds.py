"""Bounds of jobs: by hand, and that no run beats them (tests/testbed/test_composed.py)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traffic.cases import uneven_fabric
from tests.traffic.job_cases import OPERATIONS
from topologies.khop_ring import GPU_BPS, KHopRing, khop_ring_fabric
from topologies.rail import rail_fabric
from traffic.bounds import lower_bound_s
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.job import Collective, Compute, Job
from traffic.job_bounds import communication_bound_s, job_bound_s, node_bounds_s, together_bound_s
from traffic.messages import Messages
from traffic.workloads.khop_all_to_all import exchange_job, ring_job


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


def test_what_starts_later_is_bound_by_its_start_and_by_what_goes_beside_it() -> None:
    """A server sends 100 bytes at once and 30 later, over a NIC of a byte a second."""
    fabric = rail_fabric(2, 1, rate_bps=8.0)

    def job(at_s: float) -> Job:
        late = Collective("late", PointToPoint(((0, 1, 30),)), at_s=at_s)
        return Job("drawn", 2, (Collective("early", PointToPoint(((0, 1, 100),))), late))

    lent = {fabric.nic_port(nic): 10.0 for nic in fabric.nics}
    assert together_bound_s(job(20.0), fabric) == pytest.approx(130)
    assert together_bound_s(job(120.0), fabric) == pytest.approx(150)
    assert together_bound_s(job(120.0), fabric, lent) == pytest.approx(140)
    bounds_s = node_bounds_s(job(120.0), fabric)
    assert job_bound_s(job(120.0), bounds_s) == pytest.approx(150)
    assert communication_bound_s(job(120.0), bounds_s) == pytest.approx(100)


@given(st.integers(2, 4), st.integers(0, 2), st.integers(1, 1000))
def test_the_bound_of_an_all_to_all_is_the_same_whatever_carries_it(
    bundles: int, more: int, quarter: int
) -> None:
    """All that a node owes leaves by its K bundles; what the ones and the others pass on is no part of it."""
    ring, m = KHopRing(1 << bundles, bundles + more, bundles, doubling=True), 4000 * quarter
    fabric = khop_ring_fabric(ring)
    jobs = exchange_job(ring, m), *(ring_job(ring, m, both_ways=way) for way in (False, True))
    least_s = (ring.nodes - 1) * m * 8 / (bundles * GPU_BPS)
    for job in jobs:
        assert communication_bound_s(job, node_bounds_s(job, fabric)) == pytest.approx(least_s)
        assert communication_bound_s(job, node_bounds_s(job, fabric, forwarded=True)) >= least_s * (1 - 1e-9)


@given(st.integers(2, 5), st.integers(1, 3), st.integers(1, 3), st.data())
def test_the_bound_of_a_sum_is_the_same_for_all_rings_and_no_more_than_any_takes(
    servers: int, gpus: int, rings: int, data: st.DataObject
) -> None:
    """NICs of a byte a second; whatever order a ring has, what its busiest server moves takes no less."""
    fabric = rail_fabric(servers, gpus, rate_bps=8.0)
    n, size = servers * gpus, 60 * servers * gpus
    orders = tuple(tuple(data.draw(st.permutations(range(n)))) for _ in range(rings))
    between = {"all-reduce": 2 * (servers - 1) / servers, "reduce-scatter": (servers - 1) / servers}
    between["all-gather"] = between["reduce-scatter"]
    for operation in OPERATIONS:
        job = Job("sum", n, (Collective("sum", Ring(orders, size, operation)),))
        least_s = between[operation] * size / gpus
        assert communication_bound_s(job, node_bounds_s(job, fabric)) == pytest.approx(least_s)
        assert communication_bound_s(job, node_bounds_s(job, fabric, forwarded=True)) >= least_s * (1 - 1e-9)


def test_a_sum_is_bound_by_its_slow_server() -> None:
    """Servers of 10, 10 and 40 bytes a second: S leaves and enters each, which is more than all together."""
    fabric = uneven_fabric(1, 1, 4)
    ends = tuple(fabric.gpu_offsets[:3])
    job = Job("sum", fabric.gpus, (Collective("sum", Ring((ends,), 600)),))
    assert communication_bound_s(job, node_bounds_s(job, fabric)) == pytest.approx(600 / 10)
    assert communication_bound_s(job, node_bounds_s(job, fabric, gone=ends[:1])) == pytest.approx(600 / 10)
    assert communication_bound_s(job, node_bounds_s(job, fabric, gone=ends[:2])) == 0.0
    lent = {fabric.nic_port(nic): 60.0 for nic in fabric.nics}
    assert communication_bound_s(job, node_bounds_s(job, fabric, lent)) == pytest.approx(540 / 10)
    far = fabric.with_links(delay_s=0.1, loss=0.0)
    assert communication_bound_s(job, node_bounds_s(job, far)) == pytest.approx(60.2)


def test_a_sum_is_bound_by_all_servers_together() -> None:
    """Four servers of 10 bytes a second, of 600 bytes 2 (s - 1) S = 3,600 less what their ports lent."""
    fabric = uneven_fabric(1, 1, 1, 1)
    job = Job("sum", 4, (Collective("sum", Ring(((0, 1, 2, 3),), 600)),))
    assert communication_bound_s(job, node_bounds_s(job, fabric)) == pytest.approx(3600 / 40)
    lent = {fabric.nic_port(nic): 60.0 for nic in fabric.nics}
    assert communication_bound_s(job, node_bounds_s(job, fabric, lent)) == pytest.approx((3600 - 240) / 40)
    assert communication_bound_s(job, node_bounds_s(job, fabric, gone=(3,))) == pytest.approx(600 / 10)


def test_what_patterns_pass_on_counts_where_it_is_asked_for() -> None:
    """Four nodes of GPUs of two NICs: a lane's GPU passes on 6 m, 4 m in two rounds, or 2 m both ways."""
    ring, m = KHopRing(4, 4, 2, doubling=True), 40_000_000
    fabric = khop_ring_fabric(ring)
    jobs = exchange_job(ring, m), *(ring_job(ring, m, both_ways=way) for way in (False, True))
    passed_s = [communication_bound_s(job, node_bounds_s(job, fabric, forwarded=True)) for job in jobs]
    assert passed_s == pytest.approx([1e-4, 1.5e-4, 1e-4])


@given(parts=st.integers(1, 5), servers=st.integers(2, 4), gpus=st.integers(1, 3))
def test_a_collective_cut_into_several_at_once_has_the_bound_of_the_whole(
    parts: int, servers: int, gpus: int
) -> None:
    """NICs of a byte a second carry all of them, whatever goes beside what."""
    fabric = rail_fabric(servers, gpus, rate_bps=8.0)
    n = servers * gpus
    whole = 60 * n
    sums = [Collective(f"sum {k}", Ring((tuple(range(n)),), whole)) for k in range(parts)]
    demand = Demand("even", np.full((n, n), whole))
    exchanges = [Collective(f"exchange {k}", AllToAll(demand)) for k in range(parts)]
    for cut, once_s in (
        (sums, 2 * (servers - 1) / servers * whole / gpus),
        (exchanges, (servers - 1) * gpus * whole),
    ):
        assert together_bound_s(Job("parts", n, tuple(cut)), fabric) == pytest.approx(parts * once_s)


def test_nodes_that_share_a_server_are_one() -> None:
    """GPUs 0 and 2 are a node, and so are 3 and 4; 2 and 3 are in one server: nothing has to leave."""
    fabric = rail_fabric(3, 2, rate_bps=8.0)
    messages = Messages(np.array([2, 0]), np.array([3, 4]), np.array([100, 100]))
    assert lower_bound_s(messages, fabric, nodes=((0, 2), (3, 4))) == 0.0
    assert lower_bound_s(messages, fabric, nodes=((3, 4), (0, 2))) == 0.0
    assert lower_bound_s(messages, fabric, nodes=((3, 4),)) == pytest.approx(100 / 2)
