"""Operations: a row for each, in columns, and their legs; an `Op` is a view of one row.

A leg is what one lane and path, or NVLink, carried of an operation, once for each time that it did: what is
taken back and sent elsewhere leaves its leg with what that delivered. Moves that go together have no legs:
what carries them is known at once (`Loads`).
"""

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.core.written import Loads
from traffic.clock import NEVER
from traffic.ops import ANY, OWN, Ops, Part
from traffic.ops import INSIDE as INSIDE_SERVER
from traffic.spraying.policy import QueuePair, ReactivePolicy

Parcels = list[tuple[int, int]]
"""Bytes of operations: the number of each, and how many."""
OVER_NVLINK = 0
"""The number of NVLink among what legs go over (`testbed.core.record.Overs`)."""
COLUMNS: Mapping[str, int] = {
    "node": -1,
    "source": -1,
    "destination": -1,
    "bytes": 0,
    "waits": 0,
    "pieces": 0,
    "start_ps": NEVER,
    "end_ps": NEVER,
    "row": -1,
    "channel": -1,
    "medium": ANY,
    "part_of": -1,
    "hop": 0,
    "chose_ps": NEVER,
    "leg": -1,
}
"""The columns of operations, and what a row has where nothing else is said."""
LEG_COLUMNS = ("over", "bytes", "first_ps", "last_ps", "parts", "before")


class Stage(Enum):
    """Where an operation stands; it is in one stage at a time."""

    WAITING = "waiting"
    """For other operations, or its bytes for what carries them."""
    DARK = "dark"
    """Until its scheme sees light for it."""
    UNDER_WAY = "under way"
    """On lanes or NVLink, or brought further by others."""
    CHOOSING = "choosing"
    """Its bytes choose lanes as they go, or take those that are lit."""
    DONE = "done"
    LOST = "lost"
    """Given up, as a GPU of it is gone or its collective is given up."""


class Choosing(NamedTuple):
    """How an operation chooses."""

    lanes: tuple[int, ...]
    """Among which lanes."""
    policy: ReactivePolicy | None
    """The policy that chooses; None where it takes whichever lanes are lit."""
    message: int
    """What the policy calls it."""


