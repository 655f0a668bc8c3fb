"""Switches forward to the addresses of hosts: proved on paper for each NIC that may send, and each host."""

from collections import Counter
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from controller.app.openflow import change_messages
from controller.packet.changes import RuleChanges
from controller.packet.ecmp_hash import MOST_WRITING, forwarding_buckets
from controller.packet.flow_table import FlowTables
from controller.packet.routing import check_shares, forwarding_rules
from controller.packet.rules import RuleSet, SelectGroup
from tests.controller.test_routing import switch_graph
from tests.examples import examples
from tests.topologies.strategies import fabrics
from topologies.addresses import HOSTS_NETWORK, nic_mac
from topologies.errors import FabricError
from topologies.fabric import Fabric, Link, Nic, Port, Server, Switch
from topologies.leaf_spine import leaf_spine_fabric
from topologies.packet_part import on_packet_switch
from topologies.rail import rail_fabric


def to_hosts(ruleset: RuleSet) -> list[str]:
    """Return a switch's rules to hosts as text."""
    rules = [
        rule for rule in ruleset.rules if rule.match.ipv4_dst and rule.match.ipv4_dst.overlaps(HOSTS_NETWORK)
    ]
    return [f"{rule.match.ipv4_dst}>{','.join(map(str, rule.actions))}" for rule in rules]


@given(fabric=fabrics, data=st.data())
@settings(max_examples=examples(10, 40), deadline=None)
def test_a_host_is_reached_by_its_nearest_nics_that_work(fabric: Fabric, data: st.DataObject) -> None:
    failed = data.draw(st.frozensets(st.sampled_from(fabric.links), max_size=4))
    port = data.draw(st.integers(0, 65535))
    tables = FlowTables(fabric, forwarding_rules(fabric, failed, hosts=True), failed)
    distances = dict(nx.all_pairs_shortest_path_length(switch_graph(fabric, failed)))
    switch_of = {
        nic: fabric.peer(fabric.nic_port(nic)).node
        for nic in fabric.nics
        if on_packet_switch(fabric, nic) and fabric.link_at[fabric.nic_port(nic)] not in failed
    }
    for source, first in list(switch_of.items())[:6]:
        for host in range(len(fabric.servers)):
            if host == source.server:
                continue
            ends = [switch for nic, switch in switch_of.items() if nic.server == host]
            hops = min((distances[first][last] for last in ends if last in distances[first]), default=None)
            path = tables.host_path(source, host, port, 5001)
            assert (path is None) == (hops is None)
            if path and hops is not None:
                assert len(path) == hops + 2
                assert fabric.peer(path[-1]).node == fabric.servers[host].name


@given(fabric=fabrics)
@settings(max_examples=examples(5, 20), deadline=None)
def test_datagrams_to_nics_go_as_without_hosts(fabric: Fabric) -> None:
    without, beside = (FlowTables(fabric, forwarding_rules(fabric, hosts=hosts)) for hosts in (False, True))
    nics = [nic for nic in fabric.nics if on_packet_switch(fabric, nic)]
    for source, destination in pairwise(nics):
        assert without.datagram_paths(source, destination) == beside.datagram_paths(source, destination)


def test_rules_of_rails_with_a_spine() -> None:
    rules = forwarding_rules(rail_fabric(4, 2, 1), hosts=True)
    assert to_hosts(rules["leaf1"]) == [
        f"172.16.0.{host + 1}/32>set_eth_dst={nic_mac(Nic(host, 1))},output={host}" for host in range(4)
    ]
    ways = "set_eth_dst=02:80:00:00:02:00,group=1"
    assert to_hosts(rules["spine0"]) == [
        f"172.16.0.{prefix}>{ways}" for prefix in ("1/32", "2/31", "4/32")
    ], "hosts to which it sends by the same ports share prefixes"


def test_each_choice_of_a_group_writes_the_address_of_its_nic() -> None:
    fabric = leaf_spine_fabric(2, 2, 1, nics=2)
    rules = forwarding_rules(fabric, hosts=True)["leaf1"]
    assert to_hosts(rules) == [
        "172.16.0.2/32>set_eth_dst=02:80:00:00:01:00,group=1",
        "172.16.0.1/32>set_eth_dst=02:80:00:00:01:00,output=2",
    ]
    (group,) = rules.groups
    assert [(bucket.port, bucket.eth_dst) for bucket in group.buckets] == [
        (0, nic_mac(Nic(1, 0))),
        (1, nic_mac(Nic(1, 1))),
        (0, nic_mac(Nic(1, 0))),
    ]


def test_connections_to_a_host_are_even_over_its_nics() -> None:
    fabric = leaf_spine_fabric(2, 2, 4, nics=4)
    tables = FlowTables(fabric, forwarding_rules(fabric, hosts=True))
    paths = [tables.host_path(Nic(0, 0), 1, 10000 + port, 5001) for port in range(1600)]
    last = Counter((path[1], fabric.peer(path[-1])) for path in paths if path)
    assert len(last) == 16, "four spines, and over each of them four NICs"
    assert min(last.values()) > 60
    assert max(last.values()) < 145


def test_a_host_whose_nics_failed_at_one_leaf_is_reached_over_another() -> None:
    fabric = rail_fabric(2, 2, 1)
    failed = frozenset({fabric.link_at[Port("h1", 0)]})
    path = FlowTables(fabric, forwarding_rules(fabric, failed, hosts=True), failed).host_path(
        Nic(0, 0), 1, 1, 2
    )
    assert path == (Port("h0", 0), Port("leaf0", 2), Port("spine0", 1), Port("leaf1", 1))
    rails = rail_fabric(2, 2, 0)
    failed = frozenset({rails.link_at[Port("h1", 0)]})
    tables = FlowTables(rails, forwarding_rules(rails, failed, hosts=True), failed)
    assert tables.host_path(Nic(0, 0), 1, 1, 2) is None, "rails are apart"
    assert tables.host_path(Nic(0, 1), 1, 1, 2) == (Port("h0", 1), Port("leaf1", 1))


def test_nics_of_a_host_that_no_group_can_share_are_refused() -> None:
    links = tuple(
        Link(Port(f"h{server}", nic), Port("leaf0", 2 * server + nic), rate_bps)
        for server in range(2)
        for nic, rate_bps in enumerate((1e7, 1e11))
    )
    servers = tuple(Server(f"h{server}", 2, 1, 1e12) for server in range(2))
    fabric = Fabric("two", servers, (Switch("leaf0", 4),), links)
    check_shares(fabric)
    for refuse in (forwarding_rules, check_shares):
        with pytest.raises(FabricError, match="leaf0 cannot spread connections to a host over 2 links"):
            refuse(fabric, hosts=True)


def test_the_largest_group_that_writes_addresses_fits_a_message() -> None:
    ports = range(MOST_WRITING - 1)
    buckets = forwarding_buckets(ports, {port: nic_mac(Nic(0, port % 256)) for port in ports})
    assert len(buckets) == MOST_WRITING
    (message,) = change_messages(ProtocolDesc(version=4), RuleChanges((SelectGroup(1, buckets),), (), (), ()))
    message.serialize()
    assert len(message.buf) <= 65_535
    assert len(message.buf) + 48 > 65_535, "and it is the largest"
    written, sent = message.buckets[7].actions
    assert (written.key, written.value, sent.port) == ("eth_dst", nic_mac(Nic(0, 7)), 8)
