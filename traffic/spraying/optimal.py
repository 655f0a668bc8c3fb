"""The optimum: every pair of servers split over the rails as the linear program of Theorem 2 says.

It knows the whole matrix, which no server does, and splits each pair on its own, which LPT does
not: the upper limit that the other schemes are shown against.

Where the even split meets the lower bound it is the optimum (Theorem 3), and it is taken: the LP
would return a corner, as good and more bursty. Elsewhere, with rails of different rates, the LP
decides. Chunks cannot be divided, so each pair is rounded to whole chunks, and what the rounding
puts too much on a NIC is taken off at the next pair that shares it.
"""

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Fabric
from traffic.bounds import busiest_server_s, optimal_split, server_matrix
from traffic.messages import Chunks, Messages
from traffic.spraying.policy import Assignment
from traffic.spraying.rails import lpt, rail_rates, rails_between, same_rail

EXACT = 1e-9
"""Times closer than this part of each other are the same time."""
NEVER = 1 << 62
"""What is on a rail that two servers do not have in common, so that nothing more goes there [bytes]."""


class Optimal:
    """The split of Theorem 2, in whole chunks.

    References
    ----------
    RailS, Theorem 2 (eq. 20 and 24) and Theorem 3 (eq. 30).
    """

    name = "optimal"
    steady = True

    def assign(
        self, *, fabric: Fabric, messages: Messages, chunks: Chunks, rng: np.random.Generator
    ) -> Assignment:
        """Return every chunk on the rail that the optimum gives it; ``rng`` is not used.

        Raises
        ------
        ScenarioError
            If the servers do not all have the same number of NICs.
        """
        usable = rails_between(fabric)
        rails = usable.shape[2]
        target = server_matrix(messages, fabric)[:, :, None] * optimal_share(messages, fabric)
        servers = np.asarray(fabric.gpu_servers)
        pair = (servers[messages.source] * len(fabric.servers) + servers[messages.destination])[
            chunks.message
        ]
        by_pair = np.argsort(pair, kind="stable")
        rail = np.zeros(len(chunks), dtype=np.int64)
        sent, received = np.zeros((2, len(fabric.servers), rails))  # too much on each NIC so far
        for mine in np.split(by_pair, np.flatnonzero(np.diff(pair[by_pair])) + 1):
            if not len(mine):
                continue
            source, destination = divmod(int(pair[mine[0]]), len(fabric.servers))
            wanted = target[source, destination] - sent[source] - received[destination]
            start = np.rint(wanted.max() - wanted).astype(np.int64)
            start[~usable[source, destination]] = NEVER
            rail[mine] = lpt(chunks.bytes[mine], rails, start)
            carried = np.bincount(rail[mine], chunks.bytes[mine], rails)
            sent[source] += carried - target[source, destination]
            received[destination] += carried - target[source, destination]
        return same_rail(fabric, messages, chunks, rail)


def optimal_share(messages: Messages, fabric: Fabric) -> NDArray[np.float64]:
    """Return P*: the part of each pair on each rail, shape (servers, servers, rails)."""
    matrix, rate_bps = server_matrix(messages, fabric), rail_rates(fabric)
    load = np.maximum(matrix.sum(axis=1), matrix.sum(axis=0)) / rate_bps.shape[1]
    if rate_bps.all():
        even_s = float((8.0 * load[:, None] / rate_bps).max())
        if even_s <= busiest_server_s(messages, fabric) * (1 + EXACT):
            return np.full((*matrix.shape, rate_bps.shape[1]), 1.0 / rate_bps.shape[1])
    return optimal_split(matrix, rate_bps).share
