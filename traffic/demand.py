"""The demand matrix: how many bytes each GPU owes each other GPU, at real scale."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topologies.errors import DemandError


@dataclass(frozen=True, eq=False)
class Demand:
    """Who owes whom how many bytes, in one all-to-all.

    Raises
    ------
    DemandError
        If the matrix is not square, is empty, or holds a negative or non-finite number.
    """

    name: str
    """What the demand is, in a word or two: ``sparse 0.4``."""
    matrix: NDArray[np.int64]
    """Bytes from GPU i (row) to GPU j (column), shape (gpus, gpus), read-only."""
    note: str = ""
    """Where it comes from, shown wherever it is shown: ``synthetic: Zipf 0.3 gating, Gini 0.2``."""

    def __post_init__(self) -> None:
        """Check the matrix and freeze a copy of it."""
        object.__setattr__(self, "matrix", _frozen(self.name, self.matrix))

    @property
    def gpus(self) -> int:
        """How many GPUs the demand is between."""
        return len(self.matrix)

    @property
    def total_bytes(self) -> int:
        """All bytes owed."""
        return int(self.matrix.sum())

    def __eq__(self, other: object) -> bool:
        """Equal demands have equal names, notes and matrices."""
        if not isinstance(other, Demand):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        """Hash of the name, the note and the matrix."""
        return hash(self._key())

    def _key(self) -> tuple[str, str, int, bytes]:
        return self.name, self.note, self.gpus, self.matrix.tobytes()


def sends(matrix: NDArray[np.int64]) -> bool:
    """Return whether a GPU of a demand matrix owes another any bytes."""
    return bool(np.count_nonzero(matrix) > np.count_nonzero(matrix.diagonal()))


def _frozen(name: str, matrix: ArrayLike) -> NDArray[np.int64]:
    numbers = np.asarray(matrix, dtype=float)
    if numbers.ndim != 2 or numbers.shape[0] != numbers.shape[1] or not numbers.size:
        raise DemandError(
            f"demand {name!r} has the shape {numbers.shape}", "give a square matrix, a row per source GPU"
        )
    if not np.isfinite(numbers).all() or (numbers < 0).any():
        raise DemandError(
            f"demand {name!r} holds a negative or non-finite number of bytes", "every cell is bytes >= 0"
        )
    frozen: NDArray[np.int64] = np.rint(numbers).astype(np.int64)
    frozen.setflags(write=False)
    return frozen
