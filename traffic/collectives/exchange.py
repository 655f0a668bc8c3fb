"""An exchange: the messages of one collective, and which of them wait for which.

A collective of very many small messages in lock step may also offer itself as a few *coupled flows*: a
ring whose edges all move at one rate, say. The fluid model then solves it once, not once per step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from traffic.messages import Messages


def _no_waits() -> NDArray[np.int64]:
    return np.zeros((0, 2), dtype=np.int64)


def _no_connections() -> NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Exchange:
    """Messages, any number of them between two GPUs."""

    messages: Messages
    """In the order in which a sender sends those that may go at the same time."""
    waits: NDArray[np.int64] = field(default_factory=_no_waits)
    """Pairs of message indices, shape (waits, 2): the second starts when the first has arrived."""
    connection: NDArray[np.int64] = field(default_factory=_no_connections)
    """The connection that each message goes by, shape (messages,), where several share one: schemes that keep
    connections place its first message, and the others go the same way. Else empty."""


@dataclass(frozen=True, eq=False)
class CoupledFlows:
    """The same bytes without steps: messages of a flow move in proportion to their sizes and end together."""

    messages: Messages
    """One per edge, of all bytes that it carries in any step."""
    flow: NDArray[np.int64]
    """The coupled flow that each message is part of, counted from 0, shape (messages,)."""
    step_bytes: NDArray[np.int64]
    """What of each message starts first, by which a scheme places it, shape (messages,) [bytes]."""


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

    def exchange(self) -> Exchange:
        """Return the messages that make up the collective."""
        ...

    def renumbered(self, gpus: Sequence[int]) -> Self:
        """Return the same pattern between other GPUs: ``gpus[k]`` takes the part of GPU k."""
        ...


@runtime_checkable
class CouplesPattern(Pattern, Protocol):
    """A pattern that can also move its bytes as coupled flows, in the same time or nearly so."""

    def coupled_flows(self) -> CoupledFlows:
        """Return the flows that make up the collective."""
        ...


def bytes_between(pattern: Pattern, gpus: int) -> NDArray[np.int64]:
    """Return what each GPU sends to each other one in all, shape (gpus, gpus) [bytes]."""
    messages = pattern.exchange().messages
    matrix = np.zeros((gpus, gpus), dtype=np.int64)
    np.add.at(matrix, (messages.source, messages.destination), messages.bytes)
    return matrix
