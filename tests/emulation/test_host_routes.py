"""Connections between hosts' own addresses: they spread over NICs, survive a rail, and follow light."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import permutations
from threading import Thread

import pytest

from controller.packet.flow_table import FlowTables
from controller.packet.routing import forwarding_rules
from testbed.machine.commands import output_of
from testbed.machine.kernel import inside_namespace
from tests.emulation.conftest import Booted
from tests.emulation.live import Live
from topologies.addresses import host_ip, interface, nic_ip
from topologies.fabric import Fabric, Nic
from topologies.leaf_spine import leaf_spine_fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.patch_panel import patch_panel_fabric
from topologies.rail import rail_fabric
from traffic.transports.host_settings import OF_DATAGRAMS

pytestmark = pytest.mark.emulation

SERVICE = 7001
CONTROL_BYTES = 16
"""Of the name of a congestion control (TCP_CA_NAME_MAX in include/net/tcp.h)."""
IPPROTO_MPTCP = 262
SECONDS = 10.0
SOON_S = 0.5
"""How soon a packet that comes at all has come, and how soon routes follow light [s]."""
STANDS_S = 1.0
"""A connection whose rail fails stands until it sends again: 0.2 s of the least timeout, and what the
controller takes [s]."""


def sent_bytes(net: Live, nic: Nic) -> int:
    """Return the bytes that a NIC has sent, headers included."""
    return counted(net, nic, 8)


def heard_bytes(net: Live, nic: Nic) -> int:
    """Return the bytes that have come to a NIC, headers included."""
    return counted(net, nic, 0)


def counted(net: Live, nic: Nic, column: int) -> int:
    """Return a count of a NIC, by its column in the kernel's table of interfaces."""
    name = interface(net.fabric, net.fabric.nic_port(nic))
    with (
        inside_namespace(net.network.wiring.namespaces[nic.server]),
        open("/proc/thread-self/net/dev") as table,
    ):
        (line,) = (line for line in table if line.strip().startswith(f"{name}:"))
    return int(line.split(":")[1].split()[column])


@contextmanager
def connected(
    net: Live, source: int, destination: int, address: object = "", *, port: int = 0, protocol: int = 0
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Connect a host to another's address, or to an address of it; yield both ends."""
    with ExitStack() as stack:
        with inside_namespace(net.network.wiring.namespaces[destination]):
            listening = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol))
        with inside_namespace(net.network.wiring.namespaces[source]):
            near = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("", SERVICE))
        listening.listen()
        near.settimeout(SECONDS)
        near.bind(("", port))
        near.connect((str(address or host_ip(destination)), SERVICE))
        far = stack.enter_context(listening.accept()[0])
        far.settimeout(SECONDS)
        yield near, far


def answered(near: socket.socket, far: socket.socket, size: int) -> None:
    """Send bytes, and as many back."""
    for one, other in ((near, far), (far, near)):
        one.sendall(bytes(size))
        left = size
        while left:
            left -= len(other.recv(left))


def reached(net: Live) -> set[tuple[int, int]]:
    """Return the pairs of hosts of which the second hears the first, at their own addresses."""
    servers = range(len(net.fabric.servers))
    with ExitStack() as stack:
        listening = []
        for server in servers:
            listening.append(stack.enter_context(net.open(server, socket.SOCK_DGRAM)))
            listening[-1].bind((str(host_ip(server)), SERVICE))
            listening[-1].settimeout(SOON_S)
        for source, destination in permutations(servers, 2):
            with net.open(source, socket.SOCK_DGRAM) as sending, suppress(OSError):  # there may be no route
                sending.sendto(bytes([source]), (str(host_ip(destination)), SERVICE))
        return {pair for server in servers for pair in _heard(listening[server], server)}


def _heard(listening: socket.socket, server: int) -> Iterator[tuple[int, int]]:
    while True:
        try:
            (source,), (address, _) = listening.recvfrom(1)
        except TimeoutError:
            return
        assert address == str(host_ip(source)), "from the host's own address"
        yield source, server


