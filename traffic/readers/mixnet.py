"""MixNet's expert-weight matrix: a list of lists, a row per source rank, integers are tokens."""

import json
from pathlib import Path

import numpy as np

from topologies.errors import TraceError
from traffic.demand import Demand
from traffic.readers.text import MAX_BYTES, check_square, count_of, text_of, trace_name


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
    rows = _rows(path)
    check_square(path, rows, [1] * len(rows))
    most = MAX_BYTES // bytes_per_token
    tokens = [
        [count_of(path, 1, str(cell), expected=f"tokens in row {index}", most=most) for cell in row]
        for index, row in enumerate(rows)
    ]
    matrix = np.array(tokens) * bytes_per_token
    return Demand(trace_name(path), matrix, f"MixNet matrix {path.name}, {bytes_per_token} bytes per token")


def _rows(path: Path) -> list[list[object]]:
    expected = "a list of lists such as [[0, 5], [3, 0]]"
    try:
        rows = json.loads(text_of(path))
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}, line {error.lineno}: {error.msg}, expected {expected}") from error
    except (ValueError, RecursionError) as error:
        raise TraceError(
            f"{path}, line 1: a number too long or lists too deep, expected {expected}"
        ) from error
    if not (isinstance(rows, list) and rows and all(isinstance(row, list) for row in rows)):
        raise TraceError(f"{path}, line 1: another JSON value, expected {expected}")
    return rows
