"""ECMP: every message stays on the NICs beside its GPUs, and the fabric hashes it onto one spine.

A message is one queue pair, so all its chunks take one path whatever else takes it: two large
messages whose hashes collide share an uplink while another idles. Between GPUs of one rail the
path goes through the leaf alone and no hash decides anything.

All steps of a ring go by one connection per edge, as in NCCL, so each edge keeps its path.
"""

import numpy as np
from numpy.typing import NDArray

from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from traffic.messages import Chunks, Messages
from traffic.spraying.order import taking_turns
from traffic.spraying.policy import ENTROPIES, Assignment, QueuePair


class Ecmp:
    """One queue pair per message, between the NICs beside its GPUs, of a random entropy.

    References
    ----------
    RFC 2992, section 2: the hash of a flow's addresses and ports chooses among equal-cost next
    hops. RailS, section VI-A, its first baseline.
    """

    name = "ecmp"
    keeps_connections = True

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
        number = {end: index for index, end in enumerate(dict.fromkeys(ends))}
        entropy = distinct_entropies(np.array([number[end] for end in ends], dtype=np.int64), rng)
        queue_pairs = tuple(QueuePair(*end, value) for end, value in zip(ends, entropy.tolist(), strict=True))
        return Assignment(queue_pairs, chunks.message.copy(), taking_turns(chunks))


def distinct_entropies(group: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a random entropy per member, no two alike in one group.

    Parameters
    ----------
    group
        The group of each member: queue pairs between the same two NICs, say; shape (members,).
    rng
        Where the entropies are drawn from, each of ``0 .. ENTROPIES - 1`` alike.

    Raises
    ------
    ScenarioError
        If a group has more members than there are entropies.
    """
    largest = int(np.bincount(group).max(initial=0)) if len(group) else 0
    if largest > ENTROPIES:
        raise ScenarioError(
            f"{largest} queue pairs join the same two NICs, and there are {ENTROPIES} entropies",
            "use fewer GPUs per NIC",
        )
    entropy = rng.integers(ENTROPIES, size=len(group))
    while len(again := _repeated(group * ENTROPIES + entropy)):
        entropy[again] = rng.integers(ENTROPIES, size=len(again))
    return entropy


def _repeated(key: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return where a key stands that has stood before."""
    _, first = np.unique(key, return_index=True)
    return np.setdiff1d(np.arange(len(key)), first)
