"""What a pattern owes, from its definition: what stands beside its operations and is never made of them.

Each pattern has a function that says so beside it, and the audit holds runs against it. So a step too few,
or a shifted matrix, shows.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


def _nothing() -> NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Owed:
    """What GPUs owe each other, edge by edge; parallel arrays, several edges may join the same two GPUs."""

    source: NDArray[np.int64]
    """Source GPU of each edge."""
    destination: NDArray[np.int64]
    """Destination GPU of each edge."""
    least: NDArray[np.int64]
    """What it carries at least, over all steps [bytes]."""
    most: NDArray[np.int64]
    """What it carries at most [bytes]: where equal parts are whole bytes, some are one longer."""
    total: int
    """What all edges carry together [bytes]."""
    follows: NDArray[np.int64] = field(default_factory=_nothing)
    """Where bytes travel step by step: the edge from which each step of an edge waits for what arrived in the
    step before; else empty."""
    steps: int = 1
    """How many messages an edge has, one per step."""


def exactly(source: NDArray[np.int64], destination: NDArray[np.int64], size: NDArray[np.int64]) -> Owed:
    """Return what is owed where that is known to the byte."""
    return Owed(source, destination, size, size, int(size.sum()))
