"""Schemes that have to know where the bytes of their operations are inside servers, as lanes change.

Most place what is left of a message wherever they like. One that gathers bytes at a GPU before they cross
has them go over NVLink first, when they are to cross from another.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from topologies.fabric import Fabric
from traffic.messages import Messages
from traffic.ops import Ops
from traffic.scheme import Placement, Scheme
from traffic.spraying.policy import QueuePair


class Hop(NamedTuple):
    """Bytes of an operation that cross NVLink, since its lanes are not those that they are ready for."""

    number: int
    """The operation."""
    source: int
    destination: int
    bytes: int
    then: QueuePair | None = None
    """On which they go afterwards; None if they are on their way meanwhile."""


class Whereabouts(Protocol):
    """Where the bytes of one run are."""

    def admit(self, ops: Ops, first: int) -> None:
        """Follow operations, which are numbered from a first one on."""
        ...

    def put(
        self, placed: Placement, numbers: Sequence[int], wholes: Sequence[int]
    ) -> tuple[Placement, list[Hop]]:
        """Return what of operations goes on their lanes at once, and what crosses NVLink.

        Parameters
        ----------
        placed
            Where operations go.
        numbers, wholes
            Of each, and of the one that it is or brings a hop further.
        """
        ...

    def withdraw(self, lane: QueuePair, left: Iterable[tuple[int, int]]) -> None:
        """Take what a lane gives back: the operation, and bytes."""
        ...

    def moves(self, number: int) -> Messages | None:
        """Return the moves of an operation, from where its bytes are; None if that is as it was planned."""
        ...


@runtime_checkable
class FollowsBytes(Scheme, Protocol):
    """A scheme that places what goes over `LANES` by another, and has to know where its bytes are."""

    @property
    def lanes(self) -> Scheme:
        """The other one."""
        ...

    def follow(self, fabric: Fabric) -> Whereabouts:
        """Return the whereabouts of the bytes of a run."""
        ...
