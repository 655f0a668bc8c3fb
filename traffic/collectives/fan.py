"""Fan: a few GPUs each send the same to every other GPU of a group, or are sent the same by each of them.

It is a list of messages that start together, as a point to point is, told in a few numbers: an embedding
table's owner sends each server its samples, and is sent their gradients back. 128 owners and 128 members are
16,256 messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from topologies.errors import DemandError
from topologies.events import View
from traffic.collectives.owed import Owed, exactly
from traffic.messages import Messages
from traffic.ops import Ops, Part


@dataclass(frozen=True)
class Fan:
    """Every owner sends to every other member, or every member to every other owner.

    Raises
    ------
    DemandError
        If there are no owners or no members, one is listed twice, nothing is sent, or a message has no byte.
    """

    owners: tuple[int, ...]
    """The GPUs that send, with ``back`` those that receive; they need not be members."""
    members: tuple[int, ...]
    """The GPUs at the other end."""
    bytes: int
    """Of the message between an owner and a member [bytes]."""
    back: bool = False
    """Whether members send and owners receive."""
    coupled_as_one: bool = False
    """Whether a model that couples moves ends all messages at once, as one operation: true to life only where
    links are alike and the messages are all that they carry."""

    def __post_init__(self) -> None:
        """Check that something is sent, once."""
        for gpus in (self.owners, self.members):
            if not gpus or len(gpus) != len(set(gpus)) or min(gpus) < 0:
                raise DemandError(
                    f"a fan between owners {str(self.owners)[:40]} and members {str(self.members)[:40]}",
                    "list one GPU or more on either side, each once",
                )
        if len(self.gpus) < 2 or self.bytes < 1:
            raise DemandError(
                f"a fan of {self.bytes} bytes between {len(self.gpus)} GPUs",
                "send at least a byte to another GPU",
            )

    @property
    def name(self) -> str:
        """The pattern as tables name it."""
        return "many to one" if self.back else "one to many"

    @property
    def gpus(self) -> frozenset[int]:
        """The GPUs at either end."""
        return frozenset(self.owners) | frozenset(self.members)

    def lower(self, view: View | None = None, *, coupled: bool = False) -> Ops:
        """Return a move per pair, or all moves as one operation."""
        source, destination = np.array(self.owners, np.int64), np.array(self.members, np.int64)
        if self.back:
            source, destination = destination, source
        many = len(destination)
        source, destination = np.repeat(source, many), np.tile(destination, len(source))
        away = source != destination
        source, destination = source[away], destination[away]
        moves = Messages(source, destination, np.full(len(source), self.bytes, dtype=np.int64))
        as_one = coupled and self.coupled_as_one
        return Ops((Part(moves, together=as_one),), coupled=as_one)

    def renumbered(self, gpus: Sequence[int]) -> "Fan":
        """Return the same fan between other GPUs: ``gpus[k]`` takes the part of GPU k."""
        owners, members = (tuple(gpus[gpu] for gpu in some) for some in (self.owners, self.members))
        return replace(self, owners=owners, members=members)


def owed_in_fan(pattern: Fan) -> Owed:
    """Return the bytes between each owner and each member that is another GPU."""
    pairs = [(owner, member) for owner in pattern.owners for member in pattern.members if owner != member]
    edges = np.array(pairs, dtype=np.int64)[:, :: -1 if pattern.back else 1]
    return exactly(edges[:, 0], edges[:, 1], np.full(len(edges), pattern.bytes, dtype=np.int64))
