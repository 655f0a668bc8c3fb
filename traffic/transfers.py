"""What happened to each chunk, the same from the engine and from the fluid model."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Port
from traffic.spraying.policy import QueuePair

Path = tuple[Port, ...]
"""A way through the fabric: the ports that send, from the source's NIC to the last switch's port."""


@dataclass(frozen=True, eq=False)
class Transfers:
    """When each chunk was sent and delivered, and over what; times in seconds from the start."""

    queue_pairs: tuple[QueuePair, ...]
    """The queue pairs."""
    paths: tuple[Path, ...]
    """The way of each queue pair's data."""
    chunk_qp: NDArray[np.int64]
    """Index of each chunk's queue pair, shape (chunks,)."""
    sent_s: NDArray[np.float64]
    """When the first byte of each chunk was handed to its queue pair, shape (chunks,)."""
    delivered_s: NDArray[np.float64]
    """When the last byte of each chunk was counted at the receiver, shape (chunks,)."""


def transfers_of_curves(
    queue_pairs: tuple[QueuePair, ...],
    paths: tuple[Path, ...],
    chunk_bytes: NDArray[np.int64],
    chunk_qp: NDArray[np.int64],
    order: NDArray[np.int64],
    curves: list[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> Transfers:
    """Return the chunk times that follow from how each queue pair's byte count grew.

    Parameters
    ----------
    queue_pairs, paths
        As in `Transfers`.
    chunk_bytes, chunk_qp
        Size and queue pair of each chunk, shape (chunks,).
    order
        The chunks in the order in which they were posted.
    curves
        For each queue pair the times [s] and, at each, the bytes delivered until then; both
        rise, from (0, 0). Between two points the count is taken to grow evenly.

    Returns
    -------
    Transfers
        ``sent_s`` is when the chunk before it on the same queue pair was delivered: with one
        in-order byte stream per queue pair that is when this chunk's turn came.
    """
    sent, delivered = chunk_times(chunk_bytes, chunk_qp, order, curves)
    return Transfers(queue_pairs, paths, chunk_qp, sent, delivered)


def chunk_times(
    chunk_bytes: NDArray[np.int64],
    chunk_flow: NDArray[np.int64],
    order: NDArray[np.int64],
    curves: list[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return when each chunk was sent and delivered by the flow that carries it, as `transfers_of_curves`."""
    sent = np.zeros(len(chunk_bytes))
    delivered = np.zeros(len(chunk_bytes))
    by_flow = order[np.argsort(chunk_flow[order], kind="stable")]
    edges = np.searchsorted(chunk_flow[by_flow], np.arange(len(curves) + 1))
    for flow, (times, counts) in enumerate(curves):
        mine = by_flow[edges[flow] : edges[flow + 1]]
        if not len(mine):
            continue
        ends = np.cumsum(chunk_bytes[mine])
        delivered[mine] = np.interp(ends, counts, times)
        sent[mine] = np.concatenate(([0.0], delivered[mine][:-1]))
    return sent, delivered
