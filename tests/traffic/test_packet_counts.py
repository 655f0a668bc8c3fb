"""What became of packets, as an engine of datagrams counts them and as a relay in between sees them."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from tests.traffic.relay import taken_back
from topologies.fabric import Nic
from traffic.spraying.policy import QueuePair
from traffic.transports.datagram_engine import DatagramEngine
from traffic.transports.datagram_sockets import HEADER, PROBE, DatagramEndpoints
from traffic.transports.loop import PacketCounts
from traffic.transports.registry import algorithm_named

PACKET, SIZE, NIC_BPS = 8_000, 400_000, 20e6
"""A packet takes 3 ms, so that none is taken for lost though the machine stands still for half a second."""
ENDS_S = 20.0
COPIES: dict[str, Callable[[int], int]] = {
    "all arrive": lambda _number: 1,
    "every 7th is lost": lambda number: int(number % 7 != 3),
    "every 5th comes twice": lambda number: 1 + (number % 5 == 2),
    "some are lost, some come twice": lambda number: {0: 0, 1: 2}.get(number % 9, 1),
}
"""How many copies of each packet a relay passes on, by which one it is."""


class Relay:
    """Passes on packets between two servers, each as often as it is told."""

    def __init__(self, copies: Callable[[int], int]) -> None:
        self.seen = self.passed = 0
        """Packets with payload that came, and that it sent on."""
        self._copies = copies
        with ExitStack() as stack:
            self._inner, self._outer = (stack.enter_context(_bound()) for _ in range(2))
            self._stack = stack.pop_all()
        self.endpoints = DatagramEndpoints(
            lambda _nic: _bound(),
            lambda _server: self._outer.dup(),
            lambda _nic, _entropy: self._at(self._inner),
            lambda _nic: _bound(),
        )

    def turn(self) -> None:
        """Pass on what has come."""
        while True:
            try:
                packet = self._inner.recv(1 << 16)
            except BlockingIOError:
                return
            is_probe = HEADER.unpack_from(packet)[2] == PROBE
            copies = 1 if is_probe else self._copies(self.seen)
            for _ in range(copies):
                self._inner.sendto(packet, self._at(self._outer))
            self.seen += not is_probe
            self.passed += 0 if is_probe else copies

    def close(self) -> None:
        """Close its sockets."""
        self._stack.close()

    def _at(self, end: socket.socket) -> tuple[str, int]:
        host, port = end.getsockname()
        return str(host), int(port)


def _bound() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("127.0.0.1", 0))
    made.setblocking(False)
    return made


@contextmanager
def relayed(copies: Callable[[int], int]) -> Iterator[tuple[DatagramEngine, Relay]]:
    """Yield an engine whose packets a relay passes on."""
    relay = Relay(copies)
    with ExitStack() as stack:
        stack.callback(relay.close)
        yield (
            stack.enter_context(
                DatagramEngine(
                    relay.endpoints,
                    lambda _nic: NIC_BPS,
                    algorithm=algorithm_named("credit"),
                    packet_bytes=PACKET,
                )
            ),
            relay,
        )


def serve_until(engine: DatagramEngine, relay: Relay, is_over: Callable[[], bool]) -> None:
    """Have engine and relay work in turns until something is so."""
    deadline = time.monotonic() + ENDS_S
    while not is_over():
        assert time.monotonic() < deadline
        engine.serve(0.0)
        relay.turn()


@pytest.mark.parametrize("how", COPIES)
def test_packets_are_counted_as_they_leave_and_as_they_come(how: str) -> None:
    with relayed(COPIES[how]) as (engine, relay):
        number = engine.add(QueuePair(Nic(0, 0), Nic(1, 0), 0))
        assert engine.packets == PacketCounts()
        engine.post(np.array([number]), np.array([SIZE]), np.array([0]))
        serve_until(engine, relay, lambda: engine.quiet)
        serve_until(engine, relay, lambda: engine.packets.arrived + engine.packets.late == relay.passed)
        counts = engine.packets
        assert engine.health.packets == counts
    assert counts.sent == relay.seen >= SIZE // PACKET
    assert counts.arrived == counts.sent - counts.anew
    assert taken_back(counts) == 0
    assert (counts.anew > 0) == ("lost" in how)
    assert (counts.late > 0) == ("twice" in how)


def test_what_is_taken_back_on_its_way_is_late_when_it_comes() -> None:
    with relayed(COPIES["all arrive"]) as (engine, relay):
        number = engine.add(QueuePair(Nic(0, 0), Nic(1, 0), 0))
        engine.post(np.array([number]), np.array([SIZE]), np.array([0]))
        while engine.packets.sent < 3:
            engine.serve(0.0)  # and the relay rests
        engine.withdraw(number)
        back = engine.packets
        assert (back.arrived, back.anew, back.late, taken_back(back)) == (0, 0, 0, back.sent)
        serve_until(engine, relay, lambda: engine.packets.late == back.sent)
        assert engine.packets == PacketCounts(sent=back.sent, late=back.sent)
