"""nccl-tests' alltoallv matrix, lightrail's neutral format: whitespace between bytes, a row per source.

Cell [i][j] is the number of bytes from rank i to rank j, the diagonal included. Blank lines are
skipped; there are no comments, because nccl-tests itself would not skip them.

References
----------
nccl-tests, src/alltoallv.cu: ``NCCL_TESTS_ALLTOALLV_MATRIX_FILE``.
"""

from pathlib import Path

import numpy as np

from traffic.demand import Demand
from traffic.readers.text import check_square, count_of, text_of, trace_name


def read_nccl(path: Path) -> Demand:
    """Return the demand that a matrix file holds.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    Demand
        Named after the file.

    Raises
    ------
    TraceError
        If the file cannot be read, is not square, or a cell is not a whole number of bytes >= 0.
    """
    cells = [
        (number, line.split()) for number, line in enumerate(text_of(path).splitlines(), 1) if line.strip()
    ]
    lines = [number for number, _ in cells]
    check_square(path, [row for _, row in cells], lines)
    matrix = [[count_of(path, number, cell, expected="bytes") for cell in row] for number, row in cells]
    return Demand(trace_name(path), np.array(matrix), f"nccl-tests matrix {path.name}")
