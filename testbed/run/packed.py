"""Values as bytes, between processes and in the file of a point: a pickle, compressed as it is written.

Whoever reads bytes trusts whoever wrote them: a worker of this run, or a run of the user's own whose
directory is read again.
"""

import pickle
from typing import cast

import pyarrow as pa  # type: ignore[import-untyped]

from topologies.errors import ScenarioError

CODEC = "lz4"
LEFT_OUT = "left out"
"""What stands for a value that both sides have."""


class _Packing(pickle.Pickler):
    def __init__(self, file: pa.NativeFile, shared: object) -> None:
        super().__init__(file, protocol=5)
        self._shared = shared

    def persistent_id(self, value: object) -> str | None:
        """Return what stands for a value in the pickle; None if it is pickled itself."""
        return LEFT_OUT if value is self._shared and value is not None else None

    def reducer_override(self, value: object) -> str:
        """Refuse what another process would look for in vain."""
        named = value if hasattr(value, "__qualname__") else type(value)
        if getattr(named, "__module__", None) == "__main__":
            raise ScenarioError(f"{named.__qualname__} is defined in the calling script", "put it in a file")
        return cast(str, NotImplemented)


class _Unpacking(pickle.Unpickler):
    def __init__(self, file: pa.NativeFile, shared: object) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, _name: str) -> object:
        """Return what was left out."""
        return self._shared


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
    >>> unpack(pack({"sizes": [1, 2]}))
    {'sizes': [1, 2]}
    """
    out = pa.BufferOutputStream()
    try:
        with pa.CompressedOutputStream(out, CODEC) as file:
            _Packing(file, shared).dump(value)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise ScenarioError(
            f"what a worker needs cannot be sent: {error}", "define it at the top of a file"
        ) from error
    return cast(bytes, out.getvalue().to_pybytes())


def unpack(data: bytes | memoryview, shared: object = None) -> object:
    """Return the value that was packed, with what was left out in its place."""
    with pa.CompressedInputStream(pa.BufferReader(data), CODEC) as file:
        return _Unpacking(file, shared).load()
