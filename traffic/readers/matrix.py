"""Demand matrices as tables of numbers: a ``.csv``, or a ``.npy`` array of two dimensions.

Cell [i][j] is the number of bytes from GPU i to GPU j, the diagonal included. A CSV has commas between its
numbers, and neither a header nor an index; behind a ``#``, as `numpy.savetxt` writes its header, is comment.
The numbers of an array may be floats, if all are whole.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from topologies.errors import TraceError
from traffic.demand import Demand
from traffic.readers.text import (
    MAX_BYTES,
    MAX_GPUS,
    check_square,
    count_of,
    file_name,
    is_number,
    text_of,
    trace_name,
)

KINDS = "iuf"
"""Of an array's numbers: whole ones with and without a sign, floats."""


def is_csv(first_line: str) -> bool:
    """Return whether a file's first line has commas, and a number among its cells."""
    return "," in first_line and any(map(is_number, first_line.split(",")))


def read_csv(path: Path) -> Demand:
    """Return the demand of numbers with commas between them; errors as of `demand_of_cells`."""
    expected = "bytes to GPU {} (no header, no index)"
    return demand_of_cells(path, ",", expected, f"matrix {file_name(path)}, bytes from row to column")


def demand_of_cells(path: Path, separator: str | None, expected: str, note: str) -> Demand:
    """Return the demand that a text file's cells are.

    Parameters
    ----------
    path
        The file, after which the demand is named.
    separator
        What stands between cells; None for any whitespace. Blank lines and comments (#) are skipped.
    expected
        What a cell is, for errors; {} becomes its column.
    note
        The note of the demand.

    Raises
    ------
    TraceError
        If the file cannot be read, is not square, or a cell is not a whole number of bytes >= 0.
    """
    bare = [line.split("#")[0] for line in text_of(path).splitlines()]
    lines = [(number, line) for number, line in enumerate(bare, 1) if line.strip()]
    cells = [line.split(separator) for _, line in lines]
    check_square(path, cells, [number for number, _ in lines])
    matrix = [
        [count_of(path, number, cell.strip(), expected=expected.format(gpu)) for gpu, cell in enumerate(row)]
        for (number, _), row in zip(lines, cells, strict=True)
    ]
    return Demand(trace_name(path), np.array(matrix), note)


def demand_of_array(path: Path, array: NDArray[np.generic]) -> Demand:
    """Return the demand that a file's array is.

    Parameters
    ----------
    path, array
        The file, after which the demand is named, and its array.

    Raises
    ------
    TraceError
        If the array is not a square of numbers, or a cell is not a whole number of bytes >= 0.
    """
    if array.dtype.kind not in KINDS or len(set(array.shape)) != 1 or not 1 <= len(array) <= MAX_GPUS:
        raise TraceError(
            f"{path} holds {array.dtype} of shape {array.shape}",
            f"give a square of numbers, bytes from GPU to GPU, of at most {MAX_GPUS} GPUs",
        )
    matrix = np.asarray(array, dtype=float)  # exact up to MAX_BYTES
    good = (matrix >= 0) & (matrix <= MAX_BYTES) & (matrix == np.floor(matrix))
    for source, destination in np.argwhere(~good)[:1].tolist():
        raise TraceError(
            f"{path}, from GPU {source} to GPU {destination}: found {array[source, destination]}, "
            f"expected bytes: a whole number from 0 to {MAX_BYTES}"
        )
    return Demand(
        trace_name(path), matrix.astype(np.int64), f"matrix {file_name(path)}, bytes from row to column"
    )
