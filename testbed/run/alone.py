"""Coupled flows whose links carry nothing else: each ends when its busiest link does, without any rates."""

import heapq
import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from traffic.clock import NEVER


class Flow(Protocol):
    """A coupled flow."""

    @property
    def ops(self) -> list[int]:
        """The operations that it is of."""
        ...


class Left(NamedTuple):
    """A coupled flow that is alone no more."""

    flow: Flow
    weight: float
    share: float
    """Which part of its bytes it has yet to carry."""


@dataclass(slots=True, eq=False)
class _Alone:
    flow: Flow
    weight: float
    links: Sequence[int]
    began_ps: int
    end_ps: int
    over: bool = False
    """Whether it shares links by now."""


class Alone:
    """The coupled flows that are alone; no link carries two of them."""

    def __init__(self) -> None:
        self._on: dict[int, _Alone] = {}
        self._ends: list[tuple[int, int, _Alone]] = []
        self._tickets = itertools.count()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._on)

    @property
    def links(self) -> Collection[int]:
        """The links that they are on."""
        return self._on.keys()

    def on(self, links: Iterable[int]) -> bool:
        """Return whether one crosses some links."""
        return any(link in self._on for link in links)

    def add(self, flow: Flow, weight: float, links: Sequence[int], began_ps: int, end_ps: int) -> None:
        """Take a flow with its links to itself, from when it begins to when it will end."""
        alone = _Alone(flow, weight, links, began_ps, end_ps)
        self._on.update(dict.fromkeys(links, alone))
        heapq.heappush(self._ends, (end_ps, next(self._tickets), alone))

    def leave(self, links: Iterable[int], now_ps: int) -> list[Left]:
        """Give up the flows on some links, but for those that end now; return what they have left."""
        met = dict.fromkeys(alone for link in links if (alone := self._on.get(link)))
        left = []
        for alone in met:
            if alone.end_ps > now_ps:
                alone.over = True
                self._free(alone)
                share = (alone.end_ps - now_ps) / (alone.end_ps - alone.began_ps)
                left.append(Left(alone.flow, alone.weight, share))
        return left

    @property
    def next_ps(self) -> int:
        """When the next one ends if nothing changes [ps]; `NEVER` if there is none."""
        while self._ends and self._ends[0][2].over:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else NEVER

    def ended(self, now_ps: int) -> list[tuple[int, int]]:
        """Return the messages of those that have ended, and when."""
        found = []
        while self.next_ps <= now_ps:
            end_ps, _, alone = heapq.heappop(self._ends)
            self._free(alone)
            found += [(end_ps, op) for op in alone.flow.ops]
        return found

    def _free(self, alone: _Alone) -> None:
        for link in alone.links:
            del self._on[link]
