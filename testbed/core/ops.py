"""Operations: a row for each, in columns, and their legs; an `Op` is a view of one row.

Bytes of an operation that are started together on a lane are one piece of it. A piece is under way until the
last of its bytes has arrived or was taken back. A leg has the bytes of an operation that one lane and path,
or NVLink, carried: bytes that are taken back and sent elsewhere go from one leg to another. Moves that go
together have no legs: their lanes are known at once (`Loads`).
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
"""Bytes of operations that are to be placed: the number of each operation, and how many."""
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
    """The stage of an operation; it is in one at a time."""

    WAITING = "waiting"
    """It waits for other operations, or its bytes are on nothing."""
    DARK = "dark"
    """Its bytes wait for light."""
    UNDER_WAY = "under way"
    """Its bytes are on lanes or NVLink, or other operations bring them further."""
    CHOOSING = "choosing"
    """Its bytes choose lanes as they go, or take those that are lit."""
    DONE = "done"
    LOST = "lost"
    """Given up, as a GPU of it is gone or its collective is given up."""


class Choosing(NamedTuple):
    """The choice that an operation makes as its bytes go."""

    lanes: tuple[int, ...]
    """Those among which it chooses."""
    policy: ReactivePolicy | None
    """The policy that chooses; None where it takes whichever lanes are lit."""
    message: int
    """Its number among the policy's messages."""


class OpTable:
    """All operations of a run, by number."""

    node: "array[int]"
    """The number of the collective of each."""
    source: "array[int]"
    destination: "array[int]"
    """The GPUs of its one move; -1 if it has several."""
    bytes: "array[int]"
    """All its bytes."""
    waits: "array[int]"
    """For how many others it waits."""
    pieces: "array[int]"
    """How many pieces of it are under way, or brought further by other operations."""
    start_ps: "array[int]"
    end_ps: "array[int]"
    row: "array[int]"
    """Its row among its pattern's messages; -1 if it is none of them."""
    channel: "array[int]"
    """The connection of its collective that it shares with others; -1 if it shares none."""
    medium: "array[int]"
    part_of: "array[int]"
    """The operation whose bytes it brings further; -1 if it has bytes of its own."""
    hop: "array[int]"
    """The number of the hop by which it does."""
    chose_ps: "array[int]"
    """Since when it has chosen lanes as its bytes go."""
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
        """The lanes that carry them, if not all go over NVLink."""
        self.hops: dict[int, list[int]] = defaultdict(list)
        """The operations that bring the bytes of each further, where some do."""
        self.then_on: dict[int, QueuePair] = {}
        """The queue pair on which the bytes go on that an operation brings over NVLink."""
        self.dark: dict[int, int] = {}
        """The bytes of each operation that wait for light, in the order in which they began to."""
        self.choosing: dict[int, Choosing] = {}
        """Those whose bytes choose lanes as they go, or take those that are lit."""
        self.lost = set[int]()
        """Those that are given up."""
        self.elsewhere = set[int]()
        """Those whose bytes had to go elsewhere, while any port is known to have failed."""

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
        """Have an operation wait for one before it."""
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
        """Return the stage of an operation."""
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
        """Drop the sparse entries of operations that have ended."""
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
        """Return all bytes that wait for light, and have none wait any more."""
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
        """Return the bytes of all legs of an operation, delivered or on their way."""
        return sum(self.legs.bytes[leg] for leg in self.legs_of(number))

    def on(self, number: int, over: int) -> int:
        """Return the leg of an operation with pieces under way on a lane and path; -1 if there is none."""
        legs, leg = self.legs, self.leg[number]
        while leg >= 0 and not (legs.over[leg] == over and legs.parts[leg]):
            leg = legs.before[leg]
        return leg

    def put(self, number: int, over: int, size: int, at_ps: int, parts: int = 1) -> None:
        """Count bytes that were started together on a lane as one piece, or as several."""
        if (leg := self.on(number, over)) >= 0:
            self.legs.bytes[leg] += size
            self.legs.parts[leg] += parts
        else:
            self.leg[number] = self.legs.add(over, size, at_ps, parts, self.leg[number])

    def landed(self, number: int, over: int, at_ps: int) -> None:
        """Note when a piece on a lane has arrived."""
        if (leg := self.on(number, over)) >= 0:
            self.legs.parts[leg] -= 1
            self.legs.last_ps[leg] = at_ps

    def returned(self, number: int, over: int, size: int, at_ps: int, *, whole: bool) -> int:
        """Take off a lane bytes that it did not deliver; return how many its leg had.

        ``whole`` says that the piece ends with it: nothing of it is still delivered.
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
        """Move the bytes that a lane has yet to deliver to a leg of the path that it has now."""
        if (leg := self.on(number, before)) < 0:
            return
        legs = self.legs
        size = min(size, legs.bytes[leg])  # at emulated scale bytes are rounded
        legs.bytes[leg] -= size
        legs.last_ps[leg] = at_ps
        parts, legs.parts[leg] = legs.parts[leg], 0
        self.put(number, now, size, at_ps, parts)

    def ended_legs(self, number: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the legs of an operation that delivered bytes: lane and path, bytes, first and last [ps].

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
    """The number of the lane and path of each (`testbed.core.record.Overs`)."""
    bytes: "array[int]"
    first_ps: "array[int]"
    last_ps: "array[int]"
    """`NEVER`: as the operation's."""
    parts: "array[int]"
    """How many pieces on it have neither arrived nor been taken back."""
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
        """Its stage."""
        return self.table.stage(self.number)

    def __repr__(self) -> str:
        """Return it as a line: its number, GPUs, bytes and stage."""
        ends = f"{self.source}>{self.destination}" if self.source >= 0 else "together"
        return f"op {self.number} of node {self.node}: {ends}, {self.bytes} bytes, {self.stage.value}"
