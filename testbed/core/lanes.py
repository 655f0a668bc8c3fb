"""Procedures of lanes: they are opened, chosen among, booked under their paths, taken back and closed.

An operation has a leg for each lane and path that carry it, so its bytes are booked anew when the path of a
lane changes. A lane by which packets of any entropy go takes several paths at once: its bytes are booked by
the path of each entropy.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from testbed.core.backend import NVLINK, Arrived, Chosen, Left
from testbed.core.events import BytesLeft, LanesOpened
from testbed.core.lane_table import Lane
from testbed.core.ops import OVER_NVLINK, Choosing, Parcels
from testbed.core.packet_paths import path_now
from testbed.core.state import State
from testbed.core.steps import Asks, Resume, Steps, opened, reported, stopped
from topologies.addresses import ENTROPIES
from topologies.fabric import Nic, Path, Port
from traffic.scheme import Choice, WhileLit
from traffic.spraying.policy import Lanes, QueuePair, between_nics, each_of

# Opened


def open_lanes(state: State, queue_pairs: Sequence[QueuePair]) -> Asks[list[int]]:
    """Return the numbers of queue pairs, which are opened if they are not."""
    numbers = yield from opened(queue_pairs)
    new = list[int]()
    for number, queue_pair in zip(numbers, queue_pairs, strict=True):
        is_new = number not in state.lanes.open
        if is_new:
            state.lanes.add(number, queue_pair)
            new.append(number)
        lane = state.lanes[number]
        if lane.is_sprayed:
            lane.around = state.backend.packet_paths.failed
        elif is_new or lane.is_routed:
            state.lanes.over[number] = over_now(state, lane)
    if state.ocses.changes and (mine := [number for number in new if state.lanes[number].is_light]):
        yield LanesOpened(tuple(mine))
    return numbers


def overs(state: State, numbers: Iterable[int]) -> list[int]:
    """Return the numbers of lanes with their paths."""
    return [state.lanes.over[number] for number in numbers]


def over_now(state: State, lane: Lane) -> int:
    """Return the number of a lane with the path that it has now, or had last if it has no route."""
    number = state.record.overs.number
    if not lane.is_routed:
        path = path_now(state.fabric, state.backend.packet_paths, lane.pair)
        return number(lane.pair, path, is_light=lane.is_light)
    route = state.ocses.route(lane)
    if route is None and lane.number in state.lanes.over:
        return state.lanes.over[lane.number]
    return number(lane.pair, route.ports if route else (), is_light=True)


def landed(state: State, op: int, lane: int | None, at_ps: int) -> None:
    """Note that a piece has arrived on a lane; one that chose lanes, or went together, has none."""
    over = OVER_NVLINK if lane == NVLINK else state.lanes.over.get(-1 if lane is None else lane)
    if over is not None:
        state.ops.landed(op, over, at_ps)


# Operations that choose, or take what is lit


def choose(
    state: State, placed: Choice | WhileLit, size: NDArray[np.int64], numbers: NDArray[np.int64]
) -> Asks[Chosen]:
    """Return flows of operations that choose among lanes as they go, or take those that are lit."""
    sprays = state.backend.packet_paths.sprays and isinstance(placed, Choice)
    lanes = yield from _open_sets(state, placed.lanes, between_nics if sprays else each_of)
    policy, first = (placed.policy, placed.first) if isinstance(placed, Choice) else (None, 0)
    for name, (number, among) in enumerate(zip(numbers.tolist(), lanes, strict=True), start=first):
        state.ops.choosing[number] = Choosing(among, policy, name)
        state.ops.pieces[number] += 1
        state.ops.chose_ps[number] = state.now_ps
        state.node_of(number).sends(state.ops.chose_ps[number])
    return Chosen(numbers, size, lanes, placed)


def _open_sets(
    state: State, lanes: Sequence[Lanes], queue_pairs_of: Callable[[Lanes], list[QueuePair]]
) -> Asks[list[tuple[int, ...]]]:
    """Return the numbers of the queue pairs that each operation may use, opened if they are not."""
    sets = {among: queue_pairs_of(among) for among in dict.fromkeys(lanes)}
    queue_pairs = list(dict.fromkeys(each for mine in sets.values() for each in mine))
    numbers = yield from open_lanes(state, queue_pairs)
    number = dict(zip(queue_pairs, numbers, strict=True))
    found = {among: tuple(number[each] for each in mine) for among, mine in sets.items()}
    return [found[among] for among in lanes]


def chosen_ended(state: State, number: int, at_ps: int) -> Steps:
    """Book the legs of an operation that has arrived, if it chose or took what is lit."""
    if number in state.ops.choosing:
        _forget_choice(state, number)
        _book(state, (yield from stopped(ops=[number])), at_ps)


def recall(state: State, numbers: Collection[int]) -> Asks[Parcels]:
    """Take back the bytes that operations lack which choose, or take what is lit; return these bytes.

    One that has arrived lacks nothing: the backend has reported that, or is about to. One that was taken
    back, and lacks only what was rounded away, counts as arrived.
    """
    if not numbers:
        return []
    back = yield from stopped(ops=sorted(numbers))
    _book(state, back, state.now_ps)
    taken_back, left, ops = {each.op for each in back if each.lane < 0}, Parcels(), state.ops
    for number in sorted(taken_back.union(numbers)):
        _forget_choice(state, number)
        lacks = ops.bytes[number] - ops.carried(number) if number in taken_back else 0
        if lacks:
            ops.pieces[number] -= 1
            left.append((number, lacks))
        elif number in taken_back:
            counts_as_arrived(state, number)
    return left


def counts_as_arrived(state: State, number: int, lane: int | None = None) -> None:
    """Have a piece of an operation count as arrived, by an event of its own."""
    state.later(state.now_ps, Arrived(number, state.now_ps, lane))


def _forget_choice(state: State, number: int) -> None:
    chosen = state.ops.choosing.pop(number)
    if chosen.policy:
        chosen.policy.withdraw(message=chosen.message)


def _book(state: State, reports: Iterable[Left], at_ps: int) -> None:
    """Book the bytes that lanes carried of operations that chose them, as they were reported."""
    for (op, over), size in _carried(state, reports).items():
        state.ops.put(op, over, size, state.ops.chose_ps[op])
        state.ops.landed(op, over, at_ps)


def _carried(state: State, reports: Iterable[Left]) -> Mapping[tuple[int, int], int]:
    """Return the bytes that were carried of each operation, by the number of a lane and path.

    Packets of a lane may go by thousands of entropies, which share few paths.
    """
    carried: dict[tuple[int, int], int] = defaultdict(int)
    sprayed: dict[tuple[int, int, Path], int] = defaultdict(int)
    by_entropy: dict[int, Sequence[Path]] = {}
    for each in reports:
        if not each.carried:
            continue
        if each.entropy is None:
            carried[each.op, state.lanes.over[each.lane]] += each.carried
        else:
            if each.lane not in by_entropy:
                lane = state.lanes[each.lane]
                by_entropy[each.lane] = state.backend.packet_paths.by_entropy(lane.pair, lane.around)
            path = by_entropy[each.lane][each.entropy % ENTROPIES]
            sprayed[each.op, each.lane, path] += each.carried
    for (op, number, path), size in sprayed.items():
        over = state.record.overs.number(state.lanes[number].pair, path, is_light=False)
        carried[op, over] += size
    return carried


# Paths


def rename(state: State, *, everywhere: bool) -> Steps:
    """Book what lanes have yet to deliver under the paths that they have now.

    By default those that light leads: others change only by faults.
    """
    if not (everywhere or state.ocses.leads):
        return
    for lane in list((state.lanes.open if everywhere else state.lanes.light).values()):
        if lane.is_sprayed:
            if everywhere:
                yield from _book_choosing(state, lane.number)
                lane.around = state.backend.packet_paths.failed
            continue
        before, now = state.lanes.over[lane.number], over_now(state, lane)
        if before == now:
            continue
        yield from _book_choosing(state, lane.number)
        state.lanes.over[lane.number] = now
        for each in state.backend.under_way([lane.number]):
            if each.left and each.op not in state.ops.choosing:  # what chooses was booked
                state.ops.moved(each.op, before, now, each.left, state.now_ps)


def _book_choosing(state: State, lane: int) -> Steps:
    """Book the bytes that operations which may choose a lane have sent until now, over its path so far."""
    now_ps = state.now_ps
    for number, chosen in state.ops.choosing.items():
        if chosen.policy and lane in chosen.lanes:
            found = yield from reported([number])
            _book(state, found, now_ps)
            if any(each.carried for each in found):  # else all that it has on its way counts from before
                state.ops.chose_ps[number] = now_ps


# What they give back


def is_cut(state: State, lane: Lane, failed: Collection[Port]) -> bool:
    """Return whether a failed port is at an end of a lane, or on its path."""
    ports = set(map(state.fabric.nic_port, (lane.pair.source, lane.pair.destination)))
    if lane.is_routed:
        ports |= state.ocses.ports(lane)
    ports |= state.backend.packet_paths.crossed(lane.pair)
    return not ports.isdisjoint(failed)


def is_dark(state: State, lane: Lane) -> bool:
    """Return whether a lane goes over circuits and has no route."""
    return lane.is_light and not state.ocses.route(lane)


def take_back(state: State, closing: Collection[int], choosing: Collection[int]) -> Asks[Parcels]:
    """Close lanes; return the bytes that operations lack which are on them, or may choose them.

    Closed are the lanes ``closing``, and those that carry operations that are lost. Operations that choose
    are taken back if they may use a closed lane, are lost, or are among ``choosing``. Those that take what is
    lit keep their lanes, unless they are lost.
    """
    ops, lost = state.ops, state.ops.lost
    lit = {lane for number in ops.taking_light for lane in ops.choosing[number].lanes}
    closed = set(closing) - lit
    left = yield from recall(
        state,
        [
            number
            for number, chosen in ops.choosing.items()
            if number in lost
            or (chosen.policy and (number in choosing or not closed.isdisjoint(chosen.lanes)))
        ],
    )
    if lost:
        carrying = state.backend.under_way(list(state.lanes.open))
        closed |= {each.lane for each in carrying if each.op in lost}
    for lane in [lane for lane in state.lanes.open if lane in closed]:
        left += yield from _withdraw(state, lane)
    return left


def without_light(state: State, lanes: Iterable[int]) -> Asks[Parcels]:
    """Close those of some lanes that have no route; return the bytes that they did not deliver."""
    opened = state.lanes.open
    dark = [lane for lane in sorted(lanes) if lane in opened and not state.ocses.route(opened[lane])]
    left = Parcels()
    for lane in dict.fromkeys(each.lane for each in state.backend.under_way(dark)):
        left += yield from _withdraw(state, lane)
    return left


def unsent(state: State, ops: Collection[int]) -> Asks[Parcels]:
    """Take back the bytes that lanes of some operations have not sent; the lanes deliver the others."""
    left = Parcels()
    carrying = state.backend.under_way(list(state.lanes.open))
    for lane in dict.fromkeys(each.lane for each in carrying if each.op in ops):
        found = _lacking(state, lane, (yield from stopped([lane], in_flight="keep")))
        state.returned(state.lanes[lane].pair, found)
        left += found
    return left


def _withdraw(state: State, number: int) -> Asks[Parcels]:
    """Close a lane; return the bytes that it did not deliver."""
    left = _lacking(state, number, (yield from stopped([number])))
    lane = state.lanes[number]
    state.lanes.close(lane)
    if state.ocses.let_go(lane):
        yield Resume((number,))
    state.returned(lane.pair, left)
    return left


def _lacking(state: State, lane: int, back: Iterable[Left]) -> Parcels:
    """Take the bytes that a lane gives back off their legs; return these bytes.

    What was rounded away at emulated scale counts as arrived.
    """
    left = Parcels()
    for each in back:
        over, whole = state.lanes.over[lane], not each.on_the_way
        if lacks := state.ops.returned(each.op, over, each.left, state.now_ps, whole=whole):
            state.ops.pieces[each.op] -= whole
            left.append((each.op, lacks))
        elif whole:
            state.ops.landed(each.op, over, state.now_ps)
            counts_as_arrived(state, each.op)
    return left


def left_over(state: State, left: Parcels) -> Steps:
    """Have bytes of operations placed, but for operations that are lost."""
    if mine := [(number, size) for number, size in left if number not in state.ops.lost]:
        yield BytesLeft(mine)


# What they carry


def backlog_bytes(state: State, communicator: int, nic: Nic) -> int:
    """Return the bytes that a communicator's lanes from a NIC have yet to deliver."""
    lanes = [each.number for each in state.lanes.sent_by(nic) if each.pair.communicator == communicator]
    return state.backend.owed(lanes)


