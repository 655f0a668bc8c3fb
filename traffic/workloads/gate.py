"""Made-up gates of MoE layers: who sends how many tokens, with the statistics of mFabric's public matrix.

What is published is one matrix of 8 sources and 8 experts (`ARTIFACT_TOKENS`), which the artifact uses for
all layers and iterations, and figures without numbers: loads differ strongly between iterations, less
as training goes on, and stay uneven; matrices are sparse and heavy between a few pairs. So everything
here is named *synthetic*:

- The mean loads of a layer are the public matrix's, in an order of their own and as flat as the phase asks: a
  Gini coefficient of 0.35 while RailS' phases have a Zipf exponent of 0.7 or more, 0.10 at 0.3.
- Their logarithms wander from iteration to iteration (autoregressive, rho 0.9), less in later phases.
- A layer's loads follow from those of the layer before: loads = P loads_before, P of a seed, each
  column of it a Dirichlet draw, scaled so that the means are kept; and noise of its own.
- The row of a source is a Dirichlet draw around the loads, kappa 400 (the median of a fit to the matrix).
- No source prefers its own experts: the matrix' share of these is 1/8.

References
----------
mFabric, section 3 and Figures 4, 5 and 18; mixnet-htsim, ``mixnet.cpp``, for the matrix.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # loads its parts when they are used
from numpy.typing import NDArray

from topologies.errors import DemandError
from traffic.demand import Demand
from traffic.workloads.gating import apportioned, gini
from traffic.workloads.mixtral import PHASES

ARTIFACT_TOKENS: NDArray[np.int64] = np.array(
    [
        [9810, 5338, 1231, 3042, 4452, 2004, 841, 6050],
        [9278, 6282, 839, 3722, 3821, 2903, 909, 5014],
        [10684, 5165, 1044, 2634, 4344, 3333, 675, 4889],
        [10897, 5629, 1086, 2114, 2762, 3463, 1059, 5758],
        [8684, 5666, 1046, 3955, 4334, 2952, 944, 5187],
        [8361, 5908, 777, 3043, 3984, 3422, 897, 6376],
        [10208, 5507, 1117, 4148, 3967, 3119, 904, 3798],
        [9781, 5211, 902, 3343, 4289, 2839, 1008, 5395],
    ]
)
"""Tokens from source to expert, 32,768 of each source (8 sequences of 4,096), read-only."""
ARTIFACT_TOKENS.setflags(write=False)

KAPPA = 400.0
"""How alike sources are: the sum of a row's Dirichlet parameters."""
RHO = 0.9
"""How much of a load's deviation stays from one iteration to the next."""
WANDER = 0.2
"""Deviation of a load's logarithm over iterations in the phase *early*; elsewhere in proportion to Zipf."""
NOISE = 0.5
"""How much of that deviation is a layer's own, on top of what the layer before hands on."""
TIE = 0.25
"""Parameter of the Dirichlet columns of P: below 1 an expert's tokens go on to few experts."""

Loads = NDArray[np.float64]
"""Shares of the tokens per expert, shape (iterations, layers, experts), summing to 1."""
Tokens = NDArray[np.int64]
"""Tokens from source to expert, shape (iterations, layers, sources, experts)."""


@dataclass(frozen=True, slots=True)
class GateStatistics:
    """What figures and the public matrix say of a gate, as means over iterations and layers."""

    gini: float
    """Gini coefficient over experts."""
    most: float
    """The most loaded expert over the mean."""
    least: float
    """The least loaded expert over the mean."""
    row_gini: float
    """Gini coefficient of one source's row."""
    spread: float
    """Deviation of an expert's share over the sources, relative to its mean; over experts."""
    wander: float
    """Deviation of an expert's share over the iterations, relative to an even share."""
    zeros: float
    """Share of the pairs of source and expert without a token."""

    def __str__(self) -> str:
        return (
            f"experts' Gini {self.gini:.2f}, max/mean {self.most:.2f}, "
            f"std over iterations {self.wander:.3f}, {self.zeros:.0%} zero pairs"
        )


