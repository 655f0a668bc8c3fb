"""Which shard follows which on a cluster's servers, and on which of two panels each has its circuits."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import networkx as nx

from controller.circuits.circuits import Pair
from controller.circuits.rule import HasNodes
from topologies.errors import ScenarioError


class Shard(NamedTuple):
    """A job on servers of its own, by its nodes in the graph of all that run."""

    starts: str
    """The node with which it starts; errors call it by that."""
    ends: tuple[str, ...]
    """The nodes whose end frees its servers."""
    circuits: tuple[Pair, ...]
    """Between ports of a panel, port s * nics + n for NIC n of server s. These are its servers."""


def followed(
    shards: Sequence[Shard], servers: Sequence[frozenset[int]], job: HasNodes
) -> tuple[frozenset[int], ...]:
    """Return the shards that each follows: they share a server, and it starts after the others' ends.

    Parameters
    ----------
    shards
        All of them.
    servers
        The servers of each.
    job
        Which node waits for which.

    Raises
    ------
    ScenarioError
        If the job lacks a node, a shard ends before it starts, or two share a server at the same time.
    """
    graph = nx.DiGraph((earlier, node.name) for node in job.nodes for earlier in node.after)
    graph.add_nodes_from(node.name for node in job.nodes)
    for shard in shards:
        if missing := [name for name in (shard.starts, *shard.ends) if name not in graph]:
            raise ScenarioError(f"shard {shard.starts!r} has the node {missing[0]!r}, which the job does not")
        later = {shard.starts, *nx.descendants(graph, shard.starts)}
        if early := [name for name in shard.ends if name not in later]:
            raise ScenarioError(
                f"shard {shard.starts!r} ends with {early[0]!r}, which does not wait for its start",
                "name nodes that do",
            )
    earlier = [nx.ancestors(graph, shard.starts) for shard in shards]
    before = tuple(
        frozenset(
            other
            for other, shard in enumerate(shards)
            if servers[number] & servers[other] and earlier[number].issuperset(shard.ends)
        )
        for number in range(len(shards))
    )
    for number, shard in enumerate(shards):
        for other in range(number):
            shared = servers[number] & servers[other]
            if shared and other not in before[number] and number not in before[other]:
                raise ScenarioError(
                    f"shards {shards[other].starts!r} and {shard.starts!r} share server {min(shared)} at the "
                    "same time",
                    "let the first node of one wait for the last of the other, or give it other servers",
                )
    return before


def sides_of(servers: Sequence[frozenset[int]], before: Sequence[frozenset[int]]) -> tuple[int, ...]:
    """Return a side for each shard, 0 or 1: where possible, not that of a shard which it follows at once.

    Parameters
    ----------
    servers
        Those of each shard.
    before
        The shards that each follows (`followed`).

    Examples
    --------
    >>> servers = frozenset({0, 1}), frozenset({2, 3}), frozenset({1, 2})
    >>> sides_of(servers, [frozenset(), frozenset(), frozenset({0, 1})])
    (0, 0, 1)
    """
    follows: nx.Graph[int] = nx.Graph()
    follows.add_nodes_from(range(len(servers)))
    for server in frozenset[int]().union(*servers):
        on_it = [number for number, own in enumerate(servers) if server in own]
        in_turn = sorted(on_it, key=lambda number: len(before[number].intersection(on_it)))
        follows.add_edges_from(pairwise(in_turn))
    sides: dict[int, int] = {}
    if nx.is_bipartite(follows):
        for part in nx.connected_components(follows):
            own = nx.bipartite.color(follows.subgraph(part))
            sides |= {number: own[number] ^ own[min(part)] for number in part}
    else:  # three shards, say, each of which follows the two before it
        for number in sorted(follows, key=lambda each: len(before[each])):
            taken = [sides[each] for each in follows[number] if each in sides]
            sides[number] = int(taken.count(0) > taken.count(1))
    return tuple(sides[number] for number in range(len(servers)))
