"""Forwarding, proved on paper for every pair of NICs of generated fabrics."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from statistics import fmean
from typing import get_args

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from controller.app.openflow import change_messages
from controller.packet.changes import RuleChanges
from controller.packet.ecmp_hash import MOST_BUCKETS
from controller.packet.flow_table import FlowTables, Hashing
from controller.packet.routing import ROUTED_PRIORITY, check_shares, forwarding_rules
from controller.packet.rules import Output, RuleSet, ToGroup
from tests.examples import examples
from tests.topologies.strategies import fabrics
from topologies.errors import FabricError
from topologies.fabric import Fabric, Link, Nic, Port
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from topologies.routing import Table


def switch_graph(fabric: Fabric, failed_links: frozenset[Link] = frozenset()) -> "nx.Graph[str]":
    """Return the packet switches and the links between them that work."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(switch.name for switch in fabric.switches if switch.kind == "packet")
    for link in fabric.links:
        if link.a.node in graph and link.b.node in graph and link not in failed_links:
            graph.add_edge(link.a.node, link.b.node)
    return graph


def assert_joined_by_shortest_ways(fabric: Fabric, failed_links: frozenset[Link], source_port: int) -> None:
    """Compare every pair's path with the distance in the graph; each port must lead to the next."""
    distances = dict(nx.all_pairs_shortest_path_length(switch_graph(fabric, failed_links)))
    tables = FlowTables(fabric, forwarding_rules(fabric, failed_links), failed_links)
    for source, destination in permutations(fabric.nics, 2):
        ends = [fabric.nic_port(nic) for nic in (source, destination)]
        first, last = (fabric.peer(port).node for port in ends)
        hops = distances.get(first, {}).get(last)
        path = tables.path(source, destination, source_port, 5001)
        if hops is None or any(fabric.link_at[port] in failed_links for port in ends):
            assert path is None
        else:
            assert path is not None
            assert len(path) == hops + 2
            assert [fabric.peer(port).node for port in path[:-1]] == [port.node for port in path[1:]]


@given(fabric=fabrics, data=st.data())
@settings(max_examples=examples(8, 25), deadline=None)
def test_every_pair_is_joined_by_a_shortest_way_where_there_is_one(
    fabric: Fabric, data: st.DataObject
) -> None:
    failed = data.draw(st.frozensets(st.sampled_from(fabric.links), max_size=4))
    assert_joined_by_shortest_ways(fabric, failed, data.draw(st.integers(0, 65535)))


@given(fabric=fabrics, data=st.data())
@settings(deadline=None)
def test_a_switch_repairs_what_it_sees_before_any_rule_changes(fabric: Fabric, data: st.DataObject) -> None:
    failed = frozenset({data.draw(st.sampled_from(fabric.links))})
    tables = FlowTables(fabric, forwarding_rules(fabric), failed)
    for source, destination in permutations(fabric.nics[:6], 2):
        path = tables.path(source, destination, 1000, 2000)
        assert path is None or not failed & {fabric.link_at[out] for out in path}


@given(fabric=fabrics)
@settings(deadline=None)
def test_no_switch_is_told_more_than_its_nics_and_the_other_leaves(fabric: Fabric) -> None:
    leaves = Counter(fabric.peer(fabric.nic_port(nic)).node for nic in fabric.nics)
    for switch, ruleset in forwarding_rules(fabric).items():
        assert len(ruleset.rules) <= leaves[switch] + len(leaves.keys() - {switch}) + 1
        assert {rule.priority for rule in ruleset.rules} <= {200, 100, 0}
        assert ruleset.rules[-1].actions == ()


