"""The training step of mixtures of experts: its schedule, bytes and work, against the spec's figures."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.simulation import Simulation
from testbed.model.backend import FluidBackend
from topologies.errors import DemandError
from topologies.fat_tree import fat_tree_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.pattern import bytes_between
from traffic.collectives.ring import Ring
from traffic.delegated import Delegated
from traffic.job import Collective, Compute
from traffic.models.moe import MODELS, GroupedAttention, MoeModel, model_named
from traffic.models.moe_step import (
    Machines,
    attention_s,
    expert_s,
    moe_step,
    repeated_gate,
)
from traffic.workloads.gate import ARTIFACT_TOKENS

SMALL = MoeModel(
    "small", 4, 64, GroupedAttention(2, 2, 32), 128, 4, 2, 100, ep=4, tp=4, pp=2, sequence=64, micro_batch=2
)
"""Two servers a region, two stages of two layers."""
FAST = Machines(gpu_flops=1e9, nvlink_bps=1e18)
EVEN = repeated_gate(np.full((4, 4), SMALL.tokens * SMALL.top_k // 4))


def test_the_four_all_to_alls_of_a_layer_are_the_dispatch_and_its_transpose_twice() -> None:
    tokens = np.arange(16).reshape(4, 4) + 1
    step = moe_step(SMALL, repeated_gate(tokens))
    by_name = {node.name: node for node in step.job.collectives}
    matrices = []
    for name in ("F0 0.1 l2 dispatch", "F0 0.1 l2 combine", "B0 0.1 l2 combine", "B0 0.1 l2 dispatch"):
        pattern = by_name[name].pattern
        assert isinstance(pattern, AllToAll)
        assert pattern.gpus == frozenset(range(16, 32))
        matrices.append(pattern.demand.matrix)
    assert (matrices[0] == matrices[2]).all()
    assert (matrices[1] == matrices[3]).all()
    assert (matrices[1] == matrices[0].T).all()
    of_ranks = matrices[0].reshape(4, 4, 4, 4).sum(axis=(1, 3))
    assert (of_ranks == tokens * SMALL.hidden * 2).all()
    assert tuple(each.node for each in step.dispatches) == tuple(
        node.name for node in step.job.collectives if node.name.startswith("F") and "dispatch" in node.name
    )
    assert {(each.replica, each.micro_batch, each.layer) for each in step.dispatches} == {
        (0, micro_batch, layer) for micro_batch in range(2) for layer in range(4)
    }


@pytest.mark.parametrize(("model", "replicas", "all_to_alls", "regions"), [("mixtral-8x22b", 2, 3584, 16)])
def test_counts_of_a_step(model: str, replicas: int, all_to_alls: int, regions: int) -> None:
    found = model_named(model)
    step = moe_step(found, repeated_gate(ARTIFACT_TOKENS * 2), replicas=replicas)
    exchanges = [node for node in step.job.collectives if isinstance(node.pattern, AllToAll)]
    assert len(exchanges) == all_to_alls
    assert len({node.pattern.gpus for node in exchanges}) == regions
    assert step.job.gpus == 1024
    assert found.micro_batch * found.pp * replicas * found.ep == 1024  # sequences of an iteration
    owed = exchanges[0].pattern.lower().moves.bytes.sum()
    own = np.trace(ARTIFACT_TOKENS) / ARTIFACT_TOKENS.sum()
    assert owed == pytest.approx(8 * found.all_to_all_bytes * (1 - own), rel=1e-9)


def test_experts_of_mixtral_8x7b_take_41_ms_on_average_and_98_on_the_slowest_rank() -> None:
    model, machines = model_named("mixtral-8x7b"), Machines(nvlink_bps=1e18)
    received = ARTIFACT_TOKENS.sum(axis=0) * model.top_k
    took_ms = [1e3 * expert_s(model, int(tokens), machines) for tokens in received]
    assert round(np.mean(took_ms)) == 41
    assert round(max(took_ms)) == 98


def test_pipeline_bytes_and_gpus() -> None:
    step = moe_step(SMALL, EVEN, replicas=2)
    sends = [node for node in step.job.collectives if node.name.endswith("send")]
    assert len(sends) == 2 * 2 * 2  # forwards and backwards of two micro-batches of two replicas
    forward = bytes_between(sends[0].pattern, step.job.gpus)
    assert (forward[np.arange(16), np.arange(16) + 32] == SMALL.pipeline_bytes).all()
    assert forward.sum() == 16 * SMALL.pipeline_bytes


def test_gradients_of_data_parallelism_are_all_weights_of_a_server_once_per_ring() -> None:
    for model in MODELS.values():
        if model.name == "deepseek-r1":
            continue  # its step is of one replica
        replicas = 2
        tokens = np.zeros((model.ep, model.experts), dtype=np.int64)
        step = moe_step(model, repeated_gate(tokens), replicas=replicas, micro_batches=1)
        rings = {node.name: node.pattern for node in step.job.collectives if isinstance(node.pattern, Ring)}
        dense = sum(ring.bytes for name, ring in rings.items() if "dense" in name)
        experts = sum(ring.bytes for name, ring in rings.items() if "experts" in name)
        assert dense == pytest.approx(2 * model.dense_weights, rel=1e-6)
        slots = model.moe_layers * model.expert_slots * model.expert_weights
        assert experts == pytest.approx(2 * slots, rel=1e-6)
        assert {len(ring.gpus) for name, ring in rings.items() if "experts" in name} == {replicas}


def test_a_step_of_equal_stages_takes_as_many_turns_as_micro_batches_and_stages() -> None:
    """With a fast network: (M + pp - 1) (t_F + t_B), after which gradients are summed."""
    micro_batches = 5
    step = moe_step(SMALL, EVEN, micro_batches=micro_batches, machines=FAST)
    fabric = fat_tree_fabric(4, servers=4, nics=2, gpus=8, rate_bps=1e18, nvlink_bps=1e18)
    run = Simulation(fabric, step.job, FluidBackend(fabric, {}), Delegated(), couples=True).run()
    received = SMALL.tokens * SMALL.top_k
    forward_s = attention_s(SMALL, 0, FAST) + expert_s(SMALL, received, FAST)
    backward_s = attention_s(SMALL, 0, FAST, 2) + expert_s(SMALL, received, FAST, 2)
    assert run.iteration_s == pytest.approx((micro_batches + 1) * 2 * (forward_s + backward_s), rel=1e-6)


def test_shared_experts_and_dense_layers_compute_and_empty_slots_receive_nothing() -> None:
    deep = replace(SMALL, dense_layers=1, dense_ffn=256, shared_ffn=64, experts=3)
    step = moe_step(deep, repeated_gate(np.full((4, 3), 10)), machines=FAST)
    names = Counter(node.name.split()[-1] for node in step.job.nodes if "l0" in node.name.split())
    assert names == {"attention": 4}
    experts = next(node for node in step.job.nodes if node.name == "F0 0.0 l1 experts")
    assert isinstance(experts, Compute)
    assert experts.durations_s[-1] == pytest.approx(deep.shared_flop / 4 / 1e9)
    assert experts.durations_s[0] == pytest.approx((deep.expert_flop(40) + deep.shared_flop) / 4 / 1e9)
    assert attention_s(deep, 0, FAST) > attention_s(deep, 1, FAST)


def test_whole_copies_of_tokens_are_tp_times_the_bytes() -> None:
    sharded, whole = (
        moe_step(SMALL, EVEN, tp_shards_tokens=shards).job.collectives[0] for shards in (True, False)
    )
    owed = [each.pattern.lower().moves.bytes.sum() for each in (sharded, whole)]
    assert owed[1] == SMALL.tp * owed[0]


def test_what_is_refused() -> None:
    with pytest.raises(DemandError, match="a gate of shape"):
        moe_step(SMALL, repeated_gate(np.ones((2, 4), dtype=np.int64)))
    with pytest.raises(DemandError, match="micro-batches"):
        moe_step(SMALL, EVEN, micro_batches=0)
    with pytest.raises(DemandError, match="gateways"):
        Machines(gateways=(8,))
    assert isinstance(moe_step(SMALL, EVEN).job.nodes[1], Collective)


@given(st.sampled_from([0, 5, 17, 31]), st.integers(0, 2))
def test_sums_apart_are_rings_that_take_what_they_took_of_the_compute(gpu: int, dense: int) -> None:
    model = replace(SMALL, dense_layers=dense, dense_ffn=64)
    machines = replace(FAST, nvlink_bps=1e10)
    plain, apart = (moe_step(model, EVEN, machines=machines, sums_apart=own).job for own in ((), (gpu,)))
    rings = {
        node.name: node.pattern
        for node in apart.nodes
        if isinstance(node, Collective) and " sum of rank" in node.name and isinstance(node.pattern, Ring)
    }
    first = gpu - gpu % model.tp
    rank = tuple(range(first, first + model.tp))
    assert rings
    assert all(ring.rings == (rank,) for ring in rings.values())
    works = [node for node in plain.nodes if isinstance(node, Compute) and gpu in node.gpus]
    alone = {node.name: node for node in apart.nodes if isinstance(node, Compute)}
    for node in works:
        if node.name.startswith("DP"):
            continue
        own = f"{node.name} of rank {first % (model.ep * model.tp) // model.tp}"
        ring_s = 2 * 3 / 4 * rings[own.replace(" of rank", " sum of rank")].bytes * 8 / machines.nvlink_bps
        assert alone[own].duration_s + ring_s == pytest.approx(node.on_gpu_s(gpu))
        assert gpu not in alone[node.name].gpus
    kept = [node for node in plain.nodes if isinstance(node, Collective)]
    assert [n.pattern for n in kept] == [n.pattern for n in apart.collectives if n.name not in rings]
