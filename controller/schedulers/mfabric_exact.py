"""The best circuits for mFabric's small regions, which say how far its greedy Algorithm 1 is from them.

A pair is either on circuits or wholly on the packet NICs. The least time t is searched among the values that
it can have: D_ij over a number of circuits, and sums of demands of a server over its packet NICs. Whether
there are circuits for a t is a small integer program: z_ij = 1 for the pairs on packets, and C_ij is what the
others need.
"""

from bisect import bisect_left
from itertools import combinations
from typing import NamedTuple

import numpy as np
import scipy  # loads its parts when they are used
from numpy.typing import ArrayLike

from controller.schedulers.demand import Matrix, checked_matrix
from controller.schedulers.mfabric import Counts
from topologies.errors import DemandError

MOST_SERVERS = 8
"""Above that the values that t can have are too many; with 8 it takes 0.06 s."""


class Best(NamedTuple):
    """The least time of an all-to-all, and circuits that reach it."""

    lane_bytes: float
    """Bytes that a NIC carries, on circuits or packets; times 8 over its rate this is t."""
    counts: Counts
    """C."""


def best_circuits(demand: ArrayLike, alpha: int, eps_nics: int) -> Best:
    """Return the circuits of the least transfer time t_x.

    Parameters
    ----------
    demand
        D, at most ``MOST_SERVERS`` servers [bytes].
    alpha
        Circuit NICs of a server.
    eps_nics
        n_e, packet NICs of a server, at least 1.

    Raises
    ------
    DemandError
        If the demand makes no sense or is between more servers, or there is no packet NIC.

    Notes
    -----
    Times closer to each other than one in a million may be taken for the same, as the solver does.

    References
    ----------
    mFabric, section 5.3, for what a transfer takes; the paper has no exact method.
    """
    matrix = checked_matrix(demand)
    np.fill_diagonal(matrix, 0.0)
    if len(matrix) > MOST_SERVERS or alpha < 0 or eps_nics < 1:
        raise DemandError(
            f"the best circuits of {len(matrix)} servers of {alpha} circuit and {eps_nics} packet NICs",
            f"take at most {MOST_SERVERS} servers, each with a packet NIC",
        )
    times = _possible_times(matrix, alpha, eps_nics)
    # With all pairs on packets the last is always enough.
    least = bisect_left(
        times[:-1], True, key=lambda time: _circuits_within(time, matrix, alpha, eps_nics) is not None
    )
    counts = _circuits_within(times[least], matrix, alpha, eps_nics)
    assert counts is not None, "all pairs fit on packets"
    return Best(times[least], counts)


def _possible_times(matrix: Matrix, alpha: int, eps_nics: int) -> list[float]:
    """Return all values that the least time can have, rising; its last is enough for all on packets."""
    per_circuit = {float(owed) / m for owed in matrix[matrix > 0] for m in range(1, alpha + 1)}
    per_packet_nic = {
        sum(chosen) / eps_nics
        for owed in (*matrix.tolist(), *matrix.T.tolist())
        for size in range(len(owed) + 1)
        for chosen in combinations([entry for entry in owed if entry], size)
    }
    enough = max(per_packet_nic)
    return sorted(time for time in per_circuit | per_packet_nic if time <= enough)


def _circuits_within(time: float, matrix: Matrix, alpha: int, eps_nics: int) -> Counts | None:
    """Return circuits with which no lane carries more than ``time`` bytes, or None."""
    n = len(matrix)
    rows, columns = np.triu_indices(n, 1)
    counts = np.zeros((n, n), dtype=np.intp)
    if not len(rows) or not matrix.any():
        return counts
    if not time:
        return None
    larger = np.maximum(matrix, matrix.T)[rows, columns]
    # A time that is D / m must need m circuits and not, by rounding, one more.
    need = np.minimum(np.ceil(larger / time - 1e-9), alpha + 1)
    ends = np.zeros((n, len(rows)))
    ends[rows, np.arange(len(rows))] = ends[columns, np.arange(len(rows))] = 1
    sent, received = np.zeros_like(ends), np.zeros_like(ends)
    sent[rows, np.arange(len(rows))] = received[columns, np.arange(len(rows))] = matrix[rows, columns]
    sent[columns, np.arange(len(rows))] = received[rows, np.arange(len(rows))] = matrix[columns, rows]
    found = scipy.optimize.milp(
        np.zeros(len(rows)),
        integrality=np.ones(len(rows), dtype=np.intp),
        bounds=scipy.optimize.Bounds(np.where(need > alpha, 1, 0), np.ones(len(rows))),
        constraints=[
            scipy.optimize.LinearConstraint(-ends * need, ub=alpha - (ends * need).sum(axis=1)),
            scipy.optimize.LinearConstraint(np.vstack([sent, received]) / time, ub=eps_nics),
        ],
    )
    if found.x is None:
        return None
    circuits = np.where(found.x > 0.5, 0, need).astype(np.intp)
    counts[rows, columns] = counts[columns, rows] = circuits
    return counts
