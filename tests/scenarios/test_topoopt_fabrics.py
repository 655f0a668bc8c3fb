"""TopoOpt's rivals as they are wired: rates, what ToR switches send up, and random expanders."""

from collections import Counter

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios._topoopt.fabrics import (
    expander_pairs,
    fat_tree_bps,
    oversubscribed_fat_tree,
)
from tests.topologies.test_builders import bisection_bps
from topologies.errors import ScenarioError
from topologies.fabric import Fabric, Nic
from topologies.fat_tree import fat_tree_fabric, least_k

RATE_BPS = 100e9


def server_bps(fabric: Fabric) -> set[float]:
    """Return the rates at which servers send at most, each once [bit/s]."""
    sent = Counter[int]()
    for nic in fabric.nics:
        sent[nic.server] += int(fabric.nic_rate_bps(nic))
    return set(sent.values())


def tor_uplinks(fabric: Fabric) -> dict[str, tuple[float, float]]:
    """Return the rates of ToR switches with servers, from these and up, at most [bit/s]."""
    above = {switch.name for switch in fabric.switches if switch.tier > 0}
    rates: dict[str, tuple[float, float]] = {}
    for name in dict.fromkeys(fabric.peer(fabric.nic_port(nic)).node for nic in fabric.nics):
        down = up = 0.0
        for port in fabric.used_ports(name):
            rate_bps = fabric.link_at[port].rate_bps
            is_up = fabric.peer(port).node in above
            down, up = (down, up + rate_bps) if is_up else (down + rate_bps, up)
        rates[name] = down, up
    return rates


@pytest.mark.parametrize("degree", [4, 8])
def test_servers_send_what_the_paper_gives_them(degree: int) -> None:
    fabric = oversubscribed_fat_tree(16, degree, RATE_BPS)
    assert server_bps(fabric) == {degree * RATE_BPS}
    assert {server.gpus for server in fabric.servers} == {4}
    assert {server.nics for server in fabric.servers} == {1}


@pytest.mark.parametrize(("servers", "k"), [(16, 4), (128, 8), (432, 12)])
def test_a_fat_tree_of_similar_cost_is_full_and_does_not_block(servers: int, k: int) -> None:
    fabric = fat_tree_fabric(least_k(servers), servers=servers, rate_bps=fat_tree_bps(4, RATE_BPS))
    assert Counter(switch.ports for switch in fabric.switches) == {k: 5 * k * k // 4}
    assert set(tor_uplinks(fabric).values()) == {(k / 2 * RATE_BPS, k / 2 * RATE_BPS)}
    if servers == 16:
        assert bisection_bps(fabric) == pytest.approx(servers / 2 * RATE_BPS)


@pytest.mark.parametrize("servers", [3, 16, 54, 128, 432])
def test_tor_switches_of_an_oversubscribed_tree_send_up_half(servers: int) -> None:
    fabric = oversubscribed_fat_tree(servers, 4, RATE_BPS, gpus=1)
    uplinks = tor_uplinks(fabric)
    k = 2 * int(max(down for down, _ in uplinks.values()) / (4 * RATE_BPS)) if servers > 3 else 4
    assert {up for _, up in uplinks.values()} == {k / 4 * 4 * RATE_BPS}
    assert {link.rate_bps for link in fabric.links} == {4 * RATE_BPS}
    assert all(nx.degree(fabric.graph(), switch.name) for switch in fabric.switches)
    assert Fabric.from_json(fabric.to_json()) == fabric


def test_an_oversubscribed_tree_has_half_the_bisection_and_paths_inside_a_pod() -> None:
    fabric = oversubscribed_fat_tree(16, 4, RATE_BPS)
    assert bisection_bps(fabric) == pytest.approx(16 / 2 * 4 * RATE_BPS / 2)
    graph = fabric.graph()
    for far, hops in ((1, 2), (2, 4), (15, 6)):
        assert nx.shortest_path_length(graph, "h0", f"h{far}") == hops


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 40), st.integers(2, 8), st.integers(0, 2**32 - 1))
def test_an_expander_is_regular_simple_and_connected(servers: int, degree: int, seed: int) -> None:
    if servers * degree % 2 or degree >= servers:
        with pytest.raises(ScenarioError, match="no connected graph"):
            expander_pairs(servers, degree, seed)
        return
    pairs = expander_pairs(servers, degree, seed)
    graph = nx.Graph(pairs)
    assert len(set(pairs)) == len(pairs) == servers * degree // 2
    assert all(a < b for a, b in pairs)
    assert dict(graph.degree) == dict.fromkeys(range(servers), degree)
    assert nx.is_connected(graph)
    assert pairs == expander_pairs(servers, degree, seed)


def test_other_seeds_give_other_expanders() -> None:
    assert len({expander_pairs(16, 4, seed) for seed in range(10)}) == 10


@pytest.mark.parametrize("size", [(0, 4), (4, 0)])
def test_clusters_without_servers_or_interfaces_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ScenarioError, match="a cluster of"):
        oversubscribed_fat_tree(*size, RATE_BPS)


def test_every_server_is_on_one_tor() -> None:
    fabric = oversubscribed_fat_tree(16, 4, RATE_BPS)
    homes = Counter(fabric.peer(fabric.nic_port(Nic(server, 0))).node for server in range(16))
    assert set(homes.values()) == {2}
