"""Each builder wires what its paper draws, and says what it cannot build."""

from collections import Counter
from collections.abc import Callable

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.topologies.strategies import fabrics
from topologies.addresses import interface, nic_ip
from topologies.big_switch import big_switch_fabric
from topologies.errors import FabricError
from topologies.fabric import Fabric, Nic, Port
from topologies.fat_tree import fat_tree_fabric
from topologies.khop_ring import KHopRing, khop_ring_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.mfabric import mfabric_fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.patch_panel import patch_panel_fabric, sharded_panel_fabric
from topologies.rail import rail_fabric


def bisection_bps(fabric: Fabric) -> float:
    """Return the most that the first half of the servers sends to the second [bit/s]."""
    flow: nx.DiGraph[str] = nx.DiGraph()
    for link in fabric.links:
        for a, b in ((link.a.node, link.b.node), (link.b.node, link.a.node)):
            before = flow.get_edge_data(a, b, {"capacity": 0})["capacity"]
            flow.add_edge(a, b, capacity=before + link.rate_bps)
    half = len(fabric.servers) // 2
    for server in fabric.servers[:half]:
        flow.add_edge("first half", server.name)
    for server in fabric.servers[half:]:
        flow.add_edge(server.name, "second half")
    return float(nx.maximum_flow_value(flow, "first half", "second half"))


def ports_in_use(fabric: Fabric, tier: int) -> set[int]:
    """Return the numbers of ports that the switches of a tier use."""
    return {len(list(fabric.used_ports(switch.name))) for switch in fabric.switches if switch.tier == tier}


def tiers(fabric: Fabric) -> Counter[int]:
    """Return how many switches each tier has."""
    return Counter(switch.tier for switch in fabric.switches)


@settings(deadline=None)
@given(fabrics)
def test_switches_with_servers_stand_first(fabric: Fabric) -> None:
    homes = {fabric.switch_index[fabric.peer(fabric.nic_port(nic)).node] for nic in fabric.nics}
    above = {index for index, switch in enumerate(fabric.switches) if switch.tier > 0}
    assert not above or max(homes) < min(above)
    assert len({nic_ip(fabric, nic) for nic in fabric.nics}) == len(fabric.nics)


@settings(deadline=None)
@given(st.sampled_from([2, 4, 6, 8]), st.sampled_from([1, 2, 3.5]))
def test_fat_tree_has_the_numbers_of_the_paper(k: int, oversubscription: float) -> None:
    fabric = fat_tree_fabric(k, oversubscription)
    assert len(fabric.servers) == k**3 // 4
    assert tiers(fabric) == {0: k * k // 2, 1: k * k // 2, 2: k * k // 4}
    assert all(ports_in_use(fabric, tier) == {k} for tier in range(3))
    assert bisection_bps(fabric) == pytest.approx(k**3 / 8 * 100e9 / oversubscription)


def test_fat_tree_has_paths_through_every_core() -> None:
    fabric = fat_tree_fabric(4)
    far = nx.all_shortest_paths(nx.Graph(fabric.graph()), "h0", "h15")
    assert {path[3] for path in far} == {"core0", "core1", "core2", "core3"}
    assert nx.shortest_path_length(fabric.graph(), "h0", "h1") == 2  # the same edge switch
    assert nx.shortest_path_length(fabric.graph(), "h0", "h2") == 4  # the same pod


def test_fat_tree_takes_fewer_and_wider_servers() -> None:
    fabric = fat_tree_fabric(6, servers=8, nics=3)
    assert len(fabric.servers) == 8
    assert fabric.gpus == 24
    assert {fabric.peer(fabric.nic_port(Nic(1, nic))).node for nic in range(3)} == {"edge1"}


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 2, 4]))
def test_leaf_spine_is_as_wide_as_its_uplinks(blocks: int, leaves: int, nics: int, ratio: int) -> None:
    rate_bps = 100e9
    fabric = leaf_spine_fabric(blocks * leaves, leaves, nics=nics, uplink_bps=rate_bps / ratio)
    assert ports_in_use(fabric, 0) == {blocks * nics * (2 if leaves > 1 else 1)}
    if leaves % 2 == 0:
        assert bisection_bps(fabric) == pytest.approx(blocks * leaves / 2 * nics * rate_bps / ratio)


