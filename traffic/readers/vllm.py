"""vLLM's and SGLang's routed experts: a ``.npy`` array of whole numbers, shape (tokens, layers, top k).

The tokens of a response carry no rank, so they are dealt; a batch gives an all-to-all per
layer, in order. There is a slot for every hidden layer, and those of dense layers stay zero
(vLLM's ``RoutedExpertsCapturer`` has ``num_hidden_layers`` of them). The file is mapped, not loaded.

References
----------
vLLM, docs/training: *Routed Experts Replay*, ``routed_experts``.
"""

import warnings
from pathlib import Path
from tokenize import TokenError

import numpy as np

from topologies.errors import TraceError
from traffic.readers.routing import Rows

MAGIC = b"\x93NUMPY"
"""The first bytes of a ``.npy`` file."""
BLOCK_CELLS = 1 << 20


def vllm_rows(path: Path) -> Rows:
    """Return the experts of a file's tokens.

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
    blocks = (np.asarray(array[start : start + rows]) for start in range(0, len(array), rows))
    return Rows(len(array), blocks)
