"""NVLink: the links from and to each GPU inside a server, as fluids; modelled, never emulated."""

import heapq
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from topologies.fabric import Fabric
from traffic.clock import NEVER, ps
from traffic.fluid.network import FluidNetwork
from traffic.messages import Messages

Pair = tuple[int, int]
"""A source and a destination GPU of one server."""
Sizes = dict[Pair, float]
"""What is sent between which GPUs [bytes]."""


@dataclass(slots=True, eq=False)
class _Alone:
    """A message, or several that move in proportion, whose links carry nothing else."""

    number: int
    sizes: Sizes | Messages
    links: set[int]
    began_ps: int
    end_ps: int
    over: bool = False
    """Whether it has arrived, or shares its links by now."""


class Nvlink:
    """Messages between GPUs of one server: they share each GPU's rate out and in, max-min fairly.

    A message that has its links for itself takes its bytes at their rate, which is known at once; only
    messages that meet are fluids. In rings hardly any do, and a live run has no time for more.

    Parameters
    ----------
    fabric
        Its servers' ``nvlink_bps`` is the rate of each GPU in each direction.
    """

    def __init__(self, fabric: Fabric) -> None:
        self._rate_bps = [fabric.servers[server].nvlink_bps for server in fabric.gpu_servers]
        self._is_even = len(set(self._rate_bps)) == 1
        """Whether all GPUs have one rate."""
        self._network = FluidNetwork(self._rate_bps * 2)
        self._gpus = fabric.gpus
        self._flows: dict[Pair, int] = {}
        self._coupled: dict[tuple[Pair, ...], range] = {}
        """The flows, and pools, of messages that move in proportion."""
        self._sharing: Counter[int] = Counter()
        """How many messages in the network cross each link; those out of GPUs, then those into them."""
        self._pairs_of: dict[int, tuple[Pair, ...]] = {}
        """The GPUs of each message in the network."""
        self._parts: Counter[int] = Counter()
        """How many parts of it have not arrived."""
        self._alone: dict[int, _Alone] = {}
        """The message that has a link for itself."""
        self._ends: list[tuple[int, int, _Alone]] = []
        self._tickets = itertools.count()
        self._early: list[int] = []

    @property
    def next_ps(self) -> int:
        """When the next message arrives if nothing changes [ps]; `NEVER` if none is on its way."""
        if self._early:
            return self._network.now_ps
        while self._ends and self._ends[0][2].over:
            heapq.heappop(self._ends)
        first_ps = self._ends[0][0] if self._ends else NEVER
        return min(first_ps, self._network.next_ps) if self._pairs_of else first_ps

    def post(self, messages: Messages, numbers: Sequence[int], now_ps: int) -> None:
        """Send messages between GPUs of one server; `advance` calls each by its number."""
        self._early += self._past(now_ps)
        sharing: list[tuple[int, Sizes]] = []
        columns = messages.source.tolist(), messages.destination.tolist(), messages.bytes.tolist()
        for source, destination, size, number in zip(*columns, numbers, strict=True):
            self._start(number, {(source, destination): float(size)}, now_ps, sharing)
        self._share(sharing, now_ps)

    def couple(self, messages: Messages, number: int, now_ps: int) -> None:
        """Send messages inside servers that move in proportion to their sizes, and end together.

        With their links to themselves the busiest is always busy. `advance` calls them by one number.
        """
        self._early += self._past(now_ps)
        sharing: list[tuple[int, Sizes]] = []
        self._start(number, messages, now_ps, sharing)
        self._share(sharing, now_ps)

    def advance(self, now_ps: int) -> list[int]:
        """Let time pass; return the messages that arrived."""
        early, self._early = self._early, []
        return early + self._past(now_ps)

    def _links(self, pair: Pair) -> tuple[int, int]:
        return pair[0], self._gpus + pair[1]

    def _loads(self, sizes: Sizes | Messages) -> dict[int, float]:
        """Return what each link carries [bytes]."""
        if isinstance(sizes, Messages):
            # Of a few GPUs among thousands, whose links are numbered from the first of them.
            ends, loads = (sizes.source, sizes.destination), dict[int, float]()
            for end, link in zip(ends, (0, self._gpus), strict=True):
                first = int(end.min())
                carried = np.bincount(end - first, sizes.bytes)
                (used,) = carried.nonzero()
                loads |= zip((link + first + used).tolist(), carried[used].tolist(), strict=True)
            return loads
        return {link: size for pair, size in sizes.items() for link in self._links(pair)}

    def _start(
        self, number: int, sizes: Sizes | Messages, now_ps: int, sharing: list[tuple[int, Sizes]]
    ) -> None:
        """Send what is called by one number alone or, with those it meets, among those that share."""
        loads = self._loads(sizes)
        met = dict.fromkeys(self._alone[link] for link in loads if link in self._alone)
        if met or (self._pairs_of and any(self._sharing[link] for link in loads)):
            sharing += [self._joins(other, now_ps) for other in met]
            sharing.append((number, _by_pair(sizes)))
            self._count(*sharing[-1])
        else:
            self._goes_alone(number, sizes, loads, now_ps)

    def _goes_alone(
        self, number: int, sizes: Sizes | Messages, loads: Mapping[int, float], now_ps: int
    ) -> None:
        if self._is_even:
            lasts_s = max(loads.values()) * 8 / self._rate_bps[0]
        else:
            lasts_s = max(load * 8 / self._rate_bps[link % self._gpus] for link, load in loads.items())
        alone = _Alone(number, sizes, set(loads), now_ps, now_ps + ps(lasts_s))
        self._alone.update(dict.fromkeys(loads, alone))
        heapq.heappush(self._ends, (alone.end_ps, next(self._tickets), alone))

    def _joins(self, alone: _Alone, now_ps: int) -> tuple[int, Sizes]:
        """Take messages off their links; return what they have left, which shares these from now on."""
        self._frees(alone)
        sizes = _by_pair(alone.sizes)
        self._count(alone.number, sizes)
        left = min((alone.end_ps - now_ps) / (alone.end_ps - alone.began_ps), 1.0)
        return alone.number, {pair: size * left for pair, size in sizes.items()}

    def _frees(self, alone: _Alone) -> None:
        alone.over = True
        for link in alone.links:
            del self._alone[link]

    def _count(self, number: int, sizes: Mapping[Pair, float]) -> None:
        self._pairs_of[number] = tuple(sizes)
        self._parts[number] = len(sizes)
        self._sharing.update(link for pair in sizes for link in self._links(pair))

    def _share(self, sharing: Sequence[tuple[int, Sizes]], now_ps: int) -> None:
        """Put messages into the network of fluids."""
        if not sharing:
            return
        self._network.advance(now_ps)
        pairs = [pair for _, sizes in sharing if len(sizes) == 1 for pair in sizes]
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._flows]
        if new:
            first = self._network.pools
            self._network.add_flows(list(map(self._links, new)))
            self._flows.update(zip(new, range(first, first + len(new)), strict=True))
        for _, sizes in sharing:
            together = tuple(sizes)
            if len(sizes) > 1 and together not in self._coupled:
                first = self._network.pools
                self._network.add_flows(list(map(self._links, sizes)), coupled_weight=1.0)
                self._coupled[together] = range(first, first + len(sizes))
        pools = [
            pool
            for _, sizes in sharing
            for pool in (
                self._coupled[tuple(sizes)] if len(sizes) > 1 else map(self._flows.__getitem__, sizes)
            )
        ]
        left = [size for _, sizes in sharing for size in sizes.values()]
        self._network.post(pools, left, [number for number, sizes in sharing for _ in sizes])

    def _past(self, now_ps: int) -> list[int]:
        arrived: list[tuple[int, int]] = []
        while self._ends and self._ends[0][0] <= now_ps:
            alone = heapq.heappop(self._ends)[2]
            if not alone.over:
                self._frees(alone)
                arrived.append((alone.end_ps, alone.number))
        while self._pairs_of and (tags := self._network.advance(now_ps)):
            for at_ps, number, _ in tags:
                self._parts[number] -= 1
                if not self._parts[number]:
                    del self._parts[number]
                    pairs = self._pairs_of.pop(number)
                    self._sharing.subtract(link for pair in pairs for link in self._links(pair))
                    arrived.append((at_ps, number))
        return [number for _, number in sorted(arrived, key=lambda each: each[0])]


def _by_pair(sizes: Sizes | Messages) -> Sizes:
    """Return what is sent between which GPUs, each two of them once."""
    if not isinstance(sizes, Messages):
        return sizes
    found: Sizes = {}
    columns = (sizes.source.tolist(), sizes.destination.tolist(), sizes.bytes.tolist())
    for source, destination, size in zip(*columns, strict=True):
        found[source, destination] = found.get((source, destination), 0.0) + size
    return found
