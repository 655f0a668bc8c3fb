"""The ledger: what becomes of operations, nodes, light and faults while a job runs, and the tables of it.

An operation of one move has a leg for each lane and path that carried some of it, and for each time that it
did: what is taken back and sent elsewhere leaves its leg with what that delivered. A lane is a queue pair;
which path it has is asked when bytes go on it, and may change. Moves that go together are written down at
once.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from testbed.core.run_tables import Integers, Leg, Rows, event_table
from testbed.core.written import Kept, Packing, Parcels, Ran, Written, packed
from topologies.fabric import Fabric, Link, Path, Port
from topologies.light import Circuit
from traffic.clock import NEVER
from traffic.ops import ANY, OWN, Ops, Part
from traffic.ops import INSIDE as INSIDE_SERVER
from traffic.spraying.policy import QueuePair
from traffic.tables import (
    DARK,
    FAULTS,
    LIGHT,
    LIGHT_CHANGES,
    LINKS,
    LIT,
    NVLINK,
    ORDERS,
    PACKETS,
    SPANS,
    Tables,
)

INSIDE = 0
"""What legs over NVLink go over, as lanes with their paths are numbered."""


Columns = tuple[Integers, Integers, Integers]
"""Medium, lane and path of each of some things that legs go over."""


class Over(NamedTuple):
    """What a leg goes over."""

    medium: int
    lane: int
    path: int


@dataclass(slots=True, eq=False)
class Carried:
    """What one lane and path, or NVLink, carries of an operation: a leg."""

    over: int
    """Its number in the ledger."""
    bytes: int
    first_ps: int
    last_ps: int = NEVER
    """`NEVER`: as the operation's."""
    parts: int = 1
    """How many parts that were put on it together have neither arrived nor been taken back."""


@dataclass(slots=True)
class Op:
    """An operation, and what it waits for."""

    node: str
    source: int
    destination: int
    """The GPUs of its one move; -1 if it has several."""
    size: int
    """All its bytes."""
    waits: int = 0
    then: list[int] = field(default_factory=list)
    pieces: int = 0
    """How many parts of it are on lanes or NVLink, or brought further by others."""
    start_ps: int = NEVER
    end_ps: int = NEVER
    legs: list[Carried] = field(default_factory=list)
    moves: Part | None = None
    """Its moves, if they go together."""
    together: Parcels | None = None
    """What carries them, if not all go over NVLink."""
    row: int = -1
    """Which of its pattern's messages it is, if it is one."""
    channel: int = -1
    """The connection of its collective by which it goes, if several go by it."""
    medium: int = ANY
    part_of: int = -1
    """The operation that it brings a hop further, if that is relayed."""
    hop: int = 0
    """Which hop that is."""
    chose_ps: int = NEVER
    """Since when it chooses lanes as it goes."""

    @property
    def is_over(self) -> bool:
        """Whether all of it has arrived."""
        return self.end_ps < NEVER

    @property
    def carried(self) -> int:
        """What its legs carry, or have [bytes]."""
        return sum(leg.bytes for leg in self.legs)

    def ended_ps(self, leg: Carried) -> int:
        """Return when a leg of it ended, by its own end at the latest.

        What arrived while a path changed, or while bytes were taken back, was noted then and reported later,
        with the time at which it was seen, which is before.
        """
        return min(leg.last_ps, self.end_ps)

    def on(self, over: int) -> Carried | None:
        """Return the leg on which bytes of it are under way over something."""
        for leg in reversed(self.legs):
            if leg.over == over and leg.parts:
                return leg
        return None

    def put(self, over: int, size: int, at_ps: int, parts: int = 1) -> None:
        """Count bytes that were put on a lane together."""
        if leg := self.on(over):
            leg.bytes += size
            leg.parts += parts
        else:
            self.legs.append(Carried(over, size, at_ps, parts=parts))

    def landed(self, over: int, at_ps: int) -> None:
        """Note when what was put together on a lane has arrived."""
        if leg := self.on(over):
            leg.parts -= 1
            leg.last_ps = at_ps

    def returned(self, over: int, size: int, at_ps: int, *, whole: bool) -> int:
        """Take bytes off a lane that it did not deliver; return how many it had.

        ``whole`` says that nothing of what was put on it together stays.
        """
        leg = self.on(over)
        if leg is None:
            return 0
        lacks = min(size, leg.bytes)  # at emulated scale bytes are rounded
        if lacks:
            leg.bytes -= lacks
            leg.parts -= whole
            leg.last_ps = at_ps
        return lacks

    def moved(self, before: int, now: int, size: int, at_ps: int) -> None:
        """Count what a lane has yet to deliver on the path that it has now."""
        leg = self.on(before)
        if leg is None:
            return
        size = min(size, leg.bytes)  # at emulated scale bytes are rounded
        leg.bytes -= size
        leg.last_ps = at_ps
        parts, leg.parts = leg.parts, 0
        self.put(now, size, at_ps, parts)


