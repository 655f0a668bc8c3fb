"""Packet switches that are namespaces which route: paths, faults, counters, hosts, and what is refused."""

import select
import socket
from collections.abc import Iterable
from itertools import pairwise

import pytest
from mininet.cli import CLI

from controller.packet.flow_table import FlowTables
from controller.packet.kernel_routes import packet_routes
from controller.packet.routing import forwarding_rules
from testbed.cli.cli import FabricCLI
from testbed.machine.residue import until
from testbed.network.readback import port_settings, unmet
from testbed.network.tap import Tap
from tests.controller.test_routing import Detour
from tests.emulation.conftest import Booted
from tests.emulation.live import Live
from tests.emulation.test_entropies import sent
from tests.emulation.test_faults import pairs
from tests.emulation.test_no_sandbox import machine, things
from topologies.addresses import ENTROPIES, nic_ip
from topologies.errors import NetworkError
from topologies.fabric import NVLINK_BPS, Fabric, Link, Nic, Path, Port, Switch, equal_servers
from topologies.fat_tree import fat_tree_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.spraying.policy import QueuePair
from traffic.transports.connections import ports
from traffic.transports.datagram_sockets import datagram_ends

pytestmark = pytest.mark.emulation

NONE: frozenset[Link] = frozenset()
IP_RECVERR, PORT, SEEN_S = 11, 9, 10.0
LOOKS_S = 0.5, 2.0, 8.0
"""How long answers are waited for where some do not come, and how long then [s]."""
SHORT_S = LOOKS_S[0]


def on_paper(fabric: Fabric, asked: Iterable[QueuePair]) -> dict[QueuePair, Path | None]:
    """Return the path of the first packet of each connection."""
    tables = FlowTables(fabric, forwarding_rules(fabric), hashing="kernel")
    return {pair: tables.path(pair.source, pair.destination, *ports(pair)) for pair in asked}


def answered_on_paper(
    fabric: Fabric, ruled_for: frozenset[Link] = NONE, failed: frozenset[Link] = NONE
) -> set[QueuePair]:
    """Return the connections whose packets come there, and whose answers come back."""
    tables = FlowTables(fabric, forwarding_rules(fabric, ruled_for), failed, "kernel")
    return {
        pair
        for pair in pairs(fabric)
        if tables.path(pair.source, pair.destination, *ports(pair))
        and tables.path(pair.destination, pair.source, *reversed(ports(pair)))
    }


def assert_as_on_paper(net: Live, ruled_for: frozenset[Link] = NONE, failed: frozenset[Link] = NONE) -> None:
    """Compare who is reached with the paper; a busy machine may take long to answer."""
    expected = answered_on_paper(net.fabric, ruled_for, failed)
    assert any(net.answered(pairs(net.fabric), look_s) == expected for look_s in LOOKS_S)


def assert_all_answer(net: Live) -> None:
    """Assert that all NICs reach all others."""
    assert net.answered(pairs(net.fabric)) == set(pairs(net.fabric))


@pytest.mark.parametrize(
    "fabric", [leaf_spine_fabric(4, 2, 2, nics=2), fat_tree_fabric(4)], ids=lambda fabric: fabric.name
)
def test_connections_take_the_paths_of_the_kernels_hash(booted: Booted, fabric: Fabric) -> None:
    asked = pairs(fabric)
    with booted(fabric, datapath="route") as net:
        assert dict(zip(asked, net.paths(asked), strict=True)) == on_paper(fabric, asked)
        assert not unmet(net.network, port_settings(net.network))


@pytest.mark.slow
def test_more_switches_than_linux_usually_counts_hops_are_crossed(booted: Booted) -> None:
    switches = [f"s{number}" for number in range(64)]
    ends = Link(Port("h0", 0), Port("s0", 0), 1e11), Link(Port("h1", 0), Port(switches[-1], 0), 1e11)
    row = (Link(Port(near, 2), Port(far, 1), 1e11) for near, far in pairwise(switches))
    servers, every = equal_servers(2, 1, 1, NVLINK_BPS), tuple(Switch(name, 3) for name in switches)
    with booted(Fabric("row", servers, every, (*ends, *row)), datapath="route") as net:
        assert net.reaches(0, 1)


