"""The fabrics that TopoOpt's paper compares, of n servers with d interfaces of rate B each.

Packet fabrics give a server one NIC: the ideal switch, one that does not block, d B; the fat-tree of similar
cost, of full bisection, d B / 4; the oversubscribed one d B. TopoOpt, OCS-reconfig, SiP-ML and the
expander are circuits between d NICs a server over one panel, and differ in which circuits are lit.

References
----------
TopoOpt, section 5.1. The rate of the fat-tree of similar cost is not stated: that its hop count of 5.7 at
n = 128 and d = 4 becomes a relative overhead of 1.4 says d B / 4.
"""

import random
from dataclasses import replace

import networkx as nx

from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.fat_tree import fat_tree_fabric, least_k

TOPOOPT, IDEAL, FAT_TREE = "TopoOpt", "ideal switch", "fat-tree"
OVERSUBSCRIBED, EXPANDER = "oversubscribed", "expander"
OCS_RECONFIG, SIP_ML = "OCS-reconfig", "SiP-ML"
COLOURS = {
    TOPOOPT: "#0072b2",
    IDEAL: "#2b2b2b",
    FAT_TREE: "#e69f00",
    OVERSUBSCRIBED: "#d55e00",
    EXPANDER: "#009e73",
    OCS_RECONFIG: "#6f4e9c",
    SIP_ML: "#8c564b",
}
"""Of each in all plots, in the order in which they are shown."""
GPUS = 4
"""Of a server, in simulations."""
COST_SHARE = 4
"""By what a fat-tree's server has less bandwidth than TopoOpt's at a similar cost."""


def oversubscribed_fat_tree(servers: int, degree: int, rate_bps: float, *, gpus: int = GPUS) -> Fabric:
    """Return a fat-tree of NICs and links of d B without every second uplink of its ToR switches: 2 to 1.

    Parameters
    ----------
    servers, degree, rate_bps
        n, d and B; switches have a multiple of 4 ports, so that half of a ToR's uplinks is a whole number.
    gpus
        GPUs of each server.

    Notes
    -----
    All ToR switches lack the same uplinks: those of a pod have to meet at an aggregation switch. Switches
    that no ToR reaches any more are left out. The paper does not say which links its tree lacks.
    """
    check_size(servers, degree)
    k = least_k(servers)
    k += k % 4
    whole = fat_tree_fabric(k, servers=servers, gpus=gpus, rate_bps=degree * rate_bps)
    half = k // 2
    kept = {f"agg{index}" for index in range(k * half) if index % half % 2 == 0}
    kept |= {f"core{index}" for index in range(half * half) if index // half % 2 == 0}
    kept |= {node for node in (*whole.server_index, *whole.switch_index) if node.startswith(("h", "edge"))}
    return replace(
        whole,
        name="oversubscribed_fat_tree",
        switches=tuple(switch for switch in whole.switches if switch.name in kept),
        links=tuple(link for link in whole.links if {link.a.node, link.b.node} <= kept),
    )


def expander_pairs(servers: int, degree: int, seed: int) -> tuple[tuple[int, int], ...]:
    """Return the circuits of an expander: a random regular connected graph of servers, as `Plan.pairs`.

    Parameters
    ----------
    servers, degree
        n and d.
    seed
        Decides the graph.

    Returns
    -------
    pairs
        A pair (a, b) with a < b per duplex circuit, ascending; no two circuits join the same servers.

    Raises
    ------
    ScenarioError
        If there is no such graph: n d is odd, d is not below n, or d = 1 and n > 2.

    References
    ----------
    Jellyfish (NSDI 2012), section 3. TopoOpt's artifact pairs free ports at random along a random
    Hamiltonian path, and may join two servers twice.
    """
    check_size(servers, degree)
    if servers * degree % 2 or degree >= servers or (degree == 1 and servers > 2):
        raise ScenarioError(
            f"there is no connected graph of {servers} servers with {degree} circuits each to as many others",
            "give an even number of interfaces in all, fewer a server than there are servers, and 2 or more",
        )
    rng = random.Random(seed)
    while True:
        graph = nx.random_regular_graph(degree, servers, seed=rng)
        if nx.is_connected(graph):
            return tuple(sorted((min(pair), max(pair)) for pair in graph.edges))


def fat_tree_bps(degree: int, rate_bps: float) -> float:
    """Return the rate of a NIC of the fat-tree that costs about as much as TopoOpt [bit/s]."""
    return degree * rate_bps / COST_SHARE


def check_size(servers: int, degree: int) -> None:
    """Raise ScenarioError for a cluster without servers or interfaces."""
    if servers < 1 or degree < 1:
        raise ScenarioError(
            f"a cluster of {servers} servers with {degree} interfaces", "give at least one of each"
        )
