"""Procedures of placing: which lanes carry the bytes of operations, the last decision before they move.

Operations that may go are lowered once more by their scheme, which sees what is lit and what has failed: some
go hop by hop, some wait for light. The others go where their connection went before, or where the scheme
places them.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from testbed.core.backend import NVLINK, Chosen, Flows
from testbed.core.lanes import (
    carrying_light,
    choose,
    counts_as_arrived,
    in_the_dark,
    is_cut,
    is_dark,
    open_lanes,
    overs,
    without_light,
)
from testbed.core.ops import OVER_NVLINK, Parcels
from testbed.core.state import State
from testbed.core.steps import Asks, Start, Steps
from testbed.core.together import NOWHERE, in_step, moves_of, over_lanes
from testbed.core.views import view_of
from topologies.errors import ScenarioError
from topologies.events import View
from topologies.fabric import Nic
from traffic import ops as media
from traffic.collectives.pattern import Pattern
from traffic.followed import Hop
from traffic.messages import Messages, crosses_network
from traffic.ops import DARK, LANES, Ops, Part
from traffic.placing import lowered_by, placed_by
from traffic.scheme import Placement, Scheme, WhileLit, of_communicator
from traffic.spraying.policy import QueuePair

# Operations that start


def lowered(state: State, pattern: Pattern, communicator: int) -> tuple[Ops, Placement | None]:
    """Return the operations of a collective that starts, and the placement of those that are in step.

    Operations in step are so only if all are, none waits for another, and the scheme places them; else the
    pattern has them step by step.
    """
    view = view_of(state, communicator)
    if state.setup.in_step:
        ops = _lowered(state, pattern.lower(view, coupled=True), view)
        steps = [part.together and part.medium == media.ANY for part in ops.parts]
        if not any(steps):
            return ops, None
        is_one = all(steps) and not len(ops.after)
        if placed := _placed_in_step(state, ops, view) if is_one else None:
            return ops, placed
    return _lowered(state, pattern.lower(view), view), None


def _lowered(state: State, ops: Ops, view: View) -> Ops:
    return lowered_by(state.setup.lowers, ops, view) if state.setup.lowers else ops


def _placed_in_step(state: State, ops: Ops, view: View) -> Placement | None:
    """Return the placement of the first moves of operations that are in step; None if they cannot be.

    They can unless the scheme has them choose as they go, or a relay stores what it forwards.
    """
    moves, first = moves_of(ops.parts)
    leaving = first.select(crosses_network(moves, state.fabric))
    if not len(leaving):
        return NOWHERE
    under_way = Ops((Part(leaving, of=np.arange(len(leaving))),))
    if _lowered(state, under_way, view) is not under_way:
        return None
    placed = placed_by(state.setup.scheme, view, leaving)
    return placed if isinstance(placed, Placement) else None


def release(state: State, numbers: Iterable[int], placed: Placement | None = None) -> Steps:
    """Start operations that wait for no others any more; ``placed`` is the placement of those in step."""
    ops, servers, now_ps = state.ops, state.fabric.gpu_servers, state.now_ps
    inside, leaving, steps = Parcels(), Parcels(), list[int]()
    started = list(numbers)
    for number in started:
        ops.start_ps[number] = now_ps
    for number in started:
        if part := ops.moves.get(number):
            if ops.medium[number] == media.INSIDE:
                yield from _together_inside(state, number, part)
            elif ops.medium[number] == LANES:
                yield from _over_lanes(state, number, part.moves)
            else:
                steps.append(number)
        elif servers[ops.source[number]] == servers[ops.destination[number]]:
            inside.append((number, ops.bytes[number]))
        else:
            leaving.append((number, ops.bytes[number]))
    if inside:
        yield from _stay_inside(state, inside)
    if steps and placed:
        yield _start(state, (yield from in_step(state, steps, placed)))
    if leaving:
        yield from place(state, leaving)


def _start(state: State, flows: Sequence[Flows | Chosen]) -> Start:
    """Return the order that flows move; the first of a collective that leave a server may follow a pause."""
    if all(isinstance(each, Flows) and each.inside for each in flows):
        return Start(flows, first=False)
    rows = {state.ops.node[int(each.op[0])]: state.node_of(int(each.op[0])) for each in flows}
    first = any(row.nothing_left for row in rows.values())
    for row in rows.values():
        row.nothing_left = False
    return Start(flows, first)


def _over_lanes(state: State, number: int, moves: Messages) -> Steps:
    view = view_of(state, state.node_of(number).communicator)
    placed = placed_by(state.setup.over_lanes, view, moves)
    assert isinstance(placed, Placement)  # as lanes do
    yield _start(state, (yield from over_lanes(state, number, placed)))


def _together_inside(state: State, number: int, part: Part) -> Steps:
    """Send moves that go together over NVLink, from where their bytes are."""
    ops, moves = state.ops, part.moves
    if state.whereabouts and (there := state.whereabouts.moves(number)) is not None:
        ops.moves[number], moves = replace(part, moves=there), there
        ops.bytes[number] = int(moves.bytes.sum())
    state.put(number, OVER_NVLINK, ops.bytes[number], ops.start_ps[number])
    if len(moves):
        yield Start([_over_nvlink(np.full(len(moves), number), moves, together=True)], first=False)
    else:
        counts_as_arrived(state, number, NVLINK)


def _stay_inside(state: State, parcels: Parcels) -> Steps:
    """Send operations of one move over NVLink."""
    for number, size in parcels:
        state.put(number, OVER_NVLINK, size, state.ops.start_ps[number])
    yield Start([_over_nvlink(*_messages_of(state, parcels))], first=False)


# Bytes of operations


def place(state: State, parcels: Parcels) -> Steps:
    """Put bytes of operations that leave their server on lanes."""
    ops, setup = state.ops, state.setup
    kept = [(number, size, pair) for number, size in parcels if (pair := _kept_for(state, number))]
    if kept:
        yield from _post_on(state, kept)
        parcels = [parcel for parcel in parcels if not _kept_for(state, parcel[0])]
    mine = {medium: Parcels() for medium in (media.ANY, LANES)}
    for number, size in parcels:
        by_lanes = setup.has_lanes and ops.medium[number] == LANES
        mine[LANES if by_lanes else media.ANY].append((number, size))
    for scheme, medium in ((setup.scheme, media.ANY), (setup.over_lanes, LANES)):
        own = mine[medium]
        if setup.lowers and own:
            own = yield from _lower(state, own, medium)
        if own:
            yield from _place_by(state, scheme, own)


def _place_by(state: State, scheme: Scheme, parcels: Parcels) -> Steps:
    numbers, messages = _messages_of(state, parcels)
    of = np.array([state.node_of(number).communicator for number in numbers.tolist()])
    for communicator in dict.fromkeys(of.tolist()):
        mine = of == communicator
        yield from _cross(state, scheme, communicator, messages.select(mine), numbers[mine])


def _messages_of(state: State, parcels: Parcels) -> tuple[NDArray[np.int64], Messages]:
    """Return the numbers of operations, and the messages that are to be sent of each."""
    numbers, sizes = np.array(parcels, dtype=np.int64).reshape(-1, 2).T
    source = [state.ops.source[number] for number, _ in parcels]
    destination = [state.ops.destination[number] for number, _ in parcels]
    return numbers, Messages(np.array(source), np.array(destination), sizes)


def _lower(state: State, parcels: Parcels, medium: int) -> Asks[Parcels]:
    """Return the parcels that go all the way now; others go hop by hop, or wait for light."""
    numbers, messages = _messages_of(state, parcels)
    under_way = Ops((Part(messages, medium=medium, of=numbers),))
    ops = _lowered(state, under_way, view_of(state))
    if ops is under_way:
        return parcels
    directly = Parcels()
    for part in ops.parts:
        mine = list(zip(part.of.tolist(), part.moves.bytes.tolist(), strict=True))
        if part.hop < 0 and part.medium == DARK:
            state.ops.wait_for_light(mine)
        elif part.hop < 0:
            directly += mine
    yield from _split(state, ops)
    return directly


def _split(state: State, ops: Ops) -> Steps:
    """Have hops among some operations bring their bytes further, each an operation of its own."""
    table, brought, number, place = state.ops, list[int](), dict[int, int](), 0
    for part in ops.parts:
        if part.hop >= 0:
            moves = part.moves
            rows = np.stack([part.of, moves.source, moves.destination, moves.bytes], axis=1)
            for index, (of, source, destination, size) in enumerate(rows.tolist(), start=place):
                number[index] = table.bring(of, source, destination, size, part.medium, part.hop)
                brought.append(number[index])
                table.pieces[of] += part.hop == 0
        place += len(part)
    for before, then in ops.after.tolist():
        table.wait(number[before], number[then])
    yield from release(state, [each for each in brought if not table.waits[each]])


def _cross(
    state: State, scheme: Scheme, communicator: int, messages: Messages, numbers: NDArray[np.int64]
) -> Steps:
    """Have a scheme place operations of a communicator that leave their server."""
    placed = of_communicator(placed_by(scheme, view_of(state, communicator), messages), communicator)
    if isinstance(placed, Placement):
        yield from _post(state, (yield from _there(state, placed, numbers)), numbers)
        return
    if isinstance(placed, WhileLit):
        if state.fabric.servers_forward:
            raise ScenarioError(
                "messages that take whichever circuit is lit go as datagrams, which servers do not forward",
                "take a scheme that places them on queue pairs, such as Routed",
            )
        lit = yield from _by_light(state, placed, communicator, messages, numbers)
        if not lit.any():
            return
        placed, messages, numbers = placed.select(lit), messages.select(lit), numbers[lit]
    yield _start(state, [(yield from choose(state, placed, messages.bytes, numbers))])


def _by_light(
    state: State, placed: WhileLit, communicator: int, messages: Messages, numbers: NDArray[np.int64]
) -> Asks[NDArray[np.bool_]]:
    """Return True of each message that circuits may carry now; have the scheme's rest carry the others."""
    lit = np.ones(len(messages), dtype=bool)
    if placed.rest:
        state.has_rest = True
        lit = np.array([bool(each) and not state.light_is_over for each in placed.lanes])
        if not lit.all():
            yield from _cross(state, placed.rest, communicator, messages.select(~lit), numbers[~lit])
    return lit


