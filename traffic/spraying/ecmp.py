"""ECMP: every message stays on the NICs beside its GPUs, and the fabric hashes it onto one spine.

A message is one queue pair, so all its chunks take one path whatever else takes it: two large
messages whose hashes collide share an uplink while another idles. Between GPUs of one rail the
path goes through the leaf alone and no hash decides anything.

All steps of a ring go by one connection per edge, as in NCCL, so each edge keeps its path; and a
communicator's connection between two NICs keeps its entropies for the run. With several queue pairs per
connection, chunks go round them in turn.
"""

import numpy as np

from topologies.fabric import Fabric
from traffic.messages import Chunks, Messages
from traffic.spraying.connections import on_connections
from traffic.spraying.entropies import KeptEntropies
from traffic.spraying.policy import Assignment


class Ecmp:
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
    steady = True

    def __init__(self, qps: int = 1) -> None:
        self.qps, self.keeps_connections = qps, qps == 1
        self._entropies = KeptEntropies()

    def assign(
        self, *, fabric: Fabric, messages: Messages, chunks: Chunks, rng: np.random.Generator
    ) -> Assignment:
        """Return every chunk on a queue pair of its message.

        Raises
        ------
        ScenarioError
            If more queue pairs run between two NICs than there are entropies.
        """
        ends = [
            (fabric.pinned_nic(source), fabric.pinned_nic(destination))
            for source, destination in zip(
                messages.source.tolist(), messages.destination.tolist(), strict=True
            )
        ]
        of_message = np.arange(len(messages))
        return on_connections(fabric, ends, of_message, chunks, self._entropies, rng, self.qps)
