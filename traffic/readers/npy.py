"""Arrays in ``.npy`` files: demand matrices of two dimensions, routing traces of three."""

import warnings
from pathlib import Path
from tokenize import TokenError

import numpy as np
from numpy.typing import NDArray

from topologies.errors import TraceError

MAGIC = b"\x93NUMPY"
"""The first bytes of a file."""
EXPECTED = "a square of bytes, or an int16 array of shape (tokens, layers, top k)"


def npy_array(path: Path) -> NDArray[np.generic]:
    """Return the array of a file, mapped and not loaded; TraceError if there is none or it is empty."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of headers that Python 2 wrote
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, TokenError, OverflowError) as error:
        raise TraceError(f"{path} is not a valid .npy file: {error}, expected {EXPECTED}") from error
    if not isinstance(array, np.ndarray):
        raise TraceError(f"{path} holds an archive, expected {EXPECTED}")
    if not array.size:
        raise TraceError(f"{path} holds {array.dtype} of shape {array.shape}, expected {EXPECTED}")
    return array
