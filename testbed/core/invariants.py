"""Invariants: what holds of the state of a run whenever no reaction is under way.

Each function below yields a sentence for each thing that is broken. They read, and change nothing. Bytes
are conserved to the byte in what the core keeps of an operation of one move::

    its size = on legs, delivered or not + in the dark + first hops of relays + brought to its lane inside

and what a backend says that a lane has yet to deliver is no more than the leg on it has. So are pieces: an
operation has one for each part on a leg, for what chooses, for each chain of hops that has not ended, and
for each arrival that is still to be dealt with.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from testbed.core.backend import Arrived, Left
from testbed.core.state import State
from topologies.fabric import Link
from traffic.clock import NEVER
from traffic.effects import LinkState, link_states
from traffic.faults import Fault
from traffic.job import Compute
from traffic.ops import INSIDE

MOST_NAMED = 5
"""So many broken things are named at once."""


def check(state: State, *, grain_bytes: int = 1) -> None:
    """Raise AssertionError if something of a state is broken, and name it.

    Parameters
    ----------
    state
        Of a run, between two events.
    grain_bytes
        What a byte of the backend's scale stands for: what it reports is rounded to that.
    """
    if found := list(islice(_broken(state, grain_bytes), MOST_NAMED)):
        raise AssertionError("the state of the run is broken: " + "; ".join(found))


def _broken(state: State, grain_bytes: int) -> Iterator[str]:
    yield from _ops(state)
    yield from _under_way(state, grain_bytes)
    yield from _lanes(state)
    yield from _changes(state)
    yield from _draining(state)
    yield from _ocses(state)
    yield from _nodes(state)
    yield from _computing(state)
    yield from _failures(state)


# Operations


def _ops(state: State) -> Iterator[str]:
    ops = state.ops
    waits = _waits(state)
    coming = Counter(event.op for event in state.queue if isinstance(event, Arrived) and event.lane is None)
    for number in range(len(ops)):
        if number in ops.lost:
            what = _if_lost(state, number)
        elif ops.end_ps[number] < NEVER:
            what = _if_ended(state, number)
        elif ops.start_ps[number] == NEVER:
            what = _if_waiting(state, number)
        else:
            what = _if_started(state, number, coming[number])
        if number not in ops.lost and ops.waits[number] != waits[number]:
            yield f"{ops[number]!r} waits for {ops.waits[number]}, and {waits[number]} have not ended"
        yield from (f"{ops[number]!r} {each}" for each in what)


def _waits(state: State) -> Counter[int]:
    """Return for how many operations each waits that have not ended."""
    then, end_ps = state.ops.then, state.ops.end_ps
    return Counter(
        after for before, all_then in then.items() if end_ps[before] == NEVER for after in all_then
    )


def _if_lost(state: State, number: int) -> Iterator[str]:
    if number in state.ops.choosing:
        yield "is lost, and chooses"


def _if_waiting(state: State, number: int) -> Iterator[str]:
    ops = state.ops
    if not ops.waits[number]:
        yield "waits for nothing, and has not started"
    if ops.pieces[number] or ops.leg[number] >= 0 or number in ops.dark or number in ops.choosing:
        yield "has not started, and is somewhere"


def _if_ended(state: State, number: int) -> Iterator[str]:
    ops = state.ops
    if ops.pieces[number] or number in ops.dark or number in ops.choosing or number in ops.then_on:
        yield "has ended, and is somewhere"
    if _open_hops(state, number):
        yield "has ended before what brings it further"
    if ops.source[number] >= 0 and (put := _put(state, number)) != ops.bytes[number]:
        yield f"has ended, and {put} bytes of it were carried"


def _if_started(state: State, number: int, coming: int) -> Iterator[str]:
    ops, pieces, dark = state.ops, state.ops.pieces[number], state.ops.dark.get(number, 0)
    if pieces < 0 or not (pieces or dark):
        yield f"has started, and is nowhere: it has {pieces} pieces"
    if ops.source[number] < 0:
        return  # its moves go together
    chooses = number in ops.choosing
    put = _put(state, number) + dark
    if put > ops.bytes[number] or (put < ops.bytes[number] and not chooses):
        yield f"has {put} bytes somewhere"
    parts = sum(ops.legs.parts[leg] for leg in ops.legs_of(number))
    chains = sum(hop not in ops.then for hop in _open_hops(state, number))
    known = parts + chains + (chooses or coming)
    is_reported_later = ops.chose_ps[number] < NEVER and not chooses and pieces == known + 1
    if pieces != known and not is_reported_later:
        yield f"has {pieces} pieces: {parts} on legs, {chains} by hops, {coming} arrive, chooses: {chooses}"
    if chooses and not state.lanes.open.keys() >= set(ops.choosing[number].lanes):
        yield "chooses among lanes that are closed"


def _open_hops(state: State, number: int) -> list[int]:
    """Return the operations that bring one further and have not ended."""
    ops = state.ops
    return [hop for hop in ops.hops.get(number, ()) if ops.end_ps[hop] == NEVER and hop not in ops.lost]


def _put(state: State, number: int) -> int:
    """Return the bytes of an operation that are on legs, or that others bring further."""
    ops = state.ops
    return ops.carried(number) + sum(
        ops.bytes[hop]
        for hop in ops.hops.get(number, ())
        if (hop in ops.then_on if ops.medium[hop] == INSIDE else not ops.hop[hop])
    )


def _under_way(state: State, grain_bytes: int) -> Iterator[str]:
    """Legs have on lanes what the backend says that these have yet to deliver."""
    ops, lanes = state.ops, state.lanes
    for each in state.backend.under_way(list(lanes.open)):
        if each.op not in ops.choosing:
            yield from (f"{ops[each.op]!r} {what}" for what in _on_lane(state, each, grain_bytes))
    choosing = list(ops.choosing)
    for each in state.backend.under_way(ops=choosing) if choosing else ():
        if each.lane < 0 and each.left + ops.carried(each.op) > ops.bytes[each.op] + grain_bytes:
            yield f"{ops[each.op]!r} lacks {each.left} bytes, and has carried {ops.carried(each.op)}"


def _on_lane(state: State, each: Left, grain_bytes: int) -> Iterator[str]:
    ops = state.ops
    leg = ops.on(each.op, state.lanes.over[each.lane])
    if each.op in ops.lost:
        yield f"is lost, and on lane {each.lane}"
    elif each.left and leg < 0:
        yield f"is on lane {each.lane}, on which it has no leg"
    elif each.left and each.left > ops.legs.bytes[leg] + grain_bytes:
        yield f"has {each.left} bytes on lane {each.lane}, of {ops.legs.bytes[leg]} that were put there"


# Lanes and light


def _lanes(state: State) -> Iterator[str]:
    lanes, changes = state.lanes, state.ocses.changes
    light = {number for number, lane in lanes.open.items() if lane.is_light}
    if light != lanes.light.keys():
        yield f"lanes over circuits are {sorted(light)}, and known are {sorted(lanes.light)}"
    for number, lane in lanes.open.items():
        if lane.number != number or lane not in lanes.sent_by(lane.pair.source):
            yield f"lane {number} is not known by its number, or at its NIC"
        if not lane.is_sprayed and number not in lanes.over:
            yield f"lane {number} has no path"
        for each in lane.held_by:
            if each not in changes or number not in changes[each].lanes:
                yield f"lane {number} stands for change {each}, which does not hold it"
    for change in changes.values():
        for number, lane in change.lanes.items():
            if lanes.open.get(number) is not lane or change.number not in lane.held_by:
                yield f"change {change.number} holds lane {number}, which does not stand for it"


def _changes(state: State) -> Iterator[str]:
    """An OCS makes one change after the other."""
    ocses, first = state.ocses, dict[str, int]()
    for number, change in ocses.changes.items():
        if change.has_begun != (ocses.begun.get(number) is change):
            yield f"change {number} drains or moves, or is known to: not both"
        if change.lanes and not change.has_begun:
            yield f"change {number} has not begun, and lanes stand for it"
        if (change.drains and change.moving) or not change.moving <= change.circuits.keys():
            yield f"change {number} drains and moves, or moves OCSes of others"
        for ocs in change.circuits:
            if first.setdefault(ocs, number) != number and change.has_begun:
                yield f"OCS {ocs} makes change {number} before change {first[ocs]}"
    if over := ocses.begun.keys() - ocses.changes.keys():
        yield f"changes {sorted(over)} are over, and known to have begun"
    if late := [change.number for change in ocses.may_begin(first)]:
        yield f"changes {late} may begin, and have not"


def _draining(state: State) -> Iterator[str]:
    """Nothing goes on over circuits that are to end, or over a route that is to be another one."""
    for number, change in state.ocses.begun.items():
        led = state.ocses.led_elsewhere(change, state.lanes.light.values()) if change.drains else ()
        if go_on := [lane.number for lane in led if not lane.held_by]:
            yield f"change {number} drains, and lanes {go_on} do not stand, which it leads elsewhere"


def _ocses(state: State) -> Iterator[str]:
    ocses, busy = state.ocses, state.ocses.busy
    if wrong := [ocs for ocs in ocses.shown if ocses.is_busy(ocs) != (ocs in busy)]:
        yield f"OCSes {wrong} have something to change, or are known to: not both"
    if both := sorted(ocses.showing & busy):
        yield f"OCSes {both} show programs, and are to be reconfigured"
    if more := sorted(ocses.provisioned - ocses.beside.keys()):
        yield f"OCSes {more} have provisioned what was not ordered"
    if ocses.failed != state.failures.ports:
        yield f"routes avoid {sorted(ocses.failed)}, and {sorted(state.failures.ports)} have failed"


# Nodes


def _nodes(state: State) -> Iterator[str]:
    ops, graph, awaited = state.ops, state.graph, state.nodes.awaited
    for name, row in state.nodes.items():
        if isinstance(graph.nodes.get(name), Compute):
            continue
        left = sum(ops.end_ps[number] == NEVER and number not in ops.lost for number in row.ops)
        if row.pieces != left:
            yield f"{name!r} has {row.pieces} pieces, and {left} operations that have not ended"
        if row.pieces and (row.unfinished or name in awaited):
            yield f"{name!r} waits for OCSes or has sent all, and has pieces"
    for name, names in awaited.items():
        if not any(map(state.ocses.is_busy, names)):
            yield f"{name!r} waits for OCSes that are not busy"
    over = sum(
        row.ready_ps < NEVER and not (row.pieces or row.unfinished or name in awaited)
        for name, row in state.nodes.items()
    )
    if graph.open != len(graph.nodes) - over:
        yield f"{graph.open} of {len(graph.nodes)} nodes have not ended, and {over} have nothing left to do"


def _computing(state: State) -> Iterator[str]:
    """A node of tasks has a piece for each GPU that computes it, or will."""
    gpus, left = state.gpus, Counter(state.gpus.computing.values())
    for gpu, queued in gpus.queued.items():
        left.update(node.name for node in queued)
        if queued and gpu not in gpus.computing and gpu not in state.failures.stopped:
            yield f"GPU {gpu} is idle, and is to compute {queued[0].name!r}"
    for name, row in state.nodes.items():
        if isinstance(state.graph.nodes.get(name), Compute) and row.pieces != left[name]:
            yield f"{name!r} has {row.pieces} pieces, and {left[name]} GPUs compute it, or will"


# Faults


def _failures(state: State) -> Iterator[str]:
    failures, fabric = state.failures, state.fabric
    for name, found in (("stand", failures.standing), ("are known", failures.known)):
        if strange := [fault.name for fault in found if fault not in failures.begun]:
            yield f"faults {strange} {name}, and never began"
    if not failures.gone <= failures.stopped:
        yield f"GPUs {sorted(failures.gone - failures.stopped)} are known to be gone, and are not"
    if state.ops.elsewhere and not failures.known:
        yield f"{len(state.ops.elsewhere)} operations had to go elsewhere, and no failure is known"
    states = _link_states(state, failures.standing)
    for link, now in failures.links.items():
        if now != states.get(link, LinkState()):
            yield f"the link at {link.a} is {now} for the backend, and by what stands {states.get(link)}"
    down = {link.a for link, now in _link_states(state, failures.known).items() if not now.up}
    if failures.ports != fabric.both_ends(down):
        yield f"ports {sorted(failures.ports)} are known to have failed, and by what is known {sorted(down)}"


def _link_states(state: State, faults: Iterable[Fault]) -> dict[Link, LinkState]:
    effects = (effect for fault in faults for effect in fault.effects)
    return link_states(effects, state.fabric.link_at.__getitem__)
