"""Point to point: a list of messages that start together, any number of them between two GPUs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from topologies.errors import DemandError
from topologies.events import View
from traffic.collectives.owed import Owed, exactly
from traffic.messages import Messages
from traffic.ops import Ops, each_alone


@dataclass(frozen=True)
class PointToPoint:
    """Messages from one GPU to another.

    Raises
    ------
    DemandError
        If a message is to its own sender or has no byte.
    """

    messages: tuple[tuple[int, int, int], ...]
    """Source GPU, destination GPU and size [bytes] of each."""
    name = "point to point"

    def __post_init__(self) -> None:
        """Check each message."""
        for source, destination, size in self.messages:
            if source == destination or size < 1 or min(source, destination) < 0:
                raise DemandError(
                    f"a message of {size} bytes from GPU {source} to GPU {destination}",
                    "send at least a byte to another GPU",
                )

    @property
    def gpus(self) -> frozenset[int]:
        """The GPUs that send or receive."""
        return frozenset(gpu for source, destination, _ in self.messages for gpu in (source, destination))

    def lower(self, view: View | None = None, *, coupled: bool = False) -> Ops:
        """Return the messages as they were listed."""
        source, destination, size = np.array(self.messages, dtype=np.int64).reshape(-1, 3).T
        return each_alone(Messages(source, destination, size))

    def renumbered(self, gpus: Sequence[int]) -> "PointToPoint":
        """Return the messages between other GPUs: ``gpus[k]`` takes the part of GPU k."""
        return PointToPoint(tuple((gpus[source], gpus[to], size) for source, to, size in self.messages))


def owed_point_to_point(pattern: PointToPoint) -> Owed:
    """Return each message of the list."""
    listed = np.array(pattern.messages, dtype=np.int64).reshape(-1, 3)
    return exactly(listed[:, 0], listed[:, 1], listed[:, 2])
