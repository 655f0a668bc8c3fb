"""The tasks of a training iteration, in the order in which they become ready.

    exchange    all that a layer takes from other servers, of all its inputs together; backward, the gradients
                that it returns to them
    sum         the AllReduce of a layer's gradients, after its backward and the reduction in its servers

A server computes one task at a time, a link serves one transfer at a time; both take what is ready first,
first. So what goes at the same time over a link adds up, and an exchange that meets nothing takes what its
busiest link does. This is coarser than the fluid model:

- A layer is ready when the last of its replicas is. Its tasks are queued on all their servers then; one that
  is ready later on one server only may keep that server waiting.
- An exchange begins when the last of the layers that send has ended, and ends for all receivers together.
  What a replica finds on its own server it has when that is computed.
- Links are queues, not shared: what came first on a link delays all that comes later.
- All links of a path are in use at once, and a relay takes no time.

References
----------
TopoOpt, section 4.1; FlexFlow's simulator, whose servers and links are queues too.
"""

from collections.abc import Collection, Sequence
from functools import reduce
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from traffic.models.layered import GRADIENT_BYTES, LayeredModel
from traffic.strategies.exchanges import Exchange, Load, Reached
from traffic.strategies.iteration_job import INSIDE_BYTES_PER_S
from traffic.strategies.network import Numbers
from traffic.strategies.strategy import Share

GPU_LINK_BPS = 8 * INSIDE_BYTES_PER_S
"""Rate between the GPUs of a server, as the artifact's ``compute_internal_ar_time`` has it [bit/s]."""
ReplicaTimes = Numbers | float
"""A time for each replica of a layer, or one for all."""
FORWARD, BACKWARD, TAKE, RETURN, SUM = range(5)
"""Kinds of tasks: a layer's compute, its exchange either way, its sum; at equal times the earlier kind."""


class Graph(NamedTuple):
    """A model's layers by their place in it."""

    servers: int
    inputs: tuple[tuple[int, ...], ...]
    consumers: tuple[tuple[int, ...], ...]
    compute_s: tuple[tuple[float, float], ...]
    """Forward and backward on a server with 1/n of the samples; of a table with all of them."""
    whole: tuple[bool, ...]
    """Which layers are tables."""
    reduction_s: tuple[float, ...]
    """Of the gradients between the GPUs of a server, before those of servers are summed."""

    @classmethod
    def of(cls, model: LayeredModel) -> "Graph":
        """Return those of a model."""
        place = {layer.name: i for i, layer in enumerate(model.layers)}
        gpus = model.gpus_per_server
        gathered_bps = gpus * GPU_LINK_BPS if gpus > 1 else np.inf
        return cls(
            model.servers,
            tuple(tuple(place[name] for name in dict.fromkeys(layer.inputs)) for layer in model.layers),
            tuple(tuple(place[name] for name in model.consumers[layer.name]) for layer in model.layers),
            tuple((layer.forward_s, layer.backward_s) for layer in model.layers),
            tuple(layer.is_table for layer in model.layers),
            tuple(2 * 8 * GRADIENT_BYTES * layer.parameters / gathered_bps for layer in model.layers),
        )


class Moment(NamedTuple):
    """The queue, and all that is in use, when a layer's forward begins: a walk can go on from here."""

    queue: list[tuple[float, int, int]]
    free: Numbers
    links: ReplicaTimes
    sent: list[int]
    """How many senders of each layer's exchange have ended."""
    had: list[int]
    """How much of what a layer waits for it has: its exchange, and inputs on its servers."""


