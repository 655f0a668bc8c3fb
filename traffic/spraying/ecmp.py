"""ECMP: every message stays on the NICs beside its GPUs, and the fabric hashes it onto one spine.

A message is one queue pair, so all its chunks take one path whatever else takes it: two large
messages whose hashes collide share an uplink while another idles. Between GPUs of one rail the
path goes through the leaf alone and no hash decides anything.

All steps of a ring go by one connection per edge, as in NCCL, so each edge keeps its path; and a
communicator's connection between two NICs keeps its entropy for the run.
"""

import numpy as np

from topologies.fabric import Fabric
from traffic.messages import Chunks, Messages
from traffic.spraying.entropies import KeptEntropies
from traffic.spraying.order import taking_turns
from traffic.spraying.policy import Assignment, QueuePair


class Ecmp:
    """One queue pair per message, between the NICs beside its GPUs, of a random entropy.

    References
    ----------
    RFC 2992, section 2: the hash of a flow's addresses and ports chooses among equal-cost next
    hops. RailS, section VI-A, its first baseline.
    """

    name = "ecmp"
    keeps_connections = True
    steady = True

    def __init__(self) -> None:
        self._entropies = KeptEntropies()

    def assign(
        self, *, fabric: Fabric, messages: Messages, chunks: Chunks, rng: np.random.Generator
    ) -> Assignment:
        """Return every chunk on the queue pair of its message.

        Raises
        ------
        ScenarioError
            If more messages run between two NICs than there are entropies.
        """
        ends = [
            (fabric.pinned_nic(source), fabric.pinned_nic(destination))
            for source, destination in zip(
                messages.source.tolist(), messages.destination.tolist(), strict=True
            )
        ]
        entropies = self._entropies.one_each(ends, rng)
        queue_pairs = tuple(QueuePair(*end, value) for end, value in zip(ends, entropies, strict=True))
        return Assignment(queue_pairs, chunks.message.copy(), taking_turns(chunks))
