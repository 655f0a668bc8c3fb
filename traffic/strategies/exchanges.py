"""The transfers between layers with their shares: the load on links, and which servers receive.

Between two layers a sample's output goes from the replica that computes it to the one that needs it, and its
gradient back, unless both are on one server. What a layer takes of all its inputs goes together.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from traffic.models.layered import LayeredModel
from traffic.strategies.network import Numbers, RoutedNetwork
from traffic.strategies.strategy import Share, edge_bytes


class Reached(NamedTuple):
    """The replicas of a layer that take something from another server."""

    mask: NDArray[np.bool_]
    any: bool
    all: bool

    @classmethod
    def of(cls, mask: NDArray[np.bool_]) -> "Reached":
        """Return it with what is asked for at each step."""
        return cls(mask, bool(mask.any()), bool(mask.all()))


class Load(NamedTuple):
    """The load of a transfer on links."""

    link_s: Numbers
    """How long each link takes for it."""
    used: NDArray[np.intp]
    """The links that it crosses."""


class EdgeLoad(NamedTuple):
    """An edge between two layers in one direction."""

    link_s: Numbers
    """How long each link takes for it."""
    reached: Reached
    """Of the layer that it leads to."""


class Exchange(NamedTuple):
    """The inputs of a layer, and the gradients that it returns."""

    edges: tuple[tuple[EdgeLoad, EdgeLoad], ...]
    """There and back, of each of its inputs."""
    take: Load | None
    """None if nothing leaves its server."""
    back: Load | None
    """Likewise."""
    reached: Reached
    """Of the layer."""
    senders: frozenset[int]
    """The inputs of which something is sent, by their place in the model."""
    own: tuple[int, ...]
    """The others, which are on the same servers as the layer."""


def edge_between(
    network: RoutedNetwork, model: LayeredModel, ends: Mapping[str, Share], producer: str, consumer: str
) -> tuple[EdgeLoad, EdgeLoad]:
    """Return the load of an edge between two layers on links, there and back.

    Parameters
    ----------
    network
        Where it goes.
    model, ends
        Of which at least the two layers have shares.
    producer, consumer
        Their names.
    """
    source, destination, size = edge_bytes(model, ends, producer, consumer)
    return (
        EdgeLoad(
            network.loads_s(source, destination, size), _reached(destination, ends[consumer], model.servers)
        ),
        EdgeLoad(network.loads_s(destination, source, size), _reached(source, ends[producer], model.servers)),
    )


def exchange_of(inputs: Sequence[int], edges: Sequence[tuple[EdgeLoad, EdgeLoad]]) -> Exchange:
    """Return the exchange of a layer with its inputs, over the edge of each."""
    mask = np.logical_or.reduce([there.reached.mask for there, _ in edges])
    senders = frozenset(p for p, (there, _) in zip(inputs, edges, strict=True) if there.reached.any)
    own = tuple(p for p in inputs if p not in senders)
    take = load_of([there.link_s for there, _ in edges]) if senders else None
    back = load_of([back.link_s for _, back in edges]) if senders else None
    return Exchange(tuple(edges), take, back, Reached.of(mask), senders, own)


def load_of(parts: Sequence[Numbers]) -> Load:
    """Return the load of transfers that go together on links."""
    link_s = parts[0] if len(parts) == 1 else np.add.reduce(parts)
    return Load(link_s, np.flatnonzero(link_s))


def _reached(receivers: NDArray[np.int64], share: Share, servers: int) -> Reached:
    mask = np.zeros(servers, dtype=bool)
    mask[receivers] = True
    return Reached.of(mask[share.start :: servers // share.parts])