@pytest.mark.parametrize(
    "fabric", [rail_fabric(3, 4, 0), rail_fabric(3, 4, 2), leaf_spine_fabric(3, 3, 2, nics=4)]
)
def test_connections_spread_over_all_nics_both_ways(booted: Booted, fabric: Fabric) -> None:
    with booted(fabric, hosts=True) as net:
        ends = [Nic(server, nic) for server in (0, 2) for nic in range(4)]
        before = {nic: (sent_bytes(net, nic), heard_bytes(net, nic)) for nic in ends}
        for _ in range(80):
            with connected(net, 0, 2) as (near, far):
                assert near.getsockname()[0] == str(host_ip(0))
                answered(near, far, 1000)
        each = 80 * 1000 / 4
        for nic in ends:
            sent, heard = before[nic]
            assert 0.3 * each < sent_bytes(net, nic) - sent < 3 * each, nic
            assert 0.3 * each < heard_bytes(net, nic) - heard < 3 * each, nic


def test_a_connection_comes_by_the_nic_that_the_flow_table_on_paper_says(booted: Booted) -> None:
    fabric = leaf_spine_fabric(2, 2, 2, nics=3)
    tables = FlowTables(fabric, forwarding_rules(fabric, hosts=True))
    taken = set()
    with booted(fabric, hosts=True) as net:
        for port in range(20_000, 20_030):
            before = {nic: (sent_bytes(net, nic), heard_bytes(net, nic)) for nic in fabric.nics}
            with connected(net, 0, 1, port=port) as (near, far):
                near.sendall(bytes(5000))
                far.recv(5000, socket.MSG_WAITALL)
            (out,) = (nic for nic in fabric.nics[:3] if sent_bytes(net, nic) - before[nic][0] > 5000)
            (into,) = (nic for nic in fabric.nics[3:] if heard_bytes(net, nic) - before[nic][1] > 5000)
            path = tables.host_path(out, 1, port, SERVICE)
            assert path is not None
            assert fabric.nic_at(fabric.peer(path[-1])) == into
            taken.add((out, into))
    assert len(taken) > 5


@pytest.mark.parametrize("server", [0, 1], ids=["sender's", "receiver's"])
def test_a_connection_goes_on_when_its_rail_fails(booted: Booted, server: int) -> None:
    fabric = rail_fabric(2, 3, 0)
    with (
        booted(fabric, rate_factor=2e-4, hosts=True) as net,
        connected(net, 0, 1) as ends,
        Stream(*ends) as stream,
    ):
        before = [sent_bytes(net, Nic(0, rail)) for rail in range(3)]
        assert stream.stood_s(SOON_S) < STANDS_S
        sent = [sent_bytes(net, Nic(0, rail)) - before[rail] for rail in range(3)]
        rail = sent.index(max(sent))
        port = fabric.nic_port(Nic(server, rail))
        net.network.turn_link(port, works=False)
        net.network.follow([port])
        assert stream.stood_s(SOON_S) < STANDS_S
        with connected_many(net, 0, 1, 20) as others:
            assert len(others) == 20, "all new ones avoid it at once"
        net.network.turn_link(port, works=True)
        net.network.follow([])
        assert stream.stood_s(SOON_S) < STANDS_S
        before = [sent_bytes(net, Nic(0, each)) for each in range(3)]
        with connected_many(net, 0, 1, 40):
            assert all(sent_bytes(net, Nic(0, each)) > before[each] for each in range(3)), "it carries again"


@contextmanager
def connected_many(net: Live, source: int, destination: int, count: int) -> Iterator[list[socket.socket]]:
    """Connect a host to another's own address many times."""
    with ExitStack() as stack:
        listening = stack.enter_context(net.open(destination))
        listening.bind((str(host_ip(destination)), SERVICE + 1))
        listening.listen(count)
        near = [stack.enter_context(net.open(source)) for _ in range(count)]
        for each in near:
            each.settimeout(SOON_S)
            each.connect((str(host_ip(destination)), SERVICE + 1))
        yield near


