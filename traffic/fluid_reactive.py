"""The fluid limit of schemes that choose as they go: what they settle at if chunks and delays are tiny.

*Spraying* (REPS, MinRTT): a chunk is waiting whenever one of its queue pairs has room, so every
permitted queue pair is always busy. Messages that share queue pairs drain one pool through all of
them, at max-min fair rates, and all end together.

*One at a time* (PLB): a message moves while it is congested and another of its paths is better, and
stays when none is. That is a state in which no message gains by moving alone. It is found by moving
them one after the other: a move raises the mover's share and slows others at most to that, so the
sorted shares rise with each move, and it ends. Nobody moves again later, although PLB would as
messages end.
"""

import heapq
from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from topologies.errors import ScenarioError
from topologies.fabric import Port
from traffic.fluid import Curve, crossings_of, fluid_curves, fluid_transfers
from traffic.messages import Chunks
from traffic.spraying.order import taking_turns
from traffic.spraying.policy import Assignment, Permitted
from traffic.transfers import Path, Transfers, transfers_of_curves

SWEEPS = 50
"""How often each message may move before it is left where it is."""


def sprayed_transfers(
    *,
    rate_bps: Mapping[Port, float],
    permitted: Permitted,
    paths: tuple[Path, ...],
    chunks: Chunks,
    cap_bps: NDArray[np.float64] | None = None,
) -> Transfers:
    """Return when each chunk is delivered if messages keep all their permitted queue pairs busy.

    Parameters
    ----------
    rate_bps
        Rate of each port that sends [bit/s].
    permitted
        The queue pairs, and which of them each message may use.
    paths
        The way of each queue pair.
    chunks
        The work; each goes to the queue pair that is free first.
    cap_bps
        What each queue pair is paced to [bit/s]; by default nothing.

    Raises
    ------
    FabricError
        If a way is empty or crosses a port that has no rate.
    ScenarioError
        If a message with chunks has no queue pair.
    """
    crossings, rates = crossings_of(paths, rate_bps)
    pool, pool_of_message = _pools(permitted)
    if (pool_of_message[chunks.message] < 0).any():
        raise ScenarioError("a message has chunks and no queue pair", "permit it at least one")
    owed = np.bincount(pool_of_message[chunks.message], chunks.bytes, int(pool.max(initial=-1)) + 1)
    curves = fluid_curves(crossings, rates, pool=pool, pool_bytes=owed.astype(float), cap_bps=cap_bps)
    order = taking_turns(chunks)
    chunk_qp = _pulled(curves, pool, pool_of_message[chunks.message], chunks, order)
    return transfers_of_curves(permitted.queue_pairs, paths, chunks.bytes, chunk_qp, order, curves)


def settled_transfers(
    *,
    rate_bps: Mapping[Port, float],
    permitted: Permitted,
    paths: tuple[Path, ...],
    chunks: Chunks,
    cap_bps: NDArray[np.float64] | None = None,
) -> Transfers:
    """Return when each chunk is delivered if every message has settled on one of its queue pairs.

    Parameters, errors
        As in `sprayed_transfers`.
    """
    qp_of_message = settled(permitted, paths, rate_bps)
    assignment = Assignment(permitted.queue_pairs, qp_of_message[chunks.message], taking_turns(chunks))
    return fluid_transfers(
        rate_bps=rate_bps,
        queue_pairs=permitted.queue_pairs,
        paths=paths,
        chunks=chunks,
        assignment=assignment,
        cap_bps=cap_bps,
    )


def settled(
    permitted: Permitted, paths: tuple[Path, ...], rate_bps: Mapping[Port, float]
) -> NDArray[np.int64]:
    """Return a queue pair for each message such that none gets a larger share by moving alone.

    A message's share is the least, over the ports of its way, of the port's rate divided by how many
    messages cross it. All start on their first queue pair and move in turn, at most `SWEEPS` times.
    """
    chosen = [qps[0] for qps in permitted.of_message]
    crossing = Counter(port for qp in chosen for port in paths[qp])

    def share(qp: int) -> float:
        return min(rate_bps[port] / (crossing[port] + 1) for port in paths[qp])

    for _ in range(SWEEPS):
        moved = False
        for message, qps in enumerate(permitted.of_message):
            crossing.subtract(paths[chosen[message]])
            best = max(qps, key=share)
            if share(best) > share(chosen[message]) * (1 + 1e-9):
                chosen[message], moved = best, True
            crossing.update(paths[chosen[message]])
        if not moved:
            break
    return np.array(chosen, dtype=np.int64)


def _pools(permitted: Permitted) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pool of each queue pair and of each message, -1 if it has no queue pair."""
    pairs, messages = len(permitted.queue_pairs), len(permitted.of_message)
    message = np.repeat(np.arange(messages), [len(qps) for qps in permitted.of_message])
    qp = np.array([qp for qps in permitted.of_message for qp in qps], dtype=np.int64)
    size = pairs + messages
    edges = coo_array((np.ones(len(qp)), (qp, pairs + message)), (size, size))
    component = connected_components(edges, directed=False)[1].astype(np.int64)
    lost = np.bincount(message, minlength=messages) == 0
    return component[:pairs], np.where(lost, -1, component[pairs:])


def _pulled(
    curves: list[Curve],
    pool: NDArray[np.int64],
    pool_of_chunk: NDArray[np.int64],
    chunks: Chunks,
    order: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return each chunk's queue pair: of its pool's, the one that is done first with what it has."""
    free: dict[int, list[tuple[float, int]]] = {}
    for qp, mine in enumerate(pool.tolist()):
        free.setdefault(mine, []).append((0.0, qp))
    carried = [0] * len(pool)
    chunk_qp = np.zeros(len(chunks), dtype=np.int64)
    sizes, pools = chunks.bytes.tolist(), pool_of_chunk.tolist()
    for chunk in order.tolist():
        _, qp = free[pools[chunk]][0]
        chunk_qp[chunk] = qp
        carried[qp] += sizes[chunk]
        heapq.heapreplace(free[pools[chunk]], (_time_at(curves[qp], carried[qp]), qp))
    return chunk_qp


def _time_at(curve: Curve, count: int) -> float:
    """Return when a curve reaches a count; past its end it goes on as it ended."""
    times, counts = curve
    if count <= counts[-1]:
        return float(np.interp(count, counts, times))
    if len(times) < 2:
        return float("inf")
    slope = (times[-1] - times[-2]) / (counts[-1] - counts[-2])
    return float(times[-1] + (count - counts[-1]) * slope)