def test_a_dead_link_is_left_out_at_once_gone_around_and_used_again(booted: Booted) -> None:
    fabric = leaf_spine_fabric(6, 3, 2)
    with booted(fabric, datapath="route") as net:
        assert_as_on_paper(net)
        links = frozenset(link for link in fabric.links if {"leaf1", "spine0"} == {link.a.node, link.b.node})
        net.network.turn_links(links, works=False)
        assert net.network.links_down() == [*links]
        assert_as_on_paper(net, NONE, links)
        assert net.network.switches.dropped("spine0") > 0, "what has no path is counted"
        net.network.follow([link.a for link in links])
        assert_all_answer(net)
        net.network.turn_links(links, works=True)
        net.network.follow([])
        assert_as_on_paper(net)


def test_without_the_controller_rules_stay_and_with_it_switches_learn_what_it_missed(booted: Booted) -> None:
    fabric = leaf_spine_fabric(4, 2, 2)
    uplink = frozenset(link for link in fabric.links if {"leaf1", "spine0"} == {link.a.node, link.b.node})
    with booted(fabric, datapath="route") as net:
        net.network.kill("controller", for_good=False)
        net.network.turn_links(uplink, works=False)
        net.network.follow([link.a for link in uplink])
        assert_as_on_paper(net, NONE, uplink)
        net.network.turn_links(uplink, works=True)
        net.network.follow([])
        assert_as_on_paper(net)
        net.network.turn_links(uplink, works=False)
        net.network.revive("controller")
        net.network.await_controller()
        assert_all_answer(net)


def test_what_a_routing_leads_over_a_dead_link_goes_nowhere_until_the_rules_are_new(booted: Booted) -> None:
    fabric = rail_fabric(2, 2, 2)
    tables = FlowTables(fabric, forwarding_rules(fabric, routing=Detour()), hashing="kernel")
    flow = next(  # whose answers do not cross the link
        pair
        for pair in (QueuePair(Nic(0, 0), Nic(1, 1), entropy) for entropy in range(ENTROPIES))
        if tables.path(Nic(1, 1), Nic(0, 0), *reversed(ports(pair)))[1] == Port("leaf1", 3)  # type: ignore[index]
    )
    with booted(fabric, datapath="route", routing=Detour()) as net:
        (path,) = net.paths([flow])
        assert path[1] == Port("leaf0", 2)
        far = fabric.peer(path[1])
        net.network.turn_link(far, works=False)  # the leaf's end has no carrier
        assert not net.answered([flow], SHORT_S)
        net.network.follow([far])
        assert net.answered([flow]) == {flow}
        net.network.turn_link(far, works=True)
        net.network.follow([])
        assert net.paths([flow]) == (path,)


def test_switches_that_are_killed_forward_nothing_and_all_again(booted: Booted) -> None:
    fabric = rail_fabric(3, 2, 2)
    with booted(fabric, datapath="route") as net:
        net.network.kill("switches", for_good=False)
        assert net.answered(pairs(fabric), SHORT_S) == set()
        net.network.mend()
        assert_as_on_paper(net)


