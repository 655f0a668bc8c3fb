"""Entropies on real switches: datagrams go as on paper, and all arrive at the right NIC."""

import select
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from functools import partial

import pytest

from controller.packet.flow_table import FlowTables
from controller.packet.routing import forwarding_rules
from testbed.machine.kernel import inside_namespace
from testbed.network.tap import Tap
from tests.emulation.conftest import Booted
from tests.emulation.live import ANSWER_S, Live
from topologies.addresses import DATAGRAM_PORT, ENTROPIES, interface, nic_ip, nic_network
from topologies.fabric import Fabric, Nic
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.packet_part import on_packet_switch
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.spraying.policy import QueuePair
from traffic.transports.connections import Ends
from traffic.transports.datagram_sockets import datagram_ends

pytestmark = pytest.mark.emulation

IP_PKTINFO = 8
PACKET_INFO = struct.Struct("=i4s4s")
"""struct in_pktinfo: the interface, the server's own address, the destination address (see ip(7))."""
ANCILLARY_BYTES = 64
SMALL_LEAF_SPINE, SMALL_FAT_TREE = leaf_spine_fabric(4, 2, 2, nics=2), fat_tree_fabric(4)


def arrivals(receiver: socket.socket, number: int) -> list[tuple[int, Ends]]:
    """Return so many datagrams, or those that come in time: the interface's index, how each was addressed."""
    found: list[tuple[int, Ends]] = []
    deadline = time.monotonic() + ANSWER_S
    port = receiver.getsockname()[1]
    while len(found) < number and select.select([receiver], [], [], max(deadline - time.monotonic(), 0))[0]:
        _, [(_, _, info)], _, source = receiver.recvmsg(ANCILLARY_BYTES, ANCILLARY_BYTES)
        index, _, address = PACKET_INFO.unpack(info)
        found.append((index, (*source, socket.inet_ntoa(address), port)))
    return found


def sent(net: Live, lanes: Sequence[QueuePair]) -> list[tuple[str, Ends]]:
    """Send a datagram over each of the lanes between two NICs; return by which interface each arrived."""
    ends = [datagram_ends(net.fabric, lane) for lane in lanes]
    server = lanes[0].destination.server
    with (
        net.open(lanes[0].source.server, socket.SOCK_DGRAM) as sender,
        net.open(server, socket.SOCK_DGRAM) as receiver,
    ):
        receiver.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        receiver.bind(("", DATAGRAM_PORT))
        sender.bind(ends[0][:2])
        for *_, address, port in ends:
            sender.sendto(b"datagram", (address, port))
        arrived = arrivals(receiver, len(lanes))
    with inside_namespace(net.network.wiring.namespaces[server]):
        names = dict(socket.if_nameindex())
    return [(names[index], addressed) for index, addressed in arrived]


@pytest.mark.parametrize(
    ("fabric", "pairs", "paths"),
    [
        pytest.param(
            SMALL_LEAF_SPINE,
            [(Nic(0, 0), Nic(3, 1)), (Nic(3, 1), Nic(0, 0)), (Nic(0, 1), Nic(2, 1)), (Nic(2, 0), Nic(3, 1))],
            [2, 2, 2, 1],
            id="two spines",
        ),
        pytest.param(
            SMALL_FAT_TREE,
            [
                (Nic(0, 0), Nic(15, 0)),
                (Nic(15, 0), Nic(0, 0)),
                (Nic(5, 0), Nic(7, 0)),
                (Nic(8, 0), Nic(9, 0)),
            ],
            [4, 4, 2, 1],
            id="k=4 fat-tree",
        ),
    ],
)
def test_datagrams_of_each_entropy_go_as_on_paper_and_arrive(
    booted: Booted, fabric: Fabric, pairs: list[tuple[Nic, Nic]], paths: list[int]
) -> None:
    with booted(fabric) as net:
        tables = FlowTables(fabric, forwarding_rules(fabric), hashing=net.network.hashing)
        ends = partial(datagram_ends, fabric)
        for (source, destination), number in zip(pairs, paths, strict=True):
            lanes = [QueuePair(source, destination, entropy) for entropy in range(ENTROPIES)]
            with Tap(net.network.wiring) as tap:
                arrived = sent(net, lanes)
                seen = tap.paths(lanes, ends)
            name = interface(fabric, fabric.nic_port(destination))
            assert sorted(arrived) == sorted((name, ends(lane)) for lane in lanes)
            assert seen == tuple(tables.datagram_path(source, destination, n) for n in range(ENTROPIES))
            assert len(set(seen)) == number


def test_only_networks_on_packet_switches_are_local(booted: Booted) -> None:
    fabric = parallel_ocs_fabric(3, 2, packet_switch=True)
    with booted(fabric) as net:
        for server, namespace in enumerate(net.network.wiring.namespaces):
            with inside_namespace(namespace):
                shown = subprocess.run(
                    ["ip", "route", "show", "table", "local"], capture_output=True, text=True, check=True
                ).stdout
            nics = [Nic(server, number) for number in range(fabric.servers[server].nics)]
            local = {line.split()[1] for line in shown.splitlines() if line.startswith("local 10.")}
            assert local == {
                *(str(nic_ip(fabric, nic)) for nic in nics),
                *(str(nic_network(fabric, nic)) for nic in nics if on_packet_switch(fabric, nic)),
            }
