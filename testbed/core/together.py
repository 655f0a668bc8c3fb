"""Together: the flows of operations that are one, over several lanes and NVLink at once."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from testbed.core.backend import NVLINK, Flows
from testbed.core.lane_table import MOST_KNOWN, OpenedLanes
from testbed.core.lanes import open_lanes, overs
from testbed.core.ops import OVER_NVLINK
from testbed.core.run_tables import Integers
from testbed.core.state import State
from testbed.core.steps import Asks
from testbed.core.written import Loads, packed
from traffic.messages import Messages, crosses_network
from traffic.messages import together as one_after_another
from traffic.ops import Part
from traffic.scheme import Placement
from traffic.spraying.policy import QueuePair

NOWHERE = Placement((), *(np.zeros(0, dtype=np.int64) for _ in range(3)))
"""Where nothing is placed."""


def in_step(state: State, numbers: Sequence[int], placed: Placement) -> Asks[list[Flows]]:
    """Return the flows of operations of one collective, each of which is one over NVLink and lanes.

    All steps are alike but for some bytes, so each lane carries the same part of each.

    Parameters
    ----------
    state
        Of the run.
    numbers
        Of the operations.
    placed
        Where the first step of what leaves its server goes.
    """
    parts = [part for number in numbers if (part := state.ops.moves.get(number))]
    moves, first = moves_of(parts)
    (leaving,) = np.nonzero(crosses_network(moves, state.fabric))
    (inside,) = np.nonzero(~crosses_network(moves, state.fabric))
    opened = yield from _open(state, placed.queue_pairs, state.node_of(numbers[0]).communicator)
    crosses, qp, size = _by_lane(placed)
    sizes = in_proportion(moves, first, leaving[crosses], size)
    move = np.append(leaving[crosses], inside)
    which = np.append(qp, np.full(len(inside), len(opened.lanes)))
    sizes = np.append(sizes, moves.bytes[inside])
    order = np.argsort(move, kind="stable")
    order = order[sizes[order] > 0]
    move, which, sizes = move[order], which[order], sizes[order]
    lane = np.append(opened.lanes, NVLINK)[which]
    edges = np.cumsum([0, *(len(part.moves) for part in parts)])
    flows = list[Flows]()
    for number, begin, end in zip(numbers, edges, edges[1:], strict=False):
        mine = slice(*np.searchsorted(move, (begin, end)))
        ends = moves.source[move[mine]], moves.destination[move[mine]]
        stays = bool((lane[mine] == NVLINK).all())
        flows.append(Flows(np.full(len(ends[0]), number), sizes[mine], lane[mine], *ends, True, stays))
        loads = _loads(state, move[mine] - begin, sizes[mine], which[mine], opened)
        _go_together(state, number, 1, loads)
    return flows


def over_lanes(state: State, number: int, placed: Placement) -> Asks[list[Flows]]:
    """Return the flows of an operation that goes together over the lanes of its servers.

    Lanes over circuits share nothing with those over packets: each are one flow, which ends when its
    busiest link does. Senders whose lanes share packet NICs, or circuits that servers forward between, do
    so by what they have left, so that those on the busiest link end together; what else they cross has
    room for them.
    """
    opened = yield from _open(state, placed.queue_pairs, state.node_of(number).communicator)
    flows = [
        Flows(np.full(len(lane), number), size, lane, lane, lane, together=True)
        for lane, size in opened.apart(placed.qp, placed.bytes)
    ]
    loads = _loads(state, placed.message, placed.bytes, placed.qp, opened)
    _go_together(state, number, len(flows), loads)
    return flows


def _loads(state: State, move: Integers, size: Integers, which: Integers, opened: OpenedLanes) -> Loads:
    """Return the loads of lanes by moves that go together; ``which`` lane carries each parcel."""
    shared = state.packing.shared
    return Loads(shared(move), packed(size), shared(which), opened.columns)


def _go_together(state: State, number: int, pieces: int, loads: Loads) -> None:
    state.ops.pieces[number], state.ops.loads[number] = pieces, loads
    state.node_of(number).sends(state.now_ps)


def _open(state: State, queue_pairs: Sequence[QueuePair], communicator: int) -> Asks[OpenedLanes]:
    """Return queue pairs in use; the same tuple of them is looked at once, unless paths may change."""
    if len(state.lanes.sets) >= MOST_KNOWN:
        state.lanes.sets.clear()
    key = id(queue_pairs), communicator
    found = state.lanes.sets.get(key)
    if found is None or state.fabric.servers_forward:
        own = (
            [replace(each, communicator=communicator) for each in queue_pairs]
            if communicator
            else queue_pairs
        )
        numbers = yield from open_lanes(state, own)
        is_light = np.array([state.lanes[number].is_light for number in numbers], dtype=bool)
        columns = state.record.overs.columns([*overs(state, numbers), OVER_NVLINK])
        found = OpenedLanes(queue_pairs, np.array(numbers, dtype=np.int64), is_light, columns)
        state.lanes.sets[key] = found
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
