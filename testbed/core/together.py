"""Together: the flows of operations that are one, over several lanes and NVLink at once."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from testbed.core.carriers import Carriers
from testbed.core.ledger import INSIDE, Columns, Ledger
from testbed.core.movers import NVLINK, Backend, Flows
from testbed.core.written import Parcels
from topologies.fabric import Fabric
from traffic.messages import Messages, crosses_network
from traffic.messages import together as one_after_another
from traffic.ops import Part
from traffic.scheme import Placement
from traffic.spraying.policy import QueuePair

MOST_KNOWN = 4096
"""So many sets of queue pairs are remembered."""
NOWHERE = Placement((), *(np.zeros(0, dtype=np.int64) for _ in range(3)))
"""Where nothing is placed."""


@dataclass(slots=True, eq=False)
class _Opened:
    """Queue pairs in use."""

    queue_pairs: Sequence[QueuePair]
    carriers: NDArray[np.int64]
    """The number of each."""
    is_light: NDArray[np.bool_]
    """Whether it goes over circuits."""
    columns: Columns
    """Medium, lane and path of each, and of NVLink after them."""
    last: tuple[NDArray[np.int64], list[tuple[NDArray[np.int64], NDArray[np.bool_]]]] | None = None
    """The parcels that were looked at last, and their lanes over packets and over circuits."""

    def apart(
        self, qp: NDArray[np.int64], size: NDArray[np.int64]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Return the lanes and bytes of parcels over packets and of those over circuits, if there are any."""
        if self.last is None or self.last[0] is not qp:
            light = self.is_light[qp]
            self.last = qp, [(self.carriers[qp[of]], of) for of in (~light, light) if of.any()]
        return [(lane, size[of]) for lane, of in self.last[1]]


class Together:
    """What goes together in one run.

    Parameters
    ----------
    fabric, ledger, carriers
        Of the run.
    backend
        Whose clock counts.
    communicators
        The number of the communicator of each collective that has begun.
    """

    def __init__(
        self,
        fabric: Fabric,
        ledger: Ledger,
        carriers: Carriers,
        backend: Backend,
        communicators: Mapping[str, int],
    ) -> None:
        self._fabric, self._ledger, self._carriers, self._backend = fabric, ledger, carriers, backend
        self._communicator, self._ops = communicators, ledger.ops
        self._opened: dict[tuple[int, int], _Opened] = {}
        """The lanes in use of each communicator, by the identity of their tuple, which is kept."""

    def in_step(self, numbers: Sequence[int], placed: Placement) -> list[Flows]:
        """Return the flows of operations of one collective, each of which is one over NVLink and lanes.

        All steps are alike but for some bytes, so each lane carries the same part of each.

        Parameters
        ----------
        numbers
            Of the operations.
        placed
            Where the first step of what leaves its server goes.
        """
        parts = [op.moves for number in numbers if (op := self._ops[number]).moves]
        moves, first = moves_of(parts)
        (leaving,) = np.nonzero(crosses_network(moves, self._fabric))
        (inside,) = np.nonzero(~crosses_network(moves, self._fabric))
        opened = self._open(placed.queue_pairs, self._communicator[self._ops[numbers[0]].node])
        crosses, qp, size = _by_lane(placed)
        sizes = in_proportion(moves, first, leaving[crosses], size)
        move = np.append(leaving[crosses], inside)
        which = np.append(qp, np.full(len(inside), len(opened.carriers)))
        sizes = np.append(sizes, moves.bytes[inside])
        order = np.argsort(move, kind="stable")
        order = order[sizes[order] > 0]
        move, which, sizes = move[order], which[order], sizes[order]
        lane = np.append(opened.carriers, NVLINK)[which]
        edges = np.cumsum([0, *(len(part.moves) for part in parts)])
        flows = list[Flows]()
        for number, begin, end in zip(numbers, edges, edges[1:], strict=False):
            mine = slice(*np.searchsorted(move, (begin, end)))
            ends = moves.source[move[mine]], moves.destination[move[mine]]
            stays = bool((lane[mine] == NVLINK).all())
            flows.append(Flows(np.full(len(ends[0]), number), sizes[mine], lane[mine], *ends, True, stays))
            carried = move[mine] - begin, sizes[mine], which[mine]
            self._go_together(number, flows[-1:], self._ledger.together(*carried, opened.columns))
        return flows

    def over_lanes(self, number: int, placed: Placement) -> list[Flows]:
        """Return the flows of an operation that goes together over the lanes of its servers.

        Lanes over circuits share nothing with those over packets: each are one flow, which ends when its
        busiest link does. Senders whose lanes share packet NICs, or circuits that servers forward between, do
        so by what they have left, so that those on the busiest link end together; what else they cross has
        room for them.
        """
        op = self._ops[number]
        opened = self._open(placed.queue_pairs, self._communicator[op.node])
        flows = [
            Flows(np.full(len(lane), number), size, lane, lane, lane, together=True)
            for lane, size in opened.apart(placed.qp, placed.bytes)
        ]
        carried = self._ledger.together(placed.message, placed.bytes, placed.qp, opened.columns)
        self._go_together(number, flows, carried)
        return flows

    def _go_together(self, number: int, flows: Sequence[Flows], carried: Parcels) -> None:
        op = self._ops[number]
        op.pieces, op.together = len(flows), carried
        self._ledger.sends(op.node, self._backend.now_ps)

    def _open(self, queue_pairs: Sequence[QueuePair], communicator: int) -> _Opened:
        """Return queue pairs in use; the same tuple of them is looked at once, unless paths may change."""
        if len(self._opened) >= MOST_KNOWN:
            self._opened.clear()
        key = id(queue_pairs), communicator
        found = self._opened.get(key)
        if found is None or self._fabric.servers_forward:
            carriers = self._carriers.open(
                [replace(each, communicator=communicator) for each in queue_pairs]
                if communicator
                else queue_pairs
            )
            is_light = np.array(self._carriers.are_light(carriers), dtype=bool)
            columns = self._ledger.columns([*self._carriers.over(carriers), INSIDE])
            found = _Opened(queue_pairs, np.array(carriers, dtype=np.int64), is_light, columns)
            self._opened[key] = found
        return found


