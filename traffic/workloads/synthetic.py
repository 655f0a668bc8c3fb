"""Synthetic workloads: seeded generators of the demand of one expert all-to-all.

Every GPU holds one expert and ``tokens`` tokens on average; a token is ``hidden`` numbers of
2 bytes, so a GPU owes tokens x hidden x 2 bytes in all. What it owes itself (the diagonal) and
the GPUs of its own server is part of the demand, as in NCCL's alltoall: NVLink carries it and
the network never sees it. The note of each demand says that it is synthetic, and its Gini
coefficients: the gating's over the experts of one rank, and the received bytes' over the GPUs.

References
----------
RailS, section VI-A and Table I.
"""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from topologies.errors import DemandError
from topologies.fabric import Fabric
from traffic.demand import Demand
from traffic.readers.text import MAX_GPUS
from traffic.workloads.gating import GATING_ZIPF, apportioned, gini, zipf_shares

TOKENS = 4096
"""Default tokens per GPU: one sequence."""
HIDDEN = 4096
"""Default numbers per token: Mixtral 8x7B's."""
NUMBER_BYTES = 2
"""Size of a number (bf16) [bytes]."""
Gating = Literal["token", "gpu"]
"""What chooses its top k experts."""
GATINGS = get_args(Gating)
PER_GPU = " per GPU"
"""What names end in whose gating is a GPU's."""
AT_ONCE = 4096
"""Tokens that are drawn together: noise for them and 1,024 experts takes 34 MB."""
SKEW_ZIPF = 1.2
"""Default exponent of the skewed workloads. Inside a server of 4 it gives a normalised load
MSE of 0.15, which is the value that the paper reports for ECMP."""


def uniform(gpus: int, *, tokens: int = TOKENS, hidden: int = HIDDEN) -> Demand:
    """Return the demand in which every GPU owes every GPU the same, to the byte.

    Parameters
    ----------
    gpus
        How many GPUs.
    tokens
        Tokens per GPU.
    hidden
        Numbers per token.

    Raises
    ------
    DemandError
        If a parameter is not positive.

    Notes
    -----
    Row and column sums are all tokens x hidden x 2 bytes. Where that does not divide by the
    number of GPUs, cells differ by one byte, and the larger ones move with the row.
    """
    row_bytes = tokens * _token_bytes(gpus, tokens, hidden)
    row = apportioned(row_bytes, np.full(gpus, 1 / gpus))
    matrix = np.stack([np.roll(row, source) for source in range(gpus)])
    return Demand("uniform", matrix, "synthetic: the same for every pair, Gini 0.00")


def sparse(
    gpus: int,
    sparsity: float,
    *,
    top_k: int = 2,
    gating: Gating = "token",
    tokens: int = TOKENS,
    hidden: int = HIDDEN,
    zipf: float = GATING_ZIPF,
    seed: int = 0,
) -> Demand:
    """Return the demand in which only some experts are active, and each token goes to its top k of them.

    Parameters
    ----------
    gpus
        How many GPUs, each with one expert.
    sparsity
        Share of the experts' columns that are inactive, 0 <= sparsity < 1.
    top_k
        How many of the active experts each token goes to, or each GPU spreads its tokens over.
    gating
        What chooses: each ``token`` for itself, as a model's gate does, so that a GPU's row covers many
        experts; or each ``gpu``, which gives all its tokens to the same few, so that a row has ``top_k``
        cells. RailS says "Top-K (K=2) expert selection matrix" and not whose.
    tokens
        Tokens per GPU.
    hidden
        Numbers per token.
    zipf
        Exponent of the gating, whose order of experts is each GPU's own; a token draws its experts by these
        shares without replacement, as logits with Gumbel noise do.
    seed
        Of the choice of active experts and of the gating.

    Returns
    -------
    Demand
        Per token every row sums to top_k x tokens x hidden x 2 bytes: each of a token's experts has a copy.
        Per GPU each token goes to one of the two, so it is tokens x hidden x 2 bytes, in at most ``top_k``
        cells; its name then ends in *per GPU*.

    Raises
    ------
    DemandError
        If a parameter is out of its range, or fewer than ``top_k`` experts stay active.
    """
    if gating not in GATINGS:
        raise DemandError(f"there is no gating {gating!r}", f"choose among {', '.join(GATINGS)}")
    token_bytes = _token_bytes(gpus, tokens, hidden)
    if not 0 <= sparsity < 1:
        raise DemandError(f"a sparsity of {sparsity:g}", "give a share from 0 to under 1")
    active = gpus - round(sparsity * gpus)
    if not 1 <= top_k <= active:
        raise DemandError(
            f"top {top_k} of {active} active experts ({gpus} GPUs, sparsity {sparsity:g})",
            "choose top_k from 1 to the number of active experts, or a smaller sparsity",
        )
    shares = zipf_shares(gpus, zipf)
    rng = _generator(seed)
    experts = rng.permutation(gpus)[:active]
    matrix = np.zeros((gpus, gpus), dtype=np.int64)
    for source in range(gpus):
        gate = shares[rng.permutation(gpus)]
        if gating == "token":
            matrix[source, experts] = _copies(gate[experts], tokens, top_k, rng)
        else:
            best = experts[np.argsort(-gate[experts], kind="stable")[:top_k]]
            matrix[source, best] = apportioned(tokens, gate[best] / gate[best].sum())
    whose = {"token": "each token's", "gpu": "each GPU's"}[gating]
    note = f"{whose} top {top_k} of {active} active experts, Zipf {zipf:g} gating of Gini {gini(shares):.2f}"
    name = f"sparse {sparsity:g}" + (PER_GPU if gating == "gpu" else "")
    return _synthetic(name, matrix * token_bytes, note, seed)


