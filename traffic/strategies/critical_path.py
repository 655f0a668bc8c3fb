"""The time of a training iteration under a strategy on a network: the critical path of its tasks.

T is the last end of all tasks (`traffic.strategies.iteration_walk`, which says what is approximate); the best
strategies of a search are judged by the fluid model. A proposal changes one layer or a few: what happened
before the first of them could be ready stays, and loads are kept by the two shares that an edge joins.

References
----------
TopoOpt, section 4.1; FlexFlow's simulator. The times are those of `traffic.models.layered`.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from topologies.errors import DemandError
from traffic.models.layered import GRADIENT_BYTES, LayeredModel
from traffic.strategies.exchanges import EdgeLoad, Exchange, Load, edge_between, exchange_of, load_of
from traffic.strategies.iteration_walk import Graph, Walk
from traffic.strategies.network import RoutedNetwork
from traffic.strategies.strategy import Share, Strategy, check_strategy, replicas

EDGES_KEPT = 4096
"""Of the loads by pairs of shares; at 128 servers with 4 circuits one is 8 kB."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A strategy and what its iteration takes, with what helps to evaluate a similar one."""

    strategy: Mapping[str, Share]
    time_s: float
    """T."""
    exchanges: tuple[Exchange | None, ...]
    """Of each layer; None if it has no inputs."""
    sums: tuple[Load | None, ...]
    """Of each layer; None if it has one replica, or nothing to sum."""
    walk: Walk


class Cost:
    """T of strategies for a model on a network.

    Parameters
    ----------
    model, network
        What is trained on what.

    Raises
    ------
    DemandError
        If they have different numbers of servers.
    """

    def __init__(self, model: LayeredModel, network: RoutedNetwork) -> None:
        if model.servers != network.servers:
            raise DemandError(
                f"a model on {model.servers} servers and a network of {network.servers}",
                "make both for the same servers",
            )
        self.model, self.network = model, network
        self._place = {layer.name: i for i, layer in enumerate(model.layers)}
        self._graph = Graph.of(model)
        self._edges: dict[tuple[Share, Share, int], tuple[EdgeLoad, EdgeLoad]] = {}
        self._ring_s = lru_cache(EDGES_KEPT)(
            lambda share: network.ring_loads_s(replicas(share, model.servers))
        )

    def start(self, strategy: Strategy) -> Evaluation:
        """Return the cost of a strategy, from scratch; DemandError if it does not fit the model."""
        check_strategy(self.model, strategy)
        every = range(len(self._place))
        shares = [strategy[name] for name in self._place]
        exchanges = tuple(self._exchange(i, shares, None, every) for i in every)
        sums = tuple(self._sum(i, shares[i]) for i in every)
        walk = Walk(self._graph, shares, exchanges, sums)
        return Evaluation(dict(strategy), walk.time_s, exchanges, sums, walk)

    def changed(self, before: Evaluation, changes: Mapping[str, Share]) -> Evaluation:
        """Return the cost of a strategy that differs from one already evaluated, equal to that of `start`.

        Parameters
        ----------
        before
            What this object returned.
        changes
            The new shares of some layers.
        """
        if not changes:
            return before
        strategy = {**before.strategy, **changes}
        shares = [strategy[name] for name in self._place]
        new = {self._place[name] for name in changes}
        exchanges, sums = list(before.exchanges), list(before.sums)
        concerned = new.copy()
        for i in new.union(*(self._graph.consumers[i] for i in new)):
            old, exchange = before.exchanges[i], self._exchange(i, shares, before.exchanges[i], new)
            exchanges[i] = exchange
            if old and exchange and old.senders != exchange.senders:
                concerned.add(i)
        for i in new:
            sums[i] = self._sum(i, shares[i])
        walk = Walk(self._graph, shares, exchanges, sums, before.walk, concerned)
        return Evaluation(strategy, walk.time_s, tuple(exchanges), tuple(sums), walk)

    def _exchange(
        self, i: int, shares: Sequence[Share], before: Exchange | None, new: Container[int]
    ) -> Exchange | None:
        """Return the exchange of a layer; edges between shares that are not new are kept."""
        inputs = self._graph.inputs[i]
        if not inputs:
            return None
        edges = [
            before.edges[k] if before and i not in new and p not in new else self._edge(p, i, shares)
            for k, p in enumerate(inputs)
        ]
        return exchange_of(inputs, edges)

    def _edge(self, p: int, i: int, shares: Sequence[Share]) -> tuple[EdgeLoad, EdgeLoad]:
        """Return an edge; all between the same shares are one, if they carry as much."""
        producer, consumer = self.model.layers[p], self.model.layers[i]
        key = shares[p], shares[i], producer.sample_bytes
        if key not in self._edges:
            if len(self._edges) >= EDGES_KEPT:
                self._edges.clear()
            ends = {producer.name: shares[p], consumer.name: shares[i]}
            self._edges[key] = edge_between(self.network, self.model, ends, producer.name, consumer.name)
        return self._edges[key]

    def _sum(self, i: int, share: Share) -> Load | None:
        size = GRADIENT_BYTES * self.model.layers[i].parameters
        return load_of([size * self._ring_s(share)]) if size and share.parts > 1 else None