def test_a_packet_for_nobody_is_dropped_in_silence_and_counted(booted: Booted) -> None:
    fabric = rail_fabric(2, 2, 1)
    with booted(fabric, datapath="route") as net, net.open(0, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
        sender.bind((str(nic_ip(fabric, Nic(0, 0))), 0))
        assert net.network.switches.dropped("leaf0") == 0
        sender.sendto(b"datagram", ("10.77.0.1", PORT))
        assert until(lambda: net.network.switches.dropped("leaf0") == 1, SEEN_S)
        assert net.network.switches.dropped("spine0") == 0
        assert not select.select([sender], [], [], SHORT_S)[0], "no error comes back"


def test_runs_are_side_by_side_beside_the_machines_own_open_vswitch(
    booted: Booted, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric = rail_fabric(2, 2, 1)
    with machine(monkeypatch):
        before = things()
        with booted(fabric, datapath="route") as one, booted(fabric, datapath="route") as other:
            assert one.reaches(0, 3)
            assert other.reaches(3, 0)
            rules = forwarding_rules(fabric)
            sizes = {switch: len(packet_routes(fabric, switch, rules[switch])) for switch in rules}
            assert one.network.switches.counts == sizes
        assert things() == before


def test_circuits_and_routes_are_side_by_side(booted: Booted) -> None:
    fabric = parallel_ocs_fabric(3, 2, packet_switch=True)
    on_switch = [nic for nic in fabric.nics if fabric.peer(fabric.nic_port(nic)).node not in fabric.ocs_parts]
    lit = [nic for nic in fabric.nics if fabric.peer(fabric.nic_port(nic)).node == "ocs0"]
    with booted(fabric, datapath="route") as net:
        assert net.answered([QueuePair(on_switch[0], on_switch[1])])
        circuit = QueuePair(lit[0], lit[1])
        assert not net.answered([circuit], SHORT_S)
        net.network.northbound.light("ocs0", "0>1 1>0")
        net.network.northbound.wait_idle("ocs0", 5.0)
        assert net.answered([circuit]) == {circuit}
        assert [switch.name for switch in net.network.northbound.switches()] == sorted(fabric.ocs_parts)
        with pytest.raises(NetworkError, match="routes by itself"):
            net.network.northbound.ports(fabric.peer(fabric.nic_port(on_switch[0])).node)


def test_datagrams_of_all_entropies_spread_as_on_paper(booted: Booted) -> None:
    fabric = leaf_spine_fabric(4, 2, 2, nics=2)
    source, destination = Nic(0, 0), Nic(3, 1)
    lanes = [QueuePair(source, destination, entropy) for entropy in range(ENTROPIES)]
    tables = FlowTables(fabric, forwarding_rules(fabric), hashing="kernel")
    with booted(fabric, datapath="route") as net, Tap(net.network.wiring) as tap:
        assert len(sent(net, lanes)) == ENTROPIES
        seen = tap.paths(lanes, lambda lane: datagram_ends(fabric, lane))
    assert list(seen) == tables.datagram_paths(source, destination)


def test_hosts_reach_each_other_and_links_are_cut_by_hand(
    booted: Booted, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(CLI, "__init__", lambda self, mininet: setattr(self, "mn", mininet))
    fabric = leaf_spine_fabric(4, 2, 2, nics=2)
    with booted(fabric, hosts=True, datapath="route") as net:
        cli = FabricCLI(net.network, {})
        cli.onecmd("link leaf1 spine0 down")
        assert [str(link) for link in net.network.links_down()] == ["leaf1:4 - spine0:1"]
        assert net.network.mininet.pingAll(timeout="2") == 0
        cli.onecmd("mend")
        assert net.network.links_down() == []
        cli.onecmd("fail link:leaf1-spine1")
        assert net.network.mininet.pingAll(timeout="2") == 0
        for word in ("down", "up"):  # the kernel forgets routes and neighbours
            net.network.mininet["leaf0"].cmd(f"ip link set leaf0-p4 {word}")
        cli.onecmd("link leaf0 spine0 up")
        net.network.mininet["leaf1"].cmd("ip link set leaf1-p4 down")
        cli.onecmd("mend")
        assert net.network.links_down() == []
        assert net.network.mininet.pingAll(timeout="2") == 0
        cli.onecmd("dpctl show")
        assert "leaf0 routes, and has no flows" in capsys.readouterr().out
