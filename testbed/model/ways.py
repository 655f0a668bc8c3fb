"""The ways of queue pairs by which packets of many entropies go, in the model: one for each path taken."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from testbed.core.backend import Left
from testbed.core.packet_paths import PacketPaths
from topologies.fabric import Nic, Path
from traffic.spraying.policy import SPRAYED, Entropies, Lanes, QueuePair, entropies_between


class FluidWays:
    """The queue pairs that stand for paths.

    Parameters
    ----------
    pairs
        All queue pairs, by number.
    paths
        Theirs.
    open_pairs
        Returns the numbers of queue pairs, opened if they are not.
    """

    def __init__(
        self,
        pairs: Sequence[QueuePair],
        paths: PacketPaths,
        open_pairs: Callable[[Sequence[QueuePair]], list[int]],
    ) -> None:
        self._pairs, self._paths, self._open = pairs, paths, open_pairs
        self._ways: dict[tuple[int, Entropies], dict[int, float]] = {}
        """Of each queue pair by which packets of some entropies go, and which share of these takes each."""
        self._way_of: dict[int, tuple[int, int]] = {}
        """The queue pair that each is of, and the first entropy that takes its path."""
        self._first: dict[int, int] = {}
        """The first of those that are granted together with each."""

    def of(self, among: tuple[int, ...], lanes: Lanes) -> tuple[int, ...]:
        """Return the ways of all queue pairs that a message may use; one of one entropy is its own."""
        if not self._are_many(among):
            return among
        ways = tuple(way for each in self._each(among, lanes) for way in each)
        first: dict[Nic, int] = {}
        for way in ways:
            self._first.setdefault(way, first.setdefault(self._pairs[way].destination, way))
        return ways

    def shares(self, among: tuple[int, ...], lanes: Lanes, nic_bps: Callable[[int], float]) -> dict[int, int]:
        """Return in proportion to what numbers packets take each way, by NICs of these rates."""
        if not self._are_many(among):
            return {way: round(nic_bps(way)) for way in among}
        shares = Counter[int]()
        for each in self._each(among, lanes):
            shares.update({way: round(share * nic_bps(way)) for way, share in each.items()})
        return dict(shares)

    def first(self, way: int) -> int:
        """Return the way whose weight those share that are granted together: all of a message's to a NIC."""
        return self._first.get(way, way)

    def _are_many(self, among: tuple[int, ...]) -> bool:
        return bool(among) and self._pairs[among[0]].entropy == SPRAYED

    def _each(self, among: tuple[int, ...], lanes: Lanes) -> Iterator[dict[int, float]]:
        """Yield the ways between each two NICs, and their shares."""
        for each in zip(among, entropies_between(lanes), strict=True):
            yield self._between(*each)

    def _between(self, number: int, entropies: Entropies) -> dict[int, float]:
        if (number, entropies) not in self._ways:
            pair, first = self._pairs[number], dict[Path, int]()
            by_entropy = self._paths.by_entropy(pair, self._paths.failed)
            paths = [by_entropy[entropy % len(by_entropy)] for entropy in entropies]
            for entropy, path in zip(entropies, paths, strict=True):
                first.setdefault(path, entropy)
            ways = self._open([replace(pair, entropy=entropy) for entropy in first.values()])
            took = Counter(paths)
            self._ways[number, entropies] = {
                way: took[path] / len(paths) for way, path in zip(ways, first, strict=True)
            }
            self._way_of.update((way, (number, e)) for way, e in zip(ways, first.values(), strict=True))
        return self._ways[number, entropies]

    def clear(self) -> None:
        """Find the ways anew of what chooses from now on: packets are led elsewhere."""
        self._ways.clear()

    def carried(self, op: int, sizes: Mapping[int, int]) -> list[Left]:
        """Report what ways carried of an operation, by the queue pairs that they are of."""
        named = ((self._way_of.get(lane, (lane, None)), size) for lane, size in sizes.items())
        return [Left(op, lane, carried=size, entropy=entropy) for (lane, entropy), size in named]


def divided(size: int, shares: Mapping[int, int]) -> dict[int, int]:
    """Divide bytes among ways in proportion to numbers; a way without any is left out.

    Examples
    --------
    >>> divided(10, {3: 1, 4: 2, 5: 0})
    {3: 3, 4: 7}
    """
    whole, ends = sum(shares.values()), accumulate(shares.values(), initial=0)
    edges = pairwise(size * end // whole for end in ends)
    return {way: end - begin for way, (begin, end) in zip(shares, edges, strict=True) if end > begin}