def test_rules_of_a_small_rail_fabric() -> None:
    rules = forwarding_rules(rail_fabric(2, 2, 2))
    assert {
        name: [f"{rule.match}>{','.join(map(str, rule.actions))}" for rule in told.rules]
        for name, told in rules.items()
    } == {
        "leaf0": [
            "eth_type=0x0800,ipv4_dst=10.0.0.64/26>set_eth_dst=02:01:00:00:00:00,output=0",
            "eth_type=0x0800,ipv4_dst=10.0.0.128/26>set_eth_dst=02:01:00:01:00:00,output=1",
            "eth_type=0x0800,ipv4_dst=10.1.0.0/16>set_eth_dst=02:80:00:00:00:00,group=1",
            ">",
        ],
        "leaf1": [
            "eth_type=0x0800,ipv4_dst=10.1.0.64/26>set_eth_dst=02:01:00:00:00:01,output=0",
            "eth_type=0x0800,ipv4_dst=10.1.0.128/26>set_eth_dst=02:01:00:01:00:01,output=1",
            "eth_type=0x0800,ipv4_dst=10.0.0.0/16>set_eth_dst=02:80:00:00:01:00,group=1",
            ">",
        ],
        "spine0": [
            "eth_type=0x0800,ipv4_dst=10.0.0.0/16>set_eth_dst=02:80:00:00:02:00,output=0",
            "eth_type=0x0800,ipv4_dst=10.1.0.0/16>set_eth_dst=02:80:00:00:02:00,output=1",
            ">",
        ],
        "spine1": [
            "eth_type=0x0800,ipv4_dst=10.0.0.0/16>set_eth_dst=02:80:00:00:03:00,output=0",
            "eth_type=0x0800,ipv4_dst=10.1.0.0/16>set_eth_dst=02:80:00:00:03:00,output=1",
            ">",
        ],
    }
    assert [(bucket.port, bucket.weight) for bucket in rules["leaf0"].groups[0].buckets] == [
        (2, 1000),
        (3, 1000),
        (2, 1),
    ]


@dataclass(frozen=True)
class Detour:
    """A routing: what is for NIC 1.1 leaves leaf0 over spine1, and of the flow from NIC 0.0 over spine0."""

    def table(self, **_: object) -> Table:
        """Return the next hops."""
        flow = Nic(0, 0), Nic(1, 1)
        return {("leaf0", Nic(1, 1)): Port("leaf0", 3), ("leaf0", flow): Port("leaf0", 2)}


def test_what_a_routing_says_is_for_all_entropies_of_a_destination() -> None:
    fabric = rail_fabric(2, 2, 2)
    rules = forwarding_rules(fabric, routing=Detour())
    routed = [rule for rule in rules["leaf0"].rules if rule.priority >= ROUTED_PRIORITY]
    assert [f"{rule.priority} {rule.match}" for rule in routed] == [
        "300 eth_type=0x0800,ipv4_dst=10.1.0.128/26",
        "400 eth_type=0x0800,ipv4_dst=10.1.0.128/26,ipv4_src=10.0.0.64/32",
    ]
    tables = FlowTables(fabric, rules)
    for source, spine in ((Nic(0, 0), "spine0"), (Nic(1, 0), "spine1")):
        for path in tables.datagram_paths(source, Nic(1, 1)):
            assert path is not None
            assert path[2].node == spine


@pytest.mark.parametrize("hashing", get_args(Hashing))
def test_the_second_tier_chooses_independently_of_the_first(hashing: Hashing) -> None:
    fabric = fat_tree_fabric(8)
    tables = FlowTables(fabric, forwarding_rules(fabric), hashing=hashing)
    far = Nic(len(fabric.servers) - 1, 0)
    paths = Counter(
        (path[1].number, path[2].number)
        for port in range(1600)
        if (path := tables.path(Nic(0, 0), far, 10000 + port, 5001))
    )
    assert len(paths) == 16, "four uplinks, and over each of them four more"
    assert min(paths.values()) > 60
    assert max(paths.values()) < 145


@pytest.mark.parametrize("hashing", get_args(Hashing))
def test_choices_are_as_even_as_independent_ones(hashing: Hashing) -> None:
    fabric = rail_fabric(8, 4, 8)
    tables = FlowTables(fabric, forwarding_rules(fabric), hashing=hashing)
    links = Counter(
        port
        for source, destination in permutations(fabric.nics, 2)
        if source.nic != destination.nic
        for port in (tables.path(source, destination, 20000, 5000) or ())[1:3]
    )
    # 768 connections over 32 links up and 32 down, 24 on each: the variance of independent
    # choices is 24 * 7/8 = 21. Were they to depend on the addresses' difference alone, it would be 100.
    assert len(links) == 64
    assert fmean((count - 24) ** 2 for count in links.values()) == pytest.approx(21, abs=12)


def test_parallel_links_and_faster_ones_carry_their_share() -> None:
    fabric = leaf_spine_fabric(2, 2, 1)
    down, extra = fabric.switches[:2], [Port("leaf0", 8), Port("spine0", 8)]
    switches = tuple(replace(switch, ports=9) for switch in (*down, *fabric.switches[2:]))
    wide = replace(fabric, switches=switches, links=(*fabric.links, Link(extra[0], extra[1], 3 * 100e9)))
    tables = FlowTables(wide, forwarding_rules(wide))
    ports = Counter(
        path[1].number for port in range(1000) if (path := tables.path(Nic(0, 0), Nic(1, 0), port, 5001))
    )
    assert ports[8] == pytest.approx(750, abs=60)
    assert ports.total() == 1000