def _by_lane(placed: Placement) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return message, queue pair and bytes of parcels, those of a message on one queue pair as one."""
    count = max(len(placed.queue_pairs), 1)
    code = placed.message * count + placed.qp
    codes, first, of = np.unique(code, return_index=True, return_inverse=True)
    in_order = np.argsort(first)
    sizes = np.bincount(of, placed.bytes, len(codes)).astype(np.int64)
    return codes[in_order] // count, codes[in_order] % count, sizes[in_order]


def moves_of(parts: Sequence[Part]) -> tuple[Messages, Messages]:
    """Return the moves of parts one after the other, and the same with the bytes by which they are placed."""
    moves = parts[0].moves if len(parts) == 1 else one_after_another(*(part.moves for part in parts))
    if not any(len(part.placed_as) for part in parts):
        return moves, moves
    sizes = [part.placed_as if len(part.placed_as) else part.moves.bytes for part in parts]
    return moves, Messages(moves.source, moves.destination, np.concatenate(sizes))


def in_proportion(
    moves: Messages, placed_as: Messages, move: NDArray[np.int64], size: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Divide the bytes of each move as those that were placed of it are; in the end exactly all.

    Parameters
    ----------
    moves, placed_as
        The moves, with all their bytes and with those by which they were placed.
    move, size
        Of each parcel that was placed.

    Examples
    --------
    >>> whole, first = (Messages(np.array([0]), np.array([2]), np.array([size])) for size in (10, 4))
    >>> in_proportion(whole, first, np.array([0, 0, 0]), np.array([1, 2, 1])).tolist()
    [2, 5, 3]
    """
    total, part = moves.bytes.tolist(), placed_as.bytes.tolist()  # whole numbers whose products may be large
    so_far, before = defaultdict[int, int](int), defaultdict[int, int](int)
    sizes = []
    for number, parcel in zip(move.tolist(), size.tolist(), strict=True):
        so_far[number] += parcel
        end = total[number] * so_far[number] // part[number]
        sizes.append(end - before[number])
        before[number] = end
    return np.array(sizes, dtype=np.int64)
