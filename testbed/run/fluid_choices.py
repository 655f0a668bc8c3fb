"""Messages that choose, or take what is lit, in the model: pools that several queue pairs drain."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from traffic.fluid.choice import parcels_in_turns
from traffic.fluid.network import FluidNetwork

Among = tuple[int, ...]
"""The queue pairs that a message may use."""
ROUNDING = 1e-8
"""What a schedule's slots leave over of a message counts as delivered, as part of the largest message."""


class FluidChoices:
    """The messages under way that choose, and the pools that they are in.

    Parameters
    ----------
    network
        Of the model.
    arrived
        Told that all of a message has arrived.
    """

    def __init__(self, network: FluidNetwork, arrived: Callable[[int], None]) -> None:
        self._network, self._arrived = network, arrived
        self._pools: dict[Among, tuple[int, range]] = {}
        """The pool of messages that may choose from the same queue pairs, and its flows."""
        self._choosing: dict[int, _Choosing] = {}

    @property
    def pools(self) -> Mapping[Among, tuple[int, range]]:
        """The pool of messages that may choose from the same queue pairs, and its flows, one for each."""
        return self._pools

    def flows_over(self, number: int) -> list[int]:
        """Return the flows over a queue pair."""
        return [flows[among.index(number)] for among, (_, flows) in self._pools.items() if number in among]

    def without_pool(self, sets: Sequence[Among]) -> list[Among]:
        """Return those of some sets of queue pairs that have no pool, each once."""
        return [among for among in dict.fromkeys(sets) if among not in self._pools]

    def add_pools(self, first: int, sets: Iterable[Among], flows: range) -> None:
        """Add pools, which have numbers from a first one on, and their flows one after the other."""
        begin = 0
        for pool, among in enumerate(sets, start=first):
            self._pools[among] = pool, flows[begin : begin + len(among)]
            begin += len(among)

    def post(
        self, sets: Sequence[Among], size: NDArray[np.int64], message: NDArray[np.int64], posted: int
    ) -> None:
        """Post messages, each to the pool of what it may use; ``posted`` differs from call to call."""
        before = {among: self._delivered(among) for among in set(sets)}
        for each, among, owed in zip(message.tolist(), sets, size.tolist(), strict=True):
            self._choosing[each] = _Choosing(among, before[among], owed, posted)
        pools = np.array([self._pools[among][0] for among in sets])
        order, parcels = parcels_in_turns(pools, size.astype(float))
        self._network.post(pools[order], parcels, message[order])

    def chosen(self, message: int, *, goes_on: bool) -> dict[int, int]:
        """Return what each queue pair carried of a message: its part of what they carried meanwhile."""
        chosen = self._choosing[message]
        if not goes_on:
            return self._parts(message, chosen.size)
        left, before = self.lacking(message), self._delivered(chosen.among)
        parts = self._parts(message, chosen.size - left)
        self._choosing[message] = replace(chosen, before=before, size=left)
        return parts

    def has_arrived(self, message: int) -> bool:
        """Return whether a message lacks nothing."""
        pool, _ = self._pools[self._choosing[message].among]
        return message not in self._network.held(pool) or not self.lacking(message)

    def lacking(self, message: int) -> int:
        """Return how many bytes a message lacks."""
        return self._left(self._choosing[message].among).get(message, 0)

    def recall(self, messages: Sequence[int]) -> tuple[dict[int, dict[int, int]], dict[int, int], list[int]]:
        """Take back what messages lack, with those of their pools.

        Returns
        -------
        carried, lacking, flows
            What queue pairs carried of each, what each lacks, and the flows of the pools.
        """
        recalled, lacking, flows = {}, dict[int, int](), list[int]()
        for among in dict.fromkeys(self._choosing[message].among for message in messages):
            left = self._left(among)
            pool, own = self._pools[among]
            self._empty(pool, self._network.held(pool) - left.keys())
            flows += own
            lacking |= left
            for message, size in left.items():
                recalled[message] = self._parts(message, self._choosing[message].size - size)
        return recalled, lacking, flows

    def round_off(self) -> None:
        """Deliver what slots left over by rounding only."""
        largest = max((each.size for each in self._choosing.values()), default=0)
        for among in dict.fromkeys(each.among for each in self._choosing.values()):
            pool, _ = self._pools[among]
            held, left = self._network.held(pool), self._network.left(pool).values()
            is_small = max(left, default=0) <= ROUNDING * largest
            if is_small and all(self._carried_of(message).any() for message in held):
                self._empty(pool, held)

    def _empty(self, pool: int, arrived: Collection[int]) -> None:
        """Take all out of a pool; of some messages nothing is lacking."""
        for message in sorted(arrived):
            self._arrived(message)
        self._network.withdraw(pool)

    def _left(self, among: Among) -> dict[int, int]:
        """Return what messages lack that may choose from the same queue pairs, if they lack anything.

        A pool has parcels of turns (`parcels_in_turns`): those posted together and not delivered shared each.
        """
        parcels = self._network.left(self._pools[among][0])
        sharing = Counter(self._choosing[message].posted for message in parcels)
        so_far: dict[int, float] = defaultdict(float)
        left = {}
        for message, size in parcels.items():
            posted = self._choosing[message].posted
            so_far[posted] += size / sharing[posted]
            sharing[posted] -= 1
            left[message] = max(round(so_far[posted]), 1)
        return left

    def _parts(self, message: int, delivered: int) -> dict[int, int]:
        """Return how many bytes of a message, of those delivered, each queue pair carried; forget it."""
        carried, chosen = self._carried_of(message), self._choosing.pop(message)
        if not delivered:
            return {}
        edges = np.rint(carried.cumsum() * (delivered / carried.sum())).astype(np.int64).tolist()
        parts = zip(chosen.among, pairwise([0, *edges]), strict=True)
        return {number: end - begin for number, (begin, end) in parts if end != begin}

    def _carried_of(self, message: int) -> NDArray[np.float64]:
        """Return what the queue pairs of a message have carried since it was posted [bytes]."""
        chosen = self._choosing[message]
        return self._delivered(chosen.among) - chosen.before

    def _delivered(self, among: Among) -> NDArray[np.float64]:
        return self._network.delivered_bytes(self._pools[among][1])


@dataclass(frozen=True, slots=True, eq=False)
class _Choosing:
    """A message that chooses."""

    among: Among
    before: NDArray[np.float64]
    """What its queue pairs had carried before."""
    size: int
    posted: int
    """Equal for messages that were posted together."""
