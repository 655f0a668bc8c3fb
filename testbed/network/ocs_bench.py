"""How well an emulated OCS keeps its word, measured by probes on the wire and not by the controller's clock.

All ports are reconfigured at random, again and again, while some carry traffic at full rate. Probes
go into every port, 2,000 a second into `PROBED` of them. Two times are read off each probed port:
its *dark time*, from the last probe over the old circuit to the first over the new one, and its
*overhead*, from the command to that first probe, the device's delay taken off. A probe that leaves by
a port to which, by the log, no circuit led at that moment is a *stray*.

Probes come 0.5 ms apart, so that a dark time measured is up to 1 ms longer than it was.
"""

import os
import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from controller.circuits.circuits import Circuits
from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.programs import Day, Program
from controller.circuits.status import LogEntry
from testbed.machine.datapath import Datapath
from testbed.machine.processes import beside
from testbed.machine.wall_clock import STEP_S
from testbed.network.circuit_tap import CircuitTap, Crossings, lit_by
from testbed.network.network import Network
from topologies.addresses import nic_ip
from topologies.errors import MachineError
from topologies.fabric import Nic
from topologies.parallel_ocs import parallel_ocs_fabric

OCS = "ocs0"
PORTS = 64
RATE_FACTOR = 4e-4
"""NICs of 40 Mbit/s."""
PROBED = 2
"""Ports with 2,000 probes a second; the others have 500 together."""
PROBE_S = 0.0005
PROBE, PROBE_PORT = bytes(48), 9999
PROBE_BYTES = 28 + len(PROBE)
"""Of a probe from its IP header on. The size tells a probe from traffic."""
TRAFFIC_BYTES = 8900
TRAFFIC_PORT = 9
SEND_BUFFER_BYTES = 40_000
TRAFFIC_NICS = 16
LEAD_S = 0.1
"""How long before it begins a program is announced [s]."""
MARGIN_S = 0.01
"""What a reconfiguration may take beside the delay."""
ALIVE_S, IDLE_S = 0.5, 60.0


@dataclass(frozen=True)
class Figures:
    """What was measured; arrays have an entry per probed port and reconfiguration."""

    delay_s: float
    """The device's delay [s]."""
    dark_s: NDArray[np.float64]
    """How long each probed port was dark on the wire [s]."""
    overhead_s: NDArray[np.float64]
    """From the command to light on the wire, without the delay [s]."""
    number: NDArray[np.int64]
    """Which of the reconfigurations it was."""
    probes: int
    """How many probes came through."""
    strays: int
    """How many of them left by a port to which no circuit led."""
    early_s: float
    """The shortest dark time less the device's delay [s]; negative if some port was lit too early."""

    @property
    def dark_excess_p99_s(self) -> float:
        """99th percentile of what dark times exceed the delay by [s]."""
        return float(np.percentile(self.dark_s - self.delay_s, 99))

    @property
    def overhead_p99_s(self) -> float:
        """99th percentile of the overhead [s]."""
        return float(np.percentile(self.overhead_s, 99))


