"""The controller's rules on the real Open vSwitch: connections go as on paper, nothing is flooded."""

import random
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw

from controller.packet.flow_table import FlowTables
from controller.packet.routing import forwarding_rules
from testbed.machine.kernel import inside_namespace
from testbed.machine.residue import until
from tests.emulation.conftest import Booted
from tests.emulation.live import Live
from topologies.addresses import GATEWAY_MAC, gateway_ip, interface, nic_ip, nic_mac
from topologies.errors import FabricError
from topologies.fabric import Fabric, Link, Nic, Path
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.spraying.policy import QueuePair
from traffic.transports.connections import ports

pytestmark = pytest.mark.emulation

ETH_P_ALL = 3
BROADCAST, BROADCAST_BYTES = "ff:ff:ff:ff:ff:ff", b"\xff" * 6
IPV4_BYTES = b"\x08\x00"
MARK = b"lightrail probe "
SEEN_S = 5.0


def some_queue_pairs(fabric: Fabric, number: int) -> list[QueuePair]:
    """Return queue pairs between random NICs of different servers, each with an entropy of its own."""
    rng = random.Random(7)
    pairs: list[QueuePair] = []
    while len(pairs) < number:
        source, destination = rng.sample(fabric.nics, 2)
        if source.server != destination.server:
            pairs.append(QueuePair(source, destination, len(pairs)))
    return pairs


def paths_on_paper(
    fabric: Fabric, queue_pairs: Sequence[QueuePair], failed_links: frozenset[Link] = frozenset()
) -> tuple[Path | None, ...]:
    """Return where the controller's rules send each queue pair."""
    tables = FlowTables(fabric, forwarding_rules(fabric, failed_links), failed_links)
    return tuple(tables.path(qp.source, qp.destination, *ports(qp)) for qp in queue_pairs)


