"""What lightrail promises of whole training steps in the fluid model: how long they take to predict."""

import resource
import time

from scenarios._mfabric.fabrics import GPUS, MFABRIC
from scenarios._mfabric.steps import Setting, StepPoint, step_experiment
from testbed.run.predict import predict

GIB = 1 << 30
RATE_BPS = 400e9


def step_1024_s() -> tuple[float, str]:
    """A step of Mixtral 8x22B on 1,024 GPUs over mFabric, every gate its own: job and prediction."""
    return _predicted("mixtral-8x22b", 128)


def step_32768_s() -> tuple[float, str]:
    """The same of Mixtral 8x7B on 32,768 GPUs, 256 replicas."""
    return _predicted("mixtral-8x7b", 4096)


def _predicted(model: str, servers: int) -> tuple[float, str]:
    began, used_s = time.perf_counter(), time.process_time()
    experiment = step_experiment(Setting([]), StepPoint(model, MFABRIC, RATE_BPS, servers=servers))
    run = predict(experiment, couples=True)
    took_s, used_s = time.perf_counter() - began, time.process_time() - used_s
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    detail = (
        f"{servers * GPUS:,} GPUs, {len(experiment.job.nodes):,} nodes, iteration {run.iteration_s:.3f} s, "
        f"{used_s:.0f} s of CPU, {held / GIB:.1f} GiB at most in this process"
    )
    return took_s, detail
