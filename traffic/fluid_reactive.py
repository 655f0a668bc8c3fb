"""The fluid limit of schemes that choose as they go: what they settle at if chunks and delays are tiny.

*Spraying* (REPS, MinRTT): a chunk is waiting whenever one of its queue pairs has room, so every
permitted queue pair is always busy. Messages that may use the same queue pairs drain one pool through
all of them, at max-min fair rates, and all end together. A queue pair that several pools may use, each
with others besides, counts as one where it shares a link, and serves those not yet empty evenly.

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

from topologies.errors import ScenarioError
from topologies.fabric import Port
from traffic.fluid import crossings_of, fluid_curves, fluid_times, fluid_transfers
from traffic.messages import Chunks
from traffic.path_effects import PathEffects
from traffic.spraying.order import taking_turns
from traffic.spraying.policy import Assignment, Permitted
from traffic.transfers import Curve, Path, Transfers

SWEEPS = 50
"""How often each message may move before it is left where it is."""


def sprayed_transfers(
    *,
    rate_bps: Mapping[Port, float],
    permitted: Permitted,
    paths: tuple[Path, ...],
    chunks: Chunks,
    effects: PathEffects | None = None,
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
    effects
        The delay and loss of each way; by default there are none.

    Raises
    ------
    FabricError
        If a way is empty or crosses a port that has no rate.
    ScenarioError
        If a message with chunks has no queue pair.
    """
    crossings, rates = crossings_of(paths, rate_bps)
    qp, pool, pool_of_message = _flows(permitted)
    pool_of_chunk = pool_of_message[chunks.message]
    if not np.isin(pool_of_chunk, pool).all():
        raise ScenarioError("a message has chunks and no queue pair", "permit it at least one")
    owed = np.bincount(pool_of_chunk, chunks.bytes, len(permitted.of_message)).astype(float)
    curves = fluid_curves(
        crossings[qp],
        rates,
        pool=pool,
        pool_bytes=owed,
        part_of=qp,
        delivered=None if effects is None else effects.delivered[qp],
    )
    order = taking_turns(chunks)
    chunk_flow = _pulled(curves, pool, pool_of_chunk, chunks, order)
    delay_s = None if effects is None else effects.delay_s[qp]
    times = fluid_times(chunks.bytes, chunk_flow, order, curves, delay_s)
    return Transfers(permitted.queue_pairs, paths, qp[chunk_flow], *times)


def settled_transfers(
    *,
    rate_bps: Mapping[Port, float],
    permitted: Permitted,
    paths: tuple[Path, ...],
    chunks: Chunks,
    effects: PathEffects | None = None,
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
        effects=effects,
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


def _flows(
    permitted: Permitted,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the queue pair and the pool of each flow, and the pool of each message.

    A flow is what a queue pair carries of a pool; a pool without queue pairs has none.
    """
    number: dict[frozenset[int], int] = {}
    pool_of_message = [number.setdefault(frozenset(qps), len(number)) for qps in permitted.of_message]
    flows = sorted((qp, pool) for qps, pool in number.items() for qp in qps)
    qp, pool = np.array(flows, dtype=np.int64).reshape(-1, 2).T
    return qp, pool, np.array(pool_of_message, dtype=np.int64)


def _pulled(
    curves: list[Curve],
    pool: NDArray[np.int64],
    pool_of_chunk: NDArray[np.int64],
    chunks: Chunks,
    order: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return each chunk's flow: of its pool's, the one that is done first with what it has."""
    free: dict[int, list[tuple[float, int]]] = {}
    for flow, mine in enumerate(pool.tolist()):
        free.setdefault(mine, []).append((0.0, flow))
    carried = [0] * len(pool)
    chunk_flow = np.zeros(len(chunks), dtype=np.int64)
    sizes, pools = chunks.bytes.tolist(), pool_of_chunk.tolist()
    for chunk in order.tolist():
        _, flow = free[pools[chunk]][0]
        chunk_flow[chunk] = flow
        carried[flow] += sizes[chunk]
        heapq.heapreplace(free[pools[chunk]], (_time_at(curves[flow], carried[flow]), flow))
    return chunk_flow


def _time_at(curve: Curve, count: int) -> float:
    """Return when a curve reaches a count; past its end it goes on as it ended."""
    times, counts = curve
    if count <= counts[-1]:
        return float(np.interp(count, counts, times))
    if len(times) < 2:
        return float("inf")
    slope = (times[-1] - times[-2]) / (counts[-1] - counts[-2])
    return float(times[-1] + (count - counts[-1]) * slope)
