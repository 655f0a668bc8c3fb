"""Rows of a run's tables that are written down at once: moves that went together, and what others brought."""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.core.run_tables import Integers, Leg, Of, Rows, Value, counted
from traffic.clock import NEVER
from traffic.ops import OWN, Brought, Part
from traffic.tables import CROSSES, LEGS, MESSAGES, NVLINK

MOST_KNOWN = 4096
"""So many columns are remembered."""


class Loads(NamedTuple):
    """Parcels of moves that go together, on lanes and NVLink; parallel arrays, in the order of the moves."""

    move: Integers
    """The move of each parcel."""
    bytes: Integers
    which: Integers
    """Its index in the columns of `over`."""
    over: tuple[Integers, Integers, Integers]
    """Medium, lane and path of each lane that is in use, and of NVLink."""


class Kept(NamedTuple):
    """A part of operations, in as few bytes as hold it: of many thousands all last."""

    ops: int
    """How many operations it has."""
    together: bool
    stage: int
    sent: tuple[Integers, Integers, Integers]
    """Source, destination and bytes of each move."""
    row: Integers | int
    """Which of the pattern's messages each is; -1 of what stands for several, or has no row."""


class Ran(NamedTuple):
    """Operations of a collective that are written down at once."""

    node: int
    """The collective's number."""
    parts: Sequence[Kept]
    times_ps: Sequence[tuple[int, int]]
    """When each operation began and ended; `NEVER` if it did not."""
    carried: Sequence[Loads | None]
    """The loads of each operation whose moves go together; None if NVLink carried them."""
    released_ps: int
    """When the collective, held for OCSes, was released; its first operations are owed since before."""


class Packing:
    """Columns in as few bytes as hold them; of a column that many operations share there is one."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Integers, Integers]] = {}
        """By the identity of each, which is kept."""

    def shared(self, numbers: Integers) -> Integers:
        """Return a column, not negative, that others may have too."""
        found = self._known.get(id(numbers))
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[id(numbers)] = numbers, packed(numbers)
        return found[1]

    def part(self, part: Part) -> Kept:
        """Return a part in as few bytes as hold it."""
        moves = part.moves
        sent = self.shared(moves.source), self.shared(moves.destination), packed(moves.bytes)
        return Kept(
            len(part), part.together, part.stage, sent, self.shared(part.row) if len(part.row) else -1
        )


def packed(numbers: Integers) -> Integers:
    """Return numbers that are not negative in the type that takes the fewest bytes."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


