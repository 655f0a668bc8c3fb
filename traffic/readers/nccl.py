"""nccl-tests' alltoallv matrix, lightrail's neutral format: whitespace between bytes, a row per source.

Cell [i][j] is the number of bytes from rank i to rank j, the diagonal included. Blank lines are
skipped; there are no comments, because nccl-tests itself would not skip them.

References
----------
nccl-tests, src/alltoallv.cu: ``NCCL_TESTS_ALLTOALLV_MATRIX_FILE``.
"""

from pathlib import Path

from traffic.demand import Demand
from traffic.readers.matrix import demand_of_cells
from traffic.readers.text import file_name


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
    return demand_of_cells(
        path, None, "bytes", f"nccl-tests matrix {file_name(path)}, bytes from row to column"
    )
