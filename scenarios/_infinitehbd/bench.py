"""Promises of InfiniteHBD's orchestration, measured."""

from functools import partial

import numpy as np

from controller.schedulers.infinitehbd import (
    DOMAIN_NODES,
    GPUS_PER_NODE,
    TOR_NODES,
    FatTree,
    Group,
    orchestrate,
    whole_tp_groups,
)
from scenarios._bench.figure import figure, median_s

SEEDS = 30


@figure("s", "< 0.010", sandbox=False)
def orchestration_s() -> tuple[float, str]:
    """InfiniteHBD's orchestration of a job on 90 % of 8,192 GPUs, 5 % of the nodes faulty: median."""
    return _orchestration_s(1024)


@figure("s", "< 0.050", sandbox=False)
def orchestration_large_s() -> tuple[float, str]:
    """The same on 32,768 GPUs."""
    return _orchestration_s(4096)


def _orchestration_s(nodes: int) -> tuple[float, str]:
    tree = FatTree(nodes, TOR_NODES, DOMAIN_NODES)

    def call(seed: int) -> tuple[Group, ...] | None:
        faulty = np.random.default_rng(seed).choice(nodes, round(0.05 * nodes), replace=False).tolist()
        job_gpus = 32 * whole_tp_groups(tree, int(0.9 * GPUS_PER_NODE * nodes), 32)
        return orchestrate(
            tree, set(faulty), hops=3, gpus_per_node=GPUS_PER_NODE, tp_gpus=32, job_gpus=job_gpus
        )

    value, said = median_s([partial(call, seed) for seed in range(SEEDS)])
    return value, f"{said}, TP-32"