class Stream:
    """Bytes that run over a connection as long as its block does."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self._near, self._far, self._ended = near, far, False
        self._sender = Thread(target=self._send)

    def __enter__(self) -> "Stream":
        self._sender.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended = True
        while self._far.recv(1 << 16):
            pass
        self._sender.join()

    def _send(self) -> None:
        while not self._ended:
            self._near.sendall(bytes(4096))
        self._near.shutdown(socket.SHUT_WR)

    def stood_s(self, for_s: float) -> float:
        """Read for a while [s]; return the longest time in which nothing came [s]."""
        begun = last = time.monotonic()
        longest = 0.0
        while last < begun + for_s:
            assert self._far.recv(1 << 16)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        return longest


def test_hosts_hear_of_a_link_that_somebody_else_cut(booted: Booted) -> None:
    fabric = rail_fabric(2, 2, 0)
    with booted(fabric, hosts=True) as net:
        assert eventually_routed(net, is_there=False), "the route to all hosts is for host 1 too"
        net.network.turn_link(fabric.nic_port(Nic(1, 1)), works=False)
        assert eventually_routed(net, is_there=True), "and now it has one of its own"
        before = sent_bytes(net, Nic(0, 1))
        with connected_many(net, 0, 1, 20):
            assert sent_bytes(net, Nic(0, 1)) == before
        net.network.turn_link(fabric.nic_port(Nic(1, 1)), works=True)
        assert eventually_routed(net, is_there=False)


def test_from_a_nics_own_address_other_rails_are_refused_at_once(booted: Booted) -> None:
    fabric = rail_fabric(2, 2, 0)
    with booted(fabric, hosts=True) as net:
        for near, far in ((0, 1), (1, 0)):
            with net.open(0) as dialling:
                dialling.bind((str(nic_ip(fabric, Nic(0, near))), 0))
                with pytest.raises(OSError, match="No route to host"):
                    dialling.connect((str(nic_ip(fabric, Nic(1, far))), SERVICE))
            with connected(net, 0, 1, nic_ip(fabric, Nic(1, far))) as (dialled, _):
                assert dialled.getsockname()[0] == str(nic_ip(fabric, Nic(0, far))), (
                    "by the rail that reaches it"
                )


@pytest.mark.slow
def test_hosts_send_over_what_is_lit(booted: Booted) -> None:
    fabric = parallel_ocs_fabric(3, 2)
    with booted(fabric, hosts=True) as net:
        assert reached(net) == set()
        for ocs0, ocs1, pairs in (
            ("0>1 1>2 2>0", "1>0 2>1 0>2", {*permutations(range(3), 2)}),
            ("0>1 1>0", "0>1 1>0", {(0, 1), (1, 0)}),
            ("0>2", "-", {(0, 2)}),
        ):
            for ocs, circuits in (("ocs0", ocs0), ("ocs1", ocs1)):
                net.network.northbound.light(ocs, circuits)
                net.network.northbound.wait_idle(ocs, SECONDS)
            net.network.hosts.follow_light()
            assert reached(net) == pairs


def test_hosts_hear_of_light_that_somebody_else_ordered(booted: Booted) -> None:
    with booted(parallel_ocs_fabric(2, 1), hosts=True) as net:
        net.network.northbound.show("ocs0", "1s 0>1,1>0")
        assert eventually_routed(net, is_there=True)
        with connected(net, 0, 1) as (near, far):
            answered(near, far, 1000)
        assert eventually_routed(net, is_there=False), "the program has ended"


@pytest.mark.slow
def test_hosts_hear_of_light_from_a_new_controller(booted: Booted) -> None:
    with booted(parallel_ocs_fabric(2, 1), hosts=True) as net:
        net.network.kill("controller", for_good=False)
        net.network.revive("controller")
        net.network.await_controller()
        net.network.northbound.light("ocs0", "0>1 1>0")
        assert eventually_routed(net, is_there=True)
        net.network.kill("switches", for_good=False)
        assert eventually_routed(net, is_there=False), "with the switches went the light"
        net.network.revive("switches")


@pytest.mark.parametrize("control", ["cubic", "reno"])
def test_hosts_control_congestion_as_they_are_set_to(booted: Booted, control: str) -> None:
    def controls(net: Live, address: object = "") -> set[bytes]:
        with connected(net, 0, 1, address) as ends:
            asked = socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONTROL_BYTES
            return {end.getsockopt(*asked).rstrip(b"\0") for end in ends}

    with booted(
        rail_fabric(2, 2, 0), hosts=True, host=replace(OF_DATAGRAMS, congestion_control=control)
    ) as net:
        assert controls(net) == controls(net, nic_ip(net.fabric, Nic(1, 1))) == {control.encode()}
        net.network.set_hosts(replace(OF_DATAGRAMS, congestion_control="reno"))
        assert controls(net) == {b"reno"}


def test_hosts_begin_as_another_transport_does(booted: Booted) -> None:
    begins = replace(OF_DATAGRAMS, initial_window_packets=7)
    with booted(rail_fabric(2, 2, 0), hosts=True) as net:
        net.network.set_hosts(begins)
        with inside_namespace(net.network.wiring.namespaces[0]):
            routes = output_of(["ip", "route", "show", "table", "all"])
        ways = [
            line for line in routes.splitlines() if " via " in line or line.startswith("172.16.0.0/12 proto")
        ]
        assert len(ways) > 6
        assert all("initcwnd 7" in line for line in ways if "nexthop" not in line)


def eventually_routed(net: Live, *, is_there: bool) -> bool:
    """Wait until host 0 has a route to host 1 alone, or none; return whether that came."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with inside_namespace(net.network.wiring.namespaces[0]):
            if (str(host_ip(1)) in output_of(["ip", "route"])) == is_there:
                return True
        time.sleep(0.01)
    return False


