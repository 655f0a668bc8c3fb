"""Six servers in a ring, by coin change: TTLs on the wire, no loops, and the tax that ports count."""

import socket
import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.foreseen import Foreseen
from controller.schedulers.coin_change import (
    CoinChange,
    KShortest,
    bandwidth_tax,
    coin_change,
    hops_between,
)
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.machine.kernel import inside_namespace
from testbed.machine.residue import END_S, until
from testbed.network.network import Network
from testbed.trust.outcome import Outcome
from testbed.trust.trial import tried
from tests.controller.schedulers.lit_panels import Panel
from tests.emulation.box import Box
from tests.emulation.conftest import Booted
from tests.emulation.live import Live
from tests.emulation.machine import Machine
from topologies.addresses import nic_ip
from topologies.fabric import Nic
from topologies.light import Circuit
from topologies.routes import Routes
from topologies.routing import Flow, Routing
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.job import Collective, Job
from traffic.metrics import communication_s
from traffic.spread import SpreadSetup

pytestmark = pytest.mark.emulation

SERVERS, COINS = 6, (1, 5)
RING = Panel.of_coins(SERVERS, (1,))
"""NIC 0 of each server is joined to NIC 1 of the next."""
DILATION = Dilation(rate=2e-4, volume=5e-2)
"""20 Mbit/s; of a third of these bytes a step of a ring takes a quarter longer than predicted."""
MEGABYTE = 1_000_000
TTL, PORT, LIT_S, SENT = 64, 9000, 5.0, 20
IP_RECVTTL = 12
"""As in linux/in.h; Python does not name it."""
HEADERS = 14 + 20 + 20 + 12
"""Ethernet, IP, TCP and its timestamps: all that an acknowledgement has [bytes]."""


def test_each_relay_lowers_the_ttl_by_one(booted: Booted) -> None:
    changes, circuits = coin_change(SERVERS, COINS), RING.lit["panel0"]
    with booted(RING.fabric, DILATION.rate) as net:
        light(net, circuits)
        follow(net, circuits, *map(lane, range(1, SERVERS)))
        for offset in range(1, SERVERS):
            before = counted(net, "ForwDatagrams")
            assert ttl_received(net, lane(offset)) == TTL - changes.relays[offset], f"at offset {offset}"
            step = changes.coins(offset)[0]
            relays = [step * hop % SERVERS for hop in range(1, changes.relays[offset] + 1)]
            assert counted(net, "ForwDatagrams") - before == Counter(relays)
        assert not counted(net, "InHdrErrors"), "no TTL has run out"


def test_what_is_for_a_server_that_was_cut_off_does_not_loop(booted: Booted) -> None:
    circuits, flow = RING.lit["panel0"], lane(3)
    dark = [circuit for circuit in circuits if not {6, 7} & {*circuit}]  # the ports of server 3
    with booted(RING.fabric, DILATION.rate) as net:
        light(net, circuits)
        follow(net, circuits, flow)
        light(net, dark)
        at_first = counted(net, "ForwDatagrams")
        for _ in range(SENT):
            send(net, flow)
        by_old_routes = Counter({1: SENT, 2: SENT})
        assert until(lambda: counted(net, "ForwDatagrams") - at_first == by_old_routes, END_S)
        follow(net, dark, flow)
        received = counted(net, "InReceives")
        for _ in range(SENT):
            send(net, flow)
        assert until(lambda: (counted(net, "InReceives") - received)[1] == SENT, END_S)
        light(net, circuits)
        follow(net, circuits, flow)
        assert ttl_received(net, flow) == TTL - 2, "it arrives behind all that was sent before"
        # Where a relay has no route it sends on by NIC 0 to whom its MAC address is not.
        assert counted(net, "ForwDatagrams") - at_first <= by_old_routes + Counter({1: SENT + 1, 2: 1})
        assert not counted(net, "InHdrErrors"), "no TTL ran out"


@pytest.mark.real_cpus
def test_rings_whose_edges_cross_a_relay_send_all_twice(sandbox: Box | None, machine: Machine) -> None:
    """Over circuits of coin 1, AllReduces of the even and of the odd servers at once: jump 2, 3 a group."""
    even, odd = (Ring((tuple(range(first, SERVERS, 2)),), 40 * MEGABYTE) for first in (0, 1))
    nodes = Collective("even", even), Collective("odd", odd)
    outcome = emulated(Job("rings over relays", SERVERS, nodes), CoinChange(COINS))
    own_bytes = 2 * (3 - 1) / 3 * 40 * MEGABYTE
    assert payload_bytes(outcome) / own_bytes == pytest.approx(np.full(SERVERS, 2.0), rel=0.05)
    assert machine.busy or 0.9 < over_fluid(outcome) < 1.15


