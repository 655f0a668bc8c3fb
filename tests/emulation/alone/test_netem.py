"""Delay and loss of links on the wire, where the kernel has netem; a sentence where it has none."""

import re
import socket
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.machine.netlink import kernel_has_netem
from testbed.network import netem as netem_module
from testbed.network.network import Network
from testbed.network.readback import port_settings, unmet
from testbed.trust.trial import tried
from tests.emulation.box import Box
from tests.emulation.conftest import Booted
from tests.emulation.live import RATE_FACTOR, Live
from tests.tools import CHECKOUT
from topologies.addresses import nic_ip
from topologies.errors import MachineError
from topologies.fabric import Fabric, Nic, Port
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.steps import single
from traffic.transports.host_settings import HostSettings, TransportSetup, host_settings

pytestmark = pytest.mark.emulation

TIME_FACTOR = 1000.0
LOSS, DATAGRAMS = 0.05, 10_000
BURST, BURST_S = 20, 0.01


def need_netem() -> None:
    """Skip a test where the kernel has no netem."""
    if not kernel_has_netem():
        pytest.skip("this kernel has no netem")


def over_tcp(fabric: Fabric) -> HostSettings:
    """Return the settings of hosts whose packets the links delay."""
    return host_settings(TransportSetup("tcp"), fabric, RATE_FACTOR, TIME_FACTOR)


def one_way_s(net: Live) -> float:
    """Return half of the least round-trip time of 100 pings between the first two servers [s]."""
    ping = f"ping -q -c100 -i0.02 -W3 -I {nic_ip(net.fabric, Nic(0, 0))} {nic_ip(net.fabric, Nic(1, 0))}"
    said = net.network.mininet.get("h0").cmd(ping)
    found = re.search(r"= ([\d.]+)/", said)
    assert found, said
    return float(found[1]) / 2e3


def lost(net: Live, datagrams: int) -> float:
    """Return the share of datagrams from the first server to the second that never arrive."""
    address = str(nic_ip(net.fabric, Nic(1, 0))), 7000
    with net.open(1, socket.SOCK_DGRAM) as receiver, net.open(0, socket.SOCK_DGRAM) as sender:
        receiver.bind(address)
        received, due = 0, time.monotonic()
        receiver.setblocking(False)
        for number in range(datagrams):
            sender.sendto(bytes(64), address)
            if number % BURST == BURST - 1:  # slower than any link, so that no queue fills
                due += BURST_S
                time.sleep(max(due - time.monotonic(), 0))
                received += drained(receiver)
        receiver.settimeout(2.0)
        while received < datagrams:
            try:
                receiver.recv(100)
            except TimeoutError:
                break
            received += 1
    return 1 - received / datagrams


def drained(receiver: socket.socket) -> int:
    """Return how many datagrams were waiting."""
    count = 0
    while True:
        try:
            receiver.recv(100)
        except BlockingIOError:
            return count
        count += 1


def test_a_ping_takes_the_delays_of_its_links(booted: Booted) -> None:
    need_netem()
    fabric = rail_fabric(2, 1, 0).with_links(delay_s=1e-6, loss=0.0)
    with booted(fabric, host=over_tcp(fabric)) as net:
        taken_s = []
        for time_factor in (TIME_FACTOR, 10 * TIME_FACTOR):
            net.network.impair(time_factor)
            assert not unmet(net.network, port_settings(net.network))
            taken_s.append(one_way_s(net))
    assert taken_s[0] >= 2e-3
    # What a slow CPU adds to each ping is the same in both.
    assert taken_s[1] - taken_s[0] == pytest.approx(18e-3, rel=0.05)


def test_links_delay_packets_for_tcp_only(booted: Booted) -> None:
    need_netem()
    fabric = rail_fabric(2, 1, 0).with_links(delay_s=5e-6, loss=0.0)
    with booted(fabric) as net:
        carries = net.network.host
        net.network.impair(TIME_FACTOR)
        assert one_way_s(net) < 5e-3
        for host, least_s, most_s in ((over_tcp(fabric), 10e-3, 15e-3), (carries, 0.0, 5e-3)):
            net.network.set_hosts(host)
            assert not unmet(net.network, port_settings(net.network))
            assert least_s <= one_way_s(net) < most_s


