"""Hosts' routes, looked up as a kernel does and held against what is wired, works and is lit."""

from dataclasses import replace
from ipaddress import IPv4Address

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.machine.netlink import RT_TABLE_MAIN
from testbed.network.host_tables import Hops, HostTable, light_tables, packet_tables
from testbed.network.wiring import FIRST_TABLE
from tests.examples import examples
from tests.testbed.forwarding_cases import ring_fabric, stride_circuits
from tests.topologies.strategies import fabrics
from topologies.addresses import HOSTS_NETWORK, host_ip, nic_ip
from topologies.fabric import Fabric, Link, Nic, Port
from topologies.light import Configuration
from topologies.packet_part import on_packet_switch
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from topologies.routes import Routes

REFUSED: Hops = ()


def looked_up(table: HostTable, number: int, address: IPv4Address) -> Hops | None:
    """Return where the longest prefix of a routing table leads; None if the table has none for an address."""
    found = [place for place in table if place.table == number and address in place.network]
    return table[max(found, key=lambda place: place.network.prefixlen)] if found else None


def packet_graph(fabric: Fabric, failed: frozenset[Link]) -> "nx.Graph[str | Nic]":
    """Return the graph of NICs and packet switches, joined by links that work."""
    packet = {switch.name for switch in fabric.switches if switch.kind == "packet"}
    graph: nx.Graph[str | Nic] = nx.Graph()
    for link in fabric.links:
        ends: list[str | Nic] = [port.node for port in (link.a, link.b) if port.node in packet]
        nics = [fabric.nic_at(port) for port in (link.a, link.b) if port.node in fabric.server_index]
        graph.add_nodes_from([*ends, *nics])
        if len(ends) + len(nics) == 2 and link not in failed:
            graph.add_edge(*ends, *nics)
    return graph


@given(fabric=fabrics, data=st.data())
@settings(max_examples=examples(10, 40), deadline=None)
def test_over_packets_a_host_sends_by_the_nics_that_reach_the_other_and_no_others(
    fabric: Fabric, data: st.DataObject
) -> None:
    failed = data.draw(st.frozensets(st.sampled_from(fabric.links), max_size=4))
    graph, tables = packet_graph(fabric, failed), packet_tables(fabric, failed)
    for server, other in np.ndindex(len(tables), len(tables)):
        if server == other:
            continue
        theirs = [nic for nic in fabric.nics if nic.server == other]
        mine = [nic for nic in fabric.nics if nic.server == server]
        reaching = [nic for nic in mine if any(nx.has_path(graph, nic, far) for far in theirs)]
        hops = looked_up(tables[server], RT_TABLE_MAIN, host_ip(other))
        assert [hop.out for hop in hops or ()] == reaching
        for nic in filter(lambda nic: on_packet_switch(fabric, nic), mine):
            for far in filter(lambda nic: on_packet_switch(fabric, nic), theirs):
                _check_nics(fabric, graph, tables[server], nic, far)


def _check_nics(fabric: Fabric, graph: "nx.Graph[str | Nic]", table: HostTable, nic: Nic, far: Nic) -> None:
    """Hold a NIC's own table, and the main one, against what joins it to a NIC of another host."""
    switches = [fabric.peer(fabric.nic_port(each)).node for each in (nic, far)]
    own = looked_up(table, FIRST_TABLE + nic.nic, nic_ip(fabric, far))
    # Whether the links of the two NICs work is not for the table.
    assert bool(own) == nx.has_path(graph, *switches)
    assert own is not None, "what a NIC does not reach is refused"
    by = looked_up(table, RT_TABLE_MAIN, nic_ip(fabric, far)) or ()
    assert all(nx.has_path(graph, hop.out, switches[1]) for hop in by)
    beside = [hop.out for hop in by if fabric.peer(fabric.nic_port(hop.out)).node == switches[1]]
    if nic in graph[switches[1]]:
        assert nic in beside
        assert len(beside) == len(by), "who has a NIC on that switch sends by no other"


def test_rails_alone_refuse_other_rails() -> None:
    fabric = rail_fabric(3, 2, 0)
    table = packet_tables(fabric, frozenset())[0]
    for nic in (0, 1):
        for far in (0, 1):
            hops = looked_up(table, FIRST_TABLE + nic, nic_ip(fabric, Nic(2, far)))
            assert hops == (((Nic(0, nic), None),) if nic == far else REFUSED)
        assert looked_up(table, FIRST_TABLE + nic, host_ip(2)) == ((Nic(0, nic), None),)
        assert looked_up(table, RT_TABLE_MAIN, nic_ip(fabric, Nic(2, nic))) == ((Nic(0, nic), None),)


