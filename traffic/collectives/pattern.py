"""A pattern: how a collective moves its bytes, whatever carries them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeGuard

import numpy as np
from numpy.typing import NDArray

from topologies.events import View
from traffic.messages import Messages
from traffic.ops import Ops


class Pattern(Protocol):
    """How a collective moves its bytes; a frozen value."""

    @property
    def name(self) -> str:
        """The pattern as tables name it."""
        ...

    @property
    def gpus(self) -> frozenset[int]:
        """The GPUs that take part."""
        ...

    def lower(self, view: View | None = None, *, coupled: bool = False) -> Ops:
        """Return the operations that make up the collective.

        Parameters
        ----------
        view
            What is known when it starts; None where it is asked beforehand, for bounds: what is owed must not
            depend on it.
        coupled
            Whether what moves in lock step may be one operation, which a model solves once and not step by
            step. A pattern that has no such form returns the same.
        """
        ...

    def renumbered(self, gpus: Sequence[int]) -> Self:
        """Return the same pattern between other GPUs: ``gpus[k]`` takes the part of GPU k."""
        ...


@dataclass(frozen=True, eq=False)
class EndToEnd:
    """Messages that a collective owes from end to end: bytes that GPUs pass on for others count once."""

    messages: Messages
    """Who owes whom how much, from the first sender to the last receiver."""
    nodes: tuple[tuple[int, ...], ...] = ()
    """GPUs that stand for each other: what one of a node owes or is owed may pass any of them."""


class Forwards(Protocol):
    """A pattern whose GPUs pass on bytes for others, so that it moves more than it owes."""

    @property
    def end_to_end(self) -> EndToEnd:
        """Its messages from end to end; bus bandwidth and bound are of these."""
        ...


def end_to_end(pattern: Pattern) -> EndToEnd:
    """Return the messages that a pattern owes from end to end: its moves, unless it says so (`Forwards`)."""
    return pattern.end_to_end if forwards(pattern) else EndToEnd(pattern.lower(coupled=True).moves)


def forwards(pattern: Pattern) -> TypeGuard[Forwards]:
    """Return whether a pattern's class has `end_to_end`, without asking for it: that may raise."""
    return hasattr(type(pattern), "end_to_end")


def bytes_between(pattern: Pattern, gpus: int) -> NDArray[np.int64]:
    """Return what each GPU sends to each other one in all, shape (gpus, gpus) [bytes]."""
    moves = pattern.lower().moves
    matrix = np.zeros((gpus, gpus), dtype=np.int64)
    np.add.at(matrix, (moves.source, moves.destination), moves.bytes)
    return matrix
