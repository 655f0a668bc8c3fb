"""TopoOpt as mFabric's paper compares it: a training step over a patch panel whose circuits stay.

TopologyFinder lights the circuits before the step, for rings, pipelines and the mean of all-to-alls in the
iterations before. Its strategy search is not asked: TopoOpt has the degrees and the placement of mFabric.
Rings take the permutations that it selects; what has no circuit goes over up to four shortest paths through
servers. All-to-alls are delegated, as on all fabrics: a pair's bytes are gathered at the NICs of its lanes.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, cast

import numpy as np

from scenarios._mfabric.fabrics import GPUS, NICS, RINGS, TOPOOPT
from scenarios._mfabric.step.training import Training
from testbed.experiment.experiment import Experiment
from topologies.fabric import Fabric
from topologies.own import own_object
from topologies.patch_panel import patch_panel_fabric
from traffic.delegated import DelegatedSetup
from traffic.job import Job
from traffic.models.moe_step import moe_step
from traffic.workloads.gate import gate_tokens

ITERATIONS = 10
"""Whose mean demand decides the circuits."""
MpDegree = Literal["proportional"] | int
MP_DEGREES: dict[str, MpDegree] = {TOPOOPT: "proportional", RINGS: 0}
"""d_MP, how many of a server's circuits are for all-to-alls and pipelines: as TopoOpt's Algorithm 1 says, or
none, as in its published program."""
KEPT_BACK = {TOPOOPT: 0, RINGS: 6}
"""NICs whose circuits leave a region with Mixtral 8x22B on 1,024 GPUs, a ring over all servers apart: by the
published program six of 8 lead to the other replica's experts."""
OVER_CIRCUITS = "scenarios._topoopt.trace_rings:step_over_circuits"
"""Imported when it is asked for, so that the paper can be taken out."""
OverCircuits = Callable[[Job, Fabric, Job, int, MpDegree, int], Experiment]
"""Takes the step, the panel, the step that was expected, d, d_MP and a seed."""


def panel_experiment(
    trained: Training, rate_bps: float, label: str, *, kept_back: int = 0, seed: int = 0
) -> Experiment:
    """Return a step over a patch panel whose circuits were lit before it, for the iterations before.

    Parameters
    ----------
    trained
        The step; the last ten iterations of its history decide the circuits.
    rate_bps
        Rate of a NIC [bit/s].
    label
        A key of `MP_DEGREES`, which tables call it.
    kept_back
        NICs that stay dark, where stages and replicas of a training are left out that would take them.
    seed
        Of the rows of the gates before, and of the choice among equally short paths.
    """
    fabric = patch_panel_fabric(trained.job.gpus // GPUS, nics=NICS, gpus=GPUS, rate_bps=rate_bps)
    over_circuits = cast(OverCircuits, own_object("fabric", OVER_CIRCUITS))
    expected, degree = expected_job(trained, seed), NICS - kept_back
    found = over_circuits(trained.job, fabric, expected, degree, MP_DEGREES[label], seed)
    return replace(found, scheme=DelegatedSetup(), label=label)


def expected_job(trained: Training, seed: int = 0) -> Job:
    """Return a step whose gates decide all the same: their mean over the iterations before.

    Parameters
    ----------
    trained
        The step, with a history of `ITERATIONS` or more; all replicas are taken to be alike.
    seed
        Of the gates' rows.
    """
    model = trained.model
    # Another stream than the step's: what its rows differ by from their loads is not known before.
    tokens = gate_tokens(trained.history[-ITERATIONS:], model.ep, model.tokens * model.top_k, seed=seed + 1)
    mean = np.rint(tokens.mean(axis=0)).astype(np.int64)
    return moe_step(
        model,
        lambda _replica, _micro_batch, layer: mean[layer],
        replicas=trained.job.gpus // model.replica_gpus,
        micro_batches=1 + max(dispatch.micro_batch for dispatch in trained.step.dispatches),
    ).job
