"""The records: one table with a row per message, the same from the emulation and from the fluid model.

========== ===== ==================================================================
column           meaning
========== ===== ==================================================================
step             index of the all-to-all within its collective
source           source GPU
destination      destination GPU
bytes            size of the message [bytes]
start_s          when it was released: nothing of the job held it back any more [s]
end_s            when its last byte was delivered [s]
path             over what: see below
========== ===== ==================================================================

A path is ``nvlink``, or legs joined by a space, one for each path that some of the message took:
its bytes, ``@``, and the ports that sent them in order, from the source's NIC to the last switch's
port: ``8192@h0:1,leaf1:9,spine1:0,leaf0:5``. Servers that forward are on it by the NIC that sends on:
``8192@h0:0,ocs0:3,h1:0,ocs0:5``. A message's legs sum to its size.

The engine delivers a byte by counting it at the receiver. All messages of a step start at one instant;
what the engine computes before the first byte, 1 ms for 600 queue pairs, is part of the step.

Of a ring that the model runs as a coupled flow there is a row per edge, not per step: what the edge
carried in all steps, from the start of the ring to its end.

Messages inside a server go over NVLink. They are not emulated but modelled (`traffic.fluid.nvlink`).
"""

import numpy as np
import pandas as pd

from topologies.errors import TraceError
from topologies.fabric import Path, Port

Records = pd.DataFrame
"""The table of this file's docstring."""

NVLINK = "nvlink"
COLUMNS = {
    "step": "int64",
    "source": "int64",
    "destination": "int64",
    "bytes": "int64",
    "start_s": "float64",
    "end_s": "float64",
    "path": "str",
}
"""The columns and their types."""


def path_text(path: Path) -> str:
    """Return a path as a leg writes it: ``h0:1,leaf1:9``."""
    return ",".join(map(str, path))


def path_of(text: str) -> Path:
    """Return the path that `path_text` wrote.

    Raises
    ------
    TraceError
        If the text is no list of ports.

    Examples
    --------
    >>> path_of("h0:1,leaf1:9")
    (Port(node='h0', number=1), Port(node='leaf1', number=9))
    """
    ports = [port.rpartition(":") for port in text.split(",")]
    if not all(node and number.isdecimal() for node, _, number in ports):
        raise TraceError(f"{text!r} is not a valid path through a fabric", "write it as node:port,node:port")
    return tuple(Port(node, int(number)) for node, _, number in ports)


def legs_of(records: Records) -> pd.DataFrame:
    """Return the legs of all paths, a row each: the record's index, the bytes, and the path as text.

    Parameters
    ----------
    records
        Of any steps; NVLink has no legs.

    Returns
    -------
    DataFrame
        Columns ``bytes`` (int64) and ``path`` (str, read by `path_of`), indexed like the records.

    Raises
    ------
    TraceError
        If a path does not follow the grammar.
    """
    crossing = records["path"] != NVLINK
    texts = [path.split(" ") for path in records.loc[crossing, "path"]]
    legs = [leg.partition("@") for path in texts for leg in path]
    for size, at, ports in legs:
        if not (size.isdecimal() and ports) or "@" in ports:
            raise TraceError(
                f"{size + at + ports!r} is not a valid leg of a path", "write it as bytes@node:port,node:port"
            )
    sizes = np.array([int(size) for size, _, _ in legs], dtype=np.int64)
    index = records.index[crossing].repeat([len(path) for path in texts])
    return pd.DataFrame({"bytes": sizes, "path": [ports for _, _, ports in legs]}, index)
