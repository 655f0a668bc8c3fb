"""MixNet's expert-weight matrix: a list of lists, a row per source rank, integers are tokens."""

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter

from topologies.errors import TraceError
from traffic.demand import Demand
from traffic.readers.text import MAX_BYTES, check_square, file_name, json_of, trace_name

Tokens = Annotated[int, Field(ge=0, le=MAX_BYTES)]
ROWS = TypeAdapter(Annotated[list[list[Tokens]], Field(min_length=1)], config=ConfigDict(strict=True))


def read_mixnet(path: Path, *, bytes_per_token: int) -> Demand:
    """Return the demand that a list of lists of tokens holds.

    Parameters
    ----------
    path
        The file.
    bytes_per_token
        Size of a token: the model's hidden size x 2 [bytes].

    Returns
    -------
    Demand
        Named after the file; its note says the bytes per token.

    Raises
    ------
    TraceError
        If the file cannot be read, is no square list of lists, a cell is not a whole number of
        tokens >= 0, or ``bytes_per_token`` is not positive.
    """
    if bytes_per_token < 1:
        raise TraceError(f"tokens of {bytes_per_token} bytes", "give hidden size x 2")
    rows = json_of(path, ROWS, "a list of lists of tokens such as [[0, 5], [3, 0]]")
    check_square(path, rows, [1] * len(rows))
    tokens = np.array(rows)
    if tokens.max() > MAX_BYTES // bytes_per_token:
        raise TraceError(f"{path} has a cell of {tokens.max()} tokens", f"give at most {MAX_BYTES} bytes")
    note = f"MixNet matrix {file_name(path)}, {bytes_per_token} bytes per token"
    return Demand(trace_name(path), tokens * bytes_per_token, note)
