"""Bundles: what moves over several paths in proportion, so that all of it ends at once.

A bundle whose links carry nothing else needs no rates: it ends when its busiest link has carried its part,
which is known at once. Only bundles that meet others are fluids of a network. Of rings, and of what is
gathered and scattered inside servers, hardly any do, and a run of thousands has no time for more.
"""

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traffic.clock import NEVER, ps
from traffic.fluid.network import FluidNetwork

Over = tuple[Hashable, ...]
"""What each strand of a bundle goes over."""


@dataclass(frozen=True, slots=True, eq=False)
class Crossed:
    """The links that a bundle crosses."""

    links: list[int]
    """Each once."""
    of: NDArray[np.int64]
    """Which of them each crossing is of, shape (crossings,)."""
    strand: NDArray[np.int64]
    """The strand that crosses, shape (crossings,)."""


def crossed(paths: Sequence[Sequence[int]]) -> Crossed:
    """Return the links that strands cross, each by its path.

    Examples
    --------
    >>> found = crossed([[7, 3], [7]])
    >>> found.links, found.of.tolist(), found.strand.tolist()
    ([3, 7], [1, 0, 1], [0, 0, 1])
    """
    strand = np.repeat(np.arange(len(paths)), [len(path) for path in paths])
    links, of = np.unique(np.array(list(itertools.chain.from_iterable(paths))), return_inverse=True)
    return Crossed(links.tolist(), of, strand)


@dataclass(slots=True, eq=False)
class Bundle:
    """Bytes that move together, strand by strand."""

    ops: tuple[int, ...]
    """What they are of."""
    bytes: NDArray[np.int64]
    """What each strand carries, shape (strands,)."""
    crossed: Crossed
    over: Callable[[], Over]
    weight: Callable[[], float] | None = None
    """As how many queue pairs it counts where it meets others, if bytes do not weigh there; by default the
    strand that carries most counts as one."""
    lane: int | None = None
    """What its arrival is reported with."""
    meets_others: bool = True
    """Whether its links may carry what is no bundle."""
    left: int = 0
    """How many strands have not arrived, once it is in the network."""


@dataclass(slots=True, eq=False)
class _Alone:
    bundle: Bundle
    began_ps: int
    end_ps: int
    over: bool = False
    """Whether it shares links by now."""


class Bundles:
    """The bundles of one network that are under way; no link carries two that are alone.

    Parameters
    ----------
    network
        Where those that meet others are fluids.
    add
        Adds flows to it that are coupled, over what strands go over, and returns their numbers.
    """

    def __init__(self, network: FluidNetwork, add: Callable[[Over], range]) -> None:
        self._network, self._add = network, add
        self._alone: dict[int, _Alone] = {}
        """By the links that they are on."""
        self._ends: list[tuple[int, int, _Alone]] = []
        self._flows: dict[Over, list[tuple[range, range]]] = defaultdict(list)
        """Coupled flows and their pools, by what they go over; several if more were under way at once."""
        self._joined: dict[int, Bundle] = {}
        """Those that are in the network, by the negative number that they have there."""
        self._on = Counter[int]()
        """How many of them cross each link."""
        self._tickets = itertools.count(1)

    def start(self, bundle: Bundle, *, may_be_alone: bool) -> None:
        """Have a bundle move from now on: alone, if that may be and nothing else is on its links."""
        links = bundle.crossed.links
        rates = self._network.link_bps[links]
        is_free = self._alone.keys().isdisjoint(links) and not any(map(self._on.get, links))
        if (
            is_free
            and may_be_alone
            and rates.all()
            and not (bundle.meets_others and self._network.uses(links))
        ):
            loads = np.bincount(bundle.crossed.of, bundle.bytes[bundle.crossed.strand])
            began_ps = self._network.now_ps
            alone = _Alone(bundle, began_ps, began_ps + ps(float((8 * loads / rates).max())))
            self._alone.update(dict.fromkeys(links, alone))
            heapq.heappush(self._ends, (alone.end_ps, next(self._tickets), alone))
        else:
            self.meet(links)
            self._join(bundle, 1.0)

    def meet(self, links: Iterable[int] | None) -> None:
        """Have bundles that were alone on some links share them from now on; None for all links.

        Those that end now do so.
        """
        if not self._alone:
            return
        found = self._alone.values() if links is None else map(self._alone.get, links)
        for alone in [each for each in dict.fromkeys(found) if each]:
            if alone.end_ps > self._network.now_ps:
                alone.over = True
                self._free(alone)
                lasts_ps = alone.end_ps - alone.began_ps
                self._join(alone.bundle, (alone.end_ps - self._network.now_ps) / lasts_ps)

    @property
    def next_ps(self) -> int:
        """When the next one that is alone ends if nothing changes [ps]; `NEVER` if none is."""
        while self._ends and self._ends[0][2].over:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else NEVER

    def ended(self) -> list[tuple[int, Bundle]]:
        """Return the bundles that were alone and have ended by now, and when."""
        found = []
        while self.next_ps <= self._network.now_ps:
            end_ps, _, alone = heapq.heappop(self._ends)
            self._free(alone)
            found.append((end_ps, alone.bundle))
        return found

    def arrived(self, tag: int) -> Bundle | None:
        """Return the bundle of a strand that arrived, by its negative number, if it was the last."""
        bundle = self._joined[tag]
        bundle.left -= 1
        if bundle.left:
            return None
        for link in bundle.crossed.links:
            self._on[link] -= 1
        return self._joined.pop(tag)

    def _free(self, alone: _Alone) -> None:
        for link in alone.bundle.crossed.links:
            del self._alone[link]

    def _join(self, bundle: Bundle, share: float) -> None:
        """Put a bundle into the network, or what it has left."""
        sizes = bundle.bytes * share
        first, pools = self._idle(bundle.over())
        weighs = bundle.weight() * sizes.max() / sizes.sum() if bundle.weight else 1.0
        self._network.weigh(first, weighs)
        bundle.left, tag = len(sizes), -next(self._tickets)
        self._joined[tag] = bundle
        self._on.update(bundle.crossed.links)
        self._network.post(pools, sizes, [tag] * len(sizes))

    def _idle(self, over: Over) -> tuple[int, range]:
        """Return the first of some coupled flows that are idle, and their pools; a single one has a queue."""
        for flows, pools in self._flows[over]:
            if len(over) == 1 or not any(map(self._network.held, pools)):
                return flows[0], pools
        first = self._network.pools
        flows = self._add(over)
        pools = range(first, self._network.pools)
        self._flows[over].append((flows, pools))
        return flows[0], pools
