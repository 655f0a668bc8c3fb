"""Training steps on an mFabric from which a GPU or a server is lost, and what takes their place."""

from dataclasses import replace

from controller.circuits.devices import ReconfigurationDelay
from scenarios._mfabric.region_plan import RegionalSetup
from testbed.experiment.experiment import Experiment
from tests.testbed.region_cases import DELAY, MODEL, varied_gate
from topologies.fabric import Fabric, Nic
from topologies.mfabric import mfabric_fabric, region_gpus
from traffic.compose import placed
from traffic.delegated import DelegatedSetup
from traffic.faults import KnownRevision, Moves, Revisions, cut, moved
from traffic.models.moe_step import Machines, MoeStep, moe_step

GPUS, NICS, SERVERS = 4, 4, 4
RANK = 2
"""Whose GPU dies: it has server 2."""
LOST = "lost"


def lossy_fabric() -> Fabric:
    """Return a region of four servers of four GPUs and a backup, three of four NICs on light, and a spare."""
    return mfabric_fabric(
        SERVERS,
        gpus=GPUS,
        nics=NICS,
        packet_nics=1,
        backup_gpu=True,
        spare_servers=1,
        rate_bps=5e7,
        one_packet_switch=True,
    )


def lossy_step(layers: int = 1, micro_batches: int = 1) -> MoeStep:
    """Return a step of four ranks, each a server's GPUs."""
    model = replace(MODEL, layers=layers, ep=SERVERS, tp=GPUS, experts=SERVERS)
    machines = Machines(gpu_flops=5e8, server_gpus=GPUS, gateways=(0,))
    return moe_step(
        model,
        varied_gate(model, micro_batches, sparsity=0.3),
        micro_batches=micro_batches,
        machines=machines,
        sums_apart=[RANK * GPUS],
    )


def healthy(step: MoeStep, delay: ReconfigurationDelay = DELAY) -> Experiment:
    """Return a step without a fault, on GPUs that leave each server's last one idle."""
    fabric = lossy_fabric()
    return Experiment(
        fabric,
        placed(step.job, region_gpus(fabric, GPUS), of=fabric.gpus),
        DelegatedSetup(),
        circuits=RegionalSetup(delay, "block", tuple(each.node for each in step.dispatches)),
    )


def gpu_moves(fabric: Fabric) -> Moves:
    """Return that the backup GPU of server 0 takes the place of the first GPU of server 2."""
    return ((fabric.gpu_offsets[RANK], fabric.gpu_offsets[1] - 1),)


def server_moves(fabric: Fabric) -> Moves:
    """Return that the spare server takes the place of server 2."""
    return tuple((fabric.gpu_offsets[RANK] + gpu, fabric.gpu_offsets[SERVERS] + gpu) for gpu in range(GPUS))


HEALTHY = healthy(lossy_step())
GPU_MOVES, SERVER_MOVES = gpu_moves(HEALTHY.fabric), server_moves(HEALTHY.fabric)


def losing(experiment: Experiment, moves: Moves, after_s: float, detect_s: float = 0.01) -> Experiment:
    """Return an experiment that loses GPUs some time after its start, and a server's with all its NICs."""
    fabric = experiment.fabric
    nics = [Nic(RANK, nic) for nic in range(NICS)] if len(moves) == GPUS else []
    gpus = tuple(gpu for gpu, _ in moves)
    fault = cut(LOST, tuple(map(fabric.nic_port, nics)), "", after_s, detect_s, gpus=gpus)
    return replace(experiment, faults=(fault,), revisions=Revisions((KnownRevision(LOST, moves=moves),)))


def steadily(experiment: Experiment, moves: Moves) -> Experiment:
    """Return an experiment with GPUs in the places of others from the start."""
    return replace(experiment, job=moved(experiment.job, moves))
