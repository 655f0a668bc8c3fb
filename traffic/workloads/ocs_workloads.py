"""Demand matrices on which schedulers of parallel optical circuit switches are compared.

Pure functions of their arguments, the seed among them. The unit is the line time: an entry of 1
keeps one port busy for one unit of time, and no row or column holds more than about 1.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from topologies.errors import DemandError, TraceError
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.pattern import bytes_between
from traffic.collectives.point_to_point import PointToPoint
from traffic.demand import Demand
from traffic.job import Collective, Job
from traffic.readers.detect import read_trace
from traffic.readers.htsim import StartUnit
from traffic.readers.text import MAX_GPUS

Matrix = NDArray[np.float64]

NOISE = 0.003
"""Standard deviation of the noise on nonzeros [line rate]."""

SMALLEST = 1e-6
"""What noise leaves of an entry at least [line time]."""


def ocs_demand(workload: str, seed: int, servers: int, line_bytes: float) -> Demand:
    """Return one of the workloads, made small enough for some servers.

    Parameters
    ----------
    workload
        A name in `SCALED`.
    seed
        Of all that is random.
    servers
        How many, 2 to `MAX_GPUS`; what a server owes itself is left out.
    line_bytes
        What a port carries in the line time [bytes].

    Raises
    ------
    DemandError
        If the workload is unknown, there are fewer than 2 servers or too many, or a line carries nothing.
    """
    if workload not in SCALED:
        raise DemandError(f"unknown workload {workload!r}", f"take {', '.join(SCALED)} or a file")
    if not 2 <= servers <= MAX_GPUS:
        raise DemandError(f"a demand between {servers} servers", f"take 2 to {MAX_GPUS}")
    if not 0 < line_bytes < np.inf:
        raise DemandError(f"a line that carries {line_bytes:g} bytes", "take a number above 0")
    matrix, what = SCALED[workload]
    owed = np.where(np.eye(servers, dtype=bool), 0, matrix(seed, servers)) * line_bytes
    if not (rounded := np.rint(owed).astype(np.int64)).any():
        raise DemandError(f"a line that carries {line_bytes:g} bytes", "take more: no flow has a byte")
    return Demand(workload, rounded, f"synthetic: {what(servers)}")


def demand_of_file(
    path: Path,
    servers: int,
    *,
    experts: int | None = None,
    bytes_per_token: int | None = None,
    tokens_per_gpu: int | None = None,
    start_unit: StartUnit | None = None,
) -> Demand:
    """Return the matrix that a file of any known format holds, a row and a column per server.

    Parameters
    ----------
    path
        The file; of several exchanges those that start first are taken, and the note says so.
    servers
        How many, where the format leaves it open.
    experts, bytes_per_token, tokens_per_gpu, start_unit
        As of `traffic.readers.detect.read_trace`.

    Raises
    ------
    TraceError
        If the file cannot be read, or nobody in it owes anybody else anything.
    """
    job = read_trace(
        path,
        gpus=servers,
        experts=experts,
        bytes_per_token=bytes_per_token,
        tokens_per_gpu=tokens_per_gpu,
        start_unit=start_unit,
    )
    exchanges = [node for node in job.collectives if isinstance(node.pattern, AllToAll | PointToPoint)]
    if not exchanges:
        raise TraceError(f"{path} holds no all-to-all", "give a file with a demand")
    earliest = min(exchanges, key=lambda node: node.at_s)
    first = [node for node in exchanges if (node.after, node.at_s) == (earliest.after, earliest.at_s)]
    matrix = np.sum([bytes_between(node.pattern, job.gpus) for node in first], axis=0)
    if not matrix.any():
        raise TraceError(f"{path} holds nothing that one server owes another", "give a file with a demand")
    return Demand(job.name, matrix, "; ".join(filter(None, (job.note, *_not_taken(job, exchanges, first)))))


def _not_taken(job: Job, exchanges: Sequence[Collective], first: Sequence[Collective]) -> Iterator[str]:
    """Yield which of a job's exchanges are the first, and how many nodes are none."""
    if len(first) < len(exchanges):
        taken, every = (
            sum(int(n.pattern.lower().moves.bytes.sum()) for n in some) for some in (first, exchanges)
        )
        which = "the first" if len(first) == 1 else f"the first {len(first)}"
        yield f"{which} of {len(exchanges)} exchanges, {taken / 1e6:g} of {every / 1e6:g} MB"
    if others := len(job.nodes) - len(exchanges):
        yield f"left out: {others} nodes that compute or are rings"


