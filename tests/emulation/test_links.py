"""The links are as the fabric says, in rate, queue, burst and MTU: told by the kernel, and found by bytes."""

import contextlib
import json
import socket
import subprocess
import threading
import time
from contextlib import ExitStack
from math import nan

import pytest

from testbed.machine.datapath import Datapath
from testbed.network import netem as netem_module
from testbed.network.tap import SO_RCVBUFFORCE
from testbed.network.wiring import SERVER_QUEUE_BYTES
from tests.emulation.conftest import Booted
from tests.emulation.live import Live
from tests.emulation.machine import Machine
from topologies.addresses import interface, nic_ip
from topologies.errors import MachineError, ScenarioError
from topologies.fabric import Nic, Port
from topologies.rail import rail_fabric
from traffic.packets import DEFAULT_MTU, burst_bytes

pytestmark = pytest.mark.emulation

FACTOR = 2e-4
BUFFER_BYTES = 1 << 20
SENDERS, DATAGRAMS, DATAGRAM_BYTES = 4, 250, 8900
ICMP_BYTES, TCP_BYTES, ETHERNET_BYTES = 28, 52, 14
"""Headers: IP with ICMP, IP with TCP and its time stamps, Ethernet."""


Told = dict[str, str | int]


def told(net: Live, port: Port) -> tuple[Told, Told]:
    """Return what ``tc`` tells of a port's shaper: the shaper with its counters, and its options."""
    command = ["tc", "-j", "-s", "-d", "qdisc", "show", "dev", interface(net.fabric, port)]
    with net.network.wiring.inside(port.node):
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    [shaper] = [qdisc for qdisc in json.loads(said) if qdisc["kind"] == "tbf"]
    return shaper, shaper["options"]


@pytest.mark.parametrize("uplink_bps", [50e9, 400e9])
def test_every_port_is_shaped_as_asked(booted: Booted, uplink_bps: float) -> None:
    fabric = rail_fabric(3, 2, 2, uplink_bps=uplink_bps).with_buffer(BUFFER_BYTES)
    with booted(fabric, FACTOR) as net:
        for port, link in fabric.link_at.items():
            shaper, options = told(net, port)
            rate_bps = link.rate_bps * FACTOR
            burst = int(str(options["burst"]).partition("b")[0])
            queue = int(options["lat"]) * 1e-6 * rate_bps / 8 + burst
            asked = SERVER_QUEUE_BYTES if port.node in fabric.server_index else BUFFER_BYTES
            assert (shaper["kind"], options["rate"]) == ("tbf", rate_bps / 8), port
            assert burst == pytest.approx(burst_bytes(rate_bps), rel=0.01), port
            assert queue == pytest.approx(asked, rel=0.01), port


def test_a_packet_as_large_as_the_mtu_passes_and_a_larger_one_is_cut(booted: Booted) -> None:
    fabric = rail_fabric(2, 2)
    with booted(fabric) as net:
        h0 = net.network.mininet.get("h0")
        for payload, passes in ((DEFAULT_MTU - ICMP_BYTES, True), (DEFAULT_MTU - ICMP_BYTES + 1, False)):
            said = h0.cmd(
                f"ping -M do -c1 -W3 -s {payload} -I {nic_ip(fabric, Nic(0, 0))} {nic_ip(fabric, Nic(1, 1))}"
            )
            assert (" 0% packet loss" in said) is passes, said


@pytest.mark.parametrize("datapath", ["netdev", "route"])
def test_an_incast_fills_a_queue_whose_drops_are_counted_and_nothing_else_is_lost(
    booted: Booted, datapath: Datapath
) -> None:
    fabric = rail_fabric(SENDERS + 1, 1, 0).with_buffer(BUFFER_BYTES)
    bottleneck, address = Port("leaf0", SENDERS), (str(nic_ip(fabric, Nic(SENDERS, 0))), 7000)
    with booted(fabric, FACTOR, datapath=datapath) as net, ExitStack() as stack:
        receiver = stack.enter_context(net.open(SENDERS, socket.SOCK_DGRAM))
        # While a busy machine keeps this process waiting, its socket must not be what loses datagrams.
        for buffer in (socket.SO_RCVBUF, SO_RCVBUFFORCE):
            with contextlib.suppress(PermissionError):
                receiver.setsockopt(socket.SOL_SOCKET, buffer, SENDERS * DATAGRAMS * 2 * DATAGRAM_BYTES)
        receiver.bind(address)
        receiver.settimeout(3.0)
        for server in range(SENDERS):
            sender = stack.enter_context(net.open(server, socket.SOCK_DGRAM))
            thread = threading.Thread(target=blast, args=(sender, address))
            thread.start()
            stack.callback(thread.join)
        received, backlog = 0, 0
        with contextlib.suppress(TimeoutError):
            while receiver.recv(DATAGRAM_BYTES):
                received += 1
                if received % 20 == 0:
                    backlog = max(backlog, int(told(net, bottleneck)[0]["backlog"]))
        dropped = int(told(net, bottleneck)[0]["drops"])
    assert 0.95 * BUFFER_BYTES < backlog <= BUFFER_BYTES
    assert dropped > 0
    # On a busy machine the switch sends several at once. What then does not fit it tries again, and the
    # kernel counts it twice, or has its rest, which the kernel does not count.
    assert received + dropped == pytest.approx(SENDERS * DATAGRAMS, rel=0.05)