def test_a_rail_that_failed_at_the_far_end_is_avoided_for_that_host_alone() -> None:
    fabric = rail_fabric(3, 2, 0)
    table = packet_tables(fabric, frozenset({fabric.link_at[Port("h2", 1)]}))[0]
    assert looked_up(table, RT_TABLE_MAIN, host_ip(1)) == ((Nic(0, 0), None), (Nic(0, 1), None))
    assert looked_up(table, RT_TABLE_MAIN, host_ip(2)) == ((Nic(0, 0), None),)
    assert looked_up(table, FIRST_TABLE + 1, host_ip(2)) == REFUSED
    only = packet_tables(fabric, frozenset({fabric.link_at[Port("h2", n)] for n in (0, 1)}))[0]
    assert looked_up(only, RT_TABLE_MAIN, host_ip(2)) == REFUSED


def test_hosts_that_are_reached_alike_take_one_route() -> None:
    table = packet_tables(rail_fabric(64, 8), frozenset())[5]
    assert [
        place for place in table if place.table == RT_TABLE_MAIN and place.network.overlaps(HOSTS_NETWORK)
    ] == [(RT_TABLE_MAIN, HOSTS_NETWORK)]
    assert len(table) == 1 + 8 + 8 * 3, "all hosts, eight rails, and three routes for each NIC"


def test_each_direction_of_light_has_a_route_of_its_own() -> None:
    fabric = parallel_ocs_fabric(3, 2, packet_switch=True)
    lit = {"ocs0": ((0, 1), (1, 2)), "ocs1": ((0, 1),)}
    tables = [
        over_packets | over_light
        for over_packets, over_light in zip(
            packet_tables(fabric, frozenset()), light_tables(fabric, Routes(fabric, lit)), strict=True
        )
    ]
    direct = {
        (0, 1): ((Nic(0, 0), Nic(1, 0)), (Nic(0, 1), Nic(1, 1))),
        (1, 2): ((Nic(1, 0), Nic(2, 0)),),
    }
    for pair in ((0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)):
        source, destination = pair
        hops = looked_up(tables[source], RT_TABLE_MAIN, host_ip(destination))
        assert hops == direct.get(pair, ((Nic(source, 2), None),)), "else by the packet switch"
    assert looked_up(tables[0], RT_TABLE_MAIN, nic_ip(fabric, Nic(1, 1))) == ((Nic(0, 1), Nic(1, 1)),)
    assert looked_up(tables[0], FIRST_TABLE, host_ip(1)) == ((Nic(0, 0), Nic(1, 0)),)
    assert looked_up(tables[0], FIRST_TABLE, host_ip(2)) == REFUSED


def test_light_that_crosses_a_failed_link_is_not_sent_over() -> None:
    fabric = parallel_ocs_fabric(3, 1)
    lit: Configuration = {"ocs0": ((0, 1), (1, 0))}
    dead = fabric.both_ends([Port("h1", 0)])
    assert looked_up(light_tables(fabric, Routes(fabric, lit))[0], RT_TABLE_MAIN, host_ip(1))
    assert not looked_up(light_tables(fabric, Routes(fabric, lit, dead))[0], RT_TABLE_MAIN, host_ip(1))


@pytest.mark.parametrize("servers", [2, 5, 8])
def test_where_servers_forward_every_host_is_reached_around_a_ring_the_shorter_way(servers: int) -> None:
    fabric = ring_fabric(servers)
    tables = light_tables(fabric, Routes(fabric, {"ocs0": stride_circuits(servers, 1)}))
    for source, destination in np.ndindex(servers, servers):
        if source != destination:
            away = (destination - source) % servers
            assert hops_to(tables, source, destination) == min(away, servers - away)


@given(data=st.data(), servers=st.integers(2, 7))
@settings(max_examples=examples(15, 60), deadline=None)
def test_servers_forward_by_shortest_ways_whichever_hop_is_taken(data: st.DataObject, servers: int) -> None:
    fabric = replace(parallel_ocs_fabric(servers, 2), servers_forward=True)
    shown = [data.draw(st.permutations(range(servers))) for _ in range(2)]
    lit = {f"ocs{k}": tuple((a, b) for a, b in enumerate(each) if a != b) for k, each in enumerate(shown)}
    tables = light_tables(fabric, Routes(fabric, lit))
    joined = nx.DiGraph(pair for pairs in lit.values() for pair in pairs)
    joined.add_nodes_from(range(servers))
    for source, destination in np.ndindex(servers, servers):
        if source != destination:
            shortest = nx.has_path(joined, source, destination) and nx.shortest_path_length(
                joined, source, destination
            )
            assert hops_to(tables, source, destination) == (shortest or None)


def hops_to(tables: list[HostTable], source: int, destination: int) -> int | None:
    """Return over how many circuits packets come to a host, whichever hops they take; None if they do not."""
    if source == destination:
        return 0
    hops = looked_up(tables[source], RT_TABLE_MAIN, host_ip(destination))
    if not hops:
        return None
    further = {hops_to(tables, hop.to.server, destination) for hop in hops if hop.to}
    assert len(further) == 1, "all hops are as near"
    (left,) = further
    assert left is not None
    return 1 + left