def benchmark(
    seed: int,
    *,
    ports: int = 100,
    large_flows: int = 4,
    small_flows: int = 12,
    large_share: float = 0.7,
    noise: float = NOISE,
) -> Matrix:
    """Return the field's standard benchmark: a few large and many small flows per port, and noise.

    Parameters
    ----------
    seed
        Of the permutations and of the noise.
    ports
        How many ports.
    large_flows, small_flows
        How many random permutations share ``large_share`` of the line, and how many share the rest.
    large_share
        Part of the line rate that the large flows fill, 0 to 1.
    noise
        Standard deviation of the noise on nonzeros [line rate].

    References
    ----------
    Spectra, section V-A, workload 3; H. Liu et al., CoNEXT 2015 (Solstice), section 5.
    """
    rng = np.random.default_rng(seed)
    demand = np.zeros((ports, ports))
    weights = [large_share / large_flows] * large_flows + [(1 - large_share) / small_flows] * small_flows
    for weight in weights:
        demand[np.arange(ports), rng.permutation(ports)] += weight
    return _noisy(demand, noise, rng)


def gpt(
    seed: int,
    *,
    pipeline: int = 4,
    tensor: int = 4,
    data: int = 2,
    noise: float = NOISE,
) -> Matrix:
    """Return one iteration of a GPT of 2.7 billion parameters under PP x TP x DP, doubly stochastic.

    Parameters
    ----------
    seed
        Of the noise; all else is given by the parallelism.
    pipeline, tensor, data
        Stages, tensor-parallel ranks, replicas; one port per GPU, 32 by default. The rank of a GPU
        is (stage * data + replica) * tensor + tensor rank, as DeepSpeed maps them.
    noise
        Standard deviation of the noise on nonzeros [line rate].

    Notes
    -----
    32 layers of width 2560, sequence 2048, 8 micro-batches of 1, 16 bit. Tensor and data parallel
    groups reduce around rings, each GPU to its next, 2 (t - 1)/t of the data; four all-reduces per
    layer and micro-batch in the tensor group, one of the gradients in the data group; stages
    exchange activations and their gradients with both neighbours. The measured matrix of the paper
    is not public. Bytes are scaled to row and column sums of 1 (Sinkhorn).

    References
    ----------
    Spectra, section V-A, workload 1; W. Li et al., "Understanding Communication Characteristics of
    Distributed Training", APNet 2024.
    """
    layers, width, sequence, micro_batches, parameters = 32, 2560, 2048, 8, 2.7e9
    activation_bytes = 2.0 * sequence * width * micro_batches
    tensor_bytes = 4 * layers / pipeline * activation_bytes * 2 * (tensor - 1) / tensor
    data_bytes = 2 * parameters / (pipeline * tensor) * 2 * (data - 1) / data
    rank = np.arange(pipeline * data * tensor).reshape(pipeline, data, tensor)
    demand = np.zeros((rank.size, rank.size))
    if tensor > 1:
        demand[rank, np.roll(rank, -1, axis=2)] += tensor_bytes
    if data > 1:
        demand[rank, np.roll(rank, -1, axis=1)] += data_bytes
    demand[rank[:-1], rank[1:]] += activation_bytes
    demand[rank[1:], rank[:-1]] += activation_bytes
    return _noisy(_doubly_stochastic(demand), noise, np.random.default_rng(seed))


def moe(
    seed: int,
    *,
    experts: int = 64,
    chosen: int = 8,
    tokens: int = 4096,
    popularity: float = 0.2,
    affinity: float = 0.1,
    noise: float = 0.0,
) -> Matrix:
    """Return the tokens that GPUs send to experts: dense, near uniform, a few hot columns.

    Parameters
    ----------
    seed
        Of the router, the tokens and the noise.
    experts
        How many experts, one per GPU and port; 64 as in Qwen2-57B-A14B.
    chosen
        To how many experts a token goes.
    tokens
        Tokens per GPU.
    popularity
        Standard deviation of an expert's logit: how much hotter the hot columns are.
    affinity
        Standard deviation of a logit between GPUs: how much their data differ.
    noise
        Standard deviation of the noise on nonzeros [line rate].

    Notes
    -----
    A router with Gumbel noise takes the ``chosen`` largest logits. In the equal form of a race, in
    which expert e arrives after an exponential time of rate exp(logit), it takes those that arrive
    before a time t; here t is the same for all tokens of a GPU, and entries are binomial. A GPU
    owes its own expert nothing. The largest line has sum 1 before noise.

    References
    ----------
    Spectra, section V-A, workload 2, whose measured matrix is not public.
    """
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, popularity, experts) + rng.normal(0, affinity, (experts, experts))
    counts = rng.binomial(tokens, _chosen_probability(np.exp(logits), chosen)).astype(np.float64)
    np.fill_diagonal(counts, 0)
    line = max(counts.sum(axis=0).max(), counts.sum(axis=1).max())
    return _noisy(counts / line, noise, rng)


