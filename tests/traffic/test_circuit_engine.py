"""The engine over circuits, on loopback, by a clock of the test: what missed its slot goes in the next."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import cast

import pytest

from topologies.fabric import Nic
from traffic.transports import circuit_engine
from traffic.transports.circuit_engine import GUARD_S, LANDED_S, CircuitEngine, LitInterval, Meeting
from traffic.transports.loop import Arrival, Loop

NEAR, FAR = (Nic(0, 0), Nic(0, 1)), (Nic(1, 0), Nic(1, 1))
"""The NICs of two servers, one on each OCS."""
OCS_OF = {nic: f"ocs{nic.nic}" for nic in (*NEAR, *FAR)}
RATE_BPS = 20e6
SLOT_S = 0.1
BYTES = 40_000
"""16 ms at a NIC's rate, of which what leaves in a turn is a part."""


class Clock:
    """Time as the test has it [s]."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Return it."""
        return self.now


class Circuits:
    """Two servers that owe a message, and what of it is read off their sockets."""

    def __init__(self, clock: Clock, meeting: Meeting, stack: ExitStack) -> None:
        self._clock = clock
        self._reads: dict[int, Callable[[int], None]] = {}
        self.engine = CircuitEngine(OCS_OF, dict.fromkeys(OCS_OF, RATE_BPS), meeting)
        self._sockets: dict[Nic, socket.socket] = {}
        for nic in OCS_OF:
            endpoint = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            endpoint.bind(("127.0.0.1", 0))
            endpoint.setblocking(False)
            self.engine.attach(cast(Loop, self), nic, endpoint)
            self._sockets[nic] = endpoint
        self.engine.owe(7, BYTES, list(zip(NEAR, FAR, strict=True)))

    def watch(self, descriptor: int, read: Callable[[int], None]) -> None:
        """Take the place of `Engine.watch`."""
        self._reads[descriptor] = read

    def light(self, ocs: int, until_s: float | None) -> None:
        """Have an OCS lit until a time, or dark."""
        outputs = {} if until_s is None else {NEAR[ocs]: FAR[ocs]}
        self.engine.lit(LitInterval(f"ocs{ocs}", outputs, until_s), self._clock.now)

    def run(self, seconds: float, *, loses: bool = False) -> list[Arrival]:
        """Let time pass, a turn each millisecond, and read what arrived, or lose it."""
        arrived = []
        for _ in range(round(seconds / 0.001)):
            arrived += self.engine.turn()
            self._clock.now += 0.001
            for nic in FAR:
                if loses:
                    self._empty(self._sockets[nic])
                else:
                    self._reads[self._sockets[nic].fileno()](1)
        return [*arrived, *self.engine.turn()]

    def _empty(self, endpoint: socket.socket) -> None:
        while True:
            try:
                endpoint.recv(1 << 16)
            except BlockingIOError:
                return


@pytest.fixture
def circuits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Meeting], Circuits]]:
    """Return what makes two servers whose senders do something before the dark."""
    clock = Clock()
    monkeypatch.setattr(circuit_engine, "time", clock)
    with ExitStack() as stack:
        yield lambda meeting: Circuits(clock, meeting, stack)


def test_what_missed_its_slot_goes_in_the_pairs_next_one_of_another_ocs(
    circuits: Callable[[Meeting], Circuits],
) -> None:
    pair, began_s = circuits("drain"), 1000.0
    pair.light(0, began_s + 0.02)
    assert not pair.run(0.02, loses=True)
    pair.light(0, None)
    pair.light(1, began_s + 0.02 + SLOT_S)  # the first OCS stays dark: it shows the pair nothing any more
    (arrival,) = pair.run(SLOT_S - GUARD_S)
    assert arrival.message == 7
    assert (pair.engine.missing_bytes, pair.engine.busy) == (0, False)


def test_what_is_lost_is_sent_again_in_what_is_left_of_its_slot(
    circuits: Callable[[Meeting], Circuits],
) -> None:
    pair = circuits("drain")
    pair.light(0, 1000.0 + SLOT_S)
    assert not pair.run(BYTES * 8 / RATE_BPS, loses=True)
    assert pair.engine.busy
    assert pair.run(SLOT_S / 2)
    assert not pair.engine.missing_bytes


@pytest.mark.parametrize("meeting", ["pause", "cut"])
def test_who_does_not_drain_loses_it_until_other_circuits_are_lit(
    circuits: Callable[[Meeting], Circuits], meeting: Meeting
) -> None:
    pair = circuits(meeting)
    pair.light(0, 1000.0 + SLOT_S)
    assert not pair.run(BYTES * 8 / RATE_BPS, loses=True)
    assert not pair.run(SLOT_S / 2)
    assert pair.engine.missing_bytes == BYTES


def test_what_no_lit_circuit_can_carry_keeps_no_one_busy(circuits: Callable[[Meeting], Circuits]) -> None:
    pair = circuits("drain")
    pair.light(0, 1000.0 + 0.008)
    pair.run(0.008)
    assert 0 < pair.engine.missing_bytes < BYTES
    assert not pair.engine.busy
    pair.light(1, 1000.0 + SLOT_S)
    assert pair.engine.busy
    pair.run(LANDED_S)
    assert (pair.engine.missing_bytes, pair.engine.busy) == (0, False)