class Walk:
    """The tasks of an iteration in the order in which they become ready.

    With a walk before, and the layers that have new shares or other senders, what began before the first of
    these could be concerned is taken from there. No array is changed once it is written, so walks share them.
    """

    def __init__(
        self,
        graph: Graph,
        shares: Sequence[Share],
        exchanges: Sequence[Exchange | None],
        sums: Sequence[Load | None],
        before: "Walk | None" = None,
        new: Collection[int] = (),
    ) -> None:
        self._graph, self._shares, self._exchanges, self._sums = graph, shares, exchanges, sums
        self._on = [slice(share.start, None, graph.servers // share.parts) for share in shares]
        every = range(len(shares))
        self.moments: list[Moment] = []  # of each forward
        self.cause = [-1 for _ in every]  # the first forward that matters to a layer: an input's, or its own
        self.ready: list[ReplicaTimes] = [0.0 for _ in every]
        self.taken = [0.0 for _ in every]  # when an exchange ended
        self.ends: list[Numbers] = [np.empty(0) for _ in every]
        self.last = [0.0 for _ in every]
        if before:
            first = min(before.cause[i] for i in new)
            moment, self.moments = before.moments[first], before.moments[:first]
            self.cause = [cause if cause < first else -1 for cause in before.cause]
            self.ready, self.taken = before.ready.copy(), before.taken.copy()
            self.ends, self.last = before.ends.copy(), before.last.copy()
        else:
            queue = [(0.0, FORWARD, i) for i in every if not graph.inputs[i]]
            none = [0 for _ in every]
            moment = Moment(queue, np.zeros(graph.servers), 0.0, none, none)
        self._queue, self._free, self._links = moment.queue.copy(), moment.free, moment.links
        self._sent, self._had = moment.sent.copy(), moment.had.copy()
        self._forwards()
        self.time_s = self._backwards()
        """When the last task ends."""

    def _forwards(self) -> None:
        """Let all layers compute, the last one at the end."""
        queue = self._queue
        while queue:
            if queue[0][1] == FORWARD:
                moment = queue.copy(), self._free, self._links, self._sent.copy(), self._had.copy()
                self.moments.append(Moment(*moment))
            at, kind, i = heappop(queue)
            if kind == TAKE:
                exchange = self._exchanges[i]
                assert exchange
                self.taken[i] = self._carried(exchange.take, at)
                self._gain(i, exchange)
            else:
                self._forward(i)

    def _forward(self, i: int) -> None:
        """Compute a layer, and tell its consumers."""
        now = len(self.moments) - 1
        if not self._graph.inputs[i]:
            self.cause[i] = now
        self.ends[i], self.last[i] = self._computed(i, FORWARD, self.ready[i])
        for consumer in self._graph.consumers[i]:
            if self.cause[consumer] < 0:
                self.cause[consumer] = now
            exchange = self._exchanges[consumer]
            assert exchange
            if i not in exchange.senders:
                self._gain(consumer, exchange)
                continue
            self._sent[consumer] += 1
            if self._sent[consumer] == len(exchange.senders):
                sent = max([self.last[p] for p in exchange.senders])
                heappush(self._queue, (sent, TAKE, consumer))

    def _gain(self, i: int, exchange: Exchange) -> None:
        """Count a layer's exchange, or an input on its servers, and queue it after the last."""
        self._had[i] += 1
        if self._had[i] < len(exchange.own) + bool(exchange.take):
            return
        ready: list[ReplicaTimes] = [self.ends[p] for p in exchange.own]
        last = [self.last[p] for p in exchange.own]
        if exchange.take:
            ready.append(self._arrived(i, exchange.reached, self.taken[i], exchange.senders, self.ends))
            last.append(self.taken[i])
        self.ready[i] = reduce(np.maximum, ready)
        heappush(self._queue, (max(last), FORWARD, i))

    def _backwards(self) -> float:
        """Let all layers compute backward and sum their gradients; return the last end."""
        final = len(self.ends) - 1
        self._missing = [len(consumers) for consumers in self._graph.consumers]
        self._gradients: list[ReplicaTimes] = [self.ends[final] for _ in self.ends]
        self._known = [0.0 for _ in self.ends]  # when the last gradient of a layer came
        self._done = self.ends.copy()
        heappush(self._queue, (self.last[final], BACKWARD, -final))  # of equal times the last layer is first
        time_s = 0.0
        while self._queue:
            at, kind, i = heappop(self._queue)
            if kind == BACKWARD:
                time_s = max(time_s, self._backward(-i))
            elif kind == RETURN:
                self._return(-i, at)
            else:
                time_s = max(time_s, self._carried(self._sums[-i], at))
        return time_s

    def _backward(self, i: int) -> float:
        """Compute a layer, and queue what follows; return when its gradients are summed in its servers."""
        self._done[i], last = self._computed(i, BACKWARD, self._gradients[i])
        summed = last + self._graph.reduction_s[i]
        if self._sums[i]:
            heappush(self._queue, (summed, SUM, -i))
        if exchange := self._exchanges[i]:
            if exchange.back:
                heappush(self._queue, (last, RETURN, -i))
            for p, (_, back) in zip(self._graph.inputs[i], exchange.edges, strict=True):
                if not back.reached.any:
                    self._give(p, i, back.reached, last)
        return summed

    def _return(self, i: int, at: float) -> None:
        """Carry the gradients that a layer returns to other servers."""
        exchange = self._exchanges[i]
        assert exchange
        done = self._carried(exchange.back, at)
        for p, (_, back) in zip(self._graph.inputs[i], exchange.edges, strict=True):
            if back.reached.any:
                self._give(p, i, back.reached, done)

    def _give(self, p: int, i: int, reached: Reached, at: float) -> None:
        """Give a layer the gradients of one of its consumers, and queue it after the last of them."""
        gradients = self._arrived(p, reached, at, (i,), self._done)
        several = len(self._graph.consumers[p]) > self._missing[p]
        self._gradients[p] = np.maximum(self._gradients[p], gradients) if several else gradients
        self._known[p] = max(self._known[p], at)
        self._missing[p] -= 1
        if not self._missing[p]:
            heappush(self._queue, (self._known[p], BACKWARD, -p))

    def _computed(self, i: int, way: int, ready: ReplicaTimes) -> tuple[Numbers, float]:
        """Return when a layer's replicas end on their servers, which compute one task after the other."""
        graph, share = self._graph, self._shares[i]
        took = graph.compute_s[i][way] * (1 if graph.whole[i] else graph.servers / share.parts)
        if share.parts == graph.servers:
            ends = self._free = np.maximum(ready, self._free) + took
        else:
            self._free = self._free.copy()
            ends = np.maximum(ready, self._free[self._on[i]]) + took
            self._free[self._on[i]] = ends
        return ends, float(np.maximum.reduce(ends))

    def _carried(self, load: Load | None, at: float) -> float:
        """Return when a transfer ends on the last of its links, which take one after the other."""
        assert load
        self._links = np.maximum(self._links, at) + load.link_s
        return float(np.maximum.reduce(self._links[load.used], initial=at))

    def _arrived(
        self, to: int, reached: Reached, done: float, senders: Collection[int], ends: Sequence[Numbers]
    ) -> ReplicaTimes:
        """Return when replicas have all that senders computed: with an exchange, or on their own server."""
        if reached.all:
            return done
        own = [self._there(ends[sender], sender, to) for sender in senders]
        found = own[0] if len(own) == 1 else np.maximum.reduce(own)
        return np.where(reached.mask, done, found) if reached.any else found

    def _there(self, ends: Numbers, of: int, to: int) -> Numbers:
        """Return when a layer's replicas end on the servers of another one; where it has none, never."""
        if self._shares[of] == self._shares[to]:
            return ends
        everywhere = np.full(self._graph.servers, -np.inf)
        everywhere[self._on[of]] = ends
        return everywhere[self._on[to]]
