"""Where the bytes of delegated all-to-alls are inside servers, when lanes change after they were gathered.

What goes on a lane is at the delegation GPU of the lane's source NIC, and arrives at that of its destination
NIC. Bytes that a lane gives back, because a NIC failed or works again, are still at the GPU that they were
gathered at. To go on another GPU's lane they cross NVLink first, and they are scattered from where they
arrive. Where legs do not go in turn, they cross NVLink beside the lane, at both ends: what is scattered has
left already for where it was to arrive. mFabric's paper leaves all of this open.

What a relay passes on inside its server is not reckoned with, as in the delegation itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from topologies.fabric import Fabric
from traffic.delegation import DelegatedOps, Delegation, delegation_gpus, scattered
from traffic.followed import Hop
from traffic.messages import Messages
from traffic.ops import Ops
from traffic.scheme import Placement
from traffic.spraying.policy import QueuePair


@dataclass(frozen=True, slots=True, eq=False)
class _Pair:
    """The bytes from one server to another."""

    near: int
    far: int
    held: Counter[int]
    """Bytes that are on no lane, by the GPU that has them."""
    planned: Counter[int]
    """By the GPU that it was to arrive at [bytes]."""
    landing: Counter[int]
    """Bytes that are on lanes or have arrived, by the GPU that they arrive at."""


class Gathered:
    """The bytes of the all-to-alls of a run.

    Parameters
    ----------
    fabric
        Which GPU is whose NIC's.
    pipelined
        Whether all legs of an all-to-all go at once.
    """

    def __init__(self, fabric: Fabric, *, pipelined: bool) -> None:
        self._gpu_of, self._gpus, self._pipelined = delegation_gpus(fabric), fabric.gpus, pipelined
        self._server_of = fabric.gpu_servers
        self._pairs: dict[int, _Pair] = {}
        """By the number of their operation."""
        self._of_scatter: dict[int, tuple[Delegation, range]] = {}
        """The all-to-all that a scatter is of, and the operations of its pairs."""

    def admit(self, ops: Ops, first: int) -> None:
        """Follow an all-to-all, as it will be gathered; its operations are numbered from a first one on."""
        if not isinstance(ops, DelegatedOps) or not ops.delegation:
            return
        found, begin = ops.delegation, first + ops.first_pair
        between, lanes = found.between, found.lanes
        ends = zip(between.source.tolist(), between.destination.tolist(), strict=True)
        for number, (near, far) in enumerate(ends, start=begin):
            servers = self._server_of[near], self._server_of[far]
            self._pairs[number] = _Pair(*servers, Counter(), Counter(), Counter())
        columns = lanes.message.tolist(), lanes.qp.tolist(), lanes.bytes.tolist()
        for place, qp, size in zip(*columns, strict=True):
            pair, lane = self._pairs[begin + place], lanes.queue_pairs[qp]
            if lane.source.server == pair.near:
                pair.held[self._gpu_of[lane.source]] += size
            if lane.destination.server == pair.far:
                pair.planned[self._gpu_of[lane.destination]] += size
        if not self._pipelined:
            self._of_scatter[first + len(ops) - 1] = found, range(begin, begin + len(between))

    def put(
        self, placed: Placement, numbers: Sequence[int], wholes: Sequence[int]
    ) -> tuple[Placement, list[Hop]]:
        """Return what of operations goes on their lanes at once, and what crosses NVLink.

        Parameters
        ----------
        placed
            Where operations go.
        numbers, wholes
            Of each, and of the one that it is or brings a hop further.
        """
        hops, sizes = list[Hop](), placed.bytes.copy()
        parcels = zip(placed.message.tolist(), placed.qp.tolist(), placed.bytes.tolist(), strict=True)
        lacking = list[tuple[int, int, int]]()
        for parcel, (message, qp, size) in enumerate(parcels):
            lane = placed.queue_pairs[qp]
            if (pair := self._pairs.get(wholes[message])) is None:
                continue
            if lane.destination.server == pair.far:
                hops += self._lands(pair, numbers[message], self._gpu_of[lane.destination], size)
            if lane.source.server == pair.near:
                there = _taken(pair.held, self._gpu_of[lane.source], size)
                lacking += [(parcel, message, size - there)] * (there < size)
        for parcel, message, size in lacking:
            lane = placed.queue_pairs[int(placed.qp[parcel])]
            held, to = self._pairs[wholes[message]].held, self._gpu_of[lane.source]
            for gpu, moved in _drawn(held, size):
                then = None if self._pipelined else lane
                hops.append(Hop(numbers[message], gpu, to, moved, then))
                sizes[parcel] -= moved * (then is not None)
        there_now = sizes > 0
        if there_now.all() and not hops:
            return placed, hops
        columns = (column[there_now] for column in (placed.qp, placed.message, sizes))
        return Placement(placed.queue_pairs, *columns), hops

    def withdraw(self, lane: QueuePair, left: Iterable[tuple[int, int]]) -> None:
        """Take what a lane gives back: the pair of servers, and bytes."""
        for whole, size in left:
            if (pair := self._pairs.get(whole)) is None:
                continue
            if lane.source.server == pair.near:
                pair.held[self._gpu_of[lane.source]] += size
            if lane.destination.server == pair.far:
                pair.landing[self._gpu_of[lane.destination]] -= size

    def moves(self, number: int) -> Messages | None:
        """Return what is scattered, from where it arrived; None if that is as it was planned."""
        if number not in self._of_scatter:
            return None
        found, numbers = self._of_scatter.pop(number)
        pairs = [self._pairs.pop(each) for each in numbers]
        if all(+pair.landing == pair.planned for pair in pairs):
            return None
        return scattered(found, [_whole(pair) for pair in pairs], self._gpus)

    def _lands(self, pair: _Pair, number: int, gpu: int, size: int) -> list[Hop]:
        """Count what is to arrive at a GPU; return what of it others scatter meanwhile."""
        due = pair.planned - pair.landing
        pair.landing[gpu] += size
        if not self._pipelined:
            return []
        size -= _taken(due, gpu, size)
        return [Hop(number, gpu, other, moved) for other, moved in _drawn(due, size)]


def _taken(held: Counter[int], gpu: int, size: int) -> int:
    """Take up to so many bytes from where they are needed; return how many."""
    taken = min(held[gpu], size)
    held[gpu] -= taken
    return taken


def _drawn(held: Counter[int], size: int) -> Iterator[tuple[int, int]]:
    """Take so many bytes from wherever there are some, and yield from where how many."""
    for gpu in sorted(held):
        if taken := _taken(held, gpu, size):
            size -= taken
            yield gpu, taken


def _whole(pair: _Pair) -> Mapping[int, int]:
    """Return where all of a pair arrived; as planned if no lane is known that it came by."""
    return +pair.landing or pair.planned