def test_a_connection_over_light_goes_on_over_other_light(booted: Booted) -> None:
    fabric = parallel_ocs_fabric(2, 2)
    with booted(fabric, hosts=True) as net:
        light(net, "ocs0", "0>1 1>0")
        with connected(net, 0, 1) as (near, far):
            answered(near, far, 10_000)
            light(net, "ocs0", "-")
            light(net, "ocs1", "0>1 1>0")
            before = sent_bytes(net, Nic(0, 1))
            answered(near, far, 10_000)
            assert sent_bytes(net, Nic(0, 1)) > before + 10_000


def light(net: Live, ocs: str, circuits: str) -> None:
    """Have an OCS light circuits, and hosts send over them."""
    net.network.northbound.light(ocs, circuits)
    net.network.northbound.wait_idle(ocs, SECONDS)
    net.network.hosts.follow_light()


def test_servers_forward_what_is_for_other_hosts(booted: Booted) -> None:
    with booted(replace(parallel_ocs_fabric(4, 1), servers_forward=True), hosts=True) as net:
        light(net, "ocs0", "0>1 1>2 2>3 3>0")
        assert reached(net) == {*permutations(range(4), 2)}
        with connected(net, 0, 1) as (near, far):
            answered(near, far, 10_000)  # there directly, and back through the others


def test_all_circuits_of_a_patch_panel_between_two_hosts_are_used(booted: Booted) -> None:
    fabric = patch_panel_fabric(3, nics=2)
    with booted(fabric, hosts=True) as net:
        light(net, "panel0", "0>2 2>0 1>3 3>1 4>5")
        assert reached(net) == {(0, 1), (1, 0)}
        for nic in (0, 1):
            before = sent_bytes(net, Nic(0, nic))
            for _ in range(20):
                with connected(net, 0, 1) as (near, far):
                    answered(near, far, 1000)
            assert sent_bytes(net, Nic(0, nic)) > before + 2000


@pytest.mark.slow
def test_what_no_light_joins_goes_over_packets(booted: Booted) -> None:
    fabric = parallel_ocs_fabric(3, 1, packet_switch=True)
    with booted(fabric, hosts=True) as net:
        for circuits, nic in (("0>1", 0), ("-", 1)):
            light(net, "ocs0", circuits)
            assert reached(net) == {*permutations(range(3), 2)}
            before = sent_bytes(net, Nic(0, nic))
            with connected(net, 0, 1) as (near, far):
                answered(near, far, 10_000)
            assert sent_bytes(net, Nic(0, nic)) > before + 10_000


def test_multipath_tcp_uses_each_rail_and_none_between_rails(booted: Booted) -> None:
    fabric = rail_fabric(2, 4, 0)
    with booted(fabric, rate_factor=2e-4, hosts=True) as net:
        net.network.hosts.offer_mptcp()
        with connected(net, 0, 1, protocol=IPPROTO_MPTCP) as ends, Stream(*ends) as stream:
            before = [sent_bytes(net, Nic(0, rail)) for rail in range(4)]
            stream.stood_s(2.0)
            with inside_namespace(net.network.wiring.namespaces[0]):
                rows = [line.split() for line in output_of(["ss", "-tnH"]).splitlines()]
            pairs = {(row[3].rsplit(":")[0], row[4].rsplit(":")[0]) for row in rows}
            assert pairs == {(str(host_ip(0)), str(host_ip(1)))} | {
                (str(nic_ip(fabric, Nic(0, rail))), str(nic_ip(fabric, Nic(1, rail)))) for rail in range(4)
            }
            sent = [sent_bytes(net, Nic(0, rail)) - before[rail] for rail in range(4)]
            assert min(sent) > 0.5 * max(sent)
