"""Addresses: no two alike, each in its switch's subnet, and an error where they end."""

from collections.abc import Callable
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.topologies.strategies import fabrics
from topologies.addresses import (
    ENTROPIES,
    FABRIC_NETWORK,
    GATEWAY_MAC,
    HOSTS_NETWORK,
    datapath_id,
    entropy_ip,
    gateway_ip,
    host_ip,
    interface,
    nic_ip,
    nic_mac,
    nic_name,
    nic_network,
    openflow_port,
    subnet,
)
from topologies.errors import FabricError
from topologies.fabric import MOST_NODES, Fabric, Link, Nic, Port, Switch, SwitchKind, equal_servers
from topologies.fat_tree import fat_tree_fabric
from topologies.khop_ring import KHopRing, khop_ring_fabric
from topologies.packet_part import on_packet_switch
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric


@given(fabrics)
def test_nothing_on_the_wire_has_two_owners(fabric: Fabric) -> None:
    addresses = [*chain.from_iterable(nic_network(fabric, nic) for nic in fabric.nics)]
    assert len(set(addresses)) == len(addresses)
    assert len({nic_mac(nic) for nic in fabric.nics} | {GATEWAY_MAC}) == len(fabric.nics) + 1
    assert len({datapath_id(fabric, switch.name) for switch in fabric.switches}) == len(fabric.switches)
    assert len({host_ip(server) for server in range(len(fabric.servers))}) == len(fabric.servers)
    # A server's interfaces are in a namespace of its own, all switches' in one.
    names = [
        (port.node in fabric.server_index and port.node, interface(fabric, port)) for port in fabric.link_at
    ]
    assert len(set(names)) == len(names)
    assert max(len(name) for _, name in names) <= 15  # the kernel's IFNAMSIZ


@given(fabrics)
def test_a_nic_is_in_its_switchs_subnet_and_not_its_gateway(fabric: Fabric) -> None:
    for nic in fabric.nics:
        network, own = subnet(fabric, fabric.peer(fabric.nic_port(nic)).node), nic_network(fabric, nic)
        assert own.subnet_of(network)
        assert gateway_ip(fabric, nic) in network
        for other in (gateway_ip(fabric, nic), network.network_address, network.broadcast_address):
            assert other not in own


@given(fabrics, st.integers(0, 4095))
def test_an_entropy_is_the_low_bits_of_an_address_on_a_packet_switch(fabric: Fabric, entropy: int) -> None:
    for nic in fabric.nics:
        own, address = nic_network(fabric, nic), entropy_ip(fabric, nic, entropy)
        assert address in own
        assert entropy_ip(fabric, nic, 0) == nic_ip(fabric, nic) == own.network_address
        if on_packet_switch(fabric, nic):
            assert own.num_addresses == ENTROPIES == 64
            assert int(address) & 63 == entropy % 64
        else:
            assert own.num_addresses == 1


def test_addresses_read_as_the_docstring_says() -> None:
    fabric = rail_fabric(300, 2, 1)
    assert str(nic_ip(fabric, Nic(0, 1))) == "10.1.0.64"
    assert str(entropy_ip(fabric, Nic(0, 1), 63)) == "10.1.0.127"
    assert str(nic_network(fabric, Nic(299, 1))) == "10.1.75.0/26"
    assert str(gateway_ip(fabric, Nic(299, 1))) == "10.1.255.254"
    assert nic_mac(Nic(299, 1)) == "02:01:01:2b:00:01"
    assert interface(fabric, Port("h3", 1)) == "nic1"
    assert nic_name(fabric, Nic(3, 1)) == "h3-nic1"
    assert (str(host_ip(0)), str(host_ip(299))) == ("172.16.0.1", "172.16.1.44")
    assert host_ip(MOST_NODES - 1) in HOSTS_NETWORK
    assert interface(fabric, Port("leaf0", 3)) == "leaf0-p3"
    assert (openflow_port(3), datapath_id(fabric, "leaf1")) == (4, 2)
    mixed = parallel_ocs_fabric(300, 1, packet_switch=True)
    assert str(nic_network(mixed, Nic(299, 0))) == "10.0.1.44/32"
    assert str(nic_network(mixed, Nic(299, 1))) == "10.1.75.0/26"


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


@pytest.mark.parametrize("build", [lambda: rail_fabric(1024, 8), lambda: rail_fabric(32_768, 4)])
def test_spines_leave_the_leaves_their_addresses(build: Callable[[], Fabric]) -> None:
    fabric = build()
    networks = sorted(nic_network(fabric, nic) for nic in fabric.nics)
    assert all(a.broadcast_address < b.network_address for a, b in pairwise(networks))
    assert networks[-1].broadcast_address < gateway_ip(fabric, fabric.nics[-1])
    assert networks[-1].subnet_of(FABRIC_NETWORK)


@pytest.mark.parametrize(("kind", "most"), [("packet", 1022), ("ocs", (1 << 16) - 3)])
def test_a_port_beyond_its_subnet_is_told(kind: SwitchKind, most: int) -> None:
    for number in (most - 1, most):
        links = (
            Link(Port("h0", 0), Port("leaf0", 0), 1e9),
            Link(Port("h1", 0), Port("leaf255", number), 1e9),
        )
        switches = tuple(Switch(f"leaf{index}", 1 << 16, kind) for index in range(256))
        fabric = Fabric("two", equal_servers(2, 1, 1, 1e12), switches, links)
        if number < most:
            assert nic_network(fabric, Nic(1, 0)).broadcast_address < gateway_ip(fabric, Nic(1, 0))
            continue
        with pytest.raises(FabricError, match=f"port leaf255:{number} has no address: .* for {most} ports"):
            nic_ip(fabric, Nic(1, 0))
        few = Fabric("two", fabric.servers, (switches[0], switches[255], *switches[1:255]), links)
        assert nic_network(few, Nic(1, 0)).broadcast_address < gateway_ip(few, Nic(1, 0))  # as it advises