@pytest.mark.real_cpus
def test_the_tax_of_an_all_to_all_beside_a_ring_is_that_computed(
    sandbox: Box | None, machine: Machine
) -> None:
    sizes = np.random.default_rng(1).integers(5, 15, (SERVERS, SERVERS)) * MEGABYTE
    np.fill_diagonal(sizes, 0)
    ring = tuple(range(SERVERS))
    nodes = (
        Collective("all-to-all", AllToAll(Demand("drawn", sizes))),
        Collective("ring", Ring((ring, ring[::-1]), 12 * MEGABYTE), ("all-to-all",)),
    )
    outcome = emulated(Job("all-to-all and ring", SERVERS, nodes), KShortest())
    ring_bytes = 2 * (SERVERS - 1) * 12 * MEGABYTE
    tax = bandwidth_tax(ring_bytes, sizes, hops_between(coin_change(SERVERS, COINS)))
    assert tax > 1.4
    counted_tax = payload_bytes(outcome).sum() / (ring_bytes + sizes.sum())
    assert counted_tax == pytest.approx(tax, rel=0.05)
    assert machine.busy or 0.9 < over_fluid(outcome) < 1.15


def emulated(job: Job, routing: Routing) -> Outcome:
    """Return what comes of a job over the ring."""
    circuits = Foreseen((("panel0", RING.lit["panel0"]),), (), ReconfigurationDelay(), stays=True)
    asked = Experiment(RING.fabric, job, SpreadSetup(), DILATION, circuits=circuits, routing=routing)
    with Network(RING.fabric, DILATION.rate, host=asked.host, routing=asked.bound_routing) as network:
        outcome = tried(asked, network)
    assert outcome.is_sound, outcome.verdict.reasons
    return outcome


def payload_bytes(outcome: Outcome) -> NDArray[np.float64]:
    """Return what the ports of each server counted as sent, without headers, at real scale."""
    tables, sent = outcome.run.tables, np.zeros(SERVERS)
    for number, size, packets, _ in tables.wire.itertuples(index=False, name=None):
        server = RING.fabric.server_index.get(tables.ports[number].node)
        if server is not None:
            sent[server] += (size - HEADERS * packets) / DILATION.volume
    return sent


def over_fluid(outcome: Outcome) -> float:
    """Return how long it took over how long it was predicted to take."""
    return communication_s(outcome.run.tables) / communication_s(outcome.predicted.tables)


def light(net: Live, circuits: Sequence[Circuit]) -> None:
    """Light circuits and wait until they are lit."""
    net.network.northbound.light("panel0", circuits)
    net.network.northbound.wait_idle("panel0", LIT_S)


def follow(net: Live, circuits: Sequence[Circuit], *flows: Flow) -> None:
    """Have kernels forward some flows by coin change over what is lit."""
    assert net.network.routes
    routes = Routes(net.fabric, {"panel0": tuple(circuits)}, routing=CoinChange(COINS))
    net.network.routes.follow(routes, flows)


def lane(offset: int) -> Flow:
    """Return the NICs between which server 0 sends at an offset."""
    onwards = coin_change(SERVERS, COINS).coins(offset)[0] == COINS[0]
    return Nic(0, 0 if onwards else 1), Nic(offset, 1 if onwards else 0)


def send(net: Live, flow: Flow) -> None:
    """Send a datagram from one NIC to another."""
    with net.open(flow[0].server, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, TTL)
        sender.bind((str(nic_ip(net.fabric, flow[0])), 0))
        sender.sendto(b"by relays", (str(nic_ip(net.fabric, flow[1])), PORT))


def ttl_received(net: Live, flow: Flow) -> int:
    """Return the TTL with which a datagram arrives that was sent from one NIC to another."""
    with net.open(flow[1].server, socket.SOCK_DGRAM) as listener:
        listener.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        listener.bind((str(nic_ip(net.fabric, flow[1])), PORT))
        listener.settimeout(END_S)
        send(net, flow)
        _, ancillary, _, sender = listener.recvmsg(64, socket.CMSG_SPACE(4))
    assert sender[0] == str(nic_ip(net.fabric, flow[0]))
    ((_, _, ttl),) = ancillary
    return int(struct.unpack("i", ttl)[0])


def counted(net: Live, name: str) -> Counter[int]:
    """Return what each server's kernel has counted of IP packets, where it is not 0."""
    found: Counter[int] = Counter()
    for server, namespace in enumerate(net.network.wiring.namespaces):
        with inside_namespace(namespace):
            names, values, *_ = Path("/proc/thread-self/net/snmp").read_text().splitlines()
        found[server] = int(dict(zip(names.split(), values.split(), strict=True))[name])
    return +found
