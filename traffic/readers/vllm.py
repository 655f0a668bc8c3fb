"""vLLM's routed experts: a ``.npy`` array of int16, shape (tokens, MoE layers, top k).

The tokens of a response carry no rank, so they are dealt; a batch gives an all-to-all per
layer, in order. The file is mapped, not loaded.

References
----------
vLLM, docs/training: *Routed Experts Replay*, ``routed_experts``.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError

import numpy as np
from numpy.typing import NDArray

from topologies.errors import TraceError

MAGIC = b"\x93NUMPY"
"""The first bytes of a ``.npy`` file."""
BLOCK_CELLS = 1 << 20


def vllm_rows(path: Path) -> Iterator[NDArray[np.integer]]:
    """Yield the experts of a file's tokens, some at a time, shape (rows, layers, top k).

    Raises
    ------
    TraceError
        If the file cannot be read, or is no array of whole numbers in three dimensions.
    """
    expected = "an int16 array of shape (tokens, layers, top k)"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of headers that Python 2 wrote
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, TokenError, OverflowError) as error:
        raise TraceError(f"{path} is not a valid .npy file: {error}, expected {expected}") from error
    if not isinstance(array, np.ndarray) or array.ndim != 3 or not np.issubdtype(array.dtype, np.integer):
        found = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else "an archive"
        raise TraceError(f"{path} holds {found}, expected {expected}")
    if not array.size:
        raise TraceError(f"{path} holds an array of shape {array.shape}, expected {expected}")
    rows = max(1, BLOCK_CELLS // (array.shape[1] * array.shape[2]))
    for start in range(0, len(array), rows):
        yield np.asarray(array[start : start + rows])
