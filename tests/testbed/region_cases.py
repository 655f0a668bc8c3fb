"""Training steps on mFabrics of one GPU per server, whose gates differ from layer to layer."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from controller.circuits.devices import ReconfigurationDelay
from scenarios._mfabric.region_plan import First, RegionalSetup
from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from tests.testbed.tables import check_tables
from topologies.fabric import Fabric, Nic
from topologies.mfabric import mfabric_fabric
from traffic.delegated import DelegatedSetup
from traffic.faults import Fault, cut
from traffic.models.moe import GroupedAttention, MoeModel
from traffic.models.moe_step import Gate, Machines, MoeStep, moe_step
from traffic.readers.expert_step import read_expert_step
from traffic.records import NVLINK, path_of
from traffic.workloads.gate import gate_loads, gate_tokens

MODEL = MoeModel(
    "toy", 2, 64, GroupedAttention(2, 2, 32), 128, 8, 2, 100, ep=8, tp=1, pp=1, sequence=512, micro_batch=8
)
"""Eight servers a region, one stage of two layers."""
WORKLOAD = """HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 4 pp: 1 all_gpus: 8
8
attention -1 100000 ALLREDUCE 40000 100000 NONE 0 1 NONE 0 100
tokens    -1 1 ALLTOALL 30000 1 NONE 0 1 NONE 0 100
moelayer  -1 1 ALLTOALL_EP 100000 1 ALLTOALL_EP 100000 1 NONE 0 100
moelayer  -1 1 ALLTOALL_EP 100000 1 ALLTOALL_EP 100000 1 NONE 0 100
attention -1 100000 ALLREDUCE 40000 100000 NONE 0 1 NONE 0 100
tokens    -1 1 ALLTOALL 30000 1 NONE 0 1 NONE 0 100
moelayer  -1 1 ALLTOALL_EP 100000 1 ALLTOALL_EP 100000 1 NONE 0 100
moelayer  -1 1 ALLTOALL_EP 100000 1 ALLTOALL_EP 100000 1 NONE 0 100
"""
"""A SimAI workload of two layers: TP inside each of 4 servers of 2 GPUs, experts between them."""
RINGS: NDArray[np.int64] = np.stack([np.roll(np.eye(4, dtype=np.int64), by, 1) for by in (1, 2)])
"""Gates of its layers: each rank sends to the next, and to the one after it."""
MACHINES = Machines(gpu_flops=2e9, server_gpus=1, gateways=(0,))
"""Slow, so that attention takes long beside reconfigurations."""
DELAY = ReconfigurationDelay("drawn", 0.025)


def varied_gate(model: MoeModel, micro_batches: int, *, sparsity: float = 0.0) -> Gate:
    """Return a gate whose demands differ between layers and micro-batches, not between replicas."""
    loads = gate_loads(["early"] * micro_batches, model.moe_layers, model.experts)
    tokens: NDArray[np.int64] = gate_tokens(loads, model.ep, model.tokens * model.top_k, sparsity=sparsity)
    return lambda _replica, micro_batch, layer: tokens[micro_batch, layer]


def toy_step(
    *, ranks: int = 8, pp: int = 1, layers: int = 2, micro_batches: int = 1, sparsity: float = 0.0
) -> MoeStep:
    model = replace(MODEL, layers=layers, pp=pp, ep=ranks, experts=ranks)
    gate = varied_gate(model, micro_batches, sparsity=sparsity)
    return moe_step(model, gate, micro_batches=micro_batches, machines=MACHINES)


def file_step(directory: Path) -> MoeStep:
    """Return the step of a workload's file, whose layers need other circuits."""
    path = directory / "workload.txt"
    path.write_text(WORKLOAD)
    return read_expert_step(path, gate=lambda _replica, _micro_batch, layer: RINGS[layer])


def toy_experiment(
    step: MoeStep,
    first: First = "block",
    *,
    servers: int = 8,
    gpus: int = 1,
    alpha: int = 3,
    packet_nics: int = 1,
    pp: int = 1,
) -> Experiment:
    """Return a step over regions of servers, each of some GPUs, so many circuit and packet NICs."""
    fabric = mfabric_fabric(
        servers * pp,
        servers,
        gpus=gpus,
        nics=alpha + packet_nics,
        packet_nics=packet_nics,
        rate_bps=10e9,
        one_packet_switch=True,
    )
    return Experiment(
        fabric,
        step.job,
        DelegatedSetup(),
        circuits=RegionalSetup(DELAY, first, tuple(each.node for each in step.dispatches)),
    )


def with_delay(experiment: Experiment, delay_s: float) -> Experiment:
    """Return an experiment whose OCSes are dark for so long."""
    assert isinstance(experiment.circuits, RegionalSetup)
    return replace(experiment, circuits=replace(experiment.circuits, delay=replace(DELAY, delay_s=delay_s)))


def lost(
    fabric: Fabric, *nics: tuple[int, int], after_s: float = 0.0, detect_s: float = 0.0
) -> tuple[Fault, ...]:
    """Return a fault per NIC, server and number each; by default they stand from the start."""
    return tuple(
        cut(f"nic:{nic[0]}:{nic[1]}", (fabric.nic_port(Nic(*nic)),), "", after_s, detect_s) for nic in nics
    )


def check_bytes(fabric: Fabric, run: Run) -> None:
    """Check that all of each message left its server, went through others whole, and arrived."""
    check_tables(run.tables)
    assert run.messages["end_s"].notna().all()
    columns = (run.messages[name].tolist() for name in ("source", "destination", "bytes", "path"))
    for source, destination, owed, text in zip(*columns, strict=True):
        if text == NVLINK:
            continue
        net = Counter[int]()
        for leg in text.split():
            size, _, ports = leg.partition("@")
            path = path_of(ports)
            net[fabric.server_index[path[0].node]] += int(size)
            net[fabric.server_index[fabric.peer(path[-1]).node]] -= int(size)
        near, far = (fabric.gpu_servers[gpu] for gpu in (source, destination))
        assert {server: size for server, size in net.items() if size} == {near: owed, far: -owed}
