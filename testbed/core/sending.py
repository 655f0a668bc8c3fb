"""Sending: nodes start, collectives are lowered to operations and sent, and those that end let others start.

A node starts when all nodes that it waits for have ended and its own time has come, and ends when no piece of
it is left. A collective that may go is lowered to operations (`traffic.ops`). Those that wait for no others
are released and placed on lanes (`testbed.core.placing`).
"""

from testbed.core.backend import Arrived
from testbed.core.events import (
    BytesLeft,
    JobBegan,
    LanesCut,
    LanesGoOn,
    NodeReady,
    PiecesDone,
    Released,
    RestOrdered,
    RoutesChanged,
    SentAgain,
    TaskBegan,
    TaskReady,
)
from testbed.core.lanes import (
    chosen_ended,
    landed,
    left_over,
    recall,
    rename,
    take_back,
    unsent,
    without_light,
)
from testbed.core.losing import lose
from testbed.core.placing import goes_on, lacking_lanes, led_away, lowered, place, release
from testbed.core.state import State
from testbed.core.steps import Steps
from testbed.core.tables import ran_of
from topologies.errors import ScenarioError
from topologies.events import NodeDone, NodeStarted
from traffic.clock import NEVER
from traffic.job import Collective

# Nodes


def job_began(state: State, _event: JobBegan) -> Steps:
    """Start the nodes that wait for nothing."""
    state.start(state.graph.sources())
    return
    yield


def start(state: State, event: NodeReady) -> Steps:
    """Start a node as it is now: a fault that was known at the same time may have moved its GPUs."""
    node, row, now_ps = state.graph.nodes[event.node], state.nodes[event.node], state.now_ps
    row.pieces, row.ready_ps = 0, now_ps
    if isinstance(node, Collective):
        state.communicator(node)
        state.starting = node.name
        yield from _begin(state, node.name, now_ps)
        state.starting = ""
        if node.name not in state.nodes.awaited:
            yield from _go(state, node.name)
        return
    left = tuple(gpu for gpu in node.gpus if gpu not in state.failures.gone)
    row.pieces = len(left)
    yield TaskReady(node.name, left)
    if not left:
        yield from _begin(state, node.name, now_ps)
        yield from _end(state, node.name)


def task_began(state: State, event: TaskBegan) -> Steps:
    """Have a node begin when the first of its GPUs begins to compute."""
    yield from _begin(state, event.node, state.now_ps)


def released(state: State, event: Released) -> Steps:
    """Send a collective that need not wait for OCSes any more."""
    yield from _go(state, event.node)


def sent_again(state: State, event: SentAgain) -> Steps:
    """Send all of a collective once more, from now on."""
    state.nodes[event.node].since_ps = state.now_ps
    yield from _go(state, event.node)


def pieces_done(state: State, event: PiecesDone) -> Steps:
    """Count pieces of a node that are done; end the node if none is left."""
    row = state.nodes[event.node]
    row.pieces -= event.pieces
    if not row.pieces:
        yield from _end(state, event.node)


def _begin(state: State, name: str, now_ps: int) -> Steps:
    """Have a node begin, if no GPU of it has begun before."""
    row = state.nodes[name]
    if row.since_ps == NEVER:
        row.since_ps = now_ps
        yield NodeStarted(name)


def _go(state: State, name: str) -> Steps:
    """Send a collective that has begun."""
    node = state.graph.nodes[name]
    if isinstance(node, Collective):
        yield from _send(state, node)
    if not state.nodes[name].pieces:
        yield from _end(state, name)


def _end(state: State, name: str) -> Steps:
    """End a node; a collective of GPUs that are gone waits until that is known."""
    node, row = state.graph.nodes[name], state.nodes[name]
    unknown = state.failures.stopped - state.failures.gone
    if unknown and isinstance(node, Collective) and not unknown.isdisjoint(node.gpus):
        row.unfinished = True
        return
    row.unfinished = False
    if isinstance(node, Collective):
        state.record.ended(row, state.now_ps)
        row.kept.clear()
        numbers, row.ops = row.ops, range(0)
        if state.setup.in_step:
            _file(state, numbers)
    yield NodeDone(name)
    state.start(state.graph.done(name))


