"""Connections of several queue pairs each, whose chunks go round them (NCCL_IB_QPS_PER_CONNECTION)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Fabric, Nic
from traffic.messages import Chunks, Messages
from traffic.spraying.entropies import KeptEntropies
from traffic.spraying.policy import Assignment, QueuePair


class OnConnections(ABC):
    """A policy whose messages go by connections, chunk by chunk round the queue pairs of each.

    Parameters
    ----------
    qps
        Queue pairs of a connection (NCCL_IB_QPS_PER_CONNECTION).
    """

    steady = True

    def __init__(self, qps: int = 1) -> None:
        self.qps, self.keeps_connections = qps, qps == 1
        self._entropies = KeptEntropies()

    @abstractmethod
    def connections(
        self, fabric: Fabric, messages: Messages
    ) -> tuple[Sequence[tuple[Nic, Nic]], NDArray[np.int64]]:
        """Return source and destination NIC of each connection, and the connection of each message."""

    def assign(
        self, *, fabric: Fabric, messages: Messages, chunks: Chunks, rng: np.random.Generator
    ) -> Assignment:
        """Return every chunk on a queue pair of its message's connection.

        Raises
        ------
        ScenarioError
            If more queue pairs run between two NICs than there are entropies.
        """
        ends, of_message = self.connections(fabric, messages)
        order, connection = taking_turns(chunks), of_message[chunks.message]
        count, chunk_qp = round_queue_pairs(fabric, ends, connection, order, self.qps)
        each = [end for end, own in zip(ends, count.tolist(), strict=True) for _ in range(own)]
        values = self._entropies.one_each(each, rng)
        queue_pairs = tuple(QueuePair(*end, value) for end, value in zip(each, values, strict=True))
        return Assignment(queue_pairs, chunk_qp, order)


def round_queue_pairs(
    fabric: Fabric,
    ends: Sequence[tuple[Nic, Nic]],
    connection: NDArray[np.int64],
    order: NDArray[np.int64],
    most: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many queue pairs each connection has, and which of all each chunk goes on: round its own.

    A connection whose NICs one switch joins has one queue pair, and none has more than chunks.

    Parameters
    ----------
    fabric, ends
        Between which NICs connections run, shape (connections,).
    connection, order
        The connection of each chunk, and the chunks in the order in which they are posted; shape (chunks,).
    most
        Queue pairs that a connection may have.
    """
    if most == 1:
        return np.ones(len(ends), dtype=np.int64), connection
    leaf = {nic: fabric.peer(fabric.nic_port(nic)).node for end in ends for nic in end}
    ways = np.array([1 if leaf[near] == leaf[far] else most for near, far in ends], dtype=np.int64)
    count = np.minimum(ways, np.bincount(connection, minlength=len(ends)))
    return count, (np.cumsum(count) - count)[connection] + _turns(connection, order) % count[connection]


def taking_turns(chunks: Chunks) -> NDArray[np.int64]:
    """Return the chunks, every message's first one before anybody's second.

    Which queue pair carries a chunk is the policy's decision; when it is posted is not. Each GPU
    posts its own messages while the others post theirs, hence messages that share a queue pair
    advance together on it and end at about the same time.

    Parameters
    ----------
    chunks
        The chunks; a message's stand together.

    Examples
    --------
    >>> taking_turns(Chunks(np.array([0, 0, 0, 1, 1]), np.array([9, 9, 1, 9, 5]))).tolist()
    [0, 3, 1, 4, 2]
    """
    first = np.searchsorted(chunks.message, chunks.message)
    turn = np.arange(len(chunks)) - first
    return np.argsort(turn, kind="stable")


def _turns(connection: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which of its connection's chunks each is, in the order in which they are posted."""
    posted = order[np.argsort(connection[order], kind="stable")]
    ranked = connection[posted]
    turn = np.empty(len(order), dtype=np.int64)
    turn[posted] = np.arange(len(order)) - np.searchsorted(ranked, ranked)
    return turn