def test_fat_tree_is_oversubscribed_at_the_edge_by_fewer_uplinks() -> None:
    fabric = fat_tree_fabric(4, edge_nics=6, nics=6)
    assert len(fabric.servers) == 8
    assert {link.rate_bps for link in fabric.links} == {100e9}
    assert ports_in_use(fabric, 0) == {6 + 2}
    assert ports_in_use(fabric, 1) == ports_in_use(fabric, 2) == {4}
    assert bisection_bps(fabric) == pytest.approx(4 * 6 * 100e9 / 3)


@given(st.sampled_from([4, 6]), st.integers(1, 4), st.integers(1, 4))
def test_rail_optimised_fat_tree_has_one_rail_on_an_edge_switch(k: int, nics: int, edge_nics: int) -> None:
    fabric = fat_tree_fabric(k, nics=nics, edge_nics=edge_nics, rail_optimised=True)
    homes: dict[str, set[Nic]] = {}
    for nic in fabric.nics:
        homes.setdefault(fabric.peer(fabric.nic_port(nic)).node, set()).add(nic)
    for members in homes.values():
        assert len(members) == edge_nics
        assert len({nic.nic for nic in members}) == 1
        assert len({nic.server // edge_nics for nic in members}) == 1


def test_leaf_spine_spreads_what_does_not_divide() -> None:
    fabric = leaf_spine_fabric(5, 3)
    homes = Counter(fabric.peer(fabric.nic_port(nic)).node for nic in fabric.nics)
    assert homes == {"leaf0": 2, "leaf1": 2, "leaf2": 1}
    assert {server.gpus for server in fabric.servers} == {1}


@settings(deadline=None)
@given(st.integers(2, 8), st.integers(1, 4))
def test_rail_and_big_switch_are_non_blocking(servers: int, nics: int) -> None:
    half_bps = (servers // 2) * nics * 100e9
    assert bisection_bps(rail_fabric(servers, nics)) == pytest.approx(half_bps)
    assert bisection_bps(big_switch_fabric(servers, nics=nics)) == pytest.approx(half_bps)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 3))
def test_rail_joins_nic_n_to_leaf_n(servers: int, rails: int, spines: int) -> None:
    fabric = rail_fabric(servers, rails, spines)
    for nic in fabric.nics:
        assert fabric.peer(fabric.nic_port(nic)) == Port(f"leaf{nic.nic}", nic.server)
    assert tiers(fabric) == Counter({0: rails} | ({1: spines} if spines else {}))
    assert ports_in_use(fabric, 0) == {servers + spines}
    assert nx.number_connected_components(fabric.graph()) == 1


@given(st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_parallel_ocs_joins_nic_k_to_ocs_k(servers: int, ocses: int, packet_switch: bool) -> None:
    fabric = parallel_ocs_fabric(servers, ocses, packet_switch=packet_switch, packet_bps=10e9)
    kinds = [switch.kind for switch in fabric.switches]
    assert kinds == ["ocs"] * ocses + ["packet"] * packet_switch
    for nic in fabric.nics:
        assert fabric.peer(fabric.nic_port(nic)) == Port(fabric.switches[nic.nic].name, nic.server)
        assert fabric.nic_rate_bps(nic) == (10e9 if nic.nic == ocses else 100e9)


BUILDS: list[Callable[[], Fabric]] = [
    lambda: rail_fabric(3, 2),
    lambda: fat_tree_fabric(4, 2),
    lambda: leaf_spine_fabric(4, 2, nics=2),
    lambda: big_switch_fabric(4, nics=2, gpus=3),
    lambda: parallel_ocs_fabric(4, 2, packet_switch=True),
    lambda: mfabric_fabric(4, 2),
    lambda: patch_panel_fabric(4, nics=2),
]


LARGEST: list[Callable[[], Fabric]] = [
    lambda: rail_fabric(1024, 8),
    lambda: rail_fabric(32_768, 4),
    lambda: fat_tree_fabric(62),
    lambda: leaf_spine_fabric(2, 2, 65_534),
    lambda: leaf_spine_fabric(65_534, 32_767, 2),
    lambda: big_switch_fabric(65_536),
    lambda: parallel_ocs_fabric(1024, 255, packet_switch=True),
    lambda: mfabric_fabric(16_384, 1, packet_nics=1),
    lambda: patch_panel_fabric(8192),
    lambda: sharded_panel_fabric(16_384),
    lambda: khop_ring_fabric(KHopRing(4096, 8, 3)),
]
"""As large as each builder's names and `MOST_LINKS`, `MOST_NODES` and `MOST_PORTS` let it."""


@pytest.mark.parametrize("build", LARGEST)
def test_the_largest_of_each_builder_has_interfaces_that_the_kernel_takes(
    build: Callable[[], Fabric],
) -> None:
    fabric = build()
    assert all(len(interface(fabric, port)) <= 15 for port in fabric.link_at)
    named = {
        (port.node in fabric.server_index and port.node, interface(fabric, port)) for port in fabric.link_at
    }
    assert len(named) == 2 * len(fabric.links)


@pytest.mark.parametrize("build", BUILDS)
def test_equal_inputs_give_equal_values(build: Callable[[], Fabric]) -> None:
    assert build() == build()
    assert hash(build()) == hash(build())


@pytest.mark.parametrize(
    ("build", "culprit"),
    [
        (lambda: rail_fabric(0, 4), "0 servers"),
        (lambda: rail_fabric(4, 0), "0 rails"),
        (lambda: rail_fabric(4, 4, -1), "-1 spines"),
        (lambda: rail_fabric(2, 2, rate_bps=0), "rate of 0 bit/s"),
        (lambda: rail_fabric(2, 2, uplink_bps=0), "leaf0:2 - spine0:0 has a rate of 0 bit/s"),
        (lambda: fat_tree_fabric(5), "5-port"),
        (lambda: fat_tree_fabric(0), "0-port"),
        (lambda: fat_tree_fabric(4, 0.5), "oversubscription of 0.5"),
        (lambda: fat_tree_fabric(4, float("nan")), "oversubscription of nan"),
        (lambda: fat_tree_fabric(4, servers=17), "17 servers of 1 NICs"),
        (lambda: fat_tree_fabric(4, servers=0), "no server"),
        (lambda: fat_tree_fabric(4, nics=0), "0 NICs"),
        (lambda: fat_tree_fabric(4, gpus=0), "0 GPUs"),
        (lambda: fat_tree_fabric(4, rate_bps=-1), "rate of -1"),
        (lambda: fat_tree_fabric(4, edge_nics=0), "0 NICs on an edge switch"),
        (lambda: fat_tree_fabric(4, servers=5, nics=8, rail_optimised=True), "5 servers of 8 NICs"),
        (lambda: leaf_spine_fabric(0, 1), "0 servers"),
        (lambda: leaf_spine_fabric(2, 3), "3 leaves"),
        (lambda: leaf_spine_fabric(2, 2, 0), "0 spines over 2 leaves"),
        (lambda: leaf_spine_fabric(2, 2, nics=0), "0 NICs"),
        (lambda: leaf_spine_fabric(2, 2, uplink_bps=0), "leaf0:1 - spine0:0 has a rate of 0 bit/s"),
        (lambda: big_switch_fabric(0), "no server"),
        (lambda: big_switch_fabric(2, nics=0), "0 NICs"),
        (lambda: parallel_ocs_fabric(0, 1), "0 servers"),
        (lambda: parallel_ocs_fabric(2, 0), "0 parallel OCSes"),
        (
            lambda: parallel_ocs_fabric(2, 1, packet_switch=True, packet_bps=0),
            "h0:1 - eps0:0 has a rate of 0",
        ),
        (lambda: mfabric_fabric(0), "0 servers"),
        (lambda: mfabric_fabric(6, 4), "6 servers in regions of 4"),
        (lambda: mfabric_fabric(4, packet_nics=0), "0 packet NICs of 8"),
        (lambda: mfabric_fabric(4, nics=4, packet_nics=4), "4 packet NICs of 4"),
        (lambda: mfabric_fabric(4, rate_bps=0, packet_bps=1e9), "h0:1 - ocs0:0 has a rate of 0"),
        (lambda: patch_panel_fabric(4, nics=0), "0 NICs"),
        (lambda: patch_panel_fabric(0), "no server"),
    ],
)
def test_what_cannot_be_built_is_named(build: Callable[[], Fabric], culprit: str) -> None:
    with pytest.raises(FabricError) as error:
        build()
    assert culprit in str(error.value)