class Wire:
    """Hears every packet on every interface of the switches and the servers."""

    def __init__(self, sockets: dict[str, socket.socket]) -> None:
        self._sockets = sockets

    def heard(self, probe: bytes) -> set[str]:
        """Return the interfaces on which a probe was seen since the last look."""
        return {name for name, packet in self.packets() if probe in packet}

    def packets(self) -> Iterator[tuple[str, bytes]]:
        """Yield what was seen since the last look, each packet with the interface."""
        for server, listening in self._sockets.items():
            while True:
                try:
                    packet, (name, *_) = listening.recvfrom(2048, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    break
                yield (name if server == "switches" else f"{server} {name}"), packet


@contextmanager
def listening(net: Live) -> Iterator[Wire]:
    """Listen on all interfaces of the switches' namespace and of each server's."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as here:
        sockets = {"switches": here}
        for server, namespace in zip(net.fabric.servers, net.network.wiring.namespaces, strict=True):
            with inside_namespace(namespace):
                sockets[server.name] = socket.socket(
                    socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)
                )
        try:
            yield Wire(sockets)
        finally:
            for each in sockets.values():
                each.close()


def inject(net: Live, nic: Nic, packet: Packet) -> bytes:
    """Send a packet, as it is, out of a NIC; return its payload, which no other packet has."""
    with (
        inside_namespace(net.network.wiring.namespaces[nic.server]),
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out,
    ):
        out.bind((interface(net.fabric, net.fabric.nic_port(nic)), 0))
        out.send(bytes(packet))
    return bytes(packet[Raw].load)


@pytest.mark.parametrize("spines", [2, 3, 4, 8])
def test_leaves_choose_spines_as_on_paper(booted: Booted, spines: int) -> None:
    fabric = rail_fabric(4, 2, spines)
    with booted(fabric) as net:
        queue_pairs = some_queue_pairs(fabric, 300)
        paths = net.paths(queue_pairs)
        assert paths == paths_on_paper(fabric, queue_pairs)
        assert len({path[1] for path in paths if len(path) == 4}) == 2 * spines


def test_both_tiers_of_a_fat_tree_choose_alike_as_on_paper(booted: Booted) -> None:
    fabric = fat_tree_fabric(8, servers=64, nics=2)
    with booted(fabric) as net:
        queue_pairs = [QueuePair(Nic(0, 0), Nic(63, 1), entropy) for entropy in range(320)]
        paths = net.paths(queue_pairs)
        assert paths == paths_on_paper(fabric, queue_pairs)
        choices = Counter((path[1].number, path[2].number) for path in paths)
        assert len(choices) == 16
        assert max(choices.values()) < 2.5 * 20, choices


def test_more_ways_than_open_vswitch_hashes_by_default_are_chosen_as_on_paper(booted: Booted) -> None:
    fabric = leaf_spine_fabric(4, 2, 20)
    with booted(fabric) as net:
        queue_pairs = some_queue_pairs(fabric, 300)
        assert net.paths(queue_pairs) == paths_on_paper(fabric, queue_pairs)


def with_uplinks(fabric: Fabric, **factors: float) -> Fabric:
    """Return a fabric whose links to some spines have as many times the rate."""
    links = (
        replace(link, rate_bps=link.rate_bps * factors.get(link.a.node, factors.get(link.b.node, 1.0)))
        for link in fabric.links
    )
    return replace(fabric, links=tuple(links))


def test_uplinks_of_unequal_rates_are_chosen_as_on_paper(booted: Booted) -> None:
    fabric = with_uplinks(rail_fabric(4, 2, 3), spine1=1.4, spine2=2.5)
    with booted(fabric) as net:
        queue_pairs = some_queue_pairs(fabric, 300)
        paths = net.paths(queue_pairs)
        assert paths == paths_on_paper(fabric, queue_pairs)
        chosen = Counter(path[1].number for path in paths if len(path) == 4)
        assert len(chosen) == 3
        assert chosen[4] < chosen[5] < chosen[6], chosen


def test_uplinks_that_no_group_can_share_are_refused_before_anything_is_booted(booted: Booted) -> None:
    with pytest.raises(FabricError, match="leaf0 cannot spread connections to leaf1 over 2 links"):
        booted(with_uplinks(rail_fabric(4, 2, 2), spine1=2100.0)).__enter__()


def test_a_link_that_goes_down_and_comes_back_is_gone_around_as_on_paper(booted: Booted) -> None:
    fabric = rail_fabric(4, 3, 3)
    link = next(link for link in fabric.links if {link.a.node, link.b.node} == {"leaf1", "spine2"})
    failed, queue_pairs = frozenset({link}), some_queue_pairs(fabric, 150)
    with booted(fabric) as net:
        for state, links in (("down", failed), ("up", frozenset[Link]())):
            subprocess.run(["ip", "link", "set", interface(fabric, link.a), state], check=True)
            net.network.northbound.wait_ready(10, links)
            assert net.paths(queue_pairs) == paths_on_paper(fabric, queue_pairs, links)


def test_switches_have_what_they_were_told(booted: Booted) -> None:
    fabric = rail_fabric(4, 2, 2)
    with booted(fabric) as net:
        for switch, told in forwarding_rules(fabric).items():
            has = {(flow.priority, flow.match, flow.actions) for flow in net.network.northbound.flows(switch)}
            assert has == {
                (rule.priority, str(rule.match), ",".join(map(str, rule.actions))) for rule in told.rules
            }


def test_a_probe_to_a_nic_is_seen_on_its_way_and_nowhere_else(booted: Booted) -> None:
    fabric = rail_fabric(3, 2, 1)
    source, destination = Nic(0, 0), Nic(2, 1)
    addresses = IP(src=str(nic_ip(fabric, source)), dst=str(nic_ip(fabric, destination)))
    probe = Ether(src=nic_mac(source), dst=GATEWAY_MAC) / addresses / UDP(dport=9) / Raw(MARK + b"there")
    with booted(fabric) as net, listening(net) as wire:
        sent = inject(net, source, probe)
        servers = {"h0 nic0", "h2 nic1"}
        path = servers | {"leaf0-p0", "leaf0-p3", "spine0-p0", "spine0-p1", "leaf1-p3", "leaf1-p2"}
        heard: set[str] = set()

        def whole() -> bool:
            heard.update(wire.heard(sent))
            return heard == path

        assert until(whole, SEEN_S), heard


@pytest.mark.parametrize("nobody", ["unknown address", "broadcast", "arp"])
def test_a_packet_for_nobody_is_dropped_counted_and_seen_on_no_other_port(
    booted: Booted, nobody: str
) -> None:
    fabric = rail_fabric(3, 2, 2)
    source = Nic(0, 0)
    mac, address = nic_mac(source), str(nic_ip(fabric, source))
    packet = IP(src=address, dst="10.77.0.1") / UDP(dport=9)
    headers = {
        "unknown address": Ether(src=mac, dst=GATEWAY_MAC) / packet,
        "broadcast": Ether(src=mac, dst=BROADCAST) / packet,
        "arp": Ether(src=mac, dst=BROADCAST) / ARP(psrc=address, pdst=str(gateway_ip(fabric, source))),
    }
    with booted(fabric) as net, listening(net) as wire:
        before = net.network.northbound.ports("leaf0")
        sent = inject(net, source, headers[nobody] / Raw(MARK + nobody.encode()))
        assert until(lambda: net.network.northbound.ports("leaf0").table_miss_packets == 1, SEEN_S)
        assert wire.heard(sent) == {"h0 nic0", "leaf0-p0"}
        after = net.network.northbound.ports("leaf0")
        received = [
            port.rx_packets - old.rx_packets for port, old in zip(after.ports, before.ports, strict=True)
        ]
        assert sum(received) == received[0] == 1
        assert before.table_miss_packets == 0


def test_a_collective_needs_neither_arp_nor_broadcast(booted: Booted) -> None:
    fabric = rail_fabric(3, 2, 2)
    with booted(fabric) as net, listening(net) as wire:
        queue_pairs = some_queue_pairs(fabric, 40)
        assert net.answered(queue_pairs) == set(queue_pairs)
        kinds = {(packet[:6] == BROADCAST_BYTES, packet[12:14]) for _, packet in wire.packets()}
        assert kinds == {(False, IPV4_BYTES)}
