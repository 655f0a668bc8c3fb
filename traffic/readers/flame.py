"""FLAME-MoE's parquet: a row per token, ``indices`` its experts (64, top 6), ``scores`` ignored.

A file is one layer of one checkpoint: 52,428,800 tokens in the order of the data, without
ranks. It is read a batch of rows at a time. Needs ``pyarrow``, which lightrail does not install.

References
----------
Kang, Yu, Xiong: FLAME-MoE, arXiv 2505.20225; the data set CMU-FLAME/FLAME-MoE-Traces.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topologies.errors import MachineError, TraceError
from traffic.readers.routing import TokenRows

EXPERTS = 64
"""Routed experts of all three models."""
MAGIC = b"PAR1"
"""The first bytes of a parquet file."""
BATCH_ROWS = 1 << 16


def _pyarrow() -> ModuleType:
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError as error:
        raise MachineError(f"read parquet: {error}", "install it: .venv/bin/pip install pyarrow") from error


def flame_rows(path: Path) -> TokenRows:
    """Return the experts of a parquet file's tokens, of one layer.

    Raises
    ------
    TraceError
        If the file cannot be read, or has no column ``indices`` of equally long lists of whole numbers.
    MachineError
        If pyarrow is not installed.
    """
    pyarrow = _pyarrow()
    with _read(path, pyarrow):
        # Without pre_buffer=False the column's bytes of the whole file stay in memory.
        file = pyarrow.parquet.ParquetFile(path, pre_buffer=False)
    columns = file.schema_arrow.names
    if columns.count("indices") != 1:
        raise TraceError(f"{path} has the columns {', '.join(columns)}, expected one named 'indices'")
    others = ", ".join(name for name in columns if name not in ("indices", "scores"))
    also = (f"left out: the columns {others}",) if others else ()
    return TokenRows(file.metadata.num_rows, _blocks(path, pyarrow, file), also)


@contextmanager
def _read(path: Path, pyarrow: ModuleType) -> Iterator[None]:
    """Raise what pyarrow says of a file as a TraceError."""
    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise TraceError(f"{path} is not a valid parquet file: {reason}", "get it again") from error


def _blocks(path: Path, pyarrow: ModuleType, file: Any) -> Iterator[NDArray[np.integer]]:  # noqa: ANN401 (pyarrow has no types)
    """Yield the experts of tokens, some at a time, shape (rows, 1, top k)."""
    row, lengths = 0, set[int]()
    with _read(path, pyarrow):
        for batch in file.iter_batches(BATCH_ROWS, columns=["indices"]):
            column = batch.column(0)
            lengths |= _lengths(path, pyarrow, column)
            flat = column.flatten()
            nulls = column.null_count + flat.null_count
            if nulls or len(lengths) != 1 or not len(flat):
                found = " and ".join([*map(str, sorted(lengths)), *["null"] * (nulls > 0)])
                raise TraceError(
                    f"{path}, from row {row}: 'indices' of length {found}, expected one, without nulls"
                )
            yield flat.to_numpy().reshape(len(column), 1, -1)
            row += len(column)


def _lengths(path: Path, pyarrow: ModuleType, array: Any) -> set[int]:  # noqa: ANN401 (pyarrow has no types)
    """Return the lengths of the lists of an Arrow array."""
    kinds = pyarrow.types
    lists = kinds.is_list(array.type) or kinds.is_large_list(array.type)
    if not (lists or kinds.is_fixed_size_list(array.type)) or not kinds.is_integer(array.type.value_type):
        raise TraceError(f"{path} has 'indices' of type {array.type}, expected lists of whole numbers")
    return set(array.value_lengths().drop_null().unique().to_pylist()) if lists else {array.type.list_size}