def lacking(state: State) -> tuple[tuple[int, int, int], ...]:
    """Return source GPU, destination GPU and lacking bytes of operations that take what is lit."""
    ops, rows = state.ops, state.backend.under_way(ops=state.ops.taking_light)
    return tuple((ops.source[op], ops.destination[op], left) for op, left in _lacks(rows) if left)


def over_light(state: State) -> dict[int, int]:
    """Return the bytes that operations lack on lanes over circuits, or that choose among such lanes."""
    ops, light, lacks = state.ops, state.lanes.light, defaultdict[int, int](int)
    for each in state.backend.under_way(list(light)):
        if each.op not in ops.choosing:
            lacks[each.op] += each.left
    choosing = [
        number for number, chosen in ops.choosing.items() if any(map(light.__contains__, chosen.lanes))
    ]
    lacks.update(_lacks(state.backend.under_way(ops=choosing)))
    return lacks


def _lacks(rows: Iterable[Left]) -> list[tuple[int, int]]:
    return [(each.op, each.left) for each in rows if each.lane < 0]


def carrying_light(state: State) -> dict[int, list[int]]:
    """Return the lanes over circuits that carry bytes of each operation that does not choose."""
    carrying = defaultdict[int, list[int]](list)
    for each in state.backend.under_way(list(state.lanes.light)):
        if each.op not in state.ops.choosing:
            carrying[each.op].append(each.lane)
    return carrying


def in_the_dark(state: State) -> dict[int, set[int]]:
    """Return the lanes over circuits that have no route, and the operations whose bytes are on each."""
    dark = [number for number, lane in state.lanes.light.items() if not state.ocses.route(lane)]
    found = defaultdict[int, set[int]](set)
    for each in state.backend.under_way(dark):
        found[each.lane].add(each.op)
    return found


def undelivered_bytes(state: State) -> int:
    """Return the bytes that all lanes have yet to deliver, and that operations lack which choose."""
    found = state.backend.under_way(list(state.lanes.open), list(state.ops.choosing))
    return sum(each.left for each in found)