def test_a_link_of_one_way_needs_no_group() -> None:
    fabric = rail_fabric(2, 2, 1)
    rules = forwarding_rules(fabric)
    assert all(not ruleset.groups for ruleset in rules.values())
    actions = [rule.actions[-1] for ruleset in rules.values() for rule in ruleset.rules if rule.actions]
    assert all(isinstance(action, Output) and not isinstance(action, ToGroup) for action in actions)


def with_uplinks(fabric: Fabric, factors: Sequence[float]) -> Fabric:
    """Return a fabric whose links to spine n have as many times the rate."""
    of = {f"spine{spine}": factor for spine, factor in enumerate(factors)}
    links = (
        replace(link, rate_bps=link.rate_bps * of.get(link.b.node, of.get(link.a.node, 1.0)))
        for link in fabric.links
    )
    return replace(fabric, links=tuple(links))


def shares(rules: RuleSet, live: Sequence[int]) -> dict[int, float]:
    """Return the share of each live port in a switch's one group, the light bucket left out."""
    (group,) = rules.groups
    ports = Counter(bucket.port for bucket in group.buckets[:-1] if bucket.port in live)
    return {port: number / ports.total() for port, number in ports.items()}


@pytest.mark.parametrize(
    ("ratio", "buckets"),
    [(1.4, (5, 7)), (1.5, (2, 3)), (2.5, (2, 5)), (1.0, (1, 1)), (1 / 3, (3, 1)), (40, (1, 40))],
)
def test_uplinks_share_connections_by_their_rates(ratio: float, buckets: tuple[int, int]) -> None:
    fabric = with_uplinks(rail_fabric(2, 2, 2), (1.0, ratio))
    rules = forwarding_rules(fabric)
    (group,) = rules["leaf0"].groups
    assert tuple(Counter(bucket.port for bucket in group.buckets[:-1]).values()) == buckets
    tables = FlowTables(fabric, rules)
    paths = (tables.path(Nic(0, 0), Nic(1, 1), 10000 + port, 5001) for port in range(1000))
    chosen = Counter(path[1].number for path in paths if path)
    assert chosen[3] / 1000 == pytest.approx(ratio / (1 + ratio), abs=0.05)


@given(factors=st.lists(st.floats(1.0, 20.0), min_size=2, max_size=6), data=st.data())
@settings(deadline=None)
def test_no_share_is_more_than_1_percent_off_whatever_has_failed(
    factors: list[float], data: st.DataObject
) -> None:
    fabric = with_uplinks(rail_fabric(2, 2, len(factors)), factors)
    uplinks = [port for port in fabric.used_ports("leaf0") if fabric.peer(port).node.startswith("spine")]
    live = data.draw(st.lists(st.sampled_from(uplinks), min_size=1, unique=True))
    total_bps = sum(fabric.link_at[port].rate_bps for port in live)
    found = shares(forwarding_rules(fabric)["leaf0"], [port.number for port in live])
    assert found == pytest.approx(
        {port.number: fabric.link_at[port].rate_bps / total_bps for port in live}, rel=0.01
    )


@pytest.mark.parametrize("factors", [(1.0, 2100.0), (1.0, 9999.0), (1.0, 1.013, 1500.0)])
def test_uplinks_that_no_group_can_share_are_refused(factors: tuple[float, ...]) -> None:
    fabric = with_uplinks(rail_fabric(2, 2, len(factors)), factors)
    for refuse in (forwarding_rules, check_shares):
        with pytest.raises(FabricError, match=f"leaf0 .* to leaf1 over {len(factors)} links of"):
            refuse(fabric)


def test_links_that_share_no_group_may_differ_as_they_like() -> None:
    fabric = leaf_spine_fabric(2, 2, 1)
    slow = (link for link in fabric.links if "leaf1" in {link.a.node, link.b.node})
    links = {link: link for link in fabric.links} | {link: replace(link, rate_bps=1e7) for link in slow}
    check_shares(replace(fabric, links=tuple(links.values())))


def test_the_largest_group_is_one_message() -> None:
    fabric = with_uplinks(rail_fabric(2, 2, 2), (1.0, 2045.0))
    (group,) = forwarding_rules(fabric)["leaf0"].groups
    assert len(group.buckets) == MOST_BUCKETS
    message = next(change_messages(ProtocolDesc(4), RuleChanges((group,), (), (), ())))
    message.serialize()
    assert 0xFFFF - 32 < len(message.buf) <= 0xFFFF
