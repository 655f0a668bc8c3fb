"""Steps of a reaction: events, whose reactions come before it goes on, and orders, whose answers come back.

A reaction is a generator of steps. The functions below are orders with typed answers, for ``yield from``.
"""

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from testbed.core.backend import Backend, Chosen, Flows, InFlight, Left, NetworkOrder
from testbed.core.events import Event
from traffic.spraying.policy import QueuePair


class Order:
    """An order to the backend: a base class, as a look at a union of seven takes 0.8 us, and at it 0.05."""

    def to(self, backend: Backend) -> object:
        """Give the order; return the answer."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Start(Order):
    """Have bytes move from now on."""

    flows: Sequence[Flows | Chosen]
    first: bool
    """True if they are the first of a collective that leave their server."""

    def to(self, backend: Backend) -> None:
        """Give the order."""
        backend.start(self.flows, first=self.first)


@dataclass(frozen=True)
class Open(Order):
    """Open queue pairs that are not; the answer is the number of each."""

    queue_pairs: Sequence[QueuePair]

    def to(self, backend: Backend) -> list[int]:
        """Give the order."""
        return backend.open(self.queue_pairs)


@dataclass(frozen=True)
class Stop(Order):
    """Take back bytes that have not been delivered; the answer is these bytes."""

    lanes: Sequence[int]
    ops: Sequence[int]
    in_flight: InFlight

    def to(self, backend: Backend) -> list[Left]:
        """Give the order."""
        return backend.stop(self.lanes, self.ops, in_flight=self.in_flight)


@dataclass(frozen=True)
class Report(Order):
    """Report the bytes that lanes carried, since the last report, of operations that choose."""

    ops: Sequence[int]

    def to(self, backend: Backend) -> list[Left]:
        """Give the order."""
        return backend.carried(self.ops)


@dataclass(frozen=True)
class Pause(Order):
    """Have lanes stand; report `Drained` of the change, if one is named."""

    lanes: Collection[int]
    change: int | None = None

    def to(self, backend: Backend) -> None:
        """Give the order."""
        backend.pause(self.lanes, self.change)


@dataclass(frozen=True)
class Resume(Order):
    """Let lanes send again that have a route."""

    lanes: Collection[int]

    def to(self, backend: Backend) -> None:
        """Give the order."""
        backend.resume(self.lanes)


@dataclass(frozen=True)
class Do(Order):
    """Have the backend carry out an order to the network."""

    order: NetworkOrder

    def to(self, backend: Backend) -> None:
        """Give the order."""
        backend.carry_out(self.order)


Answer = TypeVar("Answer")
Asks = Generator[Event | Order, object, Answer]
"""A part of a reaction that returns an answer."""
Steps = Asks[None]
"""The steps of a reaction, or of a part that returns no answer."""


def opened(queue_pairs: Sequence[QueuePair]) -> Asks[list[int]]:
    """Return the number of each queue pair, which is open from now on."""
    return cast(list[int], (yield Open(queue_pairs)))


def stopped(
    lanes: Sequence[int] = (), ops: Sequence[int] = (), *, in_flight: InFlight = "drop"
) -> Asks[list[Left]]:
    """Return the bytes that lanes, or operations that choose theirs, gave back."""
    return cast(list[Left], (yield Stop(lanes, ops, in_flight)))


def reported(ops: Sequence[int]) -> Asks[list[Left]]:
    """Return the bytes that lanes carried, since the last report, of operations that choose."""
    return cast(list[Left], (yield Report(ops)))
