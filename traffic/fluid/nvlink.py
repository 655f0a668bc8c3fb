"""NVLink: the links from and to each GPU inside a server, as fluids; modelled, never emulated."""

import heapq
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from topologies.fabric import Fabric
from traffic.fluid.network import FluidNetwork


@dataclass(slots=True, eq=False)
class _Alone:
    """A message whose two links carry nothing else."""

    pair: tuple[int, int]
    number: int
    size: int
    end_s: float
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
        self._network = FluidNetwork(self._rate_bps * 2)
        self._gpus = fabric.gpus
        self._flows: dict[tuple[int, int], int] = {}
        self._sharing: Counter[int] = Counter()
        """How many messages in the network cross each link; those out of GPUs, then those into them."""
        self._pair_of: dict[int, tuple[int, int]] = {}
        """The GPUs of each message in the network."""
        self._alone: dict[int, _Alone] = {}
        """The message that has a link for itself."""
        self._ends: list[tuple[float, int, _Alone]] = []
        self._tickets = itertools.count()
        self._early: list[int] = []

    @property
    def next_s(self) -> float:
        """When the next message arrives if nothing changes [s]; infinite if none is on its way."""
        if self._early:
            return self._network.now_s
        while self._ends and self._ends[0][2].over:
            heapq.heappop(self._ends)
        first_s = self._ends[0][0] if self._ends else float("inf")
        return min(first_s, self._network.next_s) if self._pair_of else first_s

    def post(self, messages: Sequence[tuple[int, int, int]], numbers: Sequence[int], now_s: float) -> None:
        """Send messages between GPUs of one server: source, destination and bytes of each.

        `advance` calls each by its number.
        """
        self._early += self._past(now_s)
        sharing: list[tuple[tuple[int, int], int, float]] = []
        for (source, destination, size), number in zip(messages, numbers, strict=True):
            pair = source, destination
            met = [self._alone[link] for link in self._links(pair) if link in self._alone]
            if met or any(self._sharing[link] for link in self._links(pair)):
                sharing += [self._joins(other, now_s) for other in dict.fromkeys(met)]
                sharing.append((pair, number, size))
                self._count(pair, number)
            else:
                self._goes_alone(pair, number, size, now_s)
        self._share(sharing, now_s)

    def advance(self, now_s: float) -> list[int]:
        """Let time pass; return the messages that arrived."""
        early, self._early = self._early, []
        return early + self._past(now_s)

    def _links(self, pair: tuple[int, int]) -> tuple[int, int]:
        return pair[0], self._gpus + pair[1]

    def _goes_alone(self, pair: tuple[int, int], number: int, size: int, now_s: float) -> None:
        alone = _Alone(pair, number, size, now_s + size * 8 / self._rate_bps[pair[0]])
        self._alone.update(dict.fromkeys(self._links(pair), alone))
        heapq.heappush(self._ends, (alone.end_s, next(self._tickets), alone))

    def _joins(self, alone: _Alone, now_s: float) -> tuple[tuple[int, int], int, float]:
        """Take a message off its links; return what it has left, which shares them from now on."""
        self._frees(alone)
        self._count(alone.pair, alone.number)
        left = (alone.end_s - now_s) * self._rate_bps[alone.pair[0]] / 8
        return alone.pair, alone.number, min(left, float(alone.size))

    def _frees(self, alone: _Alone) -> None:
        alone.over = True
        for link in self._links(alone.pair):
            del self._alone[link]

    def _count(self, pair: tuple[int, int], number: int) -> None:
        self._pair_of[number] = pair
        self._sharing.update(self._links(pair))

    def _share(self, sharing: Sequence[tuple[tuple[int, int], int, float]], now_s: float) -> None:
        """Put messages into the network of fluids."""
        if not sharing:
            return
        self._network.advance(now_s)
        pairs = [pair for pair, _, _ in sharing]
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._flows]
        if new:
            self._flows.update(zip(new, self._network.add_flows(list(map(self._links, new))), strict=True))
        flows = [self._flows[pair] for pair in pairs]
        self._network.post(flows, [size for _, _, size in sharing], [number for _, number, _ in sharing])

    def _past(self, now_s: float) -> list[int]:
        arrived: list[tuple[float, int]] = []
        while self._ends and self._ends[0][0] <= now_s:
            alone = heapq.heappop(self._ends)[2]
            if not alone.over:
                self._frees(alone)
                arrived.append((alone.end_s, alone.number))
        while self._pair_of and (tags := self._network.advance(now_s)):
            for at_s, number in tags:
                self._sharing.subtract(self._links(self._pair_of.pop(number)))
                arrived.append((at_s, number))
        return [number for _, number in sorted(arrived, key=lambda each: each[0])]
