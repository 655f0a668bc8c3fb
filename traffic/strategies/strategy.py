"""A strategy: on which servers each layer of a model is, and what servers send each other because of that.

    n       servers
    N       samples of an iteration
    g, s    parts and start of a layer: its g replicas are on servers s + j n / g, and replica j has samples
            j N / g to (j + 1) N / g

Only samples are divided. Where two layers have different shares, a server is sent the samples that its
replica of the consumer has and that it does not hold itself, and sends their gradients back. A table is
whole on one server: g = 1. Each consumer of a layer is sent its output anew.

References
----------
TopoOpt, section 4.1; FlexNet (``model.cc``) for the strided replicas.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from topologies.errors import DemandError
from traffic.models.layered import GRADIENT_BYTES, LayeredModel

Edges = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Source servers, destination servers, and how much each source sends each destination."""


@dataclass(frozen=True, slots=True)
class Share:
    """How a layer is shared by servers."""

    parts: int
    """g, its replicas, a divisor of n."""
    start: int = 0
    """s, the server of the first, less than n / g."""


Strategy = Mapping[str, Share]
"""The share of every layer, by its name."""


def start_strategy(model: LayeredModel) -> dict[str, Share]:
    """Return the strategy that a search starts from: table t on server t mod n, all else data parallel."""
    owners = {table.name: number % model.servers for number, table in enumerate(model.tables)}
    return {
        layer.name: Share(1, owners[layer.name]) if layer.is_table else Share(model.servers)
        for layer in model.layers
    }


def check_strategy(model: LayeredModel, strategy: Strategy) -> None:
    """Refuse a strategy that does not fit a model.

    Raises
    ------
    DemandError
        If a layer has no share, or one that its servers or samples cannot be divided by, or a table more than
        one part.
    """
    n = model.servers
    for layer in model.layers:
        share = strategy.get(layer.name)
        if share is None:
            raise DemandError(f"layer {layer.name!r} has no share", "give every layer one")
        parts = share.parts
        if parts < 1 or n % parts or model.samples % parts or not 0 <= share.start < n // parts:
            raise DemandError(
                f"layer {layer.name!r} in {parts} parts from server {share.start} of {n}, {model.samples} "
                "samples",
                "take a divisor of both, and start before server n / parts",
            )
        if layer.is_table and parts > 1:
            raise DemandError(f"table {layer.name!r} is in {parts} parts", "give it one server")


def replicas(share: Share, servers: int) -> tuple[int, ...]:
    """Return the server of each replica.

    Examples
    --------
    >>> replicas(Share(3, 1), 12)
    (1, 5, 9)
    """
    return tuple(range(share.start, servers, servers // share.parts))


def summed(model: LayeredModel, strategy: Strategy) -> list[tuple[tuple[int, ...], int]]:
    """Return the groups that sum gradients: their servers, and how many bytes all their layers have.

    Groups of one server have nothing to send, and are left out. The largest groups come first, and of equally
    large ones that which has a layer first.
    """
    groups: dict[tuple[int, ...], int] = {}
    for layer in model.layers:
        members = replicas(strategy[layer.name], model.servers)
        if layer.parameters and len(members) > 1:
            groups[members] = groups.get(members, 0) + GRADIENT_BYTES * layer.parameters
    return sorted(groups.items(), key=lambda group: -len(group[0]))


def transfers(model: LayeredModel, strategy: Strategy) -> NDArray[np.int64]:
    """Return the bytes that servers send each other between layers in an iteration, shape (n, n).

    Forward and backward: what goes one way forward comes back as gradients, so the matrix is symmetric.
    """
    forward = np.zeros((model.servers, model.servers), dtype=np.int64)
    for consumer in model.layers:
        for producer in dict.fromkeys(consumer.inputs):
            source, destination, size = edge_bytes(model, strategy, producer, consumer.name)
            np.add.at(forward, (source, destination), size)
    return forward + forward.T


def edge_bytes(model: LayeredModel, strategy: Strategy, producer: str, consumer: str) -> Edges:
    """Return the bytes that servers send each other forward as one layer takes the output of another.

    Parameters
    ----------
    model, strategy
        A strategy that fits the model.
    producer, consumer
        The two layers.

    Returns
    -------
    Source and destination servers, and bytes; a pair of servers once, and none with itself.
    """
    shares = strategy[producer], strategy[consumer]
    source, destination, samples = _crossing(*shares, model.servers, model.samples)
    return source, destination, samples * model.layer(producer).sample_bytes


@lru_cache(maxsize=1 << 14)
def _crossing(producer: Share, consumer: Share, servers: int, samples: int) -> Edges:
    """Return how many samples replicas of one layer send those of another, by their servers."""
    first, last = (np.array(replicas(share, servers), dtype=np.int64) for share in (producer, consumer))
    of_first, of_last = (np.arange(len(some) + 1) * (samples // len(some)) for some in (first, last))
    begin = np.maximum(of_first[:-1, None], of_last[None, :-1])
    end = np.minimum(of_first[1:, None], of_last[None, 1:])
    shared = np.maximum(end - begin, 0) * (first[:, None] != last[None, :])
    row, column = np.nonzero(shared)
    found = first[row], last[column], shared[row, column]
    for array in found:
        array.flags.writeable = False  # the cache gives it to others too
    return found