def gate_loads(
    phases: Sequence[str], layers: int, experts: int = 8, *, noise: float = NOISE, seed: int = 0
) -> Loads:
    """Return the loads of the experts over training.

    Parameters
    ----------
    phases
        The phase of each iteration, keys of `PHASES`.
    layers
        How many MoE layers.
    experts
        How many experts a layer has, at least 2.
    noise
        How much loads differ from what the layer before determines; with 0 they follow from it exactly.
    seed
        Of all that is random.

    Raises
    ------
    DemandError
        If a phase is unknown, or a number out of its range.
    """
    _check(phases, layers, experts, noise, seed)
    rng = np.random.default_rng([seed, 0])
    orders = [rng.permutation(experts) for _ in range(layers)]
    ties = [rng.dirichlet(np.full(experts, TIE), experts).T for _ in range(layers - 1)]
    deviations = _deviations(phases, layers, experts, rng)
    mean = {phase: [_mean_loads(phase, experts)[order] for order in orders] for phase in set(phases)}
    loads = np.empty((len(phases), layers, experts))
    loads[:, 0] = _normalised(np.stack([mean[phase][0] for phase in phases]) * np.exp(deviations[:, 0]))
    for layer in range(1, layers):
        handed_on = {
            phase: _keeping_means(ties[layer - 1], of_phase[layer - 1], of_phase[layer])
            for phase, of_phase in mean.items()
        }
        matrices = np.stack([handed_on[phase] for phase in phases])
        handed = np.einsum("tab,tb->ta", matrices, loads[:, layer - 1])
        loads[:, layer] = _normalised(handed * np.exp(noise * deviations[:, layer]))
    return loads


def gate_tokens(loads: Loads, sources: int, tokens: int, *, sparsity: float = 0.0, seed: int = 0) -> Tokens:
    """Return the tokens that each source sends to each expert.

    Parameters
    ----------
    loads
        As of `gate_loads`.
    sources
        How many expert-parallel ranks send.
    tokens
        Copies of tokens that each sends: tokens of a micro-batch times experts per token.
    sparsity
        Each source keeps its strongest ceil((1 - sparsity) E) of E experts, 0 <= sparsity < 1.
    seed
        Of the rows.

    Returns
    -------
    numpy.ndarray
        Shape (iterations, layers, sources, experts); every row sums to ``tokens``.

    Raises
    ------
    DemandError
        If a number is out of its range.
    """
    if sources < 1 or tokens < 1 or seed < 0 or not 0 <= sparsity < 1:
        raise DemandError(
            f"{tokens} tokens of {sources} sources, sparsity {sparsity:g}, seed {seed}",
            "give one or more, a sparsity from 0 to under 1, and a seed of 0 or more",
        )
    rng = np.random.default_rng([seed, 1])
    experts = loads.shape[-1]
    rows = rng.gamma(np.repeat(KAPPA * loads[:, :, None, :], sources, axis=2))
    kept = math.ceil((1 - sparsity) * experts)
    weakest_first = np.argsort(rows, axis=-1, kind="stable")
    np.put_along_axis(rows, weakest_first[..., : experts - kept], 0.0, axis=-1)
    flat = _normalised(rows).reshape(-1, experts)
    return np.stack([apportioned(tokens, row) for row in flat]).reshape(rows.shape)