class OpTable:
    """All operations of a run, by number."""

    node: "array[int]"
    """The number of the collective that each is of."""
    source: "array[int]"
    destination: "array[int]"
    """The GPUs of its one move; -1 if it has several."""
    bytes: "array[int]"
    """All its bytes."""
    waits: "array[int]"
    """For how many others it waits."""
    pieces: "array[int]"
    """How many parts of it are on lanes or NVLink, or brought further by others."""
    start_ps: "array[int]"
    end_ps: "array[int]"
    row: "array[int]"
    """Which of its pattern's messages it is, if it is one."""
    channel: "array[int]"
    """The connection of its collective by which it goes, if several go by it."""
    medium: "array[int]"
    part_of: "array[int]"
    """The operation that it brings a hop further, if that is relayed."""
    hop: "array[int]"
    """Which hop that is."""
    chose_ps: "array[int]"
    """Since when it chooses lanes as it goes."""
    leg: "array[int]"
    """Its last leg."""

    def __init__(self) -> None:
        for name in COLUMNS:
            setattr(self, name, array("q"))
        self.legs = LegTable()
        self.then: dict[int, list[int]] = {}
        """The operations that wait for each, where some do."""
        self.moves: dict[int, Part] = {}
        """The moves of each operation whose moves go together."""
        self.loads: dict[int, Loads] = {}
        """What carries them, if not all go over NVLink."""
        self.hops: dict[int, list[int]] = defaultdict(list)
        """The operations that bring each relayed one further."""
        self.then_on: dict[int, QueuePair] = {}
        """The queue pair on which goes what an operation brings over NVLink."""
        self.dark: dict[int, int] = {}
        """The bytes of each operation that wait for light, in the order in which they began to."""
        self.choosing: dict[int, Choosing] = {}
        """Those that choose as they go."""
        self.lost = set[int]()
        """Those that are given up."""
        self.elsewhere = set[int]()
        """Those that had to go elsewhere, while anything is known to have failed."""

    def __len__(self) -> int:
        """How many."""
        return len(self.node)

    def __getitem__(self, number: int) -> "Op":
        """Return the view of one."""
        return Op(self, number)

    # Rows

    def _add(self, rows: int, **values: int | NDArray[np.int64]) -> range:
        first = len(self)
        for name, default in COLUMNS.items():
            value, column = values.get(name, default), getattr(self, name)
            if isinstance(value, int):
                column.extend(repeat(value, rows))
            else:
                column.frombytes(value.astype(np.int64, copy=False).tobytes())
        return range(first, first + rows)

    def add(self, node: int, ops: Ops) -> range:
        """Add the operations of a collective; return their numbers."""
        first = len(self)
        for part in ops.parts:
            moves = part.moves
            if part.together:
                (number,) = self._add(1, node=node, bytes=int(moves.bytes.sum()), medium=part.medium)
                self.moves[number] = part
                continue
            begin = len(self) - first
            self._add(
                len(moves),
                node=node,
                source=moves.source,
                destination=moves.destination,
                bytes=moves.bytes,
                row=np.arange(begin, begin + len(moves)) if part.stage == OWN else -1,
                channel=part.channel if len(part.channel) else -1,
                medium=part.medium,
            )
        for before, then in (ops.after + first).tolist():
            self.wait(before, then)
        return range(first, len(self))

    def wait(self, before: int, then: int) -> None:
        """Have an operation wait for another."""
        self.then.setdefault(before, []).append(then)
        self.waits[then] += 1

    def bring(
        self, number: int, source: int, destination: int, size: int, medium: int = INSIDE_SERVER, hop: int = 0
    ) -> int:
        """Add an operation that brings bytes of another one further; return its number."""
        (brings,) = self._add(
            1,
            node=self.node[number],
            source=source,
            destination=destination,
            bytes=size,
            part_of=number,
            medium=medium,
            hop=hop,
        )
        self.hops[number].append(brings)
        return brings

    def root(self, number: int) -> int:
        """Return the number of an operation, or of the one that it brings further."""
        while (part_of := self.part_of[number]) >= 0:
            number = part_of
        return number

    def stage(self, number: int) -> Stage:
        """Return where an operation stands."""
        if number in self.lost:
            return Stage.LOST
        if self.end_ps[number] < NEVER:
            return Stage.DONE
        if number in self.choosing:
            return Stage.CHOOSING
        if self.pieces[number]:
            return Stage.UNDER_WAY
        return Stage.DARK if number in self.dark else Stage.WAITING

    def forget(self, numbers: range) -> None:
        """Forget of operations that have ended what takes memory."""
        for number in numbers:
            for sparse in (self.then, self.moves, self.loads):
                sparse.pop(number, None)

    @property
    def taking_light(self) -> list[int]:
        """Those that take whichever lanes are lit, in order."""
        return sorted(number for number, chosen in self.choosing.items() if chosen.policy is None)

    def wait_for_light(self, parcels: Parcels) -> None:
        """Have bytes wait until more is lit."""
        for number, size in parcels:
            self.dark[number] = self.dark.get(number, 0) + size

    def lighten(self) -> Parcels:
        """Return all that waits for light, which waits no more."""
        waiting, self.dark = list(self.dark.items()), {}
        return waiting

    # Legs

    def legs_of(self, number: int) -> list[int]:
        """Return the legs of an operation, in order."""
        found, leg = list[int](), self.leg[number]
        while leg >= 0:
            found.append(leg)
            leg = self.legs.before[leg]
        return found[::-1]

    def carried(self, number: int) -> int:
        """Return what the legs of an operation carry, or have [bytes]."""
        return sum(self.legs.bytes[leg] for leg in self.legs_of(number))

    def on(self, number: int, over: int) -> int:
        """Return the leg on which bytes of an operation are under way over something; -1 if none are."""
        legs, leg = self.legs, self.leg[number]
        while leg >= 0 and not (legs.over[leg] == over and legs.parts[leg]):
            leg = legs.before[leg]
        return leg

    def put(self, number: int, over: int, size: int, at_ps: int, parts: int = 1) -> None:
        """Count bytes that were put on a lane together."""
        if (leg := self.on(number, over)) >= 0:
            self.legs.bytes[leg] += size
            self.legs.parts[leg] += parts
        else:
            self.leg[number] = self.legs.add(over, size, at_ps, parts, self.leg[number])

    def landed(self, number: int, over: int, at_ps: int) -> None:
        """Note when what was put together on a lane has arrived."""
        if (leg := self.on(number, over)) >= 0:
            self.legs.parts[leg] -= 1
            self.legs.last_ps[leg] = at_ps

    def returned(self, number: int, over: int, size: int, at_ps: int, *, whole: bool) -> int:
        """Take bytes off a lane that it did not deliver; return how many it had.

        ``whole`` says that nothing of what was put on it together stays.
        """
        if (leg := self.on(number, over)) < 0:
            return 0
        legs = self.legs
        lacks = min(size, legs.bytes[leg])  # at emulated scale bytes are rounded
        if lacks:
            legs.bytes[leg] -= lacks
            legs.parts[leg] -= whole
            legs.last_ps[leg] = at_ps
        return lacks

    def moved(self, number: int, before: int, now: int, size: int, at_ps: int) -> None:
        """Count what a lane has yet to deliver on the path that it has now."""
        if (leg := self.on(number, before)) < 0:
            return
        legs = self.legs
        size = min(size, legs.bytes[leg])  # at emulated scale bytes are rounded
        legs.bytes[leg] -= size
        legs.last_ps[leg] = at_ps
        parts, legs.parts[leg] = legs.parts[leg], 0
        self.put(number, now, size, at_ps, parts)

    def ended_legs(self, number: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the legs of an operation that delivered something: over, bytes, first and last [ps].

        A leg ends by its operation's end at the latest: what arrived while a path changed, or while bytes
        were taken back, was noted then and reported later, with the time at which it was seen, before that.
        """
        legs, end_ps = self.legs, self.end_ps[number]
        for leg in self.legs_of(number):
            last_ps = min(legs.last_ps[leg], end_ps)
            if legs.bytes[leg] > 0 and last_ps < NEVER:
                yield legs.over[leg], legs.bytes[leg], legs.first_ps[leg], last_ps


class LegTable:
    """All legs of a run, in the order in which they began."""

    over: "array[int]"
    """What each goes over (`testbed.core.record.Overs`)."""
    bytes: "array[int]"
    first_ps: "array[int]"
    last_ps: "array[int]"
    """`NEVER`: as the operation's."""
    parts: "array[int]"
    """How many parts that were put on it together have neither arrived nor been taken back."""
    before: "array[int]"
    """The leg before it of its operation; -1 of the first."""

    def __init__(self) -> None:
        for name in LEG_COLUMNS:
            setattr(self, name, array("q"))

    def add(self, over: int, size: int, first_ps: int, parts: int, before: int) -> int:
        """Add a leg; return its number."""
        self.over.append(over)
        self.bytes.append(size)
        self.first_ps.append(first_ps)
        self.last_ps.append(NEVER)
        self.parts.append(parts)
        self.before.append(before)
        return len(self.over) - 1


class _Column:
    """A column, as an attribute of one row."""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, op: "Op", _owner: type) -> int:
        column: array[int] = getattr(op.table, self._name)
        return column[op.number]


class Op:
    """A view of one operation."""

    __slots__ = ("number", "table")
    node, source, destination, bytes = _Column(), _Column(), _Column(), _Column()
    waits, pieces, start_ps, end_ps = _Column(), _Column(), _Column(), _Column()
    row, channel, medium, part_of, hop = _Column(), _Column(), _Column(), _Column(), _Column()

    def __init__(self, table: OpTable, number: int) -> None:
        self.table, self.number = table, number

    @property
    def stage(self) -> Stage:
        """Where it stands."""
        return self.table.stage(self.number)

    def __repr__(self) -> str:
        """Return it as a line: its number, GPUs, bytes and stage."""
        ends = f"{self.source}>{self.destination}" if self.source >= 0 else "together"
        return f"op {self.number} of node {self.node}: {ends}, {self.bytes} bytes, {self.stage.value}"
