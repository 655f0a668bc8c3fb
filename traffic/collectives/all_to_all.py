"""All-to-all: every GPU sends each other one what it owes it, all at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from topologies.errors import DemandError
from topologies.events import View
from traffic.collectives.owed import Owed, exactly
from traffic.demand import Demand
from traffic.messages import Messages, messages_of
from traffic.ops import Ops, Part


@dataclass(frozen=True)
class AllToAll:
    """A demand whose messages all start with the collective.

    Raises
    ------
    DemandError
        If there is not one GPU, of its own, for each row of the demand.
    """

    demand: Demand
    ranks: tuple[int, ...] = ()
    """The GPU of each row and column of the demand; by default GPU k has row k."""
    coupled_as_one: bool = False
    """As of `traffic.collectives.fan.Fan`: where bytes weigh, its busiest link is as busy either way."""
    name = "all-to-all"

    def __post_init__(self) -> None:
        """Give each row its GPU, so that equal patterns are equal values."""
        if not self.ranks:
            object.__setattr__(self, "ranks", tuple(range(self.demand.gpus)))
        if not len(self.ranks) == len(set(self.ranks)) == self.demand.gpus or min(self.ranks) < 0:
            raise DemandError(
                f"demand {self.demand.name!r} is between {self.demand.gpus} GPUs, and its ranks are "
                f"{_shown(self.ranks)}",
                "give each row a GPU of its own",
            )

    @property
    def gpus(self) -> frozenset[int]:
        """The GPUs of the demand, idle ones among them."""
        return frozenset(self.ranks)

    def lower(self, view: View | None = None, *, coupled: bool = False) -> Ops:
        """Return a move per pair that owes something, which a scheme may split."""
        owed, gpu = messages_of(self.demand), np.array(self.ranks, dtype=np.int64)
        moves = Messages(gpu[owed.source], gpu[owed.destination], owed.bytes)
        as_one = coupled and self.coupled_as_one
        return Ops((Part(moves, together=as_one),), splits=True, coupled=coupled)

    def renumbered(self, gpus: Sequence[int]) -> "AllToAll":
        """Return the demand between other GPUs: ``gpus[k]`` takes the part of GPU k."""
        return replace(self, ranks=tuple(gpus[gpu] for gpu in self.ranks))


def owed_in_all_to_all(pattern: AllToAll) -> Owed:
    """Return the demand: row i, column j is what the GPU of rank i owes that of rank j."""
    ranks = np.array(pattern.ranks, dtype=np.int64)
    row, column = np.nonzero(pattern.demand.matrix)
    away = row != column
    row, column = row[away], column[away]
    return exactly(ranks[row], ranks[column], pattern.demand.matrix[row, column])


def _shown(ranks: tuple[int, ...]) -> str:
    return f"{ranks}" if len(ranks) <= 16 else f"{len(ranks)} GPUs, or one twice"
