"""Connections of several queue pairs each, whose chunks go round them (NCCL_IB_QPS_PER_CONNECTION)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Nic
from traffic.messages import Chunks
from traffic.spraying.order import taking_turns
from traffic.spraying.policy import ENTROPIES, Assignment, QueuePair


def on_connections(
    fabric: Fabric,
    ends: Sequence[tuple[Nic, Nic]],
    of_message: NDArray[np.int64],
    chunks: Chunks,
    rng: np.random.Generator,
    qps: int = 1,
) -> Assignment:
    """Return every chunk on a queue pair of its message's connection.

    Parameters
    ----------
    fabric
        The network.
    ends
        Source and destination NIC of each connection; each connection carries a message or more.
    of_message
        The connection of each message, shape (messages,).
    chunks
        The work.
    rng
        Where the entropies are drawn from.
    qps
        Queue pairs of a connection; one where a single switch joins its NICs, and no more than it has chunks.

    Raises
    ------
    ScenarioError
        If more queue pairs run between two NICs than there are entropies.
    """
    order, connection = taking_turns(chunks), of_message[chunks.message]
    count = np.ones(len(ends), dtype=np.int64)
    if qps > 1:
        count = np.minimum(_ways(fabric, ends, qps), np.bincount(connection, minlength=len(ends)))
    number = {end: index for index, end in enumerate(dict.fromkeys(ends))}
    group = np.repeat(np.array([number[end] for end in ends], dtype=np.int64), count)
    entropy = iter(distinct_entropies(group, rng).tolist())
    queue_pairs = tuple(
        QueuePair(*end, next(entropy))
        for end, own in zip(ends, count.tolist(), strict=True)
        for _ in range(own)
    )
    chunk_qp = connection
    if qps > 1:
        chunk_qp = (np.cumsum(count) - count)[connection] + _turns(connection, order) % count[connection]
    return Assignment(queue_pairs, chunk_qp, order)


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
            "use fewer GPUs per NIC, or fewer queue pairs per connection",
        )
    entropy = rng.integers(ENTROPIES, size=len(group))
    while len(again := _repeated(group * ENTROPIES + entropy)):
        entropy[again] = rng.integers(ENTROPIES, size=len(again))
    return entropy


def _repeated(key: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return where a key stands that has stood before."""
    _, first = np.unique(key, return_index=True)
    return np.setdiff1d(np.arange(len(key)), first)


def _ways(fabric: Fabric, ends: Sequence[tuple[Nic, Nic]], most: int) -> NDArray[np.int64]:
    """Return how many queue pairs are worth having between two NICs: one where one switch joins them."""
    leaf = {nic: fabric.peer(fabric.nic_port(nic)).node for end in ends for nic in end}
    return np.array([1 if leaf[near] == leaf[far] else most for near, far in ends], dtype=np.int64)


def _turns(connection: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which of its connection's chunks each is, in the order in which they are posted."""
    posted = order[np.argsort(connection[order], kind="stable")]
    ranked = connection[posted]
    turn = np.empty(len(order), dtype=np.int64)
    turn[posted] = np.arange(len(order)) - np.searchsorted(ranked, ranked)
    return turn
