"""OCSes with a second side on the wire: several flip together, and what leaves them obeys their logs."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain, repeat

import pytest

from controller.circuits.circuits import Circuits, Pair
from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.programs import Day, Program
from testbed.machine.kernel import inside_namespace
from testbed.machine.processes import beside
from testbed.machine.residue import until
from testbed.network import packet_ring
from testbed.network.circuit_tap import CircuitTap, lit_by
from tests.emulation.conftest import Booted
from tests.emulation.live import Live
from topologies.addresses import nic_ip
from topologies.fabric import Nic
from topologies.parallel_ocs import parallel_ocs_fabric

pytestmark = pytest.mark.emulation

SERVERS, OCSES, FLIPS = 4, 4, 6
DELAY = ReconfigurationDelay("panel", 0.3, flip_s=0.01)
LIT_S, PROBE_S, PROBE_PORT = 20.0, 0.001, 9
LONG_S = 1e6
HERE = ((0, 1), (1, 0), (2, 3))
THERE = ((0, 1), (1, 2), (2, 0))
KEPT = 1
"""How many circuits the two have in common."""


@contextmanager
def probes(net: Live) -> Iterator[None]:
    """Send small packets from all NICs, each some hundred a second, while the block runs."""
    with ExitStack() as stack:
        senders = []
        for nic in net.fabric.nics:
            with inside_namespace(net.network.wiring.namespaces[nic.server]):
                sender = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            peer = Nic((nic.server + 1) % SERVERS, nic.nic)
            senders.append((sender, (str(nic_ip(net.fabric, peer)), PROBE_PORT)))
        stack.enter_context(beside(partial(send, senders)))
        yield


def send(senders: list[tuple[socket.socket, tuple[str, int]]]) -> None:
    """Send for ever."""
    while True:
        for sender, address in senders:
            sender.sendto(b"light", address)
        time.sleep(PROBE_S)


def carried(net: Live, ocs: str) -> int:
    """Return how many packets have left an OCS, as it counts."""
    return sum(port.tx_packets for port in net.network.northbound.ports(ocs).ports)


def carry_more(net: Live, names: list[str]) -> bool:
    """Return whether packets leave all OCSes within some time."""
    before = {name: carried(net, name) for name in names}
    return until(lambda: all(carried(net, name) > before[name] for name in names), LIT_S)


def lit(net: Live, names: list[str], circuits: tuple[Pair, ...]) -> None:
    """Wait until OCSes have circuits lit and packets cross them."""
    assert until(lambda: all(net.network.northbound.ocs(name).circuits == circuits for name in names), LIT_S)
    assert carry_more(net, names)


def test_a_wall_clock_that_is_set_and_set_back_is_noticed(
    booted: Booted, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric, ahead_s = parallel_ocs_fabric(2, 1), chain([5.0, 5.0, 2.5], repeat(5.0))
    monkeypatch.setattr(packet_ring, "wall_ahead_s", lambda: next(ahead_s))
    with booted(fabric), CircuitTap(fabric) as tap:
        assert until(lambda: tap.stepped_s > 0, LIT_S)
    assert tap.stepped_s == 2.5


def test_what_leaves_ocses_that_flip_together_obeys_their_logs(booted: Booted) -> None:
    fabric = parallel_ocs_fabric(SERVERS, OCSES)
    names = [switch.name for switch in fabric.switches]
    with booted(fabric) as net, CircuitTap(fabric) as tap:
        northbound = net.network.northbound
        with probes(net):
            program = Program((Day(Circuits(SERVERS, HERE), LONG_S),))
            northbound.show_all(dict.fromkeys(names, program)).answer()
            lit(net, names, HERE)
            for name in names:
                northbound.set_delay(name, DELAY)
                northbound.provision(name, THERE).answer()
            assert carry_more(net, names), "while the idle side is set"
            ready_s = max(northbound.ocs(name).shadow_ready_s or 0.0 for name in names)
            assert until(lambda: time.monotonic() > ready_s, LIT_S)
            for flip in range(FLIPS):
                northbound.flip_all(names).answer()
                lit(net, names, HERE if flip % 2 else THERE)
        logs = {name: northbound.ocs_log(name) for name in names}
    assert tap.missed == 0
    for name, log in logs.items():
        assert [entry.circuits for entry in log] == [(HERE, THERE)[flip % 2] for flip in range(1 + FLIPS)]
        assert [entry.darkened for entry in log[1:]] == [len(HERE) - KEPT] * FLIPS
        assert {entry.delay_s for entry in log[1:]} == {DELAY.flip_s}
        seen = tap.crossings[name]
        assert {*lit_by(seen, log)} == {*range(1 + FLIPS)}
    for flips in zip(*(log[1:] for log in logs.values()), strict=True):
        assert max(flip.command_s for flip in flips) < min(flip.dark_s or 0.0 for flip in flips)
