"""vLLM's and SGLang's routed experts: a ``.npy`` array of whole numbers, shape (tokens, layers, top k).

The tokens of a response carry no rank, so they are dealt; a batch gives an all-to-all per
layer, in order. There is a slot for every hidden layer, and those of dense layers stay zero
(vLLM's ``RoutedExpertsCapturer`` has ``num_hidden_layers`` of them). The file is mapped, not loaded.

References
----------
vLLM, docs/training: *Routed Experts Replay*, ``routed_experts``.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from topologies.errors import TraceError
from traffic.readers.npy import EXPECTED
from traffic.readers.routing import TokenRows

BLOCK_CELLS = 1 << 20


def vllm_rows(path: Path, array: NDArray[np.generic]) -> TokenRows:
    """Return the experts of the tokens of a file's array; TraceError if it holds none."""
    if array.ndim != 3 or not np.issubdtype(array.dtype, np.integer):
        raise TraceError(f"{path} holds {array.dtype} of shape {array.shape}, expected {EXPECTED}")
    rows = max(1, BLOCK_CELLS // (array.shape[1] * array.shape[2]))
    blocks = (np.asarray(array[start : start + rows]) for start in range(0, len(array), rows))
    return TokenRows(len(array), blocks)