def test_a_link_may_begin_to_lose_packets(booted: Booted) -> None:
    need_netem()
    with booted(rail_fabric(2, 1, 0)) as net:
        for loss in (0.5, 0.0):
            net.network.shape_link(Port("h1", 0), 0.5, loss)
            assert {net.network.netems[port].loss for port in (Port("h1", 0), Port("leaf0", 1))} == {loss}
            assert not [said for said in unmet(net.network, port_settings(net.network)) if "has" in said]


def test_a_link_loses_its_share_and_no_queue_drops_any(booted: Booted) -> None:
    need_netem()
    fabric = rail_fabric(2, 1, 0)
    fabric = replace(fabric, links=(replace(fabric.links[0], loss=LOSS), *fabric.links[1:]))
    with booted(fabric) as net:
        assert lost(net, DATAGRAMS // 10) == 0
        net.network.impair(TIME_FACTOR)
        share = lost(net, DATAGRAMS)
        dropped = sum(setting.drops for setting in port_settings(net.network).values())
    spread = np.sqrt(LOSS * (1 - LOSS) / DATAGRAMS)
    assert share == pytest.approx(LOSS, abs=5 * spread)
    assert dropped == 0


def test_a_delay_that_the_kernel_has_otherwise_is_named(booted: Booted) -> None:
    need_netem()
    fabric = rail_fabric(2, 1, 0).with_links(delay_s=1e-6, loss=LOSS)
    with booted(fabric, host=over_tcp(fabric)) as net:
        for time_factor in (TIME_FACTOR, 2 * TIME_FACTOR):
            net.network.impair(time_factor)
            assert unmet(net.network, port_settings(net.network)) == []
        change = ["tc", "qdisc", "change", "dev", "leaf0-p1", "root", "netem", "delay", "3ms", "loss", "5%"]
        subprocess.run(change, check=True)
        [sentence] = unmet(net.network, port_settings(net.network))
        assert sentence.startswith("port leaf0:1 has Netem(delay_s=0.003")
        net.network.impair(TIME_FACTOR, loss=False)
        assert unmet(net.network, port_settings(net.network)) == []


@pytest.mark.parametrize("loss", [0.0, 1e-3, 1e-2])
def test_a_collective_over_long_links_takes_what_was_predicted(booted: Booted, loss: float) -> None:
    if loss:
        need_netem()
    fabric = rail_fabric(4, 2, 0).with_links(delay_s=100e-6, loss=loss)
    matrix = np.kron(1 - np.eye(4), np.eye(2)).astype(np.int64) * 100_000_000
    experiment = Experiment(fabric, single(Demand("shift", matrix)), "rails", Dilation(5e-5, 5e-3))
    with Network(fabric, experiment.dilation.rate, host=experiment.host) as network:
        outcome = tried(experiment, network, 0.0, [])
    assert outcome.emulated
    ratio = outcome.cct_s / outcome.predicted_s
    assert 0.85 < ratio < 1.2, outcome.verdict


def test_a_scenario_says_so_before_it_measures_the_machine(sandbox: Box | None) -> None:
    if kernel_has_netem():
        pytest.skip("this kernel has netem")
    for option, why in (
        (["--loss", "0.01"], "delay and loss of links need; "),
        (["--fail", "nic:0:0@40%=loss:0.01"], "'nic:0:0@40%=loss:0.01' needs for the loss of links; "),
    ):
        # This test is in a sandbox already.
        command = [sys.executable, "scenarios/rails_uniform.py", "--servers", "2", *option, "--no-sandbox"]
        run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
        assert (run.returncode, run.stdout) == (2, "")
        assert run.stderr.startswith(f"this machine's kernel has no netem, which {why}")


def test_without_netem_nothing_is_booted_and_a_sentence_says_so(
    sandbox: Box | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netem_module, "kernel_has_netem", lambda: False)
    fabric = rail_fabric(2, 1, 0).with_links(delay_s=1e-6, loss=0.0)
    with pytest.raises(MachineError, match="no netem"), Network(fabric, RATE_FACTOR, host=over_tcp(fabric)):
        pass


def test_without_netem_links_with_delay_carry_datagrams_and_not_tcp(
    sandbox: Box | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric = rail_fabric(2, 1, 0).with_links(delay_s=1e-6, loss=0.0)
    monkeypatch.setattr(netem_module, "kernel_has_netem", lambda: False)
    with Network(fabric, RATE_FACTOR, "netdev") as network:
        network.impair(TIME_FACTOR)
        before = network.host
        with pytest.raises(MachineError, match="no netem"):
            network.set_hosts(over_tcp(fabric))
        assert (network.host, network.netems) == (before, {})
