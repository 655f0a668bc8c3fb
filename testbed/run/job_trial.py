"""A job tried on a booted network: emulated, predicted over the paths taken, and judged."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from testbed.network.network import Network
from testbed.run.backend import Backend
from testbed.run.calibrate import EMULATED_CCT_S, EMULATED_STEP_S
from testbed.run.dilation import Dilation
from testbed.run.emulate import Emulation
from testbed.run.fidelity import Watch, verdict
from testbed.run.fluid_backend import FluidBackend
from testbed.run.live_backend import LiveBackend
from testbed.run.outcome import Measures, Verdict
from testbed.run.packet_paths import seen_or_computed
from testbed.run.runner import Run, Runner, records_of_run
from testbed.run.solved_once import solved_once
from topologies.fabric import Fabric, Path
from traffic.collectives.ring import Ring
from traffic.job import Collective, Job
from traffic.job_bounds import node_bounds_s
from traffic.records import path_text
from traffic.scheme import Sprayed
from traffic.spraying.policy import ProactivePolicy, QueuePair
from traffic.spraying.registry import policy_named
from traffic.transports.sharing import PACKET_BYTES

RING_STEP_PACKETS = 20
"""What each step of a ring consists of at least, or the emulation would be of packets and not of bytes."""
LONGEST_S = 120.0
"""How long a job takes at most at emulated scale, whatever that does to its smallest messages."""


@dataclass(frozen=True, eq=False)
class JobTrial:
    """What came of a job, at real scale."""

    run: Run
    """As it was emulated, or as predicted where nothing was emulated."""
    predicted: Run
    verdict: Verdict = field(default_factory=lambda: Verdict("model"))
    measures: Measures = field(default_factory=Measures)


def predict_job(
    job: Job, fabric: Fabric, scheme: str, seed: int, paths: dict[QueuePair, Path] | None = None
) -> Run:
    """Return what fluids make of a job under a spraying scheme.

    Parameters
    ----------
    job, fabric
        What runs, and where.
    scheme, seed
        The scheme's name, and the seed of what it draws.
    paths
        The path that each queue pair took, where an emulation has seen them.
    """
    known = dict(paths or {})
    by_bytes = isinstance(policy_named(scheme), ProactivePolicy)
    backend = FluidBackend(fabric, {}, by_bytes=by_bytes, paths=seen_or_computed(fabric, known))
    return solved_once(job, backend, lambda part: _run(part, fabric, scheme, seed, backend, known))


def try_job(
    job: Job,
    scheme: str,
    seed: int,
    network: Network,
    dilation: Dilation,
    *,
    link_error: float = math.nan,
    broken: Sequence[str] = (),
    bound_s: float,
) -> JobTrial:
    """Run a job over a network that was booted at its scale, and judge it; compute elapses.

    Parameters
    ----------
    job, scheme, seed
        As of `predict_job`.
    network, dilation
        Where, and at which scale.
    link_error, broken
        As of `testbed.run.trial.tried`.
    bound_s
        What no run beats [s].

    Raises
    ------
    StuckError, NetworkError
        If bytes do not arrive, or a part of the network died.
    """
    with Watch(network) as watch, LiveBackend(network, dilation) as backend:
        run = _run(job, network.fabric, scheme, seed, backend, backend.paths)
        health = backend.health
    predicted = predict_job(job, network.fabric, scheme, seed, backend.paths)
    emulated_s = dilation.emulated_s(run.iteration_s)
    measures = watch.measures(Emulation(records_of_run(run), backend.paths, health, emulated_s), link_error)
    judged = verdict(
        measures,
        measured_s=run.iteration_s,
        predicted_s=predicted.iteration_s,
        bound_s=bound_s,
        emulated_s=emulated_s,
        unmet=broken,
    )
    return JobTrial(run, predicted, judged, measures)


def job_dilation(job: Job, fabric: Fabric, predicted: Run, rate: float) -> Dilation:
    """Return the scale of a job: long enough to be timed, and rings of whole packets.

    Parameters
    ----------
    job, fabric
        What runs, and where.
    predicted
        How long it is predicted to take.
    rate
        Emulated over real rate.
    """
    bounds_s = node_bounds_s(job, fabric)
    collectives = [node for node in job.nodes if isinstance(node, Collective) and bounds_s[node.name]]
    sent_s = sum(bounds_s[node.name] for node in collectives)
    volumes = [max(EMULATED_CCT_S, EMULATED_STEP_S * len(collectives)) * rate / sent_s] if sent_s else [1.0]
    for node in collectives:
        if isinstance(node.pattern, Ring):
            chunk = node.pattern.exchange().messages.bytes.min()
            volumes.append(RING_STEP_PACKETS * PACKET_BYTES / float(chunk))
    return Dilation(rate, min(max(volumes), LONGEST_S * rate / predicted.iteration_s, 1.0))


def job_load_bps(predicted: Run, fabric: Fabric) -> float:
    """Return what switches forward at most: all NICs at once, times the hops of a mean path [bit/s]."""
    records = records_of_run(predicted)
    legs = [leg.split("@") for path in records["path"] if "@" in path for leg in path.split(" ")]
    sizes = np.array([float(size) for size, _ in legs])
    hops = np.array([path.count(",") for _, path in legs], dtype=float)
    mean_hops = float((sizes * hops).sum() / sizes.sum()) if len(legs) else 0.0
    return sum(fabric.nic_rate_bps(nic) for nic in fabric.nics) * mean_hops


def _run(
    job: Job, fabric: Fabric, scheme: str, seed: int, backend: Backend, paths: dict[QueuePair, Path]
) -> Run:
    leg_name = cache(lambda queue_pair: path_text(paths[queue_pair]))
    placing = Sprayed(lambda: policy_named(scheme), seed)
    return Runner(fabric, job, backend, placing, leg_name=leg_name).run()
