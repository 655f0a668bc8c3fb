"""ECMP: every message stays on the NICs beside its GPUs, and the fabric hashes it onto one spine.

A message is one queue pair, so all its chunks take one path whatever else takes it: two large
messages whose hashes collide share an uplink while another idles. Between GPUs of one rail the
path goes through the leaf alone and no hash decides anything.

All steps of a ring go by one connection per edge, as in NCCL, so each edge keeps its path; and a
communicator's connection between two NICs keeps its entropies for the run. With several queue pairs per
connection, chunks go round them in turn.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Fabric, Nic
from traffic.messages import Messages
from traffic.spraying.connections import OnConnections


class Ecmp(OnConnections):
    """A connection per message, between the NICs beside its GPUs, of random entropies.

    Parameters
    ----------
    qps
        Queue pairs of a connection (NCCL_IB_QPS_PER_CONNECTION).

    References
    ----------
    RFC 2992, section 2: the hash of a flow's addresses and ports chooses among equal-cost next
    hops. RailS, section VI-A, its first baseline.
    """

    name = "ecmp"

    def connections(
        self, fabric: Fabric, messages: Messages
    ) -> tuple[Sequence[tuple[Nic, Nic]], NDArray[np.int64]]:
        """Return the NICs of each connection, and the connection of each message."""
        ends = [
            (fabric.pinned_nic(source), fabric.pinned_nic(destination))
            for source, destination in zip(
                messages.source.tolist(), messages.destination.tolist(), strict=True
            )
        ]
        return ends, np.arange(len(messages))