def blast(sender: socket.socket, address: tuple[str, int], datagrams: int = DATAGRAMS) -> None:
    """Send datagrams as fast as the sender's own link takes them."""
    for _ in range(datagrams):
        sender.sendto(bytes(DATAGRAM_BYTES), address)


WAVE = 60


def wave_s(net: Live, nics: tuple[Nic, Nic], halfway: tuple[Port, float] | None = None) -> float:
    """Return how long a wave of datagrams takes from one NIC to another; all of it has to arrive.

    Halfway a link may be shaped to another share of its rate.
    """
    source, address = str(nic_ip(net.fabric, nics[0])), (str(nic_ip(net.fabric, nics[1])), 7000)
    with ExitStack() as stack:
        receiver, sender = (
            stack.enter_context(net.open(nic.server, socket.SOCK_DGRAM)) for nic in nics[::-1]
        )
        receiver.bind(address)
        receiver.settimeout(3.0)
        sender.bind((source, 0))
        thread = threading.Thread(target=blast, args=(sender, address, WAVE))
        thread.start()
        stack.callback(thread.join)
        arrived_at = []
        for number in range(WAVE):
            receiver.recv(DATAGRAM_BYTES)
            arrived_at.append(time.monotonic())
            if halfway and number == WAVE // 2:
                net.network.shape_link(*halfway, 0.0)
    return arrived_at[-1] - arrived_at[WAVE // 4]


@pytest.mark.parametrize(
    ("port", "nics"),
    [(Port("h0", 0), (Nic(0, 0), Nic(1, 0))), (Port("leaf0", 3), (Nic(0, 0), Nic(1, 1)))],
    ids=["nic", "uplink"],
)
def test_a_link_is_shaped_anew_while_packets_wait_and_none_is_lost(
    booted: Booted, machine: Machine, port: Port, nics: tuple[Nic, Nic]
) -> None:
    fabric = rail_fabric(3, 2, 1)
    link = fabric.link_at[port]
    with booted(fabric, FACTOR) as net:
        before = {each: told(net, each)[1] for each in fabric.link_at}
        whole_s = wave_s(net, nics)
        wave_s(net, nics, (port, 0.5))
        for each, options in before.items():
            share = 0.5 if each in (link.a, link.b) else 1.0
            assert told(net, each)[1]["rate"] == float(options["rate"]) * share, each
        half_s = wave_s(net, nics)
        wave_s(net, nics, (port, 1.0))
        restored_s = wave_s(net, nics)
        assert {each: told(net, each)[1] for each in fabric.link_at} == before
        assert all(told(net, each)[0]["drops"] == 0 for each in fabric.link_at)
    assert machine.busy or whole_s / half_s == pytest.approx(0.5, abs=0.1)
    assert machine.busy or whole_s / restored_s == pytest.approx(1.0, abs=0.1)


def test_a_network_that_is_mended_has_the_rates_that_it_began_with(booted: Booted) -> None:
    fabric = rail_fabric(2, 1)
    with booted(fabric, FACTOR) as net:
        before = {each: told(net, each)[1] for each in fabric.link_at}
        net.network.shape_link(Port("h1", 0), 0.1, 0.0)
        assert told(net, Port("h1", 0))[1] != before[Port("h1", 0)]
        net.network.mend()
        assert {each: told(net, each)[1] for each in fabric.link_at} == before


def test_a_link_that_cannot_be_shaped_as_asked_is_as_before(
    booted: Booted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netem_module, "kernel_has_netem", lambda: False)
    fabric, one, other = rail_fabric(2, 1), Port("h0", 0), Port("h1", 0)
    with booted(fabric, FACTOR) as net:
        before = {each: told(net, each)[1] for each in fabric.link_at}
        for rate, loss in ((0.0, 0.0), (-0.5, 0.0), (1.5, 0.0), (nan, 0.0), (1.0, -0.1), (1.0, 1.5)):
            with pytest.raises(ScenarioError, match="a link cannot"):
                net.network.shape_link(one, rate, loss)
        for port in (one, other):
            with pytest.raises(MachineError, match="no netem"):
                net.network.shape_link(port, 0.5, 0.01)
        assert {each: told(net, each)[1] for each in fabric.link_at} == before
        net.network.shape_link(other, 0.5, 0.0)
        assert told(net, other)[1]["rate"] == float(before[other]["rate"]) / 2
        net.network.impair(1.0)
        net.network.mend()
        assert {each: told(net, each)[1] for each in fabric.link_at} == before
