"""Whole training steps as points: a model on a fabric, and how long an iteration takes.

Every point is one prediction of our fluid model: all layers, micro-batches and replicas, with a gate of its
own for each of them. Figures share points: what several ask for is predicted once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from rich.progress import Progress

from controller.circuits.devices import ReconfigurationDelay
from scenarios._mfabric.fabrics import (
    FAT_TREE,
    GPUS,
    MFABRIC,
    NICS,
    OVERSUBSCRIBED,
    OVERSUBSCRIPTION,
    PACKET_NICS,
)
from scenarios._mfabric.panel import MP_DEGREES, panel_experiment
from scenarios._mfabric.section import Section
from scenarios._mfabric.training_points import GATEWAYS, Training, over_circuits, over_packets, training
from scenarios._mfabric.training_report import held_times
from testbed.machine.processes import in_processes
from testbed.run.audit_of import sound
from testbed.run.experiment import Experiment
from testbed.run.predict import predict
from testbed.run.region_plan import First
from testbed.run.run import Run
from topologies.big_switch import big_switch_fabric
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.mfabric import mfabric_fabric
from traffic.models.moe import MODELS, MoeModel
from traffic.workloads.mixtral import GPU_FLOPS

SERVERS = 128
"""1,024 GPUs (mFabric, 7.1)."""
TOR_SERVERS = 1
"""On an edge switch of the 3:1 fabric: the artifact's fat-tree of 16-port switches has 8 NICs on each."""
DELAY_S = 25e-3
"""Reconfiguration delay of the paper's simulations."""
STUDIED: Mapping[str, MoeModel] = MODELS | {
    # Figure 12c: 32 experts on 32 ranks, where the degrees of the paper's Table 3 have 16.
    "qwen-moe": replace(MODELS["qwen-moe"], experts=32, ep=32)
}
"""The models as Figure 12 has them."""


@dataclass(frozen=True)
class StepPoint:
    """A training step on a fabric."""

    model: str
    """A key of `STUDIED`."""
    fabric: str
    """Its name among `scenarios._mfabric.fabrics.COLOURS`, or `RINGS`."""
    rate_bps: float
    """Of a NIC."""
    micro_batch: int = 8
    """b, sequences."""
    packet_nics: int = PACKET_NICS
    """n_e, of a server of an mFabric."""
    packet_bps: float | None = None
    """Of each of these, by default the rate of a NIC."""
    delay_s: float = DELAY_S
    """Of the OCSes."""
    first: First = "block"
    """What dispatches do until their circuits are lit."""
    servers: int = SERVERS
    """Of 8 GPUs each; whole replicas of the model."""


@dataclass(frozen=True)
class Setting:
    """What all training steps of a study have in common."""

    rates_bps: Sequence[float]
    """Of a NIC, where a figure does not say its own."""
    gpu_flops: float = GPU_FLOPS
    """What a GPU computes [FLOP/s]."""
    seed: int = 0
    """Of the gates, and of the circuits before the first all-to-all."""
    sizes: Sequence[int] = (SERVERS,)
    """Servers of clusters, where a figure compares such."""


@dataclass(frozen=True)
class Iteration:
    """What a prediction gives."""

    seconds: float
    """Of the iteration."""
    reconfigurations: int
    """Of all regions together."""
    waiting_s: float
    """About how long it would be shorter if circuits changed in no time [s]."""


Iterations = Mapping[StepPoint, Iteration]


@dataclass(frozen=True)
class StepStudy:
    """A figure whose numbers are iteration times."""

    points: Callable[[Setting], Sequence[StepPoint]]
    """Return the training steps that it needs."""
    section: Callable[[Setting, Iterations], Section]
    """Return its section, from the iterations of these."""


def iterations(points: Sequence[StepPoint], setting: Setting, progress: Progress) -> Iterations:
    """Return the iteration of each point, predicted by two processes.

    Parameters
    ----------
    points
        What to predict; what is there twice is predicted once.
    setting
        What they have in common.
    progress
        Where a bar is shown.
    """
    # Points of one model follow each other, so that a process makes its step once.
    distinct = sorted(
        dict.fromkeys(points), key=lambda point: (point.servers, point.model, point.micro_batch)
    )
    with in_processes(partial(_iteration, setting), distinct) as found:
        tracked = progress.track(found, total=len(distinct), description="predict training steps")
        return dict(zip(distinct, tracked, strict=True))


def step_experiment(setting: Setting, point: StepPoint) -> Experiment:
    """Return the experiment of a point."""
    seed = setting.seed
    trained = _trained(point.model, point.micro_batch, point.servers, setting.gpu_flops, seed)
    if point.fabric in MP_DEGREES:
        return panel_experiment(trained, point.rate_bps, point.fabric, seed=seed)
    fabric = step_fabric(point)
    if point.fabric != MFABRIC:
        return over_packets(fabric, trained, point.fabric, seed)
    delay = ReconfigurationDelay(f"{point.delay_s:g} s", point.delay_s)
    return over_circuits(fabric, trained, point.first, delay, point.fabric, seed=seed)


def step_fabric(point: StepPoint) -> Fabric:
    """Return the fabric of a point but a patch panel; packet switches that do not block are one.

    Raises
    ------
    ScenarioError
        If no training step is predicted over it.

    Notes
    -----
    A fat-tree and a rail-optimised fabric have as many NICs and none of their tiers blocks, so both are one
    switch. Queue pairs that ECMP's hash leads over one link of a real fat-tree share it; the paper's
    simulations have such collisions, this study has none on any fabric.
    """
    servers, rate_bps = point.servers, point.rate_bps
    if point.fabric == FAT_TREE:
        return big_switch_fabric(servers, nics=NICS, rate_bps=rate_bps)
    if point.fabric == OVERSUBSCRIBED:
        uplink_bps = TOR_SERVERS * NICS * rate_bps / OVERSUBSCRIPTION
        leaves = servers // TOR_SERVERS
        return leaf_spine_fabric(servers, leaves, 1, nics=NICS, rate_bps=rate_bps, uplink_bps=uplink_bps)
    if point.fabric == MFABRIC:
        return mfabric_fabric(
            servers,
            STUDIED[point.model].region_servers(),
            nics=NICS,
            packet_nics=point.packet_nics,
            one_packet_switch=True,
            rate_bps=rate_bps,
            packet_bps=point.packet_bps,
        )
    raise ScenarioError(f"no training step over {point.fabric}", "choose another fabric")


def _iteration(setting: Setting, point: StepPoint) -> Iteration:
    run = sound(predict(step_experiment(setting, point), couples=True))
    changes = int((run.events["what"] == "drained").sum())
    return Iteration(run.iteration_s, changes, _waiting_s(point, run))


def _waiting_s(point: StepPoint, run: Run) -> float:
    """Return how long an iteration waits for circuits, by what all regions together waited [s].

    Each region is a stage's. A stage waits for M micro-batches, and before its first and after its last for
    pp - 1 micro-batches of others.
    """
    sized = STUDIED[point.model]
    held_s = float(held_times(run).sum())
    regions = point.servers // sized.region_servers()
    return held_s / regions * (2 * sized.pp - 1) / sized.pp


@lru_cache(maxsize=1)
def _trained(model: str, micro_batch: int, servers: int, gpu_flops: float, seed: int) -> Training:
    sized = replace(STUDIED[model], micro_batch=micro_batch)
    replicas = servers * GPUS // sized.replica_gpus
    return training(
        sized,
        sized.layers,
        replicas=replicas,
        micro_batches=sized.pp,
        gateways=GATEWAYS,
        gpu_flops=gpu_flops,
        seed=seed,
    )
