"""Mixtral 8x7B's expert all-to-alls over one training iteration of an MoE block.

Eight experts, one per server; a block's forward pass sends tokens to their experts and back, its
backward pass sends the gradients the same two ways in the same order. What is published of the
trace is the volume per expert, about 100 MB in the first iteration and 256 MB when stable, and
that the input of every GPU is even; the volumes between are interpolated here, and the
imbalance, which falls as the experts learn to share, is a Zipf distribution. Hence the note
*synthetic*: the trace itself is not public.

What stays inside a server (tokens of its own experts) is part of the demand; NVLink carries it.

References
----------
RailS, section VI-F and Figures 12 and 13; Jiang et al.: Mixtral of Experts, Table 1 (sizes);
mFabric, section 3.2 (the order of the all-to-alls).
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from topologies.errors import DemandError
from topologies.fabric import Fabric
from traffic.demand import Demand
from traffic.job import Job
from traffic.models.moe import MODELS, NUMBER_BYTES
from traffic.readers.text import MAX_GPUS
from traffic.steps import Step, job_of_steps
from traffic.workloads.gating import apportioned, gini, zipf_shares

MODEL = MODELS["mixtral-8x7b"]
EXPERTS = MODEL.experts
TOKEN_BYTES = MODEL.hidden * NUMBER_BYTES
"""Size of a token's hidden vector in bf16 [bytes]."""
GPU_FLOPS = 140e12
"""Work that a GPU does per second: 45 % of an A100's peak in bf16 [FLOP/s]."""
SOURCE_SPREAD = 0.2
"""Relative deviation of one server's gating from the popularity that all share."""

Placement = Literal["dense", "sparse"]
"""``dense``: an expert's data lie evenly on its server's GPUs; ``sparse``: all on the first."""


@dataclass(frozen=True, slots=True)
class TrainingStage:
    """A stage of training."""

    expert_bytes: float
    """What each expert's GPUs send in one all-to-all, to all experts together [bytes]."""
    zipf: float
    """Exponent of the experts' popularity; falls as training goes on."""


PHASES = {
    "start": TrainingStage(100e6, 0.9),
    "early": TrainingStage(152e6, 0.7),
    "mid": TrainingStage(204e6, 0.5),
    "stable": TrainingStage(256e6, 0.3),
}


def mixtral_replay(
    fabric: Fabric,
    phase: str,
    placement: str = "dense",
    *,
    gpu_flops: float = GPU_FLOPS,
    seed: int = 0,
) -> Job:
    """Return one iteration: both forward all-to-alls, both backward ones, compute between them.

    Parameters
    ----------
    fabric
        1, 2, 4 or 8 servers hold the experts in order; a multiple of 8 servers holds as many
        copies of the model, which do not talk to each other.
    phase
        A key of `PHASES`.
    placement
        Whether an expert's data lie on all GPUs of its server, ``dense``, or on its first, ``sparse``.
        Between two servers, dense data go from every GPU to every GPU alike.
    gpu_flops
        Work that a GPU does per second [FLOP/s].
    seed
        Of the experts' popularity.

    Returns
    -------
    Job
        Four steps. The compute after the first and third is the busiest expert's, forward and
        (twice the work) backward, spread over its server's GPUs; after the last it is
        attention's, forward and backward, so that the steps and the compute make an iteration.

    Raises
    ------
    DemandError
        If the servers do not fit eight experts, or a parameter is unknown or out of its range.
    """
    _check(fabric, phase, placement, gpu_flops, seed)
    rng = np.random.default_rng(seed)
    copies = max(1, len(fabric.servers) // EXPERTS)
    tokens = [_tokens(PHASES[phase], rng) for _ in range(copies)]
    there = np.sum([_between_gpus(fabric, *sent, placement) for sent in enumerate(tokens)], axis=0)
    expert_gpus = min(server.gpus for server in fabric.servers) * len(fabric.servers) / (EXPERTS * copies)
    busiest = max(int(sent.sum(axis=0).max()) for sent in tokens)
    expert_s = MODEL.expert_flop(busiest) / (expert_gpus * gpu_flops)
    of_each = int(tokens[0][0].sum()) / MODEL.top_k
    attention_s = of_each * (MODEL.attention_flop // MODEL.tokens) / (expert_gpus * gpu_flops)
    note = _note(phase, tokens, seed)
    steps = (
        Step(Demand("forward dispatch", there, note), expert_s),
        Step(Demand("forward combine", there.T, note)),
        Step(Demand("backward combine", there, note), 2 * expert_s),
        Step(Demand("backward dispatch", there.T, note), 3 * attention_s),
    )
    return job_of_steps(f"mixtral {placement} {phase}", steps, note)


def _check(fabric: Fabric, phase: str, placement: str, gpu_flops: float, seed: int) -> None:
    servers = len(fabric.servers)
    if fabric.gpus > MAX_GPUS:
        raise DemandError(f"an all-to-all between {fabric.gpus} GPUs", f"give at most {MAX_GPUS}")
    if servers % EXPERTS and EXPERTS % servers:
        raise DemandError(
            f"{EXPERTS} experts on {servers} servers", "take 1, 2, 4 or 8 servers or a multiple of 8"
        )
    if phase not in PHASES:
        raise DemandError(f"no phase {phase!r} in Mixtral's training", f"choose from {', '.join(PHASES)}")
    if placement not in get_args(Placement):
        raise DemandError(f"no placement {placement!r}", f"choose from {', '.join(get_args(Placement))}")
    if not gpu_flops > 0:
        raise DemandError(f"GPUs of {gpu_flops:g} FLOP/s", "give a positive speed")
    if seed < 0:
        raise DemandError(f"a seed of {seed}", "give one of 0 or more")


def _tokens(phase: TrainingStage, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the tokens from each expert's server to each expert, shape (8, 8); rows are even."""
    popularity = rng.permutation(zipf_shares(EXPERTS, phase.zipf))
    gates = popularity * rng.gamma(SOURCE_SPREAD**-2, SOURCE_SPREAD**2, (EXPERTS, EXPERTS))
    total = round(phase.expert_bytes / TOKEN_BYTES)
    return np.stack([apportioned(total, gate / gate.sum()) for gate in gates])


def _between_gpus(fabric: Fabric, copy: int, tokens: NDArray[np.int64], placement: str) -> NDArray[np.int64]:
    """Return the bytes between GPUs that one copy of the model makes of its tokens."""
    homes = [
        copy * EXPERTS + expert * min(len(fabric.servers), EXPERTS) // EXPERTS for expert in range(EXPERTS)
    ]
    gpus = [range(fabric.gpu_offsets[home], fabric.gpu_offsets[home + 1]) for home in homes]
    if placement == "sparse":
        gpus = [ranks[:1] for ranks in gpus]
    matrix = np.zeros((fabric.gpus, fabric.gpus), dtype=np.int64)
    for (source, destination), count in np.ndenumerate(tokens):
        pairs = len(gpus[source]), len(gpus[destination])
        cells = apportioned(int(count) * TOKEN_BYTES, np.full(pairs, 1 / np.prod(pairs)).ravel())
        matrix[np.ix_(gpus[source], gpus[destination])] += cells.reshape(pairs)
    return matrix


def _note(phase: str, tokens: list[NDArray[np.int64]], seed: int) -> str:
    received = np.mean([gini(sent.sum(axis=0)) for sent in tokens])
    return (
        f"synthetic: Mixtral 8x7B, {phase}, {PHASES[phase].expert_bytes / 1e6:g} MB per expert, "
        f"Zipf {PHASES[phase].zipf:g} popularity, experts' Gini {received:.2f}, seed {seed}"
    )
