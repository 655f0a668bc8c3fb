"""Marks that switches give packets: at the engine's lengths, and taken by it where they are asked for."""

import socket

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.fabric import Nic
from topologies.rail import rail_fabric
from traffic.congestion.control import Red
from traffic.packets import LEAST_MTU, MOST_MTU, burst_bytes, packet_bytes
from traffic.spraying.policy import QueuePair
from traffic.transports import host_settings as module
from traffic.transports.datagram_engine import DatagramEngine
from traffic.transports.datagram_lane import Crossed
from traffic.transports.datagram_sockets import MARKABLE, MARKED, UNMARKABLE, Address, DatagramEndpoints
from traffic.transports.host_settings import OF_DATAGRAMS, TransportSetup, host_settings
from traffic.transports.marking import Marking
from traffic.transports.registry import Algorithm, algorithm_named
from traffic.transports.transport import packet_s

HOST = "127.0.0.1"
PACKET = 1000


class Marked(socket.socket):
    """The socket of a NIC behind a switch that marks all packets which may be marked."""

    def sendto(self, data: bytes, to: Address) -> int:  # type: ignore[override]  # of this form only
        """Send a packet, marked."""
        if self.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) != UNMARKABLE:
            self.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, MARKED)
        return super().sendto(data, to)


def bound(endpoint: socket.socket) -> socket.socket:
    """Return a socket at a free port."""
    endpoint.bind((HOST, 0))
    return endpoint


@pytest.mark.parametrize("marks_all", [True, False])
@pytest.mark.parametrize("switches_mark", [True, False])
def test_the_marks_are_those_of_switches_where_they_mark(switches_mark: bool, marks_all: bool) -> None:
    receiver = bound(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    kind = Marked if marks_all else socket.socket
    sender = bound(kind(socket.AF_INET, socket.SOCK_DGRAM))
    endpoints = DatagramEndpoints(
        lambda _nic: sender, lambda _server: receiver, lambda *_: receiver.getsockname(), lambda _nic: sender
    )
    with DatagramEngine(
        endpoints,
        lambda _nic: 80e6,
        algorithm=algorithm_named("credit"),
        packet_bytes=PACKET,
        switches_mark=switches_mark,
    ) as engine:
        number = engine.add(QueuePair(Nic(0, 0), Nic(1, 0)))
        engine.post(np.array([number]), np.array([20 * PACKET]), np.array([0]))
        assert sender.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == (
            MARKABLE if switches_mark else UNMARKABLE
        )
        while not engine.quiet:
            engine.serve(1.0)
        (source,) = engine.sources
    assert source.acknowledged == 20
    assert source.marked == 20 * (switches_mark and marks_all)


@pytest.mark.parametrize("red", [Red(0.2, 0.8), Red(0.17, 0.17), Red(0.0, 0.0, 2.0)])
@given(rate=st.floats(1e-5, 1.0), delay_s=st.floats(0, 1e-3), mtu=st.integers(LEAST_MTU, MOST_MTU))
def test_switches_mark_at_the_lengths_at_which_the_engine_does(
    red: Red, rate: float, delay_s: float, mtu: int
) -> None:
    fabric = rail_fabric(2, 1, 0).with_links(delay_s=delay_s, loss=0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            module, "algorithm_named", lambda name: Algorithm(name, algorithm_named(name).make, red)
        )
        setup = TransportSetup("credit", marks="switches")
        found = host_settings(setup, fabric, rate, 1 / rate, mtu)
    assert found.marked_for == setup.marked_for == "--marks switches"
    bytes_s, packet = 100e9 * rate / 8, packet_bytes(mtu)
    time_s = packet_s(8 * bytes_s, packet)
    base_s = Crossed(bytes_s, 2 * delay_s / rate).pipe(bytes_s, packet).round_trip_s
    engine, least = Marking(red, np.random.default_rng(0)), found.mark_bytes
    curve = engine.curve(base_s, time_s, burst_bytes(8 * bytes_s, mtu) / bytes_s)
    for queue_bytes, is_marked in ((least - 1, False), (least + found.mark_rise_bytes + 2, True)):
        assert engine.met(queue_bytes / bytes_s, curve) == is_marked


def test_nothing_is_marked_by_switches_unless_it_is_asked_for() -> None:
    fabric = rail_fabric(2, 1, 0)
    marked = TransportSetup("tcp", marks="switches"), TransportSetup("credit")
    for setup in marked:
        assert setup.marked_for is None
        assert host_settings(setup, fabric, 1e-3, 1e3).marked_for is None
    assert host_settings(marked[1], fabric, 1e-3, 1e3) == OF_DATAGRAMS
