"""Links carry bytes at the rates of the fabric, and the sample before a run finds one that does not."""

import contextlib
import socket
import subprocess
import time

import numpy as np
import pytest

from testbed.network.link_sample import link_errors, sampled_paths
from tests.emulation.conftest import Booted
from tests.emulation.live import Live
from tests.emulation.machine import Machine
from tests.emulation.test_links import BUFFER_BYTES, ETHERNET_BYTES, FACTOR, TCP_BYTES
from topologies.addresses import interface, nic_ip
from topologies.fabric import Nic
from topologies.rail import rail_fabric
from traffic.packets import DEFAULT_MTU, burst_bytes

pytestmark = [pytest.mark.emulation, pytest.mark.real_cpus]


def test_bytes_flow_at_the_rate_of_the_slowest_link(booted: Booted, machine: Machine) -> None:
    fabric = rail_fabric(2, 2, 1, uplink_bps=50e9)
    with booted(fabric, FACTOR) as net:
        rates = [goodput_bps(net, Nic(0, 0), destination) for destination in (Nic(1, 0), Nic(1, 1))]
    payload = (DEFAULT_MTU - TCP_BYTES) / (DEFAULT_MTU + ETHERNET_BYTES)
    assert machine.busy or rates == [pytest.approx(rate_bps * payload, rel=0.05) for rate_bps in (20e6, 10e6)]


def goodput_bps(net: Live, source: Nic, destination: Nic) -> float:
    """Return how fast TCP carries bytes from a NIC to another, once it flows [bit/s]."""
    address = str(nic_ip(net.fabric, destination)), 7000
    with net.open(destination.server) as listener, net.open(source.server) as sender:
        listener.bind(address)
        listener.listen()
        sender.bind((str(nic_ip(net.fabric, source)), 0))
        sender.connect(address)
        sender.setblocking(False)
        receiver, _ = listener.accept()
        with receiver:
            carried(sender, receiver, 1 << 20)
            started = time.monotonic()
            return carried(sender, receiver, 2 << 20) * 8 / (time.monotonic() - started)


def carried(sender: socket.socket, receiver: socket.socket, least: int) -> int:
    """Keep a sender busy until some bytes arrived; return how many did."""
    got = 0
    while got < least:
        with contextlib.suppress(BlockingIOError):
            sender.send(bytes(1 << 18))
        got += len(receiver.recv(1 << 18))
    return got


def test_the_sample_finds_an_uplink_that_is_too_slow(booted: Booted, machine: Machine) -> None:
    fabric, rate_bps = rail_fabric(4, 2, 2), 10e6
    seed, slow, uplink = next(
        (seed, queue_pair.source, path[1])
        for seed in range(20)
        for queue_pair, path in sampled_paths(fabric, np.random.default_rng(seed)).items()
        if len(path) > 2
    )
    with booted(fabric, FACTOR) as net:
        sound = link_errors(net.network, np.random.default_rng(seed))
        shaper = f"tbf rate {rate_bps:.0f}bit burst {burst_bytes(rate_bps)} limit {BUFFER_BYTES}"
        device = interface(fabric, uplink)
        subprocess.run(["tc", "qdisc", "replace", "dev", device, "root", *shaper.split()], check=True)
        slowed = link_errors(net.network, np.random.default_rng(seed))
    assert machine.busy or sound == {nic: pytest.approx(0.0, abs=0.05) for nic in slowed}
    assert machine.busy or slowed == {
        nic: pytest.approx(-0.5 if nic == slow else 0.0, abs=0.05) for nic in sound
    }