def _post(state: State, placed: Placement, numbers: NDArray[np.int64]) -> Steps:
    """Put parcels of operations on queue pairs; ``numbers`` has those of the placement's messages."""
    lanes = yield from open_lanes(state, placed.queue_pairs)
    _keep(state, placed, numbers)
    if not len(placed.bytes):
        return  # all of it crosses NVLink first
    of, over, now_ps = numbers[placed.message], overs(state, lanes), state.now_ps
    leg, of_leg = np.unique(of * len(over) + placed.qp, return_inverse=True)
    sizes = np.bincount(of_leg, placed.bytes).astype(np.int64)
    for code, size in zip(leg.tolist(), sizes.tolist(), strict=True):
        number, qp = divmod(code, len(over))
        state.put(number, over[qp], size, now_ps)
    yield _start(state, [_on_lanes(of, placed.bytes, np.array(lanes)[placed.qp])])


# Connections that are kept


def _kept_for(state: State, number: int) -> QueuePair | None:
    channel = state.ops.channel[number]
    return state.node_of(number).kept.get(channel) if channel >= 0 else None


def _post_on(state: State, parcels: Sequence[tuple[int, int, QueuePair]]) -> Steps:
    """Put bytes of operations on given queue pairs, such as those of their connections."""
    lanes = yield from open_lanes(state, [pair for *_, pair in parcels])
    for (number, size, _), over in zip(parcels, overs(state, lanes), strict=True):
        state.put(number, over, size, state.now_ps)
    numbers, sizes = (np.array([parcel[column] for parcel in parcels]) for column in (0, 1))
    yield _start(state, [_on_lanes(numbers, sizes, np.array(lanes))])


