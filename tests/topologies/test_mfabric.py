"""mFabric: packet NICs on one fat-tree, circuit NICs on their region's OCS, no circuit between regions."""

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.errors import FabricError
from topologies.fabric import Fabric, Nic, Port, Server
from topologies.light import light_peers
from topologies.mfabric import (
    NUMA_NODES,
    mfabric_fabric,
    numa_node,
    packet_nic_numbers,
    region_gpus,
    regions,
)
from topologies.packet_part import on_packet_switch, packet_part
from topologies.patch_panel import patch_panel_fabric


@st.composite
def mfabrics(draw: st.DrawFn) -> tuple[Fabric, int, int, int]:
    """Return a fabric, and its servers of a region, NICs and packet NICs of a server."""
    members, count = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    nics = draw(st.integers(2, 8))
    packet_nics = draw(st.integers(1, nics - 1))
    fabric = mfabric_fabric(
        members * count, members, nics=nics, packet_nics=packet_nics, one_packet_switch=draw(st.booleans())
    )
    return fabric, members, nics, packet_nics


@given(mfabrics())
def test_light_joins_the_circuit_nics_of_a_region_and_no_others(
    drawn: tuple[Fabric, int, int, int],
) -> None:
    fabric, members, nics, packet_nics = drawn
    on_packets = packet_nic_numbers(nics, packet_nics)
    for nic in fabric.nics:
        assert on_packet_switch(fabric, nic) == (nic.nic in on_packets)
        region = nic.server // members
        expected = {
            Nic(server, other)
            for server in range(region * members, (region + 1) * members)
            for other in range(nics)
            if other not in on_packets
        }
        assert set(light_peers(fabric, nic)) == (set() if nic.nic in on_packets else expected - {nic})


@given(mfabrics())
def test_every_server_reaches_every_other_over_packets(drawn: tuple[Fabric, int, int, int]) -> None:
    part = packet_part(drawn[0]).fabric
    assert len(part.servers) == len(drawn[0].servers)
    assert nx.is_connected(part.graph())


@given(mfabrics())
def test_regions_have_the_circuit_nics_in_the_order_of_their_ports(
    drawn: tuple[Fabric, int, int, int],
) -> None:
    fabric, members, nics, packet_nics = drawn
    found = regions(fabric)
    assert [server for region in found for server in region.servers] == list(range(len(fabric.servers)))
    for region in found:
        assert len(region.servers) == members
        assert [{nic.server for nic in own} for own in region.nics] == [{server} for server in region.servers]
        ports = [fabric.peer(fabric.nic_port(nic)) for own in region.nics for nic in own]
        assert ports == [Port(region.ocs, port) for port in range(members * (nics - packet_nics))]


def test_servers_have_two_packet_nics_of_8_and_the_prototypes_one_of_4() -> None:
    """8 NICs of which 2 are on packets (section 7.1), and the prototype's 4 with 1 (section 6)."""
    server, prototype = Server("h0", 8, 8, 1e12), Server("h0", 4, 8, 1e12)
    assert packet_nic_numbers(8, 2) == (0, 4)
    assert packet_nic_numbers(4, 1) == (0,)
    assert [numa_node(server, nic) for nic in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [numa_node(prototype, nic) for nic in range(4)] == [0, 0, 1, 1]
    whole, small = mfabric_fabric(2), mfabric_fabric(2, nics=4, packet_nics=1)
    assert [whole.pinned_gpu(Nic(1, nic)) for nic in range(8)] == list(range(8, 16))
    assert [small.pinned_gpu(Nic(1, nic)) for nic in range(4)] == [8, 10, 12, 14]
    assert {len(own) for region in regions(mfabric_fabric(128, 8)) for own in region.nics} == {6}
    assert {switch.ports for switch in mfabric_fabric(128, 8).switches if switch.kind == "ocs"} == {48}


@given(st.integers(1, 16), st.data())
def test_numa_nodes_share_the_packet_nics(nics: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, nics))
    numbers = packet_nic_numbers(nics, count)
    assert len(set(numbers)) == count
    if nics % NUMA_NODES == 0:
        on_node = [
            sum(numa_node(Server("h0", nics, 1, 1e12), number) == node for number in numbers)
            for node in range(NUMA_NODES)
        ]
        assert max(on_node) - min(on_node) <= 1


def test_packet_side_is_the_smallest_fat_tree_that_has_room() -> None:
    fabric = mfabric_fabric(128, 8, rate_bps=400e9, packet_bps=100e9)
    assert sum(switch.name.startswith("core") for switch in fabric.switches) == 12 * 12 // 4
    assert fabric.nic_rate_bps(Nic(0, 0)) == 100e9
    assert fabric.nic_rate_bps(Nic(0, 1)) == 400e9


def test_patch_panel_joins_any_nics_and_servers_forward() -> None:
    fabric = patch_panel_fabric(3, nics=2)
    assert fabric.servers_forward
    assert len(light_peers(fabric, Nic(0, 0))) == 5
    assert [nic for region in regions(fabric) for own in region.nics for nic in own] == list(fabric.nics)


@pytest.mark.parametrize("one_packet_switch", [False, True])
def test_prototype_has_a_packet_nic_and_three_circuit_nics(one_packet_switch: bool) -> None:
    fabric = mfabric_fabric(4, nics=4, packet_nics=1, one_packet_switch=one_packet_switch)
    (region,) = regions(fabric)
    assert region.nics == tuple(tuple(Nic(server, nic) for nic in (1, 2, 3)) for server in range(4))
    assert fabric.gpus == 32


def test_spare_servers_have_packet_nics_only_and_backup_gpus_are_last() -> None:
    fabric = mfabric_fabric(8, 4, backup_gpu=True, spare_servers=2)
    assert [len(region.servers) for region in regions(fabric)] == [4, 4]
    assert [(server.gpus, server.nics) for server in fabric.servers] == [(9, 8)] * 8 + [(9, 2)] * 2
    assert all(on_packet_switch(fabric, nic) for nic in fabric.nics if nic.server >= 8)
    own = region_gpus(fabric, 8)
    assert own == tuple(gpu for gpu in range(72) if gpu % 9 != 8)
    plain = mfabric_fabric(8, 4)
    for nic in plain.nics:
        backed, alone = (each.pinned_gpu(nic) - each.gpu_offsets[nic.server] for each in (fabric, plain))
        assert backed == alone
    assert region_gpus(plain, 8) == tuple(range(64))


def test_backup_gpus_to_which_nics_would_belong_are_refused() -> None:
    with pytest.raises(FabricError, match="a backup GPU: True"):
        mfabric_fabric(4, gpus=1, nics=4, packet_nics=1, backup_gpu=True)
    with pytest.raises(FabricError, match="-1 spare servers"):
        mfabric_fabric(4, spare_servers=-1)
