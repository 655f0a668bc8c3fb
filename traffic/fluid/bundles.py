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
class CrossedLinks:
    """The links that a bundle crosses."""

    links: list[int]
    """Each once."""
    of: NDArray[np.int64]
    """Which of them each crossing is of, shape (crossings,)."""
    strand: NDArray[np.int64]
    """The strand that crosses, shape (crossings,)."""


def crossed(paths: Sequence[Sequence[int]]) -> CrossedLinks:
    """Return the links that strands cross, each by its path.

    Examples
    --------
    >>> found = crossed([[7, 3], [7]])
    >>> found.links, found.of.tolist(), found.strand.tolist()
    ([3, 7], [1, 0, 1], [0, 0, 1])
    """
    strand = np.repeat(np.arange(len(paths)), [len(path) for path in paths])
    links, of = np.unique(np.array(list(itertools.chain.from_iterable(paths))), return_inverse=True)
    return CrossedLinks(links.tolist(), of, strand)


@dataclass(slots=True, eq=False)
class Bundle:
    """Bytes that move together, strand by strand."""

    ops: tuple[int, ...]
    """What they are of."""
    bytes: NDArray[np.int64]
    """What each strand carries, shape (strands,)."""
    crossed: CrossedLinks
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

    @property
    def is_single(self) -> bool:
        """Whether it is one strand that counts as one where it meets others: it may queue behind its like."""
        return self.weight is None and len(self.bytes) == 1


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
        Adds flows to it over what the strands of some bundles go over, those of a bundle coupled, and returns
        the flows and pools of each.
    """

    def __init__(
        self, network: FluidNetwork, add: Callable[[Sequence[Over]], Sequence[tuple[range, range]]]
    ) -> None:
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

    def start(self, bundles: Iterable[Bundle], *, may_be_alone: bool) -> None:
        """Have bundles move from now on: alone, if they may be and nothing else is on their links."""
        joining = list[tuple[Bundle, float]]()
        for bundle in bundles:
            links = bundle.crossed.links
            rates = self._network.link_bps[links]
            is_free = self._alone.keys().isdisjoint(links) and not any(map(self._on.get, links))
            is_used = not is_free or (bundle.meets_others and self._network.uses(links))
            if may_be_alone and not is_used and rates.all():
                self._go_alone(bundle, rates)
                continue
            joining += [*self._met(links), (bundle, 1.0)]
            self._on.update(links)
        self._join(joining)

    def _go_alone(self, bundle: Bundle, rates_bps: NDArray[np.float64]) -> None:
        loads = np.bincount(bundle.crossed.of, bundle.bytes[bundle.crossed.strand])
        began_ps = self._network.now_ps
        alone = _Alone(bundle, began_ps, began_ps + ps(float((8 * loads / rates_bps).max())))
        self._alone.update(dict.fromkeys(bundle.crossed.links, alone))
        heapq.heappush(self._ends, (alone.end_ps, next(self._tickets), alone))

    def meet(self, links: Iterable[int] | None) -> None:
        """Have bundles that were alone on some links share them from now on; None for all links.

        Those that end now do so.
        """
        if self._alone:
            self._join(self._met(list(self._alone) if links is None else links))

    def _met(self, links: Iterable[int]) -> list[tuple[Bundle, float]]:
        """Return the bundles that are alone on some links no more, and which part of each is left."""
        found = list[tuple[Bundle, float]]()
        for alone in dict.fromkeys(map(self._alone.get, links)):
            if alone and alone.end_ps > self._network.now_ps:
                alone.over = True
                self._free(alone)
                self._on.update(alone.bundle.crossed.links)
                lasts_ps = alone.end_ps - alone.began_ps
                found.append((alone.bundle, (alone.end_ps - self._network.now_ps) / lasts_ps))
        return found

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

    def _join(self, joining: Sequence[tuple[Bundle, float]]) -> None:
        """Put bundles into the network, or what they have left: single strands, which are many, at once."""
        singles = [(bundle, share) for bundle, share in joining if bundle.is_single]
        new = [over for over in dict.fromkeys(each.over() for each, _ in singles) if over not in self._flows]
        for over, added in zip(new, self._add(new) if new else (), strict=True):
            self._flows[over].append(added)
        pools, sizes, tags = list[int](), list[float](), list[int]()
        for bundle, share in joining:
            if bundle.is_single:
                _, mine = self._flows[bundle.over()][0]  # which has a queue
            else:
                flows, mine = self._idle(bundle.over())
                sent = bundle.bytes * share
                self._network.weigh(
                    flows[0], bundle.weight() * sent.max() / sent.sum() if bundle.weight else 1.0
                )
            bundle.left, tag = len(bundle.bytes), -next(self._tickets)
            self._joined[tag] = bundle
            own = (bundle.bytes * share).tolist()
            if not bundle.is_single:  # so that the next one of its kind finds these busy
                self._network.post(mine, own, [tag] * len(own))
                continue
            pools += mine
            sizes += own
            tags.append(tag)
        if pools:
            self._network.post(pools, sizes, tags)

    def _idle(self, over: Over) -> tuple[range, range]:
        """Return coupled flows that are idle, and their pools."""
        for flows, pools in self._flows[over]:
            if not any(map(self._network.held, pools)):
                return flows, pools
        self._flows[over] += self._add([over])
        return self._flows[over][-1]
