"""The ways of queue pairs by which packets of many entropies go, in the model: one for each path taken."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from testbed.run.movers import Left
from testbed.run.packet_paths import PacketPaths
from topologies.fabric import Path
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
        self._ways: dict[tuple[int, Entropies], tuple[int, ...]] = {}
        """Of each queue pair by which packets of some entropies go."""
        self._way_of: dict[int, tuple[int, int]] = {}
        """The queue pair that each is of, and the first entropy that takes its path."""
        self._taking: dict[int, float] = {}
        """Which share of the entropies takes its path."""

    def of(self, among: tuple[int, ...], lanes: Lanes) -> tuple[int, ...]:
        """Return the ways of all queue pairs that a message may use; one of one entropy is its own."""
        if not among or self._pairs[among[0]].entropy != SPRAYED:
            return among
        between = zip(among, entropies_between(lanes), strict=True)
        return tuple(way for each in between for way in self._between(*each))

    def _between(self, number: int, entropies: Entropies) -> tuple[int, ...]:
        if (number, entropies) not in self._ways:
            pair, first = self._pairs[number], dict[Path, int]()
            by_entropy = self._paths.by_entropy(pair)
            paths = [by_entropy[entropy % len(by_entropy)] for entropy in entropies]
            for entropy, path in zip(entropies, paths, strict=True):
                first.setdefault(path, entropy)
            ways = self._open([replace(pair, entropy=entropy) for entropy in first.values()])
            self._ways[number, entropies] = tuple(ways)
            took = Counter(paths)
            for way, (path, entropy) in zip(ways, first.items(), strict=True):
                self._way_of[way] = number, entropy
                self._taking[way] = took[path] / len(paths)
        return self._ways[number, entropies]

    def share(self, way: int, nic_bps: float) -> int:
        """Return in proportion to what packets take a way that go by any entropy, by a NIC of a rate."""
        return round(self._taking.get(way, 1.0) * nic_bps)

    def clear(self) -> None:
        """Find the ways anew of what chooses from now on: packets are led elsewhere."""
        self._ways.clear()

    def carried(self, op: int, sizes: Mapping[int, int]) -> list[Left]:
        """Report what ways carried of an operation, by the queue pairs that they are of."""
        named = ((self._way_of.get(lane, (lane, None)), size) for lane, size in sizes.items())
        return [Left(op, lane, carried=size, entropy=entropy) for (lane, entropy), size in named]