def sender_skew(
    fabric: Fabric,
    *,
    exponent: float = SKEW_ZIPF,
    tokens: int = TOKENS,
    hidden: int = HIDDEN,
    seed: int = 0,
) -> Demand:
    """Return the demand in which a few hot GPUs of hot servers send most, evenly to all GPUs.

    Parameters
    ----------
    fabric
        Whose servers and GPUs take part.
    exponent
        Zipf's exponent, over the servers and again over the ranks within each.
    tokens
        Tokens per GPU on average.
    hidden
        Numbers per token.
    seed
        Of which servers are hot, and which ranks in each.

    Returns
    -------
    Demand
        All cells sum to gpus x tokens x hidden x 2 bytes; a GPU's column is as large as any
        other's, to ``gpus`` tokens.

    Raises
    ------
    DemandError
        If a parameter is out of its range.
    """
    token_bytes = _token_bytes(fabric.gpus, tokens, hidden)
    rng = _generator(seed)
    sent = apportioned(tokens * fabric.gpus, _hot_shares(fabric, exponent, rng))
    even = np.full(fabric.gpus, 1 / fabric.gpus)
    matrix = np.stack([np.roll(apportioned(int(owed), even), gpu) for gpu, owed in enumerate(sent)])
    note = f"senders Zipf {exponent:g} over servers and ranks, sent Gini {gini(sent):.2f}"
    return _synthetic("sender skew", matrix * token_bytes, note, seed)


def receiver_skew(
    fabric: Fabric,
    *,
    exponent: float = SKEW_ZIPF,
    tokens: int = TOKENS,
    hidden: int = HIDDEN,
    seed: int = 0,
) -> Demand:
    """Return the demand in which all GPUs send alike, mostly to a few hot GPUs of hot servers.

    Parameters
    ----------
    fabric, exponent, hidden, seed
        As in `sender_skew`.
    tokens
        Tokens per GPU.

    Returns
    -------
    Demand
        Every row sums to tokens x hidden x 2 bytes.

    Raises
    ------
    DemandError
        If a parameter is out of its range.
    """
    token_bytes = _token_bytes(fabric.gpus, tokens, hidden)
    row = apportioned(tokens, _hot_shares(fabric, exponent, _generator(seed)))
    matrix = np.tile(row, (fabric.gpus, 1))
    note = f"receivers Zipf {exponent:g} over servers and ranks"
    return _synthetic("receiver skew", matrix * token_bytes, note, seed)


def _hot_shares(fabric: Fabric, exponent: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return each GPU's share: its server's times its own within the server."""
    of_servers = rng.permutation(zipf_shares(len(fabric.servers), exponent))
    return np.concatenate(
        [
            share * rng.permutation(zipf_shares(server.gpus, exponent))
            for share, server in zip(of_servers, fabric.servers, strict=True)
        ]
    )


def _copies(
    gate: NDArray[np.float64], tokens: int, top_k: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return how many tokens go to each expert if each goes to k that it draws by their shares.

    The k largest of logits with Gumbel noise are such a draw (Kool, van Hoof and Welling, "Stochastic beams
    and where to find them", ICML 2019).
    """
    counts = np.zeros(len(gate), dtype=np.int64)
    for first in range(0, tokens, AT_ONCE):
        logits = np.log(gate) + rng.gumbel(size=(min(AT_ONCE, tokens - first), len(gate)))
        drawn = np.argpartition(logits, -top_k, axis=1)[:, -top_k:]
        counts += np.bincount(drawn.ravel(), minlength=len(gate))
    return counts


def _token_bytes(gpus: int, tokens: int, hidden: int) -> int:
    for value, what in ((gpus, "GPUs"), (tokens, "tokens per GPU"), (hidden, "numbers per token")):
        if value < 1:
            raise DemandError(f"a workload of {value} {what}", "give at least one")
    if gpus > MAX_GPUS:
        raise DemandError(f"an all-to-all between {gpus} GPUs", f"give at most {MAX_GPUS}")
    return hidden * NUMBER_BYTES


def _generator(seed: int) -> np.random.Generator:
    if seed < 0:
        raise DemandError(f"a seed of {seed}", "give one of 0 or more")
    return np.random.default_rng(seed)


def _synthetic(name: str, matrix: NDArray[np.int64], note: str, seed: int) -> Demand:
    received = gini(matrix.sum(axis=0))
    return Demand(name, matrix, f"synthetic: {note}, received Gini {received:.2f}, seed {seed}")
