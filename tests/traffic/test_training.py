"""Training steps: who is in which group, what waits for what, and rings over servers."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from tests.traffic.job_cases import OPERATIONS
from topologies.errors import DemandError, ScenarioError
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.ring import Operation, Ring
from traffic.job import Collective, Job
from traffic.rings_over import closed_form_s, rings_over, with_rings
from traffic.training import GroupKind, Layout, Phases, StepPhase, calls, first_alike, job_of_phases
from traffic.transports.host_settings import TransportSetup
from traffic.workloads.gpt import gpt_step

FEW = st.integers(1, 3)
layouts = st.builds(lambda tp, ep, more, pp: Layout(tp, ep * more, ep, pp), FEW, FEW, FEW, FEW)


@given(layouts, st.sampled_from(get_args(GroupKind)))
def test_the_groups_of_a_kind_are_a_partition_of_the_ranks(layout: Layout, kind: GroupKind) -> None:
    sizes = {"tp": layout.tp, "dp": layout.dp, "ep": layout.ep, "dp_ep": layout.dp // layout.ep}
    groups = layout.groups(kind)
    assert sorted(rank for group in groups for rank in group) == list(range(layout.gpus))
    assert {len(group) for group in groups} == {{**sizes, "pp": layout.pp, "all": layout.gpus}[kind]}


@given(layouts)
def test_a_data_parallel_rank_is_one_expert_rank_of_one_group(layout: Layout) -> None:
    expert, same = layout.groups("ep"), layout.groups("dp_ep")
    assert all(len(set(one) & set(other)) <= 1 for one in expert for other in same)
    assert all(any(set(one) <= set(group) for group in layout.groups("dp")) for one in (*expert, *same))


def test_megatrons_order() -> None:
    layout = Layout(tp=2, dp=4, ep=2, pp=2)
    first = {kind: list(layout.groups(kind)[0]) for kind in get_args(GroupKind)}
    assert first == {
        "tp": [0, 1],
        "dp": [0, 2, 4, 6],
        "ep": [0, 2],
        "dp_ep": [0, 4],
        "pp": [0, 8],
        "all": list(range(16)),
    }


def test_what_blocks_is_waited_for_and_what_does_not_goes_beside() -> None:
    phases = (
        StepPhase("a", 1.0, "all-reduce", "tp", 8),
        StepPhase("b", 2.0, "reduce-scatter", "dp", 8, blocks=False),
        StepPhase("c", 0.0, "all-reduce", "dp", 8, blocks=False),
        StepPhase("d", 3.0),
        StepPhase("e", 0.0, "all-reduce", "tp", 1),
    )
    job = job_of_phases(Phases("step", Layout(2, 1), phases, "drawn"), least_bytes=2)
    assert [(node.name, node.after) for node in job.nodes] == [
        ("a", ()),
        ("a all-reduce", ("a",)),
        ("b", ("a all-reduce",)),
        ("d", ("b",)),
    ], "a group of one sends nothing"
    assert job.note == "drawn; left out: collectives under 2 bytes (1)"
    of_two = job_of_phases(Phases("step", Layout(1, 2), phases))
    assert [(node.name, node.after) for node in of_two.nodes] == [
        ("a", ()),
        ("b", ("a",)),
        ("b reduce-scatter", ("b",)),
        ("c all-reduce", ("b", "b reduce-scatter")),
        ("d", ("b",)),
    ]


@given(st.integers(2, 8), st.integers(1, 10_000), st.sampled_from([*OPERATIONS, "all-to-all"]))
def test_a_call_has_the_bytes_of_its_definition(ranks: int, size: int, call: Operation) -> None:
    (node,) = calls("call", call, [range(ranks)], size, ())
    if isinstance(node.pattern, AllToAll):
        assert (node.pattern.demand.matrix.sum(axis=1) == size).all()
        assert (node.pattern.demand.matrix.sum(axis=0) == size).all()
    else:
        assert node.pattern == Ring((tuple(range(ranks)),), max(size, ranks), call)
    assert calls("call", call, [[0]], size, ()) == calls("call", call, [range(ranks)], 0, ()) == ()


@given(st.lists(st.integers(0, 3)), st.integers(0, 4))
def test_so_many_alike_are_taken_in_order(items: list[int], most: int) -> None:
    taken = first_alike(items, most)
    assert {each: taken.count(each) for each in items} == {
        each: min(items.count(each), most) for each in items
    }
    assert first_alike(items, None) == items


@given(st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_each_nic_sends_for_one_ring_and_no_edge_of_even_rings_changes_rails(
    servers: int, rails: int, per_rail: bool
) -> None:
    fabric = rail_fabric(servers, rails)
    rings = rings_over(range(fabric.gpus), fabric, per_rail=per_rail)
    assert len(rings) == (rails if per_rail and servers > 1 else 1)
    for ring in rings:
        assert sorted(ring) == list(range(fabric.gpus))
    crossing = [
        (fabric.pinned_nic(gpu), fabric.pinned_nic(after))
        for ring in rings
        for gpu, after in zip(ring, (*ring[1:], ring[0]), strict=True)
        if fabric.gpu_servers[gpu] != fabric.gpu_servers[after]
    ]
    for ends in zip(*crossing, strict=True):
        assert len(set(ends)) == len(ends), "a NIC is shared"
    assert len(crossing) == (len(rings) * servers if servers > 1 else 0)
    if servers % 2 == 0:
        assert all(source.nic == destination.nic for source, destination in crossing)


def test_groups_that_lie_unevenly_keep_one_ring() -> None:
    assert len(rings_over([0, 1, 2], rail_fabric(2, 2), per_rail=True)) == 1


@given(
    st.sampled_from([(2, 1), (2, 2), (3, 2), (4, 2), (1, 4)]),
    st.sampled_from(OPERATIONS),
    st.sampled_from(["one", "per-rail"]),
    st.integers(1_000_000, 100_000_000),
)
def test_rings_alone_take_their_closed_form(
    shape: tuple[int, int], operation: Operation, how_many: str, size: int
) -> None:
    fabric = rail_fabric(*shape)
    job = with_rings(of_one(fabric, operation, size), fabric, how_many)
    (node,) = job.collectives
    assert isinstance(node.pattern, Ring)
    credit = TransportSetup("credit")
    predicted = predict(Experiment(fabric, job, "ecmp", Dilation(1.0, 1.0), transport=credit))
    assert predicted.iteration_s == pytest.approx(closed_form_s(node.pattern, fabric), rel=0.001)


def of_one(fabric: Fabric, operation: Operation, size: int) -> Job:
    """Return the job of one ring over all GPUs."""
    return Job("one", fabric.gpus, (Collective("ring", Ring((tuple(range(fabric.gpus)),), size, operation)),))


def test_rings_are_one_or_per_rail() -> None:
    fabric = rail_fabric(2, 2)
    with pytest.raises(ScenarioError, match="'two' rings; choose one of one, per-rail"):
        with_rings(of_one(fabric, "all-reduce", 100), fabric, "two")


@given(st.integers(1, 5), st.sampled_from([1, 2, 4]), st.integers(1, 10_000_000))
def test_a_made_up_step_reduces_all_gradients_once(layers: int, tp: int, bucket_bytes: int) -> None:
    layout = Layout(tp, 2)
    job = gpt_step(layout, layers=layers, hidden=256, tokens=8, bucket_bytes=bucket_bytes)
    buckets = [node.pattern for node in job.collectives if "bucket" in node.name]
    gradients = [pattern.bytes for pattern in buckets if isinstance(pattern, Ring)]
    assert sum(gradients) == layers * 12 * 256 * 256 * 4, "each tp rank's share, on all of them"
    assert "synthetic" in job.name
    assert "synthetic" in job.note
    if tp > 1:
        assert len(job.collectives) == layers * 2 * 2 * layout.dp + len(buckets)


def test_no_step_without_layers() -> None:
    with pytest.raises(DemandError, match="a GPT of 0 layers"):
        gpt_step(Layout(1, 2), layers=0)
