"""An iteration of a model under a strategy, as a job: forward, backward, and the sums of gradients beside it.

    F    forward of a layer on all its servers; it waits for its inputs
    B    backward, in reverse; it waits for the gradients of its output
    x    what crosses servers between two layers, forward or back
    S    the sum of a bucket of gradients over its rings

- A server does one task at a time, the first that is ready first. Tables come first in the job, so lookups
  start at once, and their bytes travel beside what does not need them.
- A layer starts on all its servers when all that it takes has arrived at all of them. Between layers with
  equal shares nothing is sent.
- Tables that take equally long and have equal outputs and the same consumers are one node if each is on a
  server of its own, and a `Fan` sends their outputs. A server's second table is in the next such node. Each
  other edge that crosses servers is a `PointToPoint`.
- A bucket has layers of a group of servers in backward order, as many as it takes to have ``bucket_bytes``.
  It waits for the backward of its layers on all members, and for nothing else. The last layers of a group
  join the bucket before if alone their chunks would be too small.
- A layer on g of n servers has n / g times the samples on each, and takes as much longer.

No optimizer, no data loading: an iteration ends with its last task or exchange.

References
----------
TopoOpt, section 4.1; FlexNet (``simulator.cc``) for the task graph, ``compute_internal_ar_time`` for the sum
inside a server. Buckets: PyTorch's DistributedDataParallel.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from topologies.errors import DemandError
from traffic.collectives.fan import Fan
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.job import Collective, Compute, Job, Node
from traffic.models.layered import GRADIENT_BYTES, Layer, LayeredModel
from traffic.strategies.strategy import Strategy, check_strategy, edge_bytes, replicas

BUCKET_BYTES = 25_000_000
"""Gradients that go together, as in PyTorch [bytes]."""
INSIDE_BYTES_PER_S = 25e9
"""Rate from a GPU to the others of its server: 200 Gbit/s [bytes/s]."""

Rings = Callable[[tuple[int, ...]], tuple[tuple[int, ...], ...]]
"""The rings over a group of servers, each in the order in which bytes travel."""


def iteration_job(
    model: LayeredModel,
    strategy: Strategy,
    rings: Rings,
    *,
    bucket_bytes: int = BUCKET_BYTES,
    least_chunk_bytes: int = 1,
    gpus: int = 1,
) -> Job:
    """Return one iteration of training.

    Parameters
    ----------
    model, strategy
        What is trained, and which servers have which layers.
    rings
        Over which rings a group of servers sums its gradients.
    bucket_bytes
        A bucket with as much takes no more layers; 1 sums each layer on its own [bytes].
    least_chunk_bytes
        No chunk of a ring is smaller, say a packet [bytes].
    gpus
        GPUs of a server in the job. Server s computes on GPU s * gpus, which also sends and receives. With
        two or more, the next one stands for NVLink: it sums gradients inside the server before they leave it,
        if the model's servers have several GPUs. With one that takes no time.

    Raises
    ------
    DemandError
        If the strategy does not fit the model, a group has no rings of its own, or all its gradients together
        make chunks that are too small.
    """
    check_strategy(model, strategy)
    if min(bucket_bytes, least_chunk_bytes, gpus) < 1:
        raise DemandError(
            f"buckets of {bucket_bytes} bytes, chunks of {least_chunk_bytes}, {gpus} GPUs", "give one or more"
        )
    buckets = _buckets(model, strategy, rings, bucket_bytes, least_chunk_bytes)
    iteration = _Iteration(model, strategy, gpus)
    iteration.list_forward()
    iteration.list_backward({bucket.layers[-1]: bucket for bucket in buckets})
    return Job(f"{model.name} iteration", model.servers * gpus, tuple(iteration.nodes), model.source)


# Buckets


@dataclass
class _Bucket:
    """Gradients that are summed together."""

    rings: tuple[tuple[int, ...], ...]
    layers: list[str] = field(default_factory=list)
    """In backward order."""
    bytes: int = 0

    def take(self, layers: Sequence[str], size: int) -> None:
        self.layers += layers
        self.bytes += size


def _buckets(
    model: LayeredModel, strategy: Strategy, rings: Rings, bucket_bytes: int, least_chunk_bytes: int
) -> list[_Bucket]:
    """Return the buckets of all groups; parameters are those of `iteration_job`."""
    of_group: dict[tuple[int, ...], list[Layer]] = defaultdict(list)
    for layer in reversed(model.layers):
        members = replicas(strategy[layer.name], model.servers)
        if layer.parameters and len(members) > 1:
            of_group[members].append(layer)
    buckets = []
    for members, layers in of_group.items():
        over = _rings(members, rings)
        least = least_chunk_bytes * len(over) * len(members)
        buckets += _buckets_of(layers, over, max(bucket_bytes, least), least)
    return buckets


def _buckets_of(
    layers: Sequence[Layer], rings: tuple[tuple[int, ...], ...], full_bytes: int, least_bytes: int
) -> list[_Bucket]:
    """Return the buckets of a group: each is full but the last, which has ``least_bytes`` or more."""
    buckets = [_Bucket(rings)]
    for layer in layers:
        if buckets[-1].bytes >= full_bytes:
            buckets.append(_Bucket(rings))
        buckets[-1].take([layer.name], GRADIENT_BYTES * layer.parameters)
    if buckets[-1].bytes < least_bytes and len(buckets) > 1:
        rest = buckets.pop()
        buckets[-1].take(rest.layers, rest.bytes)
    if buckets[-1].bytes < least_bytes:
        few, count, ranks = buckets[-1].bytes, len(rings), len(rings[0])
        raise DemandError(
            f"all gradients of servers {str(rings[0])[:40]}, {few} bytes, make chunks of "
            f"{few // (count * ranks)} bytes over {count} rings of {ranks}, and the least is "
            f"{least_bytes // (count * ranks)}",
            "share their layers as others are, or take fewer rings",
        )
    return buckets


def _rings(members: tuple[int, ...], rings: Rings) -> tuple[tuple[int, ...], ...]:
    found = rings(members)
    if not found or any(set(ring) != set(members) for ring in found):
        raise DemandError(f"the {len(found)} rings over servers {str(members)[:40]} are of others, or none")
    return found


# Nodes


@dataclass(frozen=True)
class _Lookup:
    """Tables, each on a server of its own, that are looked up and sent at once."""

    layers: tuple[Layer, ...]
    servers: tuple[int, ...]

    @property
    def name(self) -> str:
        more = len(self.layers) - 1
        return self.layers[0].name + (f" and {more} more" if more else "")


def _lookups(model: LayeredModel, strategy: Strategy) -> list[_Lookup]:
    """Return the tables that go together: alike, and no two on one server."""
    turns: dict[object, dict[int, Layer]] = {}
    for table in model.tables:
        owner, turn = strategy[table.name].start, 0
        alike = model.consumers[table.name], table.forward_s, table.backward_s, table.sample_bytes
        while owner in turns.setdefault((alike, turn), {}):
            turn += 1
        turns[alike, turn][owner] = table
    return [_Lookup(tuple(turn.values()), tuple(turn)) for turn in turns.values()]


class _Iteration:
    """Lists the nodes of an iteration."""

    def __init__(self, model: LayeredModel, strategy: Strategy, gpus: int) -> None:
        self._model, self._strategy, self._gpus = model, strategy, gpus
        self._lookups = _lookups(model, strategy)
        self._dense = [layer for layer in model.layers if not layer.is_table]
        self._lookup_of = {table.name: lookup for lookup in self._lookups for table in lookup.layers}
        self._crossings = set[str]()
        self.nodes: list[Node] = []

    def list_forward(self) -> None:
        """List lookups, then the other layers, each after what it takes."""
        for lookup in self._lookups:
            self._compute(f"F {lookup.name}", lookup.servers, lookup.layers[0].forward_s, [])
        for layer in self._dense:
            waits = [self._crossed(producer, layer.name) for producer in layer.inputs]
            self._layer(f"F {layer.name}", layer, layer.forward_s, waits)

    def list_backward(self, by_last: Mapping[str, _Bucket]) -> None:
        """List layers in reverse and tables after them; a bucket stands behind the layer that ends it."""
        for layer in reversed(self._dense):
            consumers = self._model.consumers[layer.name]
            waits = [self._crossed(layer.name, consumer, back=True) for consumer in consumers]
            self._layer(f"B {layer.name}", layer, layer.backward_s, waits or [f"F {layer.name}"])
            if layer.name in by_last:
                self._sum(by_last[layer.name])
        for lookup in self._lookups:
            first, consumers = lookup.layers[0], self._model.consumers[lookup.layers[0].name]
            waits = [self._crossed(first.name, consumer, back=True) for consumer in consumers]
            self._compute(f"B {lookup.name}", lookup.servers, first.backward_s, waits)

    def _crossed(self, producer: str, consumer: str, *, back: bool = False) -> str:
        """Return the node after which a layer has another's output, or its gradients; list what crosses."""
        lookup = self._lookup_of.get(producer)
        at = lookup.name if lookup else producer
        after, name = f"F {at}", f"x {at} > {consumer}"
        if back:
            after, name = f"B {consumer}", f"x {consumer} > {at}"
        if name not in self._crossings:
            pattern = self._fan(lookup, consumer, back) if lookup else self._edge(producer, consumer, back)
            if pattern is None:
                return after
            self._crossings.add(name)
            self.nodes.append(Collective(name, pattern, (after,)))
        return name

    def _fan(self, lookup: _Lookup, consumer: str, back: bool) -> Fan | None:
        """Return the outputs that tables send the layer that takes them; None if all is on one server."""
        members = replicas(self._strategy[consumer], self._model.servers)
        if len({*lookup.servers, *members}) == 1:
            return None
        size = self._model.samples // len(members) * lookup.layers[0].sample_bytes
        return Fan(self._gpus_of(lookup.servers), self._gpus_of(members), size, back)

    def _edge(self, producer: str, consumer: str, back: bool) -> PointToPoint | None:
        """Return the output that another layer sends; None between equal shares."""
        if self._strategy[producer] == self._strategy[consumer]:
            return None
        source, destination, size = edge_bytes(self._model, self._strategy, producer, consumer)
        if back:
            source, destination = destination, source
        ends = (self._gpus_of(some.tolist()) for some in (source, destination))
        return PointToPoint(tuple(zip(*ends, size.tolist(), strict=True)))

    def _layer(self, name: str, layer: Layer, full_s: float, waits: Sequence[str]) -> None:
        servers = replicas(self._strategy[layer.name], self._model.servers)
        self._compute(name, servers, full_s * self._model.servers / len(servers), waits)

    def _compute(self, name: str, servers: Sequence[int], duration_s: float, waits: Sequence[str]) -> None:
        after = tuple(dict.fromkeys(waits))
        self.nodes.append(Compute(name, self._gpus_of(servers), duration_s, after))

    def _sum(self, bucket: _Bucket) -> None:
        """List the sum of a bucket, inside servers first where that is modelled."""
        name = f"S {bucket.layers[0]}" + (f" to {bucket.layers[-1]}" if len(bucket.layers) > 1 else "")
        after = tuple(f"B {layer}" for layer in bucket.layers)
        if self._gpus > 1 and self._model.gpus_per_server > 1:
            inside_s = 2 * bucket.bytes / (self._model.gpus_per_server * INSIDE_BYTES_PER_S)
            beside = tuple(gpu + 1 for gpu in sorted(self._gpus_of(bucket.rings[0])))
            self.nodes.append(Compute(f"{name} inside", beside, inside_s, after))
            after = (f"{name} inside",)
        rings = tuple(self._gpus_of(ring) for ring in bucket.rings)
        self.nodes.append(Collective(name, Ring(rings, bucket.bytes), after))

    def _gpus_of(self, servers: Sequence[int]) -> tuple[int, ...]:
        return tuple(server * self._gpus for server in servers)
