"""What happened to each chunk, the same from the engine and from the fluid model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Port
from traffic.spraying.policy import QueuePair

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Times [s] and, at each, the bytes sent or delivered until then; both rise, from 0 bytes at 0 s."""

Path = tuple[Port, ...]
"""A way through the fabric: the ports that send, from the source's NIC to the last switch's port."""


@dataclass(frozen=True, eq=False)
class Transfers:
    """When each chunk was sent and delivered, and over what; times count from the common start [s]."""

    queue_pairs: tuple[QueuePair, ...]
    """The queue pairs."""
    paths: tuple[Path, ...]
    """The way of each queue pair's data."""
    chunk_qp: NDArray[np.int64]
    """Index of each chunk's queue pair, shape (chunks,)."""
    sent_s: NDArray[np.float64]
    """When the first byte of each chunk was sent, shape (chunks,): handed to its queue pair's socket
    by the engine, or drawn by its fluid in the model."""
    delivered_s: NDArray[np.float64]
    """When the last byte of each chunk was first counted at the receiver, shape (chunks,)."""


def measured_transfers(
    queue_pairs: tuple[QueuePair, ...],
    paths: tuple[Path, ...],
    chunk_bytes: NDArray[np.int64],
    chunk_qp: NDArray[np.int64],
    order: NDArray[np.int64],
    sent: Sequence[Curve],
    counted: Sequence[Curve],
) -> Transfers:
    """Return the chunk times that follow from byte counts taken while the bytes moved.

    Parameters
    ----------
    queue_pairs, paths
        As in `Transfers`.
    chunk_bytes, chunk_qp
        Size and queue pair of each chunk, shape (chunks,).
    order
        The chunks in the order in which they were posted.
    sent, counted
        For each queue pair the bytes handed to its socket, and the bytes counted at its receiver.

    Notes
    -----
    A measured count jumps: bytes that arrive together are counted together. So a chunk is sent at the
    first count of sent bytes that includes its first byte, and delivered at the first count of
    received bytes that includes its last byte. Nothing is interpolated.
    """
    sent_s, delivered_s = np.zeros(len(chunk_bytes)), np.zeros(len(chunk_bytes))
    spans = spans_of_flows(chunk_bytes, chunk_qp, order, len(queue_pairs))
    for qp, (chunks, begins, ends) in enumerate(spans):
        times, counts = sent[qp]
        sent_s[chunks] = times[np.searchsorted(counts, begins, side="right")]
        times, counts = counted[qp]
        delivered_s[chunks] = times[np.searchsorted(counts, ends)]
    return Transfers(queue_pairs, paths, chunk_qp, sent_s, delivered_s)


def curve_of(moments: Sequence[float], counts: Sequence[int], zero: float) -> Curve:
    """Return byte counts taken at some moments as a curve whose times count from the moment ``zero``."""
    return np.array([zero, *moments]) - zero, np.array([0, *counts], dtype=float)


def spans_of_flows(
    chunk_bytes: NDArray[np.int64], chunk_flow: NDArray[np.int64], order: NDArray[np.int64], flows: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Yield for each flow its chunks, and where in its byte stream each begins and ends [bytes].

    Parameters
    ----------
    chunk_bytes, chunk_flow
        Size of each chunk, and the flow (of a queue pair) that carries it, shape (chunks,).
    order
        The chunks in the order in which they were posted, which is that of each byte stream.
    flows
        How many flows there are; one may have no chunk.
    """
    by_flow = order[np.argsort(chunk_flow[order], kind="stable")]
    edges = np.searchsorted(chunk_flow[by_flow], np.arange(flows + 1))
    for first, last in pairwise(edges.tolist()):
        chunks = by_flow[first:last]
        ends = np.cumsum(chunk_bytes[chunks])
        yield chunks, ends - chunk_bytes[chunks], ends
