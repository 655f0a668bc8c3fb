"""RailS: every server spreads its chunks over all its rails, longest first onto the least loaded.

The decision is local: a server knows what its own GPUs send and nothing else. A chunk on rail j
leaves by NIC j and arrives at NIC j, so it crosses one leaf and no spine; between its GPU and
that NIC it crosses NVLink, at both ends.

Theorem 3 says that uniform sending gives uniform receiving. That holds when every *pair* of
servers is spread evenly, as its proof assumes (eq. 27), and not for any uniform sending load.
Plain LPT balances a server's total; that it comes out nearly even per destination too is because
equal chunks are taken message by message, and so go round the rails in turn.
"""

import heapq
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Nic
from traffic.messages import Chunks, Messages
from traffic.spraying.connections import round_queue_pairs, taking_turns
from traffic.spraying.policy import Assignment, QueuePair

SHORT_RUN = 100
"""Runs of equal weights up to this long go through the heap, which is faster for them (measured)."""


class Rails:
    """Longest processing time first over the rails of each server.

    The paper resets LoadState at each all-to-all, and assigns all of it at once. Here LoadState starts at
    what the queue pairs of the communicator have yet to deliver, by the NIC that sends. That is nothing where
    an all-to-all begins and the one before has ended, as in the paper. Messages of one all-to-all that start
    later, what is left of it after a fault, and one that begins while another is under way on the same queue
    pairs, go where least is left. Other communicators do not count: their queue pairs are served beside
    these, and one with a long backlog takes no more of a NIC than one with a short.

    Parameters
    ----------
    entropies
        Between two NICs of a rail that no single switch joins, where a path has to be chosen besides: chunks
        go round them.

    References
    ----------
    RailS, section V-B, Algorithm 2; Theorem 4 for its bounds.
    """

    name = "rails"
    steady = True

    def __init__(self, entropies: int = 1) -> None:
        self._entropies = entropies
        self._backlog_bytes: Callable[[Nic], int] | None = None

    def goes_on_from(self, backlog_bytes: Callable[[Nic], int]) -> None:
        """Have the next assignment go on from what the communicator's queue pairs have yet to deliver."""
        self._backlog_bytes = backlog_bytes

    def assign(
        self, *, fabric: Fabric, messages: Messages, chunks: Chunks, rng: np.random.Generator
    ) -> Assignment:
        """Return every chunk on the rail that Algorithm 2 gives it; ``rng`` is not used.

        Raises
        ------
        ScenarioError
            If the servers do not all have the same number of slots for NICs, or two that have chunks for each
            other have no rail in common.

        Notes
        -----
        Where NICs have failed, a chunk has the rails that work at both its ends; the paper is silent on that.
        """
        usable = rails_between(fabric)
        rails = usable.shape[2]
        gpu_servers = np.asarray(fabric.gpu_servers)
        gpu, towards = messages.source[chunks.message], gpu_servers[messages.destination[chunks.message]]
        rail = np.zeros(len(chunks), dtype=np.int64)
        backlog_bytes, self._backlog_bytes = self._backlog_bytes, None
        for server in range(len(fabric.servers)):
            mine = np.flatnonzero(gpu_servers[gpu] == server)
            mine = mine[np.argsort(gpu[mine], kind="stable")]  # LPT's own sort keeps this order among equals
            if not len(mine):
                continue
            loads = np.zeros(rails, dtype=np.int64)
            if backlog_bytes:
                for own, nic in fabric.rails(server).items():
                    loads[own] = backlog_bytes(Nic(server, nic))
            if usable[server].all():
                rail[mine] = lpt(chunks.bytes[mine], rails, loads)
            else:
                rail[mine] = lpt_among(chunks.bytes[mine], usable[server, towards[mine]], loads)
        return same_rail(fabric, messages, chunks, rail, self._entropies)


def rails_between(fabric: Fabric) -> NDArray[np.bool_]:
    """Return which rails join which servers, shape (servers, servers, rails)."""
    works = rail_rates(fabric) > 0
    return np.asarray(works[:, None] & works[None])


def rail_rates(fabric: Fabric) -> NDArray[np.float64]:
    """Return the rate of each server's NIC on each rail [bit/s], shape (servers, rails); 0 without one."""
    rates = np.zeros((len(fabric.servers), rails_of(fabric)))
    for server in range(len(fabric.servers)):
        for rail, nic in fabric.rails(server).items():
            rates[server, rail] = fabric.nic_rate_bps(Nic(server, nic))
    return rates


def rails_of(fabric: Fabric) -> int:
    """Return how many rails a fabric has; ScenarioError if its servers differ in that."""
    nics = {len(server.slots) or server.nics for server in fabric.servers}
    if len(nics) != 1:
        raise ScenarioError(
            f"the servers of {fabric.name!r} have {min(nics)} to {max(nics)} NICs, so it has no rails",
            "use a scheme that does not need them, such as ecmp",
        )
    return nics.pop()


