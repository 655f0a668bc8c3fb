"""What lightrail promises of mFabric's algorithms and of whole training steps in the model, measured."""

import resource
import time
from functools import partial

import numpy as np

from controller.schedulers.copilot import transition
from controller.schedulers.mfabric import region_circuits, server_demand
from scenarios._bench.figure import figure, median_s
from scenarios._mfabric.fabrics import GPUS, MFABRIC
from scenarios._mfabric.step.points import StepPoint, StepSetup, step_experiment
from testbed.model.predict import predict
from topologies.mfabric import mfabric_fabric, regions
from traffic.workloads.gate import gate_loads

REPEATS = 5
GIB = 1 << 30
RATE_BPS = 400e9


@figure("s", "< 30", sandbox=False)
def step_1024_s() -> tuple[float, str]:
    """A step of Mixtral 8x22B on 1,024 GPUs over mFabric, every gate its own: job and prediction."""
    return _predicted("mixtral-8x22b", 128)


@figure("s", "< 300, in 8 GiB", sandbox=False)
def step_32768_s() -> tuple[float, str]:
    """The same of Mixtral 8x7B on 32,768 GPUs, 256 replicas."""
    return _predicted("mixtral-8x7b", 4096)


def _predicted(model: str, servers: int) -> tuple[float, str]:
    began, used_s = time.perf_counter(), time.process_time()
    experiment = step_experiment(StepSetup([]), StepPoint(model, MFABRIC, RATE_BPS, servers=servers))
    run = predict(experiment, couples=True)
    took_s, used_s = time.perf_counter() - began, time.process_time() - used_s
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    detail = (
        f"{servers * GPUS:,} GPUs, {len(experiment.job.nodes):,} nodes, iteration {run.iteration_s:.3f} s, "
        f"{used_s:.0f} s of CPU, {held / GIB:.1f} GiB at most in this process"
    )
    return took_s, detail


@figure("s", "< 0.005", sandbox=False)
def copilot_s() -> tuple[float, str]:
    """Copilot's fit of the transitions between two layers: 8 experts, a window of 16 iterations."""
    loads = gate_loads(["early"] * 16, 2)
    return median_s([partial(transition, loads[:, 0], loads[:, 1])] * REPEATS)


@figure("s", "< 0.050", sandbox=False)
def region_circuits_s() -> tuple[float, str]:
    """The circuits of a region of 64 servers after Algorithm 1, from the GPUs' demand to the NICs."""
    fabric = mfabric_fabric(64)
    (region,) = regions(fabric)
    gpu_demand = np.random.default_rng(1).random((512, 512))

    def circuits() -> None:
        region_circuits(fabric, region, server_demand(gpu_demand, [GPUS] * 64))

    return median_s([circuits] * REPEATS)