class Written:
    """The rows of messages and of their legs.

    Parameters
    ----------
    communicators
        The number of the communicator of each node, by the node's number.
    servers
        That of each GPU.
    """

    def __init__(self, communicators: Sequence[int], servers: NDArray[np.int64]) -> None:
        self.communicators, self._servers = communicators, servers
        self.messages, self.legs = Rows(MESSAGES), Rows(LEGS)

    def add_legs(self, node: int, message: int, legs: Iterable[Leg], *, op: int = 0, group: int = -1) -> None:
        """Add the legs of a message, or of several (message -1)."""
        for leg in legs:
            self.legs.add(node, message, op, *leg, group)

    def add_together(self, ran: Ran, legs_of: Callable[[int], Iterable[Leg]]) -> None:
        """Add operations whose moves are messages, or all that one server sends to another.

        ``legs_of`` returns the legs of an operation of one move, by its place.
        """
        node, parts, times_ps, carried, released_ps = ran
        place, last_ps = 0, max(end_ps for _, end_ps in times_ps)
        for part in parts:
            began_ps, ended_ps = times_ps[place]
            times = max(began_ps, released_ps), ended_ps
            owed = times_ps[0][0], last_ps if part.stage == CROSSES else ended_ps
            number = len(self.messages)
            if part.stage not in (OWN, CROSSES):
                self._add_inside(node, -1, part.sent, times, op=part.stage)
            elif part.together:
                self._add_rows(node, part, owed)
                self._add_moves(node, number, part, carried[place], times)
            else:
                self._add_rows(node, part, owed)
                for move in range(part.ops):
                    self.add_legs(node, -1, legs_of(place + move), op=CROSSES, group=number + move)
            place += part.ops

    def _add_rows(self, node: int, part: Kept, times_ps: tuple[int, int]) -> None:
        source, destination, size = part.sent
        count, crosses = len(size), (self._servers[source] != self._servers[destination]).astype(np.int8)
        group: Value = Of(counted(count), plus=len(self.messages)) if part.stage == CROSSES else -1
        communicator = self.communicators[node]
        self.messages.block(count, node, part.row, communicator, *part.sent, *times_ps, False, crosses, group)

    def _add_moves(
        self, node: int, number: int, part: Kept, carried: Loads | None, times_ps: tuple[int, int]
    ) -> None:
        """Add the legs of moves that went together, whose messages are numbered from a first one on."""
        if carried is None:
            self._add_inside(node, Of(counted(len(part.sent[0])), plus=number), part.sent, times_ps)
            return
        source, destination, _ = part.sent
        mine, crosses = Of(carried.move, plus=number), part.stage == CROSSES
        self.legs.block(
            len(carried.bytes),
            node,
            -1 if crosses else mine,
            CROSSES if crosses else 0,
            0,
            *(Of(column, carried.which) for column in carried.over),
            Of(source, carried.move),
            Of(destination, carried.move),
            carried.bytes,
            *times_ps,
            -1,
            mine if crosses else -1,
        )

    def add_brought(
        self, ran: Ran, brought: Brought, legs_of: Callable[[int], Iterable[Leg]], *, given_up: bool
    ) -> None:
        """Add messages that operations bring together: what crosses has the legs of its operation.

        Parameters
        ----------
        ran, legs_of
            As of `add_together`.
        brought
            The messages; those that an operation brings as its `OWN` end with that.
        given_up
            Whether the collective was.
        """
        node, parts, times_ps, _, released_ps = ran
        first, messages, start_ps = len(self.messages), brought.messages, times_ps[0][0]
        stage = np.repeat([part.stage for part in parts], [part.ops for part in parts])
        crosses = stage[brought.by] == CROSSES
        ends_ps = np.array([end_ps for _, end_ps in times_ps])
        end_ps = np.where(crosses, ends_ps.max(initial=0), ends_ps[brought.by])
        if given_up:
            end_ps[:] = NEVER
        rows, row_of = np.arange(len(crosses)), np.full(len(stage), -1)
        row_of[brought.by[::-1]] = rows[::-1]
        group = np.where(crosses, first + row_of[brought.by], -1)
        sent = messages.source, messages.destination, messages.bytes
        communicator, lost = self.communicators[node], end_ps == NEVER
        self.messages.block(
            len(rows), node, rows, communicator, *sent, start_ps, end_ps, lost, crosses, group
        )
        times_ps = [(max(began_ps, released_ps), ended_ps) for began_ps, ended_ps in times_ps]
        places = accumulate((part.ops for part in parts), initial=0)
        in_order = sorted(zip(parts, places, strict=False), key=lambda each: each[0].stage != OWN)
        for part, place in in_order:
            if part.stage == OWN:
                (own,) = np.nonzero(~crosses)
                self._add_inside(node, Of(own, plus=first), part.sent, times_ps[place])
            elif part.together:
                self._add_inside(node, -1, part.sent, times_ps[place], op=part.stage)
            else:
                for op in range(place, place + part.ops):
                    self.add_legs(node, -1, legs_of(op), op=CROSSES, group=first + int(row_of[op]))

    def _add_inside(
        self,
        node: int,
        message: Value,
        sent: tuple[Integers, Integers, Integers],
        times_ps: tuple[int, int],
        *,
        op: int = 0,
    ) -> None:
        """Add what moved over NVLink in proportion, unless it has not all arrived."""
        if times_ps[1] < NEVER:
            self.legs.block(len(sent[0]), node, message, op, 0, NVLINK, -1, -1, *sent, *times_ps, -1, -1)