def same_rail(
    fabric: Fabric, messages: Messages, chunks: Chunks, rail: NDArray[np.int64], entropies: int = 1
) -> Assignment:
    """Return each chunk on a queue pair of its rail between its two servers.

    Parameters
    ----------
    fabric, messages, chunks
        As in `ProactivePolicy.assign`.
    rail
        The rail of each chunk, shape (chunks,).
    entropies
        How many queue pairs join two NICs that no single switch joins; chunks go round them.
    """
    servers = np.asarray(fabric.gpu_servers)
    shape = len(fabric.servers), len(fabric.servers), rails_of(fabric)
    source, destination = servers[messages.source], servers[messages.destination]
    code = np.ravel_multi_index((source[chunks.message], destination[chunks.message], rail), shape)
    used, joined = np.unique(code, return_inverse=True)
    indices = zip(*(index.tolist() for index in np.unravel_index(used, shape)), strict=True)
    nics = [fabric.rails(server) for server in range(len(fabric.servers))]
    ends = [(Nic(a, nics[a][rail]), Nic(b, nics[b][rail])) for a, b, rail in indices]
    order = taking_turns(chunks)
    count, chunk_qp = round_queue_pairs(fabric, ends, joined.astype(np.int64), order, entropies)
    queue_pairs = tuple(
        QueuePair(*end, entropy)
        for end, own in zip(ends, count.tolist(), strict=True)
        for entropy in range(own)
    )
    return Assignment(queue_pairs, chunk_qp, order)


def lpt(weights: NDArray[np.int64], bins: int, start: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return the bin of each weight: longest first, each into the bin of least load.

    Weights that are equal go in the order given, and among bins of equal load the first is taken.
    A run of equal weights w meets bin j at the loads L_j, L_j + w, L_j + 2w ...; who is least
    loaded next is the merge of these progressions, which one sort gives for the whole run.

    Parameters
    ----------
    weights
        Not negative, shape (flows,).
    bins
        How many bins, at least one.
    start
        What is in the bins before, shape (bins,); by default nothing.

    References
    ----------
    RailS, Algorithm 2, steps 2 and 3. R. L. Graham, "Bounds on multiprocessing timing anomalies",
    SIAM J. Appl. Math. 17 (1969): L_max / L_opt <= 4/3 - 1/(3 bins) from empty bins.

    Examples
    --------
    >>> lpt(np.array([2, 3, 2, 3]), 2).tolist()
    [0, 0, 1, 1]
    """
    chosen = np.zeros(len(weights), dtype=np.int64)
    by_weight = np.argsort(-weights, kind="stable")
    loads = [0] * bins if start is None else start.tolist()
    heap = [(load, index) for index, load in enumerate(loads)]
    heapq.heapify(heap)
    edges = np.flatnonzero(np.diff(weights[by_weight], prepend=-1, append=-1)).tolist()
    for begin, end in pairwise(edges):
        run = by_weight[begin:end]
        weight = int(weights[run[0]])
        if len(run) <= SHORT_RUN or weight == 0:
            chosen[run] = [_into_least(heap, weight) for _ in range(len(run))]
        else:
            chosen[run] = _run_into_least(heap, weight, len(run))
    return chosen


def lpt_among(
    weights: NDArray[np.int64], usable: NDArray[np.bool_], start: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the bin of each weight: longest first, each into the bin of least load that it may use.

    Parameters
    ----------
    weights
        Not negative, shape (flows,).
    usable
        Which bins each may use, shape (flows, bins).
    start
        What the bins hold before, shape (bins,); by default nothing.

    Raises
    ------
    ScenarioError
        If one may use none.

    Examples
    --------
    >>> lpt_among(np.array([2, 3, 2]), np.array([[True, True], [True, True], [True, False]])).tolist()
    [1, 0, 0]
    """
    if not usable.any(axis=1).all():
        raise ScenarioError("two servers have no rail in common that works", "take a scheme that uses spines")
    chosen = np.zeros(len(weights), dtype=np.int64)
    loads = np.zeros(usable.shape[1], dtype=np.int64) if start is None else start.copy()
    never = np.iinfo(np.int64).max
    for flow in np.argsort(-weights, kind="stable").tolist():
        chosen[flow] = np.where(usable[flow], loads, never).argmin()
        loads[chosen[flow]] += weights[flow]
    return chosen


def _into_least(heap: list[tuple[int, int]], weight: int) -> int:
    load, index = heap[0]
    heapq.heapreplace(heap, (load + weight, index))
    return index


def _run_into_least(heap: list[tuple[int, int]], weight: int, count: int) -> NDArray[np.int64]:
    """Return the bins that ``count`` equal weights go to, and leave the heap as they do."""
    loads = np.array([load for load, _ in sorted(heap, key=lambda entry: entry[1])])
    ascending = np.sort(loads)
    # The level to which the run's weight would fill the bins as water: no bin is chosen above it, and
    # at least `count` steps of the progressions lie at or below it.
    level = int((-(-(count * weight + np.cumsum(ascending)) // np.arange(1, len(loads) + 1))).min())
    steps = np.maximum((level - loads) // weight + 1, 0)
    bins = np.repeat(np.arange(len(loads)), steps)
    step = np.arange(len(bins)) - np.repeat(np.cumsum(steps) - steps, steps)
    chosen = bins[np.argsort(loads[bins] + step * weight, kind="stable")[:count]]
    loads += weight * np.bincount(chosen, minlength=len(loads))
    heap[:] = [(load, index) for index, load in enumerate(loads.tolist())]
    heapq.heapify(heap)
    return chosen