def ocs_figures(
    *,
    ports: int = PORTS,
    ocses: int = 1,
    delay_s: float = 0.005,
    rounds: int = 100,
    traffic: int = TRAFFIC_NICS,
    datapath: Datapath = "netdev",
) -> Figures:
    """Return how well one OCS keeps its word; to be called in a sandbox.

    Parameters
    ----------
    ports
        How many ports each OCS has, each with a server.
    ocses
        How many OCSes are reconfigured at once; the first is looked at.
    delay_s
        The device's delay, at emulated scale [s].
    rounds
        How many random permutations, one after the other.
    traffic
        How many NICs send at full rate meanwhile.
    datapath
        Which of Open vSwitch's forwards.
    """
    fabric = parallel_ocs_fabric(ports, ocses)
    names = [switch.name for switch in fabric.switches]
    with Network(fabric, RATE_FACTOR, datapath) as network, CircuitTap(fabric) as tap:
        client = network.northbound
        for name in names:
            client.set_delay(name, ReconfigurationDelay("bench", delay_s))
        with _sending(network, traffic):
            program = _program(ports, rounds, np.random.default_rng(0))
            begins_at = time.monotonic() + LEAD_S
            for name in names:
                client.show(name, program, begins_at)
            # Asking meanwhile would keep the controller from its work, and a CPU from the switch.
            _sleep(LEAD_S + sum(day.duration_s + delay_s + MARGIN_S for day in program.days), network)
            client.wait_idle(OCS, IDLE_S)
        log = [entry for entry in client.ocs_log(OCS) if entry.lit_s is not None]
    if tap.stepped_s > STEP_S:
        raise MachineError(
            f"this machine's clock was set by {tap.stepped_s:.3f} s while OCSes were measured", "run it again"
        )
    return _figures(_probes(tap.crossings[OCS]), log, delay_s, range(0, ports, ports // PROBED))


def _sleep(seconds: float, network: Network) -> None:
    """Sleep, and look now and then whether all daemons are alive."""
    end = time.monotonic() + seconds
    while (left_s := end - time.monotonic()) > 0:
        network.check_alive()
        time.sleep(min(left_s, ALIVE_S))


def _program(ports: int, rounds: int, rng: np.random.Generator) -> Program:
    """Return random permutations, each lit for 30 to 60 ms."""
    days = [
        Day(Circuits.of_permutation(_derangement(ports, rng)), rng.uniform(0.03, 0.06)) for _ in range(rounds)
    ]
    return Program(tuple(days))


def _derangement(ports: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a random permutation without a fixed point: each port of a cycle lights the next."""
    cycle = rng.permutation(ports)
    permutation = np.empty(ports, dtype=np.int64)
    permutation[cycle] = np.roll(cycle, -1)
    return permutation


@contextmanager
def _sending(network: Network, traffic: int) -> Iterator[None]:
    """Send probes and traffic in processes of their own while the block runs."""
    with ExitStack() as stack:
        servers = range(len(network.fabric.servers))
        probes = [stack.enter_context(network.socket_of(server)) for server in servers]
        bulk = [stack.enter_context(network.socket_of(server)) for server in range(1, 1 + traffic)]
        stack.enter_context(beside(partial(_probe, network, probes), partial(_blast, network, bulk)))
        time.sleep(0.3)
        yield


def _neighbour(network: Network, server: int) -> str:
    """Return an address to send to; an OCS looks at none."""
    return str(nic_ip(network.fabric, Nic((server + 1) % len(network.fabric.servers), 0)))


def _probe(network: Network, senders: Sequence[socket.socket]) -> None:
    """Send probes for ever, in time where the user may ask for that: what is late looks like the dark."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    often = range(0, len(senders), len(senders) // PROBED)
    seldom = [port for port in range(len(senders)) if port not in often]
    addresses = [(_neighbour(network, server), PROBE_PORT) for server in range(len(senders))]
    due, turn = time.monotonic(), 0
    while True:
        for port in often if turn % 4 else (*often, seldom[turn // 4 % len(seldom)]):
            senders[port].sendto(PROBE, addresses[port])
        turn, due = turn + 1, max(due + PROBE_S, time.monotonic() - 5 * PROBE_S)
        time.sleep(max(due - time.monotonic(), 0))


def _blast(network: Network, senders: Sequence[socket.socket]) -> None:
    """Keep NICs busy for ever: a few packets are always waiting at each."""
    for sender in senders:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        sender.setblocking(False)
    addresses = [(_neighbour(network, server), TRAFFIC_PORT) for server in range(1, 1 + len(senders))]
    poller = select.epoll()
    by_descriptor = {s.fileno(): (s, address) for s, address in zip(senders, addresses, strict=True)}
    for descriptor in by_descriptor:
        poller.register(descriptor, select.EPOLLOUT)
    payload = bytes(TRAFFIC_BYTES)
    while True:
        for descriptor, _ in poller.poll():
            sender, address = by_descriptor[descriptor]
            with suppress(BlockingIOError):
                sender.sendto(payload, address)


def _probes(crossed: Crossings) -> Crossings:
    """Return the probes among packets, in the order of time."""
    own = np.argsort(crossed["at_s"], kind="stable")
    probes: Crossings = crossed[own[crossed["bytes"][own] == PROBE_BYTES]]
    return probes


def _figures(seen: Crossings, log: Sequence[LogEntry], delay_s: float, probed: Sequence[int]) -> Figures:
    dark_s, overhead_s, numbers = [], [], []
    for port in probed:
        at_s = seen["at_s"][seen["source"] == port]
        for number, (before, entry) in enumerate(pairwise(log)):
            if any(port == a and (a, b) in before.circuits for a, b in entry.circuits):
                continue  # kept
            assert entry.dark_s is not None
            first = int(np.searchsorted(at_s, entry.dark_s + delay_s / 2))
            if 0 < first < len(at_s) and at_s[first - 1] > (before.lit_s or 0):
                dark_s.append(at_s[first] - at_s[first - 1])
                numbers.append(number)
                overhead_s.append(at_s[first] - entry.command_s - delay_s)
    darks = np.array(dark_s)
    return Figures(
        delay_s,
        darks,
        np.array(overhead_s),
        np.array(numbers),
        len(seen),
        int((lit_by(seen, log) < 0).sum()),
        float((darks - delay_s).min()),
    )