def _keep(state: State, placed: Placement, numbers: NDArray[np.int64]) -> None:
    """Remember the queue pairs of connections that are kept: of operations that go whole on one."""
    if not state.setup.keeps_connections:
        return
    carrying = defaultdict[int, set[int]](set)
    for qp, number in zip(placed.qp.tolist(), numbers[placed.message].tolist(), strict=True):
        carrying[number].add(qp)
    for number, qps in carrying.items():
        if state.ops.channel[number] >= 0 and len(qps) == 1:
            state.node_of(number).kept[state.ops.channel[number]] = placed.queue_pairs[qps.pop()]


# Where bytes are


def _there(state: State, placed: Placement, numbers: NDArray[np.int64]) -> Asks[Placement]:
    """Return the parcels that are where their lanes begin; have the others cross NVLink first."""
    if state.whereabouts is None:
        return placed
    own = numbers.tolist()
    there, hops = state.whereabouts.put(placed, own, list(map(state.ops.root, own)))
    yield from _through_server(state, hops)
    return there


def _through_server(state: State, hops: Iterable[Hop]) -> Steps:
    """Send bytes over NVLink, from the GPU that has them to a new lane's, or from there."""
    brought = list[int]()
    for number, source, destination, size, then in hops:
        brought.append(state.ops.bring(number, source, destination, size))
        state.ops.pieces[number] += 1
        if then:
            state.ops.then_on[brought[-1]] = then
    yield from release(state, brought)