def derangements(number: int, size: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Yield random permutations that have no fixed point and, as long as that can be, nothing in common.

    Parameters
    ----------
    number
        How many; each run of ``size - 1`` has nothing in common.
    size
        Of each, at least 2.
    rng
        Draws them.

    Notes
    -----
    What is not taken has equally many entries in each line, so a permutation of it exists (Hall).
    Permutations are drawn until one is; for the fourth e^4 draws on average, 120 where size is 5.
    """
    rows = np.arange(size)
    taken = np.eye(size, dtype=bool)
    for _ in range(number):
        if taken.all():
            taken = np.eye(size, dtype=bool)
        order = rng.permutation(size)
        while taken[rows, order].any():
            order = rng.permutation(size)
        taken[rows, order] = True
        yield order


def _small_benchmark(seed: int, servers: int) -> Matrix:
    """Return the benchmark between a few servers: a large flow and three small ones each, to others."""
    rng = np.random.default_rng(seed)
    demand = np.zeros((servers, servers))
    weights = (0.7, 0.1, 0.1, 0.1)
    for weight, order in zip(weights, derangements(4, servers, rng), strict=True):
        demand[np.arange(servers), order] += weight
    return _noisy(demand, NOISE, rng)


def _small_gpt(seed: int, servers: int) -> Matrix:
    """Return the iteration of a GPT between some servers, of a GPU each, in `parallelism`."""
    pipeline, tensor, data = parallelism(servers)
    return gpt(seed, pipeline=pipeline, tensor=tensor, data=data)


def _small_moe(seed: int, servers: int) -> Matrix:
    """Return the tokens for as many experts as there are servers, one in eight of them chosen."""
    return moe(seed, experts=servers, chosen=max(servers // 8, 1))


def parallelism(gpus: int) -> tuple[int, int, int]:
    """Return pipeline stages, tensor-parallel ranks and replicas whose product is a number of GPUs.

    Its prime factors, the largest first, go to ranks, stages and replicas in turn.

    Examples
    --------
    >>> parallelism(32), parallelism(8), parallelism(6), parallelism(5)
    ((4, 4, 2), (2, 2, 2), (2, 3, 1), (1, 5, 1))
    """
    degrees = [1, 1, 1]
    for turn, factor in enumerate(sorted(_prime_factors(gpus), reverse=True)):
        degrees[turn % 3] *= factor
    tensor, pipeline, data = degrees
    return pipeline, tensor, data


def _prime_factors(number: int) -> list[int]:
    factors, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return factors


def _chosen_probability(rates: Matrix, chosen: int) -> Matrix:
    """Return 1 - exp(-t rate) with t such that each row sums to ``chosen``, found by bisection."""
    if not 0 < chosen < rates.shape[1]:
        raise DemandError(f"a token for {chosen} of {rates.shape[1]} experts", "choose fewer than there are")
    low, high = np.zeros((len(rates), 1)), np.full((len(rates), 1), 1e6)
    for _ in range(60):
        middle = (low + high) / 2
        too_many = (1 - np.exp(-middle * rates)).sum(axis=1, keepdims=True) > chosen
        low, high = np.where(too_many, low, middle), np.where(too_many, middle, high)
    probability: Matrix = 1 - np.exp(-low * rates)
    return probability


def _doubly_stochastic(demand: Matrix) -> Matrix:
    """Return the matrix scaled to row and column sums of 1 (Sinkhorn and Knopp, 1967)."""
    for _ in range(1000):
        demand = demand / demand.sum(axis=1, keepdims=True)
        demand = demand / demand.sum(axis=0, keepdims=True)
    return demand


def _noisy(demand: Matrix, noise: float, rng: np.random.Generator) -> Matrix:
    """Return the matrix with Gaussian noise on its nonzeros, none of which vanishes."""
    perturbed = demand + rng.normal(0, noise, demand.shape)
    return np.where(demand > 0, np.maximum(perturbed, SMALLEST), 0.0)


SCALED: dict[str, tuple[Callable[[int, int], Matrix], Callable[[int], str]]] = {
    "benchmark": (_small_benchmark, lambda _: "a large flow and three small ones per server"),
    "gpt": (
        _small_gpt,
        lambda servers: "a GPT, pipeline x tensor x data = {} x {} x {}".format(*parallelism(servers)),
    ),
    "moe": (_small_moe, lambda servers: f"tokens of a seeded router to {servers} experts"),
}
"""Each workload for some servers: its matrix by seed and servers, and what it is."""
