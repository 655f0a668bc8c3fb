"""Messages that choose, take what is lit, or go in shares, in the model: pools that queue pairs drain.

A message that goes by several paths in fixed shares has one in the pool of each. So an oblivious scheme does
not lead packets away from a path that is slow, or dead and not known to be: a message has arrived when the
slowest of its shares has. Other messages are in one pool, which all queue pairs drain that they may use.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from traffic.fluid.choice import parcels_in_turns
from traffic.fluid.network import FluidNetwork

Among = tuple[int, ...]
"""The queue pairs that a share of a message may use."""
Carried = dict[int, int]
"""How many bytes each queue pair carried."""
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
        self.pools: dict[Among, tuple[int, range]] = {}
        """The pool of messages that may choose from the same queue pairs, and its flows, one for each."""
        self._shares: dict[int, dict[Among, _Share]] = {}
        """What is in pools of each message; what chooses is in one."""
        self._to_come: dict[int, set[int]] = {}
        """The pools from which something of each message has not arrived."""
        self._void: Counter[tuple[int, int]] = Counter()
        """How often a message will arrive from a pool in vain: it had left it when it was recalled."""

    def flows_over(self, number: int) -> list[int]:
        """Return the flows over a queue pair."""
        return [flows[among.index(number)] for among, (_, flows) in self.pools.items() if number in among]

    def add_pools(self, first: int, sets: Iterable[Among], flows: range) -> None:
        """Add pools, which have numbers from a first one on, and their flows one after the other."""
        begin = 0
        for pool, among in enumerate(sets, start=first):
            self.pools[among] = pool, flows[begin : begin + len(among)]
            begin += len(among)

    def post(
        self, sets: Sequence[Among], size: NDArray[np.int64], message: NDArray[np.int64], posted: int
    ) -> None:
        """Post messages, or shares of them, each to the pool of what it may use.

        ``posted`` differs from call to call.
        """
        before = {among: self._delivered(among) for among in set(sets)}
        pools = [self.pools[among][0] for among in sets]
        for each, among, pool, owed in zip(message.tolist(), sets, pools, size.tolist(), strict=True):
            self._shares.setdefault(each, {})[among] = _Share(before[among], owed, posted)
            self._to_come.setdefault(each, set()).add(pool)
        numbers = np.array(pools)
        order, parcels = parcels_in_turns(numbers, size.astype(float))
        self._network.post(numbers[order], parcels, message[order])

    def landed(self, message: int, pool: int) -> bool:
        """Return whether what arrived from a pool was all of a message there, and in its other pools."""
        if self._void[message, pool]:
            self._void[message, pool] -= 1
            return False
        to_come = self._to_come.get(message, set())
        if pool not in to_come:
            return True  # a queue pair's own
        to_come.remove(pool)
        return not to_come

    def chosen(self, message: int, *, goes_on: bool) -> Carried:
        """Return what each queue pair carried of a message: its part of what they carried meanwhile."""
        shares = self._shares[message]
        left = {among: self._left(among).get(message, 0) if goes_on else 0 for among in shares}
        carried = self._carried(message, left)
        if goes_on:
            for among, size in left.items():
                shares[among] = replace(shares[among], before=self._delivered(among), size=size)
        else:
            del self._shares[message]
            if not self._to_come[message]:  # else it is on its way
                del self._to_come[message]
        return carried

    def has_arrived(self, message: int) -> bool:
        """Return whether a message lacks nothing."""
        return all(self._is_over(message, among) for among in self._shares[message])

    def lacking(self, message: int) -> int:
        """Return how many bytes a message lacks."""
        return sum(self._left(among).get(message, 0) for among in self._shares[message])

    def recall(self, messages: Iterable[int]) -> tuple[dict[int, tuple[Carried, int]], list[int]]:
        """Take back what messages lack, with those of their pools, and so on.

        Returns
        -------
        recalled, flows
            What queue pairs carried of each message, and what it lacks, in order; the flows of the pools.
        """
        left: dict[Among, dict[int, int]] = {}
        names = new = set(messages)
        while new:
            sharing = [(each, among) for each in sorted(new) for among in self._shares[each]]
            lacking = dict.fromkeys(among for each, among in sharing if not self._is_over(each, among))
            more = {among: self._left(among) for among in lacking if among not in left}
            left |= more
            new = set[int]().union(*more.values()) - names
            names = names | new
        to_come = set[int]().union(*(self._to_come[each] for each in names))
        held = {pool: self._network.held(pool) for pool in to_come}
        self._void.update(
            (each, pool) for each in names for pool in self._to_come[each] if each not in held[pool]
        )
        flows, recalled = list[int](), {}
        for among, messages_left in left.items():
            pool, own = self.pools[among]
            self._empty(pool, self._network.held(pool) - messages_left.keys())
            flows += own
        for each in sorted(names):
            lacks = {among: left.get(among, {}).get(each, 0) for among in self._shares[each]}
            recalled[each] = self._carried(each, lacks), sum(lacks.values())
            del self._shares[each], self._to_come[each]
        return recalled, flows

    def round_off(self) -> None:
        """Deliver what slots left over by rounding only."""
        every = [entry for shares in self._shares.values() for entry in shares.items()]
        largest = max((share.size for _, share in every), default=0)
        for among in dict.fromkeys(among for among, _ in every):
            pool, _ = self.pools[among]
            held, left = self._network.held(pool), self._network.left(pool).values()
            is_small = max(left, default=0) <= ROUNDING * largest
            if is_small and all(self._carried_since(message, among).any() for message in held):
                self._empty(pool, held)

    def _empty(self, pool: int, arrived: Collection[int]) -> None:
        """Take all out of a pool; of some messages nothing is lacking."""
        for message in sorted(arrived):
            if self.landed(message, pool):
                self._arrived(message)
        self._network.withdraw(pool)

    def _is_over(self, message: int, among: Among) -> bool:
        """Return whether what of a message is in a pool has arrived."""
        return message not in self._network.held(self.pools[among][0]) or message not in self._left(among)

    def _left(self, among: Among) -> dict[int, int]:
        """Return what messages lack that may choose from the same queue pairs, if they lack anything.

        A pool has parcels of turns (`parcels_in_turns`): those posted together and not delivered shared each.
        """
        parcels = self._network.left(self.pools[among][0])
        posted = {message: self._shares[message][among].posted for message in parcels}
        sharing = Counter(posted.values())
        so_far: dict[int, float] = defaultdict(float)
        left = {}
        for message, size in parcels.items():
            turn = posted[message]
            so_far[turn] += size / sharing[turn]
            sharing[turn] -= 1
            left[message] = max(round(so_far[turn]), 1)
        return left

    def _carried(self, message: int, left: dict[Among, int]) -> Carried:
        """Return how many bytes of a message, of those not left, each queue pair carried."""
        carried = Carried()
        for among, lacks in left.items():
            if delivered := self._shares[message][among].size - lacks:
                parts = self._carried_since(message, among)
                edges = np.rint(parts.cumsum() * (delivered / parts.sum())).astype(np.int64).tolist()
                rows = zip(among, pairwise([0, *edges]), strict=True)
                carried |= {number: end - begin for number, (begin, end) in rows if end != begin}
        return carried

    def _carried_since(self, message: int, among: Among) -> NDArray[np.float64]:
        """Return what queue pairs have carried since a share of a message was posted [bytes]."""
        return self._delivered(among) - self._shares[message][among].before

    def _delivered(self, among: Among) -> NDArray[np.float64]:
        return self._network.delivered_bytes(self.pools[among][1])


@dataclass(frozen=True, slots=True, eq=False)
class _Share:
    """What of a message is in one pool."""

    before: NDArray[np.float64]
    """What the pool's queue pairs had carried before."""
    size: int
    posted: int
    """Equal for messages that were posted together."""
