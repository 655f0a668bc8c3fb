"""The tables of a run, from its state when it has ended."""

from collections.abc import Iterator
from itertools import count, pairwise

import pandas as pd

from testbed.core.record import Record
from testbed.core.run_tables import Leg, event_table
from testbed.core.state import State
from testbed.core.written import Kept, Ran, Written
from topologies.fabric import Fabric
from traffic.clock import NEVER
from traffic.ops import Ops
from traffic.spraying.policy import QueuePair
from traffic.tables import FAULTS, LIGHT_CHANGES, LINKS, ORDERS, Tables


def tables_of(state: State) -> Tables:
    """Return the tables of a run, once: what is in them is kept no more."""
    record = state.record
    written = Written([max(row.communicator, 0) for row in state.nodes.rows], state.fabric.server_of_gpu)
    legs, number = _Legs(state), 0
    while number < len(state.ops):
        if number in state.sets:
            ops = state.sets[number]
            _write_set(state, written, legs, ops, range(number, number + len(ops)))
            number += len(ops)
        elif number in state.filed:
            ran = state.filed.pop(number)
            written.add_together(ran, legs.of)
            number += len(ran.times_ps)
        else:
            if state.ops.part_of[number] < 0:
                _write(state, written, legs, number)
            number += 1
    return Tables(
        messages=written.messages.table,
        legs=written.legs.table,
        leg_blocks=written.legs.blocks,
        spans=record.spans.table,
        events=event_table(record.events),
        links=pd.DataFrame(record.links, columns=list(LINKS)).astype(LINKS),
        light=pd.DataFrame(record.light, columns=list(LIGHT_CHANGES)).astype(LIGHT_CHANGES),
        orders=pd.DataFrame(record.orders, columns=list(ORDERS)).astype(ORDERS),
        faults=pd.DataFrame(record.faults, columns=list(FAULTS)).astype(FAULTS),
        nodes=tuple(state.nodes),
        paths=tuple(record.overs.paths),
        lanes=tuple(record.overs.lanes),
        ports=tuple(record.ports),
        ocses=tuple(record.ocses),
    )


def ran_of(state: State, ops: Ops, numbers: range) -> Ran:
    """Return a collective's operations, with the moves that were carried out in the end."""
    table, parts, place = state.ops, list[Kept](), numbers.start
    for part in ops.parts:
        parts.append(state.packing.part(table.moves.get(place, part) if part.together else part))
        place += len(part)
    times_ps = [(table.start_ps[number], table.end_ps[number]) for number in numbers]
    node = state.node_of(numbers.start)
    released_ps = 0 if node.released_ps == NEVER else node.released_ps
    return Ran(node.number, parts, times_ps, [table.loads.get(number) for number in numbers], released_ps)


def _write_set(state: State, written: Written, legs: "_Legs", ops: Ops, numbers: range) -> None:
    """Write down operations whose moves are not each a message of its own, or go together."""
    ran = ran_of(state, ops, numbers)

    def legs_of(place: int) -> Iterator[Leg]:
        return legs.of(numbers[place])

    if ops.brought:
        lost = not state.ops.lost.isdisjoint(numbers)
        written.add_brought(ran, ops.brought, legs_of, given_up=lost)
    else:
        written.add_together(ran, legs_of)


def _write(state: State, written: Written, legs: "_Legs", number: int) -> None:
    """Write down an operation that is a message, and has legs of its own."""
    op, servers = state.ops[number], state.fabric.gpu_servers
    crosses = servers[op.source] != servers[op.destination]
    row = written.messages.add(
        op.node,
        op.row,
        written.communicators[op.node],
        op.source,
        op.destination,
        op.bytes,
        op.start_ps,
        op.end_ps,
        op.end_ps == NEVER,
        crosses,
        -1,
    )
    written.add_legs(op.node, row, legs.of(number))


class _Legs:
    """The legs of operations, each with the slot of its OCS' program that lit it.

    Parameters
    ----------
    state
        Of a run that has ended.
    """

    def __init__(self, state: State) -> None:
        self._ops, self._fabric, self._record = state.ops, state.fabric, state.record
        self._lanes = list(state.record.overs.lanes)
        self._slots: dict[int, list[tuple[int, int, int]]] = {}
        """The slots that light each lane, and from when to when each does."""

    def of(self, number: int, hop: int = 0) -> Iterator[Leg]:
        """Yield the legs of an operation that brought bytes, those of its hops among them."""
        ops = self._ops
        for over, size, first_ps, last_ps in ops.ended_legs(number):
            medium, lane, path = self._record.overs[over]
            slot = self._slot(lane, first_ps, last_ps) if self._record.slots else -1
            ends = ops.source[number], ops.destination[number]
            yield Leg(hop, medium, lane, path, *ends, size, first_ps, last_ps, slot)
        for part in ops.hops.get(number, ()):
            yield from self.of(part, hop + ops.hop[part])

    def _slot(self, lane: int, first_ps: int, last_ps: int) -> int:
        """Return the slot of a lane's OCS in which it was lit meanwhile; -1 if in none or several."""
        if lane < 0:
            return -1
        if lane not in self._slots:
            self._slots[lane] = list(_slots_over(self._record, self._fabric, self._lanes[lane]))
        lit = [
            slot
            for slot, since_ps, until_ps in self._slots[lane]
            if since_ps < last_ps and until_ps > first_ps
        ]
        return lit[0] if len(lit) == 1 else -1


def _slots_over(record: Record, fabric: Fabric, queue_pair: QueuePair) -> Iterator[tuple[int, int, int]]:
    """Yield the slots that light a queue pair's circuit, and from when to when each does."""
    ends = queue_pair.source, queue_pair.destination
    near, far = (fabric.peer(fabric.nic_port(nic)) for nic in ends)
    shown, slots = [*record.slots.get(near.node, ()), (NEVER, None)], count()
    for (since_ps, circuits), (until_ps, _) in pairwise(shown):
        if circuits is not None:
            slot = next(slots)
            if (near.number, far.number) in circuits:
                yield slot, since_ps, until_ps
