"""A training step of experts over regions, for `bench.py memory_estimate`."""

import numpy as np
from numpy.typing import NDArray

from controller.circuits.devices import ReconfigurationDelay
from scenarios._mfabric.region_plan import RegionalSetup
from testbed.experiment.experiment import Experiment
from topologies.mfabric import mfabric_fabric
from traffic.delegated import DelegatedSetup
from traffic.models.moe import GroupedAttention, MoeModel
from traffic.models.moe_step import Machines, moe_step

MODEL = MoeModel(
    "toy", 16, 64, GroupedAttention(2, 2, 32), 128, 8, 2, 100, ep=8, tp=1, pp=1, sequence=512, micro_batch=8
)
DELAY = ReconfigurationDelay("drawn", 0.025)


def case() -> Experiment:
    """Return the step."""

    def gate(_replica: int, micro_batch: int, layer: int) -> NDArray[np.int64]:
        return np.random.default_rng((micro_batch, layer)).integers(1, 200, (8, 8))

    step = moe_step(
        MODEL, gate, micro_batches=8, machines=Machines(gpu_flops=2e9, server_gpus=1, gateways=(0,))
    )
    fabric = mfabric_fabric(8, gpus=1, nics=4, packet_nics=1, one_packet_switch=True)
    circuits = RegionalSetup(DELAY, "block", tuple(each.node for each in step.dispatches))
    return Experiment(fabric, step.job, DelegatedSetup(), circuits=circuits)
