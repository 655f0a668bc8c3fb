"""What lightrail promises of its algorithms' speed, measured."""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from controller.schedulers.copilot import transition
from controller.schedulers.infinitehbd import (
    DOMAIN_NODES,
    GPUS_PER_NODE,
    TOR_NODES,
    FatTree,
    Placement,
    orchestrate,
    whole_tp_groups,
)
from controller.schedulers.mfabric import reconfigure_ocs
from controller.schedulers.spectra import spectra
from testbed.run.dilation import Dilation
from testbed.run.experiment import Experiment
from testbed.run.predict import predict
from topologies.mfabric import mfabric_fabric, regions
from topologies.rail import rail_fabric
from traffic.spraying.rails import lpt
from traffic.steps import single
from traffic.workloads.gate import gate_loads
from traffic.workloads.ocs_workloads import Matrix, benchmark, moe
from traffic.workloads.synthetic import uniform

SWITCHES, DELAY, SEEDS = 4, 0.01, 30
CHUNKS, RAILS, REPEATS = 100_000, 8, 5


def planning_sparse_s() -> tuple[float, str]:
    """Spectra's planning for the benchmark, 100 ports and 16 flows each, on 4 switches: median."""
    return _planning_s([benchmark(seed) for seed in range(SEEDS)])


def planning_dense_s() -> tuple[float, str]:
    """Spectra's planning for the MoE's dense 64 x 64 on 4 switches: median."""
    return _planning_s([moe(seed) for seed in range(SEEDS)])


def orchestration_s() -> tuple[float, str]:
    """InfiniteHBD's orchestration of a job on 90 % of 8,192 GPUs, 5 % of the nodes faulty: median."""
    return _orchestration_s(1024)


def orchestration_large_s() -> tuple[float, str]:
    """The same on 32,768 GPUs."""
    return _orchestration_s(4096)


def copilot_s() -> tuple[float, str]:
    """Copilot's fit of the transitions between two layers: 8 experts, a window of 16 iterations."""
    loads = gate_loads(["early"] * 16, 2)
    return _median_s([partial(transition, loads[:, 0], loads[:, 1])] * REPEATS)


def region_circuits_s() -> tuple[float, str]:
    """The circuits of a region of 64 servers after Algorithm 1, from the GPUs' demand to the NICs."""
    fabric = mfabric_fabric(64)
    (region,) = regions(fabric)
    gpu_demand = np.random.default_rng(1).random((512, 512))
    return _median_s([partial(reconfigure_ocs, fabric, region, gpu_demand)] * REPEATS)


def lpt_s() -> tuple[float, str]:
    """RailS' placing of 100,000 chunks of different sizes on 8 rails."""
    sizes = np.random.default_rng(0).integers(1, 1 << 40, CHUNKS)
    return _median_s([partial(lpt, sizes, RAILS)] * REPEATS)


def prediction_s() -> tuple[float, str]:
    """The fluid model of a uniform all-to-all between 8 servers of 4 rails under RailS."""
    experiment = Experiment(rail_fabric(8, 4), single(uniform(32)), "rails", Dilation(1.0, 1.0))
    return _median_s([partial(predict, experiment)] * REPEATS)


def _planning_s(demands: list[Matrix]) -> tuple[float, str]:
    value, said = _median_s([partial(spectra, demand, SWITCHES, DELAY) for demand in demands])
    return value, f"{said}, {len(demands[0])} ports, {SWITCHES} switches"


def _orchestration_s(nodes: int) -> tuple[float, str]:
    tree = FatTree(nodes, TOR_NODES, DOMAIN_NODES)

    def call(seed: int) -> Placement | None:
        faulty = np.random.default_rng(seed).choice(nodes, round(0.05 * nodes), replace=False).tolist()
        job_gpus = 32 * whole_tp_groups(tree, int(0.9 * GPUS_PER_NODE * nodes), 32)
        return orchestrate(
            tree, set(faulty), hops=3, gpus_per_node=GPUS_PER_NODE, tp_gpus=32, job_gpus=job_gpus
        )

    value, said = _median_s([partial(call, seed) for seed in range(SEEDS)])
    return value, f"{said}, TP-32"


def _median_s(calls: Sequence[Callable[[], object]]) -> tuple[float, str]:
    """Return the median time of some calls, the first once more before they count."""
    calls[0]()
    times_s = []
    for call in calls:
        started = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - started)
    return statistics.median(
        times_s
    ), f"{1e3 * min(times_s):.1f} to {1e3 * max(times_s):.1f} ms of {len(calls)}"