def goes_on(state: State, number: int) -> Steps:
    """Put the bytes that an operation brought over NVLink on their lane, or place them anew if it is cut."""
    if not (pair := state.ops.then_on.pop(number, None)):
        return
    whole, size = state.ops.part_of[number], state.ops.bytes[number]
    (lane,) = yield from open_lanes(state, [pair])
    if is_dark(state, state.lanes[lane]) or is_cut(state, state.lanes[lane], state.failures.ports):
        state.returned(pair, [(whole, size)])
        yield from place(state, [(whole, size)])
        return
    yield from _post_on(state, [(whole, size, pair)])


# When circuits have changed


def led_away(state: State) -> Asks[Parcels]:
    """Close lanes without a route if other ones can carry their messages; return the bytes that were left.

    If the scheme does not spread messages, a lane is closed only after two changes without a route: the
    second may bring it back. Closing at each of three changes took 1.35 times the prediction, and waiting
    1.15.
    """
    dark, lanes = in_the_dark(state), state.lanes
    long = {number: ops for number, ops in dark.items() if state.setup.spreads or lanes[number].was_dark}
    for lane in lanes.light.values():
        lane.was_dark = lane.number in dark
    found = _lanes_now(state, {op for ops in long.values() for op in ops})
    can_go = {op for op, mine in found.items() if mine}
    return (yield from without_light(state, [number for number, ops in long.items() if ops & can_go]))


def lacking_lanes(state: State) -> list[int]:
    """Return the operations that would be placed on more lanes now than those that they use."""
    if not state.setup.spreads:
        return []
    using = {
        op: {_ends(state.lanes[lane].pair) for lane in lanes} for op, lanes in carrying_light(state).items()
    }
    found = _lanes_now(state, using)
    return [op for op, lanes in found.items() if not using[op].issuperset(map(_ends, lanes))]


def _lanes_now(state: State, numbers: Iterable[int]) -> dict[int, Sequence[QueuePair]]:
    wanted = [(number, 1) for number in numbers]
    if state.setup.over_light is None or not wanted:
        return {}
    placed, messages = _messages_of(state, wanted)
    lanes = state.setup.over_light.lanes_now(view_of(state), messages)
    return dict(zip(placed.tolist(), lanes, strict=True))


def _ends(lane: QueuePair) -> tuple[Nic, Nic]:
    return lane.source, lane.destination


def _over_nvlink(op: NDArray[np.int64], moves: Messages, *, together: bool = False) -> Flows:
    lane = np.full(len(op), NVLINK)
    return Flows(op, moves.bytes, lane, moves.source, moves.destination, together, inside=True)


def _on_lanes(op: NDArray[np.int64], size: NDArray[np.int64], lane: NDArray[np.int64]) -> Flows:
    """Return bytes of operations on lanes between servers."""
    return Flows(op, size, lane, op, op)
