"""A pattern: how a collective moves its bytes, whatever carries them."""

from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from topologies.events import View
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


def bytes_between(pattern: Pattern, gpus: int) -> NDArray[np.int64]:
    """Return what each GPU sends to each other one in all, shape (gpus, gpus) [bytes]."""
    moves = pattern.lower().moves
    matrix = np.zeros((gpus, gpus), dtype=np.int64)
    np.add.at(matrix, (moves.source, moves.destination), moves.bytes)
    return matrix
