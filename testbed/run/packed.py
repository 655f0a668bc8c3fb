"""Values as bytes, between processes and in the file of a point: tables in Arrow's format, the rest pickled.

    8 bytes: how long the pickle is | the pickle | one Arrow stream per table, in the order of their numbers

A table whose cells are Python objects (the circuits of an OCS) stays in the pickle. Whoever reads bytes
trusts whoever wrote them: a worker of this run, or a run of the user's own whose directory is read again.
"""

import io
import pickle
from collections.abc import Sequence
from typing import cast

import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]

from topologies.errors import ScenarioError

LENGTH_BYTES = 8
LEFT_OUT = "left out"
"""What stands for a value that both sides have."""


class _Packing(pickle.Pickler):
    def __init__(self, file: io.BytesIO, shared: object) -> None:
        super().__init__(file, protocol=5)
        self.tables: list[pd.DataFrame] = []
        self._shared = shared

    def persistent_id(self, value: object) -> str | int | None:
        """Return what stands for a value in the pickle; None if it is pickled itself."""
        if value is self._shared and value is not None:
            return LEFT_OUT
        if not isinstance(value, pd.DataFrame) or "object" in map(str, value.dtypes):
            return None
        self.tables.append(value)
        return len(self.tables) - 1

    def reducer_override(self, value: object) -> str:
        """Refuse what another process would look for in vain."""
        named = value if hasattr(value, "__qualname__") else type(value)
        if getattr(named, "__module__", None) == "__main__":
            raise ScenarioError(f"{named.__qualname__} is defined in the calling script", "put it in a file")
        return cast(str, NotImplemented)


class _Unpacking(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tables: Sequence[pd.DataFrame], shared: object) -> None:
        super().__init__(file)
        self._tables, self._shared = tables, shared

    def persistent_load(self, name: str | int) -> object:
        """Return what stands behind a name of the pickle."""
        return self._shared if isinstance(name, str) else self._tables[name]


def pack(value: object, shared: object = None) -> bytes:
    """Return a value as bytes.

    Parameters
    ----------
    value
        What is packed.
    shared
        A part of it that the reader has, and that is left out.

    Raises
    ------
    ScenarioError
        If it holds a function, a class or an object whose class is defined in the script, or the notebook,
        that runs, or inside a function: another process does not have that.

    Examples
    --------
    >>> unpack(pack({"sizes": pd.DataFrame({"bytes": [1, 2]})}))["sizes"]["bytes"].tolist()
    [1, 2]
    """
    head = io.BytesIO()
    packing = _Packing(head, shared)
    try:
        packing.dump(value)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise ScenarioError(
            f"what a worker needs cannot be sent: {error}", "define it at the top of a file"
        ) from error
    out = io.BytesIO()
    out.write(head.tell().to_bytes(LENGTH_BYTES, "little"))
    out.write(head.getbuffer())
    for table in packing.tables:
        arrow = pa.Table.from_pandas(table)
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(out, arrow.schema, options=options) as stream:
            stream.write_table(arrow)
    return out.getvalue()


def unpack(data: bytes | memoryview, shared: object = None) -> object:
    """Return the value that was packed, with what was left out in its place."""
    end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
    source = pa.BufferReader(memoryview(data)[end:])
    tables = []
    while source.tell() < source.size():
        with pa.ipc.open_stream(source) as stream:
            tables.append(stream.read_pandas())
    return _Unpacking(io.BytesIO(data[LENGTH_BYTES:end]), tables, shared).load()
