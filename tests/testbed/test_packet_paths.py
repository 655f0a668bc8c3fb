"""Paths over packet switches: those within one switch need no rules, and are what the rules give."""

from itertools import permutations

from controller.packet.flow_table import FlowTables
from controller.packet.routing import forwarding_rules
from testbed.core.packet_paths import paths_over
from topologies.big_switch import big_switch_fabric
from topologies.fabric import Nic
from topologies.mfabric import mfabric_fabric
from topologies.packet_part import on_packet_switch
from topologies.rail import rail_fabric
from traffic.spraying.policy import QueuePair
from traffic.transports.connections import ports


def test_paths_are_those_of_the_rules() -> None:
    fabric = rail_fabric(3, 2)
    queue_pairs = [QueuePair(*ends) for ends in permutations(fabric.nics, 2)]
    tables = FlowTables(fabric, forwarding_rules(fabric))
    expected = [tables.path(pair.source, pair.destination, *ports(pair)) for pair in queue_pairs]
    paths = paths_over(fabric)
    assert [paths[queue_pair] for queue_pair in queue_pairs] == expected
    assert {len(path or ()) for path in expected} == {2, 4}


def test_a_failed_nic_has_no_path() -> None:
    fabric = rail_fabric(3, 2)
    failed = frozenset({fabric.nic_port(Nic(0, 0))})
    pair, other = QueuePair(Nic(0, 0), Nic(1, 0)), QueuePair(Nic(2, 0), Nic(1, 0))
    assert paths_over(fabric, failed).find(pair) is None
    assert paths_over(fabric, failed).find(other) == paths_over(fabric).find(other)


def test_one_switch_may_have_more_nics_than_addresses() -> None:
    fabric = big_switch_fabric(2500, nics=8)
    path = paths_over(fabric)[QueuePair(Nic(0, 0), Nic(2499, 7))]
    assert [port.node for port in path] == ["h0", fabric.switches[0].name]
    assert fabric.peer(path[1]) == fabric.nic_port(Nic(2499, 7))


def test_nics_of_an_ocs_have_no_path_over_packets() -> None:
    fabric = mfabric_fabric(4, nics=4, packet_nics=1, one_packet_switch=True)
    paths = paths_over(fabric)
    for source, destination in permutations(fabric.nics, 2):
        found = paths.find(QueuePair(source, destination)) is not None
        assert found == (on_packet_switch(fabric, source) and on_packet_switch(fabric, destination))