FILED = Op("", -1, -1, 0, end_ps=0)
"""Stands for operations of which only the rows are known."""


class _Numbers(dict[str, int]):
    """Names by number, in the order in which they are first asked for."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]


class Ledger:
    """What is known of a run so far.

    Parameters
    ----------
    fabric
        What runs where.
    nodes
        The names of the job's nodes.
    """

    def __init__(self, fabric: Fabric, nodes: Iterable[str]) -> None:
        self._fabric = fabric
        self.ops: list[Op] = []
        """All operations, by number."""
        self.hops: dict[int, list[int]] = defaultdict(list)
        """The operations that bring each relayed one further."""
        self._sets: dict[int, Ops] = {}
        """What is written down at once, by the first operation of it."""
        self._nodes = _Numbers((name, number) for number, name in enumerate(nodes))
        self._lanes: dict[QueuePair, int] = {}
        self._paths: dict[Path, int] = {}
        self._over = [Over(NVLINK, -1, -1)]
        self._overs = {self._over[INSIDE]: INSIDE}
        """The number of each of these."""
        self._filed: dict[int, Ran] = {}
        """What is kept of collectives that went together and have ended, by the first operation of each."""
        self._packing = Packing()
        self._slots_of: dict[int, list[tuple[int, int, int]]] = {}
        """The slots that light each lane, and from when to when each does."""
        self._spans = Rows(SPANS)
        self._ready_ps: dict[str, int] = {}
        self._held_ps: dict[str, int] = {}
        self._released_ps: dict[str, int] = {}
        self._first_ps: dict[str, int] = {}
        self._events: list[tuple[int, str, str]] = []
        self._faults: list[tuple[str, int, str]] = []
        self._light: list[tuple[int, int, int, tuple[Circuit, ...]]] = []
        self._orders: list[tuple[int, int, tuple[Circuit, ...]]] = []
        self._ocses = _Numbers()
        self._slots: dict[str, list[tuple[int, Sequence[Circuit] | None]]] = defaultdict(list)
        """What the slots of each OCS' programs carry from when on; None between two."""
        self._links: list[tuple[int, int, float, bool, bool]] = []
        self._ports: dict[Port, int] = {}

    # Operations

    def add(self, node: str, ops: Ops) -> range:
        """Return the numbers of operations, which are a collective's."""
        first = len(self.ops)
        for part in ops.parts:
            moves = part.moves
            if part.together:
                self.ops.append(Op(node, -1, -1, int(moves.bytes.sum()), moves=part, medium=part.medium))
                continue
            rows = zip(moves.source.tolist(), moves.destination.tolist(), moves.bytes.tolist(), strict=True)
            begin, channel = len(self.ops) - first, part.channel.tolist() or [-1] * len(moves)
            own = range(begin, begin + len(moves)) if part.stage == OWN else [-1] * len(moves)
            self.ops += [
                Op(node, *ends, row=row, channel=by, medium=part.medium)
                for ends, row, by in zip(rows, own, channel, strict=True)
            ]
        numbers = range(first, len(self.ops))
        if ops.brought or any(part.together for part in ops.parts):
            self._sets[first] = ops
        self.wait(first, ops)
        return numbers

    def wait(self, first: int, ops: Ops) -> None:
        """Have operations, which are numbered from a first one on, wait for each other."""
        for before, then in (ops.after + first).tolist():
            self.ops[before].then.append(then)
            self.ops[then].waits += 1

    def bring(
        self,
        number: int,
        source: int,
        destination: int,
        size: int,
        *,
        medium: int = INSIDE_SERVER,
        hop: int = 0,
    ) -> int:
        """Return the number of an operation that brings bytes of another one further."""
        self.hops[number].append(len(self.ops))
        self.ops.append(
            Op(self.ops[number].node, source, destination, size, part_of=number, medium=medium, hop=hop)
        )
        return len(self.ops) - 1

    # Legs

    def over(self, queue_pair: QueuePair, path: Path, *, is_light: bool) -> int:
        """Return the number of a lane with the path that it has now."""
        lane = self._lanes.setdefault(queue_pair, len(self._lanes))
        number = self._paths.setdefault(path, len(self._paths))
        over = Over(LIGHT if is_light else PACKETS, lane, number)
        if over not in self._overs:
            self._overs[over] = len(self._over)
            self._over.append(over)
        return self._overs[over]

    def columns(self, overs: Sequence[int]) -> Columns:
        """Return medium, lane and path of some things that legs go over."""
        medium, lane, path = np.array([self._over[over] for over in overs], dtype=np.int32).reshape(-1, 3).T
        return medium, lane, path

    def together(self, move: Integers, size: Integers, which: Integers, over: Columns) -> Parcels:
        """Return what carries moves that go together; ``over`` is what they go over, by ``which``."""
        shared = self._packing.shared
        return Parcels(shared(move), packed(size), shared(which), over)

    def put(self, number: int, over: int, size: int, at_ps: int) -> None:
        """Count a part of an operation that was put on a lane together."""
        op = self.ops[number]
        self._first_ps.setdefault(op.node, at_ps)
        op.pieces += 1
        if op.legs:
            op.put(over, size, at_ps)
        else:
            op.legs.append(Carried(over, size, at_ps))

    def sends(self, node: str, at_ps: int) -> None:
        """Note that bytes of a node may go from now on, if none could before."""
        self._first_ps.setdefault(node, at_ps)

    def file(self, numbers: range) -> None:
        """Keep of a collective that went together and has ended only what its rows are made of."""
        ops = self._sets.get(numbers.start)
        if ops is None or ops.brought or not all(part.together for part in ops.parts):
            return
        self._filed[numbers.start] = self._ran(ops, numbers)
        self.ops[numbers.start : numbers.stop] = [FILED] * len(numbers)
        del self._sets[numbers.start]

    # Nodes, faults and light

    def ready(self, name: str, at_ps: int) -> None:
        """Note that all that a node waits for has ended."""
        self._ready_ps[name] = at_ps

    def held(self, name: str, at_ps: int) -> None:
        """Note that a collective waits for circuits."""
        self._held_ps[name] = at_ps
        self.note(at_ps, "held", name)

    def released(self, name: str, at_ps: int) -> None:
        """Note that it need not wait any more."""
        self._released_ps[name] = at_ps
        self.note(at_ps, "released", name)

    def computed(self, name: str, gpus: Sequence[int], first_ps: int, end_ps: int) -> None:
        """Note what GPUs computed together."""
        ready_ps = self._ready_ps[name]
        gpu = np.fromiter(gpus, np.int64, len(gpus))
        self._spans.block(len(gpus), self._nodes[name], gpu, ready_ps, NEVER, ready_ps, first_ps, end_ps)

    def ended(self, name: str, at_ps: int) -> None:
        """Note that a collective has ended."""
        ready_ps = self._ready_ps[name]
        released_ps = self._released_ps.get(name, ready_ps)
        first_ps, held_ps = self._first_ps.get(name, released_ps), self._held_ps.get(name, NEVER)
        self._spans.add(self._nodes[name], -1, ready_ps, held_ps, released_ps, first_ps, at_ps)

    def note(self, at_ps: int, what: str, which: str) -> None:
        """Note an event."""
        self._events.append((at_ps, what, which))

    def fault(self, at_ps: int, what: str, name: str) -> None:
        """Note what became of a fault."""
        self._faults.append((name, at_ps, what))
        self.note(at_ps, what, name)

    def light(
        self, at_ps: int, what: str, ocs: str, circuits: Sequence[Circuit], *, in_program: bool = False
    ) -> None:
        """Note the circuits that an OCS carries from now on, under the name of what happened to it."""
        if in_program:
            self._slots[ocs].append((at_ps, circuits if what == "lit" else None))
        dark_or_lit = LIT if what == "lit" else DARK
        self._light.append((self._ocses[ocs], at_ps, dark_or_lit, tuple(circuits)))
        shown = " ".join(f"{a}>{b}" for a, b in circuits)
        self.note(at_ps, what, f"{ocs} {shown or '-'}" if what in ("lit", "switching") else ocs)

    def ordered(self, at_ps: int, ocs: str, circuits: Sequence[Circuit]) -> None:
        """Note the circuits that an OCS is to carry next."""
        self._orders.append((self._ocses[ocs], at_ps, tuple(circuits)))

    def link(self, link: Link, at_ps: int, *, rate_bps: float, up: bool, known: bool) -> None:
        """Note what became of a link, if that is new."""
        number = self._ports.setdefault(link.a, len(self._ports))
        before = next(
            (row for row in reversed(self._links) if row[0] == number), (number, 0, link.rate_bps, True, True)
        )
        if before[2:] != (rate_bps, up, known):
            self._links.append((number, at_ps, rate_bps, up, known))

    # The tables

    def tables(self, given_up: Collection[int], communicators: Mapping[str, int]) -> Tables:
        """Return the tables of the run, once: what is in them is kept no more.

        Parameters
        ----------
        given_up
            The operations that were.
        communicators
            The number of each collective's.
        """
        written = Written([communicators.get(name, 0) for name in self._nodes], self._fabric.server_of_gpu)
        number = 0
        while number < len(self.ops):
            ops = self._sets.get(number)
            if ops:
                self._write_set(written, ops, range(number, number + len(ops)), given_up)
            elif number in self._filed:
                written.add_together(self._filed.pop(number), self._legs)
            elif self.ops[number].part_of < 0 and self.ops[number] is not FILED:
                self._write(written, number)
            number += len(ops) if ops else 1
        return Tables(
            messages=written.messages.table,
            legs=written.legs.table,
            leg_blocks=written.legs.blocks,
            spans=self._spans.table,
            events=event_table(self._events),
            links=pd.DataFrame(self._links, columns=list(LINKS)).astype(LINKS),
            light=pd.DataFrame(self._light, columns=list(LIGHT_CHANGES)).astype(LIGHT_CHANGES),
            orders=pd.DataFrame(self._orders, columns=list(ORDERS)).astype(ORDERS),
            faults=pd.DataFrame(self._faults, columns=list(FAULTS)).astype(FAULTS),
            nodes=tuple(self._nodes),
            paths=tuple(self._paths),
            lanes=tuple(self._lanes),
            ports=tuple(self._ports),
            ocses=tuple(self._ocses),
        )

    def _write_set(self, written: Written, ops: Ops, numbers: range, given_up: Collection[int]) -> None:
        """Write down operations whose moves are not each a message of its own, or go together."""
        ran = self._ran(ops, numbers)

        def legs_of(place: int) -> Iterator[Leg]:
            return self._legs(numbers[place])

        if ops.brought:
            lost = any(number in given_up for number in numbers)
            written.add_brought(ran, ops.brought, legs_of, given_up=lost)
        else:
            written.add_together(ran, legs_of)

    def _ran(self, ops: Ops, numbers: range) -> Ran:
        """Return what a collective's operations were, with the moves that were carried out in the end."""
        sent, parts, place = self.ops[numbers.start : numbers.stop], list[Kept](), 0
        for part in ops.parts:
            parts.append(self._packing.part((sent[place].moves or part) if part.together else part))
            place += len(part)
        times_ps, carried = [(each.start_ps, each.end_ps) for each in sent], [each.together for each in sent]
        name = sent[0].node
        return Ran(self._nodes[name], parts, times_ps, carried, self._released_ps.get(name, 0))

    def _write(self, written: Written, number: int) -> None:
        """Write down an operation that is a message, and has legs of its own."""
        op, servers = self.ops[number], self._fabric.gpu_servers
        node, lost = self._nodes[op.node], op.end_ps == NEVER
        ends = op.source, op.destination
        crosses = servers[op.source] != servers[op.destination]
        row = written.messages.add(
            node,
            op.row,
            written.communicators[node],
            *ends,
            op.size,
            op.start_ps,
            op.end_ps,
            lost,
            crosses,
            -1,
        )
        if number in self.hops:
            written.add_legs(node, row, self._legs(number))
            return
        for leg in op.legs:  # as legs are written, in half the time
            last_ps = op.ended_ps(leg)
            if leg.bytes > 0 and last_ps < NEVER:
                over, size = self._over[leg.over], leg.bytes
                slot = self._slot(over.lane, leg.first_ps, last_ps) if self._slots else -1
                written.legs.add(node, row, 0, 0, *over, *ends, size, leg.first_ps, last_ps, slot, -1)

    def _legs(self, number: int, hop: int = 0) -> Iterator[Leg]:
        """Yield the legs of an operation that brought bytes, those of its hops among them."""
        op = self.ops[number]
        for leg in op.legs:
            last_ps = op.ended_ps(leg)
            if leg.bytes > 0 and last_ps < NEVER:
                over, ends = self._over[leg.over], (op.source, op.destination)
                slot = self._slot(over.lane, leg.first_ps, last_ps) if self._slots else -1
                yield Leg(hop, *over, *ends, leg.bytes, leg.first_ps, last_ps, slot)
        for part in self.hops.get(number, ()):
            yield from self._legs(part, hop + self.ops[part].hop)

    def _slot(self, lane: int, first_ps: int, last_ps: int) -> int:
        """Return the slot of a lane's OCS in which it was lit meanwhile; -1 if in none or several."""
        if lane < 0:
            return -1
        if lane not in self._slots_of:
            self._slots_of[lane] = list(self._slots_over(list(self._lanes)[lane]))
        lit = [
            slot
            for slot, since_ps, until_ps in self._slots_of[lane]
            if since_ps < last_ps and until_ps > first_ps
        ]
        return lit[0] if len(lit) == 1 else -1

    def _slots_over(self, queue_pair: QueuePair) -> Iterator[tuple[int, int, int]]:
        """Yield the slots that light a queue pair's circuit, and from when to when each does."""
        ends = queue_pair.source, queue_pair.destination
        near, far = (self._fabric.peer(self._fabric.nic_port(nic)) for nic in ends)
        shown, slots = [*self._slots.get(near.node, ()), (NEVER, None)], count()
        for (since_ps, circuits), (until_ps, _) in pairwise(shown):
            if circuits is not None:
                slot = next(slots)
                if (near.number, far.number) in circuits:
                    yield slot, since_ps, until_ps
