"""Values as bytes between the processes of one run: a pickle, compressed as it is written.

Whoever reads bytes trusts whoever wrote them, so nothing that lasts is written in this way.
"""

import pickle
from typing import cast

import pyarrow as pa  # type: ignore[import-untyped]

from topologies.errors import ScenarioError

CODEC = "lz4"


class _Packing(pickle.Pickler):
    def reducer_override(self, value: object) -> str:
        """Refuse what another process would look for in vain."""
        named = value if hasattr(value, "__qualname__") else type(value)
        if getattr(named, "__module__", None) == "__main__":
            raise ScenarioError(f"{named.__qualname__} is defined in the calling script", "put it in a file")
        return cast(str, NotImplemented)


def pack(value: object) -> bytes:
    """Return a value as bytes.

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
            _Packing(file, protocol=5).dump(value)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise ScenarioError(
            f"what a worker needs cannot be sent: {error}", "define it at the top of a file"
        ) from error
    return cast(bytes, out.getvalue().to_pybytes())


def unpack(data: bytes) -> object:
    """Return the value that was packed."""
    with pa.CompressedInputStream(pa.BufferReader(data), CODEC) as file:
        return pickle.load(file)
