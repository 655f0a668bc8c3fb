"""The order in which chunks are posted: all GPUs send at once, so messages take turns."""

import numpy as np
from numpy.typing import NDArray

from traffic.messages import Chunks


def taking_turns(chunks: Chunks) -> NDArray[np.int64]:
    """Return the chunks, every message's first one before anybody's second.

    Which queue pair carries a chunk is the policy's decision; when it is posted is not. Each GPU
    posts its own messages while the others post theirs, hence messages that share a queue pair
    advance together on it and end at about the same time.

    Parameters
    ----------
    chunks
        The chunks; a message's stand together.

    Examples
    --------
    >>> taking_turns(Chunks(np.array([0, 0, 0, 1, 1]), np.array([9, 9, 1, 9, 5]))).tolist()
    [0, 3, 1, 4, 2]
    """
    first = np.searchsorted(chunks.message, chunks.message)
    turn = np.arange(len(chunks)) - first
    return np.argsort(turn, kind="stable")
