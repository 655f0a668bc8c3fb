"""Rings as coupled flows: beside the same rings step by step, and where they do not apply."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.model.backend import FluidBackend
from testbed.model.predict import predict
from tests.examples import examples
from tests.testbed.forwarding_cases import ring_fabric, stride_circuits
from tests.testbed.run_cases import DELAY_S, Case, When, ring
from tests.testbed.test_simulation import same_rail
from tests.traffic.job_cases import OPERATIONS
from topologies.events import Event, NodeStarted, Order, Reconfigure, SetTimer, TimerFired
from topologies.fabric import Fabric, Nic
from topologies.fat_tree import fat_tree_fabric
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.faults import AS_IT_WAS
from traffic.job import Collective, Compute, Job, chain
from traffic.scheme import Scheme, WholeMessages
from traffic.spraying.policy import QueuePair
from traffic.transports.host_settings import TransportSetup

SIZE = 10_000_019
"""A prime, so that no chunks are alike."""


def run(fabric: Fabric, *nodes: Collective, couples: bool, scheme: Scheme = same_rail) -> Run:
    """Return what comes of collectives that start together."""
    job, backend = Job("drawn", fabric.gpus, nodes), FluidBackend(fabric, {})
    return Simulation(fabric, job, backend, scheme, couples=couples).run()


def took_s(found: Run, node: str) -> float:
    return float(found.tasks.loc[found.tasks["node"] == node, "end_s"].max())


def nccl_rings(servers: list[int], rails: int) -> tuple[tuple[int, ...], ...]:
    """Return a ring per rail, which leaves each server over it."""
    return tuple(
        tuple(server * rails + (first + gpu) % rails for server in servers for gpu in range(rails))
        for first in range(rails)
    )


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """Draw servers with a NIC each, of links of all sorts of rates."""
    fabric = rail_fabric(draw(st.integers(2, 8)), 1, 0)
    rates = st.sampled_from([1e9, 10e9, 25e9, 100e9]) | st.floats(1e9, 100e9)
    return replace(fabric, links=tuple(replace(link, rate_bps=draw(rates)) for link in fabric.links))


@given(st.integers(2, 6), st.integers(1, 3), st.integers(18, 10_000), st.sampled_from(OPERATIONS), st.data())
def test_an_edge_carries_what_its_steps_do(
    ranks: int, count: int, size: int, operation: str, data: st.DataObject
) -> None:
    rings = tuple(tuple(data.draw(st.permutations(range(ranks)))) for _ in range(count))
    pattern = Ring(rings, size, operation)  # type: ignore[arg-type]
    coupled, steps = pattern.lower(coupled=True), pattern.lower().moves
    stepwise = np.zeros(count * ranks, dtype=np.int64)
    np.add.at(stepwise, np.arange(len(steps)) % len(stepwise), steps.bytes)
    assert coupled.moves.bytes.tolist() == stepwise.tolist()
    first = np.concatenate([part.placed_as for part in coupled.parts])
    assert first.tolist() == steps.bytes[: len(stepwise)].tolist()
    for column in ("source", "destination"):
        edges = getattr(coupled.moves, column).tolist()
        assert edges == getattr(steps, column)[: len(stepwise)].tolist()
    assert [len(part.moves) for part in coupled.parts] == [ranks] * count
    assert all(part.together for part in coupled.parts)


@settings(max_examples=examples(12, 40), deadline=None)
@given(fabrics(), st.sampled_from(OPERATIONS), st.data())
def test_a_ring_takes_the_time_of_its_steps_within_a_percent(
    fabric: Fabric, operation: str, data: st.DataObject
) -> None:
    order = tuple(data.draw(st.permutations(range(fabric.gpus))))
    node = Collective("ring", Ring((order,), SIZE, operation))  # type: ignore[arg-type]
    exact, found = (run(fabric, node, couples=couples) for couples in (False, True))
    assert took_s(found, "ring") == pytest.approx(took_s(exact, "ring"), rel=0.01)
    assert len(found.messages) == fabric.gpus


@settings(max_examples=examples(5, 15), deadline=None)
@given(
    st.permutations(range(5)),
    st.integers(1, 3),
    st.sampled_from([200e9, 400e9, 900e9]),
    st.sampled_from(OPERATIONS),
)
def test_rings_over_rails_of_their_own_take_the_time_of_their_steps_within_a_percent(
    servers: list[int], rails: int, nvlink_bps: float, operation: str
) -> None:
    fabric = rail_fabric(5, rails, 0, nvlink_bps=nvlink_bps)
    node = Collective("ring", Ring(nccl_rings(servers, rails), SIZE, operation))  # type: ignore[arg-type]
    exact, found = (run(fabric, node, couples=couples) for couples in (False, True))
    assert took_s(found, "ring") == pytest.approx(took_s(exact, "ring"), rel=0.01)


@pytest.mark.parametrize("part", [0.1, 1.0, 4.0])
def test_beside_background_traffic_a_ring_ends_as_step_by_step_and_so_does_long_traffic(part: float) -> None:
    fabric = rail_fabric(8, 1, 0)
    nodes = (
        Collective("ring", Ring((tuple(range(8)),), SIZE)),
        Collective("background", PointToPoint(((0, 4, int(part * SIZE)),))),
    )
    exact, found = (run(fabric, *nodes, couples=couples) for couples in (False, True))
    for node in ("ring", "background") if part >= 1 else ("ring",):
        assert took_s(found, node) == pytest.approx(took_s(exact, node), rel=0.01)


def test_beside_an_all_to_all_a_ring_ends_as_step_by_step() -> None:
    fabric = rail_fabric(8, 1, 0)
    owed = np.random.default_rng(0).integers(1, SIZE // 8, (8, 8))
    nodes = (
        Collective("ring", Ring((tuple(range(8)),), SIZE)),
        Collective("all-to-all", AllToAll(Demand("drawn", owed))),
    )
    exact, found = (run(fabric, *nodes, couples=couples) for couples in (False, True))
    assert took_s(found, "ring") == pytest.approx(took_s(exact, "ring"), rel=0.01)


def test_a_coupled_ring_has_a_row_per_edge_whose_legs_sum_to_its_bytes() -> None:
    fabric = rail_fabric(3, 2, 0)
    pattern = Ring(nccl_rings([0, 2, 1], 2), SIZE)
    job = Job("drawn", 6, (Collective("ring", pattern),))
    # Shared by bytes the two rings end as one, though they differ by some bytes.
    ideal = TransportSetup("ideal")
    found = predict(Experiment(fabric, job, "rails", Dilation(1.0, 1.0), transport=ideal), couples=True)
    messages = found.messages
    assert messages["bytes"].tolist() == pattern.lower(coupled=True).moves.bytes.tolist()
    assert (messages["start_s"] == 0).all()
    assert messages["end_s"].nunique() == 1
    for path, size, source, destination in messages[["path", "bytes", "source", "destination"]].to_numpy():
        inside = source // 2 == destination // 2
        assert (path == "nvlink") == inside
        if not inside:
            assert sum(int(leg.partition("@")[0]) for leg in path.split(" ")) == size


@pytest.mark.parametrize("by_bytes", [False, True])
def test_equal_collectives_after_each_other_take_equal_times(by_bytes: bool) -> None:
    fabric = rail_fabric(4, 2, 0)
    rings = nccl_rings([0, 1, 2, 3], 2)
    nodes = [Collective(f"ring {k}", Ring(rings, SIZE), (f"ring {k - 1}",) if k else ()) for k in range(3)]
    backend = FluidBackend(fabric, {}, by_bytes=by_bytes)
    tasks = Simulation(fabric, Job("drawn", 8, tuple(nodes)), backend, same_rail, couples=True).run().tasks
    assert (tasks["end_s"] - tasks["start_s"]).tolist() == pytest.approx([took_s_alone(fabric, rings)] * 3)


def took_s_alone(fabric: Fabric, rings: tuple[tuple[int, ...], ...]) -> float:
    return took_s(run(fabric, Collective("ring", Ring(rings, SIZE)), couples=False), "ring")


def test_queue_pairs_opened_after_a_ring_share_evenly_with_it() -> None:
    fabric = rail_fabric(3, 1, 0, rate_bps=8.0)
    nodes = (Collective("ring", Ring(((0, 1),), 400)), Collective("other", PointToPoint(((0, 2, 200),))))
    backend = FluidBackend(fabric, {}, by_bytes=False)
    found = Simulation(fabric, Job("drawn", 3, nodes), backend, same_rail, couples=True).run()
    assert [took_s(found, node) for node in ("ring", "other")] == pytest.approx([600, 400])


def assert_equal(one: Run, two: Run) -> None:
    for table in ("messages", "tasks", "events"):
        pd.testing.assert_frame_equal(getattr(one, table), getattr(two, table), check_exact=True)


def test_equal_runs_are_equal_bit_by_bit() -> None:
    fabric = rail_fabric(6, 2, 0)
    nodes = (
        Collective("ring", Ring(nccl_rings([3, 1, 0, 2, 5, 4], 2), SIZE)),
        Collective("background", PointToPoint(((0, 11, SIZE), (4, 7, SIZE)))),
    )
    assert_equal(*(run(fabric, *nodes, couples=True) for _ in range(2)))


@pytest.mark.parametrize("scheme", ["reps", "plb"])
def test_schemes_that_choose_as_they_go_run_rings_step_by_step(scheme: str) -> None:
    fabric = rail_fabric(3, 2)
    job = Job("drawn", 6, (Collective("ring", Ring(((0, 2, 4), (4, 2, 0)), SIZE)),))
    asked = Experiment(fabric, job, scheme, Dilation(1.0, 1.0))
    assert_equal(*(predict(asked, couples=couples) for couples in (False, True)))


def test_where_links_have_delay_rings_run_step_by_step() -> None:
    fabric = rail_fabric(3, 1, 0).with_links(delay_s=1e-5, loss=0.0)
    node = Collective("ring", Ring(((0, 2, 1),), SIZE))
    assert_equal(*(run(fabric, node, couples=couples) for couples in (False, True)))


def test_with_faults_rings_run_step_by_step() -> None:
    case = ring()
    both = (case.run(FluidBackend(case.fabric, case.delay_s), couples=couples) for couples in (False, True))
    assert_equal(*both)


def test_over_circuits_a_coupled_ring_waits_for_light() -> None:
    case = replace(ring(), faults=())
    exact, found = (
        case.run(FluidBackend(case.fabric, case.delay_s), couples=couples) for couples in (False, True)
    )
    assert len(found.messages) == 3
    columns = ["node", "gpu"]
    pd.testing.assert_frame_equal(exact.tasks[columns], found.tasks[columns])
    assert found.tasks["end_s"].tolist() == pytest.approx(exact.tasks["end_s"].tolist(), rel=1e-9)


def test_steps_run_ahead_of_an_edge_in_the_dark_and_a_coupled_ring_stands() -> None:
    """The edge behind the first that goes dark is six steps ahead when it goes dark itself."""
    servers, lit = 8, stride_circuits(8, 1)
    orders: dict[Event, tuple[Order, ...]] = {
        NodeStarted("warm up"): (Reconfigure({"ocs0": lit}),),
        NodeStarted("ring"): (SetTimer("dark 0", 0.03), SetTimer("dark 7", 0.06)),
    }
    for server in (0, 7):
        ends = {2 * server, (2 * server + 3) % 16}
        others = tuple(pair for pair in lit if set(pair) != ends)
        back = SetTimer(f"back {server}", DELAY_S)
        orders[TimerFired(f"dark {server}")] = (Reconfigure({"ocs0": others}), back)
        orders[TimerFired(back.name)] = (Reconfigure({"ocs0": lit}),)
    scheme = WholeMessages(lambda _, near, far: QueuePair(Nic(near, 0), Nic(far, 1)))
    pattern = Ring((tuple(range(servers)),), 3_200_000_000)
    nodes = (Compute("warm up", (0,), 2 * DELAY_S), Collective("ring", pattern))
    fabric = replace(ring_fabric(servers), servers_forward=False)
    case = Case(fabric, chain("dark", servers, nodes), scheme, When(orders), (), AS_IT_WAS)
    steps, coupled = (
        took_s(case.run(FluidBackend(fabric, case.delay_s), couples=couples), "ring")
        for couples in (False, True)
    )
    alone_s, away_s = 14 * 3.2e9 / 8 / (100e9 / 8), 2 * DELAY_S
    assert steps == pytest.approx(2 * DELAY_S + alone_s + away_s)
    assert coupled == pytest.approx(2 * DELAY_S + alone_s + 2 * away_s)


@pytest.mark.parametrize("nvlink_bps", [8.0, 80.0])
def test_edges_inside_servers_are_held_back_by_nvlink(nvlink_bps: float) -> None:
    fabric = rail_fabric(2, 2, 0, rate_bps=8.0 * 5, nvlink_bps=nvlink_bps)
    found = run(fabric, Collective("ring", Ring(((0, 1, 2, 3),), 400)), couples=True)
    assert took_s(found, "ring") == pytest.approx(600 / min(nvlink_bps / 8, 5.0))


@settings(max_examples=examples(5, 10), deadline=None)
@given(st.integers(0, 99))
def test_ecmp_keeps_the_path_of_a_rings_edge_for_all_steps(seed: int) -> None:
    """In a fat tree an entropy drawn anew is of another path mostly."""
    fabric = fat_tree_fabric(4, servers=4, nics=4)
    order = tuple(range(fabric.gpus))
    job = Job("drawn", fabric.gpus, (Collective("ring", Ring((order, order[::-1]), SIZE)),))
    asked = Experiment(fabric, job, "ecmp", Dilation(1.0, 1.0), seed)
    exact, coupled = (predict(asked, couples=couples) for couples in (False, True))
    messages = exact.messages
    ways = messages["path"].str.replace(r"^\d+@", "", regex=True)
    assert ways.groupby([messages["source"], messages["destination"]]).nunique().eq(1).all()
    assert coupled.iteration_s == pytest.approx(exact.iteration_s, rel=0.01)


@pytest.mark.parametrize("by_bytes", [False, True])
def test_a_ring_shares_nvlink_with_a_message_beside_it(by_bytes: bool) -> None:
    """NVLink out of GPU 0 carries both, and is never idle: the last of them ends when it has carried all."""
    fabric = rail_fabric(2, 2, 0, rate_bps=8e9, nvlink_bps=800.0)
    ring, message = Ring(((0, 1, 2, 3),), 400), PointToPoint(((0, 1, 300),))
    nodes = (Collective("ring", ring), Collective("message", message))
    edge = 2 * 3 * 100
    backend = FluidBackend(fabric, {}, by_bytes=by_bytes)
    found = Simulation(fabric, Job("beside", 4, nodes), backend, same_rail, couples=True).run().tasks
    took_s = dict(zip(found["node"], found["end_s"], strict=True))
    assert max(took_s.values()) == pytest.approx((edge + 300) / 100)
    assert took_s["message"] == pytest.approx(2 * 300 / 100)
