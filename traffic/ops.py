"""Operations: what a collective consists of once it may go, lowered by its pattern and then by its scheme.

An operation is one *move*, bytes from a GPU to another, or several moves *together*: in proportion to their
sizes, so that they end at once. The edges of a ring in lock step are one operation, and so is all that GPUs
gather over NVLink before it crosses. Operations are columns, not objects: a step has millions of moves.

A pattern lowers itself: who sends what to whom, and what waits for what. A scheme may lower its operations
again: it turns an all-to-all into gather, cross and scatter, or a move into the hops of a relay.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from traffic.messages import Messages, together

ANY, INSIDE, PACKETS, LANES, DARK = 0, 1, 2, 3, 4
"""What a part may go over: NVLink inside a server, and between servers whatever its scheme says; NVLink
alone; packet NICs alone; the lanes of its servers, which are circuits where there are some; nothing until
more is lit."""
OWN = -1
"""The stage of a part that is not of what was lowered again (`traffic.tables`: GATHER, CROSSES, SCATTER)."""


def _none() -> NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


def _no_pairs() -> NDArray[np.int64]:
    return np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Part:
    """Operations that are alike: one for each move, or one of all moves together."""

    moves: Messages
    """In the order in which a sender sends those that may go at the same time."""
    together: bool = False
    """Whether all moves are one operation."""
    medium: int = ANY
    """What they may go over."""
    stage: int = OWN
    """What they are of what was lowered again."""
    channel: NDArray[np.int64] = field(default_factory=_none)
    """The connection by which each goes, shape (moves,), where several share one: schemes that keep
    connections place its first move, and the others go the same way. Else empty."""
    row: NDArray[np.int64] = field(default_factory=_none)
    """Which of the pattern's messages each is, shape (moves,), where that is not as they are counted. Else
    empty."""
    of: NDArray[np.int64] = field(default_factory=_none)
    """Of what is lowered again while it is under way: the operation of each, shape (moves,)."""
    placed_as: NDArray[np.int64] = field(default_factory=_none)
    """The bytes of each by which a scheme places it, shape (moves,), if that is not all of it. Else empty."""

    hop: int = -1
    """Which hop of these all are, counted from 0; -1 if they go all the way."""

    @property
    def columns(self) -> dict[str, NDArray[np.int64]]:
        """What is said of each move, by name."""
        moves = self.moves
        ends = {"source": moves.source, "destination": moves.destination}
        return {"bytes": moves.bytes, **ends, "channel": self.channel, "placed_as": self.placed_as}

    def select(self, mask: NDArray[np.bool_]) -> "Part":
        """Return the operations of one move each where ``mask`` is true."""
        columns = {
            name: column[mask]
            for name in ("channel", "placed_as", "of")
            if len(column := getattr(self, name))
        }
        return replace(self, moves=self.moves.select(mask), **columns)

    def __len__(self) -> int:
        """How many operations."""
        return 1 if self.together else len(self.moves)


@dataclass(frozen=True, eq=False)
class Brought:
    """What is owed, where moves are not its messages one by one; parallel arrays."""

    messages: Messages
    """The pattern's messages."""
    by: NDArray[np.integer]
    """The operation that brings it."""


@dataclass(frozen=True, eq=False)
class Ops:
    """The operations of a collective, part by part, numbered from 0."""

    parts: tuple[Part, ...]
    after: NDArray[np.int64] = field(default_factory=_no_pairs)
    """Pairs of operations, shape (pairs, 2): the second starts when the first has ended."""
    brought: Brought | None = None
    """What they bring; None if each move is a message of its own."""
    splits: bool = False
    """Whether a scheme may split and join the moves: none waits for another, or is in step with it."""
    coupled: bool = False
    """Whether what may move together does."""

    def __len__(self) -> int:
        """How many operations."""
        return sum(map(len, self.parts))

    def each_under_way(self, lowered: Callable[[Part], "Ops"]) -> "Ops":
        """Return these operations, or what becomes of those that are under way, part by part."""
        if not any(len(part.of) for part in self.parts):
            return self
        found = [lowered(part) for part in self.parts]
        same = all(ops.parts == (part,) for ops, part in zip(found, self.parts, strict=True))
        return self if same else joined(found)

    @property
    def first(self) -> Messages:
        """The moves of operations that wait for no other."""
        counts = [[len(part.moves)] if part.together else [1] * len(part.moves) for part in self.parts]
        waits = np.isin(np.arange(len(self)), self.after[:, 1])
        moves = np.array(list(chain.from_iterable(counts)), dtype=np.int64)
        return self.moves.select(~np.repeat(waits, moves))

    @cached_property
    def moves(self) -> Messages:
        """All moves, in order."""
        if len(self.parts) == 1:
            return self.parts[0].moves
        return together(*(part.moves for part in self.parts))


def each_alone(
    messages: Messages, after: NDArray[np.int64] | None = None, channel: NDArray[np.int64] | None = None
) -> Ops:
    """Return messages as an operation each.

    Parameters
    ----------
    messages
        In the order in which a sender sends those that may go at the same time.
    after
        Pairs of their indices, shape (pairs, 2): the second starts when the first has arrived.
    channel
        The connection of each, shape (messages,), where several share one.
    """
    part = Part(messages, channel=_none() if channel is None else channel)
    return Ops((part,), _no_pairs() if after is None else after)


def joined(several: Sequence[Ops]) -> Ops:
    """Return operations one after the other; those of one do not wait for those of another."""
    parts, after, first = list[Part](), list[NDArray[np.int64]](), 0
    for ops in several:
        parts += ops.parts
        after.append(ops.after + first)
        first += len(ops)
    return Ops(tuple(parts), np.concatenate(after))
