"""Views of the state for decisions: the view of schemes and rules, the bytes that are owed, and progress."""

from collections.abc import Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from testbed.core.lanes import backlog_bytes, over_light, undelivered_bytes
from testbed.core.state import State
from topologies.events import View
from traffic.clock import NEVER, in_seconds
from traffic.job import Collective
from traffic.messages import Messages
from traffic.ops import INSIDE, PACKETS


def view_of(state: State, communicator: int = 0) -> View:
    """Return the view of a scheme or rule: all that is known, for operations of a communicator."""
    ocses, failures = state.ocses, state.failures
    return View(
        in_seconds(state.now_ps),
        state.fabric,
        ocses.lit,
        failures.ports,
        communicator,
        partial(backlog_bytes, state, communicator),
        bool(ocses.changes),
        ocses.ordered,
        tuple(state.nodes.awaited),
        failures.rates,
        frozenset(failures.gone),
        state.setup.routing,
        partial(owed_bytes, state),
        known=ocses.lit_routes,
    )


def owed_bytes(state: State) -> NDArray[np.int64]:
    """Return the bytes that servers owe each other and may send now, shape (servers, servers).

    Operations that wait for others are left out: a rule that lit circuits for them would keep light from the
    others. So are those that packets carry. Operations that go together count whole until they have arrived.
    """
    owed = np.zeros((len(state.fabric.servers),) * 2, dtype=np.int64)
    moved, rows, lacks = _not_sent_yet(state), list[tuple[int, int, int]](), over_light(state)
    ops = state.ops
    own = (number for row in state.nodes.rows for number in row.ops)
    for number in _with_hops(state, own):
        if ops.medium[number] in (INSIDE, PACKETS) or ops.end_ps[number] < NEVER or ops.waits[number]:
            continue
        if part := ops.moves.get(number):
            moved.append(part.moves)
        else:
            rows.append((ops.source[number], ops.destination[number], _left(state, number, lacks)))
    moved.append(Messages(*np.array(rows, dtype=np.int64).reshape(-1, 3).T))
    for each in moved:
        ends = state.fabric.server_of_gpu[each.source], state.fabric.server_of_gpu[each.destination]
        np.add.at(owed, ends, each.bytes)
    np.fill_diagonal(owed, 0)
    return owed


def _left(state: State, number: int, lacks: dict[int, int]) -> int:
    """Return the bytes that an operation of one move owes; ``lacks`` has those that are on light now."""
    ops, under_way = state.ops, lacks.get(number, 0)
    if number in ops.choosing:
        return under_way
    first = (hop for hop in ops.hops.get(number, ()) if ops.medium[hop] != INSIDE and not ops.hop[hop])
    by_hops = sum(ops.bytes[hop] for hop in first)
    return ops.bytes[number] - ops.carried(number) - by_hops + under_way


def _not_sent_yet(state: State) -> list[Messages]:
    """Return the first moves of collectives that have begun and have no operations yet."""
    begun = [row for row in state.nodes.rows if row.since_ps < NEVER and not row.has_sent]
    nodes = [state.graph.nodes[row.name] for row in begun]
    return [node.pattern.lower().first for node in nodes if isinstance(node, Collective)]


def _with_hops(state: State, numbers: Iterable[int]) -> Iterable[int]:
    """Yield operations that are not lost, and after each those that bring it further."""
    for number in numbers:
        if number not in state.ops.lost:
            yield number
            yield from _with_hops(state, state.ops.hops.get(number, ()))


def progress(state: State) -> object:
    """Return how far the job is; None while more than decisions and light may bring it on."""
    ops, servers = state.ops, state.fabric.gpu_servers
    started = [number for number in state.under_way if ops.start_ps[number] < NEVER]
    by_itself = any(
        number in ops.moves or servers[ops.source[number]] == servers[ops.destination[number]]
        for number in started
    )
    if by_itself or state.queue.goes_on_by_itself(state.now_ps):
        return None
    return state.graph.open, len(ops), len(started), undelivered_bytes(state)
