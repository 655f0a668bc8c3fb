"""Addresses: no two alike, each in its switch's subnet, and an error where they end."""

from itertools import pairwise

import pytest
from hypothesis import given

from tests.topologies.strategies import fabrics
from topologies.addresses import (
    FABRIC_NETWORK,
    GATEWAY_MAC,
    datapath_id,
    gateway_ip,
    interface,
    nic_ip,
    nic_mac,
    openflow_port,
    subnet,
)
from topologies.errors import FabricError
from topologies.fabric import Fabric, Link, Nic, Port, Switch, equal_servers
from topologies.fat_tree import fat_tree_fabric
from topologies.khop_ring import KHopRing, khop_ring_fabric
from topologies.rail import rail_fabric


@given(fabrics)
def test_nothing_on_the_wire_has_two_owners(fabric: Fabric) -> None:
    assert len({nic_ip(fabric, nic) for nic in fabric.nics}) == len(fabric.nics)
    assert len({nic_mac(nic) for nic in fabric.nics} | {GATEWAY_MAC}) == len(fabric.nics) + 1
    assert len({datapath_id(fabric, switch.name) for switch in fabric.switches}) == len(fabric.switches)
    names = [interface(fabric, port) for port in fabric.link_at]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 15  # the kernel's IFNAMSIZ


@given(fabrics)
def test_a_nic_is_in_its_switchs_subnet_and_not_its_gateway(fabric: Fabric) -> None:
    for nic in fabric.nics:
        network = subnet(fabric, fabric.peer(fabric.nic_port(nic)).node)
        assert nic_ip(fabric, nic) in network
        assert gateway_ip(fabric, nic) in network
        assert nic_ip(fabric, nic) not in (
            gateway_ip(fabric, nic),
            network.network_address,
            network.broadcast_address,
        )


def test_addresses_read_as_the_docstring_says() -> None:
    fabric = rail_fabric(300, 2, 1)
    assert str(nic_ip(fabric, Nic(0, 1))) == "10.1.0.1"
    assert str(nic_ip(fabric, Nic(299, 1))) == "10.1.1.44"
    assert str(gateway_ip(fabric, Nic(299, 1))) == "10.1.255.254"
    assert nic_mac(Nic(299, 1)) == "02:01:01:2b:00:01"
    assert interface(fabric, Port("h3", 1)) == "h3-nic1"
    assert interface(fabric, Port("leaf0", 3)) == "leaf0-p3"
    assert (openflow_port(Port("leaf0", 3)), datapath_id(fabric, "leaf1")) == (4, 2)


@pytest.mark.parametrize(("k", "length"), [(4, 16), (14, 16), (16, 17), (24, 18)])
def test_more_switches_have_smaller_subnets_of_their_own(k: int, length: int) -> None:
    fabric = fat_tree_fabric(k, servers=k)  # 5/4 k^2 switches
    networks = [subnet(fabric, switch.name) for switch in fabric.switches]
    assert {network.prefixlen for network in networks} == {length}
    assert all(a.broadcast_address < b.network_address for a, b in pairwise(networks))
    assert all(network.subnet_of(FABRIC_NETWORK) for network in networks)


def test_gpus_of_more_than_256_ocses_have_addresses() -> None:
    fabric = khop_ring_fabric(KHopRing(720, 4, 3))
    assert len({nic_ip(fabric, nic) for nic in fabric.nics}) == 2 * fabric.gpus == 5760


def test_a_port_beyond_its_subnet_is_told() -> None:
    ports = 1 << 16
    for number, fits in ((ports - 4, True), (ports - 3, False)):
        links = (Link(Port("h0", 0), Port("leaf", number), 1e9),)
        fabric = Fabric("one", equal_servers(1, 1, 1, 1e12), (Switch("leaf", ports),), links)
        if fits:
            assert nic_ip(fabric, Nic(0, 0)) < gateway_ip(fabric, Nic(0, 0))
            continue
        with pytest.raises(FabricError, match=f"port leaf:{number} has no address"):
            nic_ip(fabric, Nic(0, 0))
