"""Training steps on mFabrics of one GPU per server, whose gates differ from layer to layer."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from controller.circuits.devices import ReconfigurationDelay
from testbed.run.experiment import Experiment
from testbed.run.region_plan import DelegatedSetup, First, RegionalSetup
from topologies.mfabric import mfabric_fabric
from traffic.models.moe import GroupedAttention, MoeModel
from traffic.models.moe_step import Gate, Machines, MoeStep, moe_step
from traffic.workloads.gate import gate_loads, gate_tokens

MODEL = MoeModel(
    "toy", 2, 64, GroupedAttention(2, 2, 32), 128, 8, 2, 100, ep=8, tp=1, pp=1, sequence=512, micro_batch=8
)
"""Eight servers a region, one stage of two layers."""
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
        "delegated",
        delegated=DelegatedSetup(),
        regional=RegionalSetup(DELAY, first, tuple(each.node for each in step.dispatches)),
    )
