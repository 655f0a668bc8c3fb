"""Whole training steps as points: a model on a fabric, and how long an iteration takes.

Every point is one prediction of our fluid model: all layers, micro-batches and replicas, with a gate of its
own for each of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from controller.circuits.devices import ReconfigurationDelay
from scenarios._mfabric.fabrics import (
    DELEGATED,
    FAT_TREE,
    GPUS,
    MFABRIC,
    NICS,
    OVERSUBSCRIBED,
    OVERSUBSCRIPTION,
    PACKET_NICS,
)
from scenarios._mfabric.region_plan import First
from scenarios._mfabric.step.own_nics import by_own_nics
from scenarios._mfabric.step.panel import MP_DEGREES, panel_experiment
from scenarios._mfabric.step.parts import iteration_parts
from scenarios._mfabric.step.training import (
    ALL_LANES,
    GATEWAYS,
    OWN_GATEWAYS,
    OWN_NIC,
    Training,
    over_circuits,
    training,
)
from testbed.experiment.audit_of import sound
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from topologies.big_switch import big_switch_fabric
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.mfabric import mfabric_fabric
from traffic.models.moe import MODELS, MoeModel
from traffic.models.moe_step import Experts
from traffic.workloads.mixtral import GPU_FLOPS

SERVERS = 128
"""1,024 GPUs (mFabric, 7.1)."""
TOR_SERVERS = 1
"""On an edge switch of the 3:1 fabric: the artifact's fat-tree of 16-port switches has 8 NICs on each."""
OWN_NICS = (FAT_TREE, OVERSUBSCRIBED)
"""Where each GPU sends by its own NIC, in data parallelism too."""
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
    """Its name among `scenarios._mfabric.fabrics.COLOURS`, `RINGS`, or `DELEGATED`."""
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
    """How dispatches start, before circuits of their own are lit."""
    servers: int = SERVERS
    """Of 8 GPUs each; whole replicas of the model."""


@dataclass(frozen=True)
class StepSetup:
    """The settings that all training steps of a study share."""

    rates_bps: Sequence[float]
    """Of a NIC, where a figure does not say its own."""
    gpu_flops: float = GPU_FLOPS
    """Work that a GPU does [FLOP/s]."""
    seed: int = 0
    """Of the gates, and of the circuits before the first all-to-all."""
    sizes: Sequence[int] = (SERVERS,)
    """Servers of clusters, where a figure compares such."""
    experts: Experts = "even"
    """Whose tokens decide how long experts compute; the paper's simulations take one time for all."""

    @property
    def alike(self) -> "StepSetup":
        """The same, without the settings that no point depends on."""
        return replace(self, rates_bps=(), sizes=())


@dataclass(frozen=True)
class Iteration:
    """The result of a prediction."""

    seconds: float
    """Of the iteration."""
    reconfigurations: int
    """Of all regions together."""
    parts_s: Mapping[str, float]
    """Times of `scenarios._mfabric.step.parts.PARTS` on its critical path [s]."""


def of_step(point: StepPoint) -> tuple[str, int, int, tuple[int, ...]]:
    """Return the key of a point's step: its model, micro-batches, servers and their gateways."""
    gateways = OWN_GATEWAYS if point.fabric in OWN_NICS else GATEWAYS
    return point.model, point.micro_batch, point.servers, gateways


def step_experiment(setup: StepSetup, point: StepPoint) -> Experiment:
    """Return the experiment of a point."""
    seed = setup.seed
    trained = _trained(setup.alike, *of_step(point))
    if point.fabric in MP_DEGREES:
        return panel_experiment(trained, point.rate_bps, point.fabric, seed=seed)
    fabric = step_fabric(point)
    if point.fabric == DELEGATED:
        return Experiment(fabric, trained.job, ALL_LANES, seed=seed, label=point.fabric)
    if point.fabric in OWN_NICS:
        return by_own_nics(Experiment(fabric, trained.job, OWN_NIC, seed=seed, label=point.fabric))
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
    built = FAT_TREE if point.fabric == DELEGATED else point.fabric
    return _fabric(replace(point, fabric=built, micro_batch=1, delay_s=0.0, first="block"))


@lru_cache(maxsize=16)
def _fabric(point: StepPoint) -> Fabric:
    """Return the fabric of points that differ in nothing that it depends on: one object for all.

    What is kept by fabric is found at once by the same object. Equal ones are compared part by part,
    and Mixtral 8x7B at 25 ms then took 24 s instead of 8.
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


def iteration(setup: StepSetup, point: StepPoint) -> Iteration:
    """Return the fluid model's prediction of a point."""
    experiment = step_experiment(setup, point)
    run = sound(predict(experiment, couples=True))
    changes = int((run.events["what"] == "drained").sum())
    return Iteration(run.iteration_s, changes, iteration_parts(experiment, run))


@lru_cache(maxsize=1)
def _trained(
    setup: StepSetup, model: str, micro_batch: int, servers: int, gateways: tuple[int, ...]
) -> Training:
    sized = replace(STUDIED[model], micro_batch=micro_batch)
    replicas = servers * GPUS // sized.replica_gpus
    return training(
        sized,
        sized.layers,
        replicas=replicas,
        micro_batches=sized.pp,
        gateways=gateways,
        gpu_flops=setup.gpu_flops,
        experts=setup.experts,
        seed=setup.seed,
    )