def _file(state: State, numbers: range) -> None:
    """Keep only the columns of rows of a collective that went together and has ended."""
    ops = state.sets.get(numbers.start)
    if ops and not ops.brought and all(part.together for part in ops.parts):
        state.filed[numbers.start] = ran_of(state, state.sets.pop(numbers.start), numbers)
        state.ops.forget(numbers)


# Operations


def _send(state: State, node: Collective) -> Steps:
    """Lower a collective, and start the operations that wait for none; they are owed since it began."""
    row, ops = state.nodes[node.name], state.ops
    parts, placed = lowered(state, node.pattern, state.communicator(node))
    numbers = row.ops = ops.add(row.number, parts)
    if parts.brought or any(part.together for part in parts.parts):
        state.sets[numbers.start] = parts
    if state.whereabouts:
        state.whereabouts.admit(parts, numbers.start)
    row.has_sent = row.nothing_left = True
    row.pieces = len(numbers) - len(lose(state, numbers))
    ready_now = [number for number in numbers if _is_ready(state, number)]
    yield from release(state, ready_now, placed)
    for number in ready_now:
        ops.start_ps[number] = row.since_ps


def _is_ready(state: State, number: int) -> bool:
    return not state.ops.waits[number] and number not in state.ops.lost


def arrived(state: State, event: Arrived) -> Steps:
    """Record that a piece of an operation has arrived; end the operation if it was the last one."""
    ops, number, at_ps = state.ops, event.op, event.at_ps
    if event.lane is not None:
        landed(state, number, event.lane, at_ps)
    if number in ops.lost:
        return  # over NVLink, which nothing stops
    ops.pieces[number] -= 1
    if ops.pieces[number]:
        return
    ops.end_ps[number] = at_ps
    yield from goes_on(state, number)
    yield from chosen_ended(state, number, at_ps)
    then = ops.then.get(number, ())
    for after in then:
        ops.waits[after] -= 1
    yield from release(state, [after for after in then if _is_ready(state, after)])
    if ops.part_of[number] < 0:
        yield PiecesDone(state.node_of(number).name)
    elif not then:
        yield Arrived(ops.part_of[number], at_ps)


# When light changes


def book_paths(state: State, event: RoutesChanged) -> Steps:
    """Book the bytes that lanes have yet to deliver under the paths that they have now."""
    yield from rename(state, everywhere=event.everywhere)


def cut(state: State, event: LanesCut) -> Steps:
    """Close lanes that did not drain in time; the bytes that they have not delivered wait for light."""
    state.ops.wait_for_light((yield from take_back(state, event.lanes, ())))


def send_rest(state: State, _event: RestOrdered) -> Steps:
    """Place anew, over packets, the bytes that operations over circuits lack."""
    taking_light = state.ops.taking_light
    if state.ocses.showing or (taking_light and not state.has_rest):
        why = "while OCSes show programs" if state.ocses.showing else "under a scheme without a rest"
        raise ScenarioError(
            f"what circuits leave over was ordered over packets {why}",
            "order it when programs have ended, and take OverCircuits with a rest",
        )
    state.light_is_over = True
    yield from place(state, (yield from recall(state, taking_light)))


def goes_on_over_light(state: State, event: LanesGoOn) -> Steps:
    """Place bytes that waited for light, that lanes without a route lack, and that may use more lanes."""
    setup = state.setup
    if setup.has_lanes and setup.faults:
        yield from left_over(state, (yield from without_light(state, event.lanes)))
    if setup.over_light:
        yield from left_over(state, (yield from led_away(state)))
        yield from left_over(state, (yield from unsent(state, lacking_lanes(state))))
    yield from left_over(state, state.ops.lighten())


def placed_again(state: State, event: BytesLeft) -> Steps:
    """Place bytes of operations that are on no lane."""
    yield from place(state, event.parcels)
