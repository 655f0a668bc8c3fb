"""Reordering: how the packets of a run overtook each other (`traffic.transports.order` has the terms).

It is in a result's file, and pydantic reads no class of a compiled module (`traffic.compiled`).
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Reordering:
    """How the packets of a run overtook each other."""

    extents: Mapping[int, int]
    """How many packets were overtaken by how many numbers; 0 for those in order."""
    held_bytes: int = 0
    """The most that a receiver would have to hold of one message [bytes]."""

    @property
    def packets(self) -> int:
        """How many arrived."""
        return sum(self.extents.values())

    @property
    def overtaken(self) -> float:
        """The share of packets that were overtaken; NaN if none arrived."""
        late = self.packets - self.extents.get(0, 0)
        return late / self.packets if self.packets else float("nan")

    def extent(self, share: float) -> float:
        """Return by how many numbers the packets up to a share were overtaken at most; NaN if none arrived.

        Examples
        --------
        >>> Reordering({0: 8, 3: 1, 7: 1}).extent(0.9), Reordering({0: 8, 3: 1, 7: 1}).extent(0.99)
        (3.0, 7.0)
        """
        seen = 0
        for extent in sorted(self.extents):
            seen += self.extents[extent]
            if seen >= share * self.packets:
                return float(extent)
        return float("nan")
