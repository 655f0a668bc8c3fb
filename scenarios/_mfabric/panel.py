"""A training step over a static patch panel, TopoOpt's stand-in: its circuits, and the experiment."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.foreseen import Foreseen
from controller.schedulers.mfabric import Pair, server_demand
from controller.schedulers.static_panel import StaticPanel, static_panel
from scenarios._mfabric.fabrics import GPUS, NICS
from scenarios._mfabric.training_points import Training
from testbed.run.experiment import Experiment
from topologies.fabric import Fabric
from topologies.patch_panel import patch_panel_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.delegated import DelegatedSetup
from traffic.job import Job
from traffic.models.moe import NUMBER_BYTES
from traffic.workloads.gate import gate_demand, gate_tokens

ITERATIONS = 10
"""Whose mean demand decides the circuits."""
KEPT_BACK = 3
"""Of 8 NICs of a server, what Mixtral 8x22B on 1,024 GPUs takes for what a region alone has not: a hop to the
stages before and after, and to the other replica's experts."""
STAYS = ReconfigurationDelay("patch panel, which stays", 0.0)


def panel_experiment(
    trained: Training,
    rate_bps: float,
    label: str,
    *,
    kept_back: int = 0,
    seed: int = 0,
) -> Experiment:
    """Return a step over a patch panel whose circuits were lit before it, for the iterations before.

    Parameters
    ----------
    trained
        The step; the last ten iterations of its history decide the circuits of its all-to-alls.
    rate_bps
        Rate of a NIC [bit/s].
    label
        What tables call it.
    kept_back
        Those that get no circuit: where stages and replicas of a training are left out, what these
        would take (`panel_of`).
    seed
        Of the rows of the gates before.
    """
    fabric = patch_panel_fabric(trained.job.gpus // GPUS, nics=NICS, gpus=GPUS, rate_bps=rate_bps)
    panel = panel_of(fabric, trained, kept_back=kept_back, seed=seed)
    lit = Foreseen(((panel.ocs, panel.circuits.pairs),), (), STAYS, stays=True)
    return Experiment(fabric, trained.job, DelegatedSetup(), seed=seed, label=label, circuits=lit)


def panel_of(fabric: Fabric, trained: Training, *, kept_back: int = 0, seed: int = 0) -> StaticPanel:
    """Return the circuits of a step's panel; as text, on what NICs are spent.

    Parameters
    ----------
    fabric
        The panel.
    trained, kept_back, seed
        As of `panel_experiment`.
    """
    links = dict.fromkeys(linked_servers(trained.job, fabric))
    return static_panel(fabric, mean_demand(trained, seed), links, kept_back=kept_back)


def linked_servers(job: Job, fabric: Fabric) -> Iterator[Pair]:
    """Yield the servers that collectives other than all-to-alls join: rings, and pipelines."""
    servers = np.asarray(fabric.gpu_servers)
    for node in job.collectives:
        pattern = node.pattern
        if isinstance(pattern, AllToAll):
            continue
        moves = pattern.lower(coupled=True).moves
        near, far = servers[moves.source], servers[moves.destination]
        yield from dict.fromkeys(zip(near.tolist(), far.tolist(), strict=True))


def mean_demand(trained: Training, seed: int = 0) -> NDArray[np.float64]:
    """Return what servers send each other in an all-to-all, on average over layers and iterations before.

    Parameters
    ----------
    trained
        The step, with a history of `ITERATIONS` or more; all replicas are taken to be alike.
    seed
        Of the gates' rows.
    """
    model = trained.model
    tokens = gate_tokens(trained.history[-ITERATIONS:], model.ep, model.tokens * model.top_k, seed=seed)
    empty = model.expert_slots - model.experts
    mean = np.pad(np.rint(tokens.mean(axis=0)).astype(np.int64), ((0, 0), (0, 0), (0, empty)))
    size, layers = model.region_servers(GPUS), model.stage_layers()
    count = trained.job.gpus // GPUS
    replicas, demand, first = count // (size * model.pp), np.zeros((count, count)), 0
    for stage, of_stage in enumerate(layers):
        own = range(max(first - model.dense_layers, 0), max(first + of_stage - model.dense_layers, 0))
        first += of_stage
        gpus = [gate_demand(mean[layer], model.hidden * NUMBER_BYTES, model.tp).matrix for layer in own]
        if not gpus:
            continue
        between = server_demand(np.mean(gpus, axis=0), [GPUS] * size)
        for replica in range(replicas):
            place = slice((stage * replicas + replica) * size, (stage * replicas + replica + 1) * size)
            demand[place, place] = between
    return demand
