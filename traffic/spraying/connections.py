"""Connections of several queue pairs each, whose chunks go round them (NCCL_IB_QPS_PER_CONNECTION)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Fabric, Nic
from traffic.messages import Chunks, Messages
from traffic.spraying.entropies import KeptEntropies
from traffic.spraying.order import taking_turns
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

        A connection whose NICs one switch joins has one queue pair, and none has more than chunks.

        Raises
        ------
        ScenarioError
            If more queue pairs run between two NICs than there are entropies.
        """
        ends, of_message = self.connections(fabric, messages)
        order, connection = taking_turns(chunks), of_message[chunks.message]
        count = np.ones(len(ends), dtype=np.int64)
        if self.qps > 1:
            count = np.minimum(ways(fabric, ends, self.qps), np.bincount(connection, minlength=len(ends)))
        each = [end for end, own in zip(ends, count.tolist(), strict=True) for _ in range(own)]
        values = self._entropies.one_each(each, rng)
        queue_pairs = tuple(QueuePair(*end, value) for end, value in zip(each, values, strict=True))
        chunk_qp = connection
        if self.qps > 1:
            chunk_qp = (np.cumsum(count) - count)[connection] + turns(connection, order) % count[connection]
        return Assignment(queue_pairs, chunk_qp, order)


def ways(fabric: Fabric, ends: Sequence[tuple[Nic, Nic]], most: int) -> NDArray[np.int64]:
    """Return how many queue pairs are worth having between two NICs: one where one switch joins them."""
    leaf = {nic: fabric.peer(fabric.nic_port(nic)).node for end in ends for nic in end}
    return np.array([1 if leaf[near] == leaf[far] else most for near, far in ends], dtype=np.int64)


def turns(connection: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which of its connection's chunks each is, in the order in which they are posted."""
    posted = order[np.argsort(connection[order], kind="stable")]
    ranked = connection[posted]
    turn = np.empty(len(order), dtype=np.int64)
    turn[posted] = np.arange(len(order)) - np.searchsorted(ranked, ranked)
    return turn