def gate_demand(
    tokens: NDArray[np.int64],
    token_bytes: int,
    tp: int = 1,
    *,
    tp_shards_tokens: bool = True,
    name: str = "gate",
    note: str = "",
) -> Demand:
    """Return the dispatch of one layer as a demand between GPUs; the combine is its transpose.

    Parameters
    ----------
    tokens
        Of one iteration and layer, shape (ranks, experts); ranks hold equal numbers of experts, in order.
    token_bytes
        Size of a token's hidden vector: hidden size x 2 [bytes].
    tp
        GPUs of a rank; GPU t of one sends to GPU t of another.
    tp_shards_tokens
        Whether each of them sends 1/tp of the rank's bytes, as the artifact has it, or all of them, which is
        what the communication shares of the paper's Figure 3 imply.
    name, note
        Of the demand; the note says what made the tokens.

    Raises
    ------
    DemandError
        If the experts are not alike on all ranks, or a number is not positive.
    """
    ranks, experts = tokens.shape
    if experts % ranks or token_bytes < 1 or tp < 1:
        raise DemandError(
            f"{experts} experts on {ranks} ranks of {tp} GPUs, tokens of {token_bytes} bytes",
            "let ranks divide the experts, and give one or more GPUs and bytes",
        )
    owed = tokens.reshape(ranks, ranks, experts // ranks).sum(axis=2) * token_bytes
    matrix = np.zeros((ranks * tp,) * 2, dtype=np.int64)
    for gpu in range(tp):
        # The first GPUs take what does not divide.
        matrix[gpu::tp, gpu::tp] = (owed + tp - 1 - gpu) // tp if tp_shards_tokens else owed
    return Demand(name, matrix, f"synthetic: {note}" if note else "synthetic")


def gate_statistics(tokens: Tokens) -> GateStatistics:
    """Return the statistics of a gate's tokens."""
    experts = tokens.shape[-1]
    loads = tokens.sum(axis=2) / tokens.sum(axis=(2, 3))[..., None]
    rows = tokens / tokens.sum(axis=3, keepdims=True)
    mean = rows.mean(axis=2)
    spread = np.divide(rows.std(axis=2), mean, out=np.zeros_like(mean), where=mean > 0)
    return GateStatistics(
        float(np.mean([gini(row) for row in loads.reshape(-1, experts)])),
        float(loads.max(axis=2).mean() * experts),
        float(loads.min(axis=2).mean() * experts),
        float(np.mean([gini(row) for row in rows.reshape(-1, experts)])),
        float(spread.mean()),
        float(loads.std(axis=0).mean() * experts),
        float((tokens == 0).mean()),
    )


def _check(phases: Sequence[str], layers: int, experts: int, noise: float, seed: int) -> None:
    unknown = [phase for phase in phases if phase not in PHASES]
    if unknown or not phases:
        named = f"no phase {unknown[0]!r} of training" if unknown else "a gate of no iteration"
        raise DemandError(named, f"choose from {', '.join(PHASES)}")
    if layers < 1 or experts < 2 or seed < 0 or not 0 <= noise < math.inf:
        raise DemandError(
            f"a gate of {layers} layers of {experts} experts, noise {noise:g}, seed {seed}",
            "give a layer and two experts or more, and no negative number",
        )


def _deviations(phases: Sequence[str], layers: int, experts: int, rng: np.random.Generator) -> Loads:
    """Return how far the logarithms of loads are from their means, shape (iterations, layers, experts)."""
    wander = [WANDER * PHASES[phase].zipf / PHASES["early"].zipf for phase in phases]
    draws = rng.standard_normal((len(phases), layers, experts))
    found = np.empty_like(draws)
    found[0] = wander[0] * draws[0]
    for iteration in range(1, len(phases)):
        fresh = math.sqrt(1 - RHO**2) * wander[iteration] * draws[iteration]
        found[iteration] = RHO * found[iteration - 1] + fresh
    return found


def _mean_loads(phase: str, experts: int) -> NDArray[np.float64]:
    """Return the mean loads of a phase, rising: the public matrix's quantiles, flattened to its Gini."""
    zipf, early, stable = PHASES[phase].zipf, PHASES["early"].zipf, PHASES["stable"].zipf
    target = float(np.interp(zipf, [stable, early], [0.10, 0.35]))
    public = np.log(np.sort(ARTIFACT_TOKENS.sum(axis=0)))
    shape = np.interp(
        (np.arange(experts) + 0.5) / experts, (np.arange(len(public)) + 0.5) / len(public), public
    )
    shape -= shape.max()
    flatness = scipy.optimize.brentq(lambda power: gini(np.exp(power * shape)) - target, 0.0, 100.0)
    return _normalised(np.exp(flatness * shape))


def _keeping_means(
    tie: NDArray[np.float64], before: NDArray[np.float64], after: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return P, whose columns sum to 1 and which turns the mean loads of a layer into those of the next.

    By Sinkhorn's scaling of a coupling of the two, which starts at the tie.
    """
    coupling = (tie + 1e-3) * before  # no zeros: scaling would not converge
    for _ in range(100):
        coupling *= (after / coupling.sum(axis=1))[:, None]
        coupling *= before / coupling.sum(axis=0)
    return coupling / before


def _normalised(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True)
    return shares
