"""The executor: a schedule runs on the fabric in real time, until all bytes have arrived.

The controller steps every OCS through its permutations and tells what is lit; the engine sends
accordingly. What a round of slots could not deliver goes into a clean-up round: a schedule of its
own for what is missing.
"""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from controller.listeners import bind_privately
from controller.schedulers.bounds import makespan_lower_bound
from controller.schedulers.schedule import Schedule
from controller.schedulers.spectra import spectra
from controller.status import LogEntry
from testbed.kernel import inside_namespace
from testbed.network import Network
from testbed.ocs_plan import GUARD_S, CircuitExperiment
from testbed.ocs_predict import path_over
from topologies.addresses import nic_ip
from topologies.errors import NetworkError, ScenarioError, StuckError
from topologies.fabric import Nic
from traffic.circuit_engine import PORT, SOCKET_BUFFER_BYTES, CircuitEngine, Light, Slot
from traffic.datagrams import Pair, pairs_of
from traffic.records import COLUMNS, Records

LEAD_S = 0.15
"""How long before the first night a round is announced to the OCSes."""
CLEANUP_ROUNDS = 5
IDLE_S = 5.0
BACK_S = 30.0
FORCE = {socket.SO_SNDBUF: 32, socket.SO_RCVBUF: 33}


@dataclass(frozen=True, eq=False)
class Execution:
    """What came of a schedule; real seconds and bytes unless said."""

    experiment: CircuitExperiment
    records: Records
    """A row per message."""
    cct_s: float
    """From the first night to the last byte."""
    undelivered_bytes: tuple[int, ...]
    """What was missing after each round of slots, the last 0 [emulated bytes]."""
    slots: tuple[Slot, ...]
    """What each slot carried [emulated seconds and bytes]."""
    logs: dict[str, list[LogEntry]]
    """What each OCS did [emulated seconds]."""
    start_s: float
    """When the first night began [emulated seconds, on the logs' clock]."""
    datagrams: int
    """Of how many the messages consist."""

    @property
    def slot_utilisation(self) -> float:
        """Bytes delivered over what the circuits that were lit could have carried, 0..1."""
        rate = self.experiment.emulated_rate_bps / 8
        room = sum(self._lit_s(slot) * slot.circuits * rate for slot in self.slots)
        return sum(slot.delivered_bytes for slot in self.slots) / room if room else 0.0

    @property
    def guard_loss(self) -> float:
        """Share of the lit time in which nobody sends because the dark is near, 0..1."""
        lit_s = sum(map(self._lit_s, self.slots))
        if self.experiment.meeting != "drain" or not lit_s:
            return 0.0
        open_s = sum(self._lit_s(replace(slot, until_s=slot.until_s - GUARD_S)) for slot in self.slots)
        return 1 - open_s / lit_s

    def _lit_s(self, slot: Slot) -> float:
        """Return how long a slot was lit until the last byte had arrived [emulated s]."""
        end_s = self.start_s + self.experiment.dilation.emulated_s(self.cct_s)
        return max(min(slot.until_s, end_s) - slot.lit_s, 0.0)

    @property
    def lost_bytes(self) -> int:
        """What was sent into the dark, and sent again [emulated bytes]."""
        return sum(slot.lost_bytes for slot in self.slots)

    @property
    def lateness_s(self) -> float:
        """How long light waited until the engine heard of it, 99th percentile [emulated s]."""
        lit_s = {name: [entry.lit_s for entry in log if entry.lit_s] for name, log in self.logs.items()}
        names = self.experiment.ocses
        late_s = [min((slot.lit_s - s for s in lit_s[names[slot.ocs]]), key=abs) for slot in self.slots]
        return max(float(np.percentile(late_s, 99)), 0.0)

    @property
    def delays_s(self) -> tuple[tuple[float, ...], ...]:
        """How long each OCS was dark before each of its slots, as its device had it that time [real s]."""
        return tuple(
            tuple(self.experiment.dilation.real_s(entry.delay_s) for entry in log if entry.circuits)
            for log in self.logs.values()
        )

    @property
    def lower_bound_s(self) -> float:
        """What no schedule beats with the delays that were drawn [real s]; they may be under the mean."""
        experiment = self.experiment
        delay_s = min(chain.from_iterable(self.delays_s), default=experiment.delay_s)
        return makespan_lower_bound(experiment.line_s, len(experiment.ocses), delay_s)

    @property
    def overhead_s(self) -> float:
        """From a command to light on the wire, without the device's delay, 99th percentile [emulated s]."""
        new = [entry for log in self.logs.values() for entry in log if entry.delay_s]
        each_s = [entry.lit_s - entry.command_s - entry.delay_s for entry in new if entry.lit_s]
        return float(np.percentile(each_s or [0.0], 99))


def execute(experiment: CircuitExperiment, network: Network) -> Execution:
    """Run an experiment's schedule over a network that was booted at its scale.

    Raises
    ------
    ScenarioError
        If the network is another fabric's, or at another rate.
    NetworkError
        If a switch refuses circuits.
    StuckError
        If bytes are missing after several clean-up rounds.
    """
    if (network.fabric, network.rate_factor) != (experiment.fabric, experiment.dilation.rate):
        raise ScenarioError("the network was booted for another experiment", "boot one for this")
    northbound = network.northbound
    numbers = {name: northbound.ocs(name).number for name in experiment.ocses}
    for name in experiment.ocses:
        northbound.set_darkness(name, experiment.emulated_darkness, experiment.seed)
    pairs = pairs_of(experiment.emulated_bytes(), experiment.emulated_rate_bps)
    with _sockets(network) as sockets, News(experiment.ocses) as news:
        engine = CircuitEngine(
            pairs,
            sockets,
            lambda nic: str(nic_ip(network.fabric, nic)),
            news,
            rate_bps=experiment.emulated_rate_bps,
            meeting=experiment.meeting,
            guard_s=GUARD_S,
            check=network.check_alive,
        )
        start_s, undelivered = _rounds(experiment, network, engine, pairs, news.path)
    logs = {
        name: [entry for entry in northbound.ocs_log(name) if entry.number > numbers[name]]
        for name in experiment.ocses
    }
    cct_s = experiment.dilation.real_s(max(pair.end_s for pair in pairs.values()) - start_s)
    records = _records(experiment, pairs, start_s)
    datagrams = sum(-(-pair.size // pair.payload) for pair in pairs.values())
    return Execution(experiment, records, cct_s, undelivered, tuple(engine.slots), logs, start_s, datagrams)


def _rounds(
    experiment: CircuitExperiment,
    network: Network,
    engine: CircuitEngine,
    pairs: dict[tuple[int, int], Pair],
    news: Path,
) -> tuple[float, tuple[int, ...]]:
    """Run the schedule, and clean up; return when it began, and what was missing after each round."""
    schedule, first_s = experiment.schedule, 0.0
    undelivered: list[int] = []
    for _ in range(1 + CLEANUP_ROUNDS):
        lead_s = 0.0 if undelivered else LEAD_S
        start_s = time.monotonic() + lead_s
        first_s = first_s or start_s
        busy = 0
        for name, program in zip(experiment.ocses, experiment.programs(schedule), strict=True):
            if program.days:
                network.northbound.show(name, program, start_s, news)
                busy += 1
        engine.run(busy)
        network.northbound.wait_ready(BACK_S, check=network.check_alive)  # an OCS may have been lost
        undelivered.append(sum(pair.missing_bytes for pair in pairs.values()))
        if not undelivered[-1]:
            _darken(experiment, network)
            return first_s, tuple(undelivered)
        schedule = _cleanup(experiment, pairs)
    raise StuckError(
        f"{undelivered[-1]:,} bytes are missing after {CLEANUP_ROUNDS} clean-up rounds",
        "lower the rate (the machine may be too slow), or use drain",
    )


def _darken(experiment: CircuitExperiment, network: Network) -> None:
    """End what is left of the programs."""
    for name in experiment.ocses:
        network.northbound.light(name, "-", partial=False, busy="replace")
    for name in experiment.ocses:
        network.northbound.wait_idle(name, IDLE_S)


def _cleanup(experiment: CircuitExperiment, pairs: dict[tuple[int, int], Pair]) -> Schedule:
    """Return a schedule for what is missing, whole datagrams [real seconds]."""
    missing = 0 * experiment.line_s
    for (source, destination), pair in pairs.items():
        if pair.missing_bytes:
            size = pair.missing_bytes + pair.payload
            missing[source, destination] = experiment.dilation.real_s(size * 8 / experiment.emulated_rate_bps)
    return spectra(missing, len(experiment.ocses), experiment.delay_s)


class News:
    """Where the controller tells what is lit: a unix datagram socket; a context manager."""

    def __init__(self, ocses: tuple[str, ...]) -> None:
        self._index = {name: index for index, name in enumerate(ocses)}

    def __enter__(self) -> "News":
        """Open the socket."""
        self._directory = TemporaryDirectory(prefix="lightrail-")
        self.path = Path(self._directory.name) / "light.sock"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bind_privately(self._socket, self.path)
        self._socket.setblocking(False)
        return self

    def __exit__(self, *_error: object) -> None:
        """Close it."""
        self._socket.close()
        self._directory.cleanup()

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._socket.fileno()

    def read(self) -> list[Light]:
        """Return what is new; NetworkError if a switch did not light it, or notices were dropped."""
        lights: list[Light] = []
        while True:
            try:
                news = json.loads(self._socket.recv(1 << 16))
            except BlockingIOError:
                return lights
            if news["error"]:
                raise NetworkError(news["error"])
            if news["missed"]:
                raise NetworkError(
                    f"{news['missed']} notices of what is lit were dropped: they were read too slowly",
                    "lower the rate, or run fewer things beside this",
                )
            outputs = dict(news["circuits"])
            lights.append(Light(self._index[news["ocs"]], outputs, news["until_s"], news["ended"]))


@contextmanager
def _sockets(network: Network) -> Iterator[dict[Nic, socket.socket]]:
    """Open a UDP socket per NIC, bound to its address."""
    with ExitStack() as stack:
        sockets = {}
        for nic in network.fabric.nics:
            with inside_namespace(network.wiring.namespaces[nic.server]):
                endpoint = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            endpoint.setblocking(False)
            for option, forced in FORCE.items():
                try:
                    endpoint.setsockopt(socket.SOL_SOCKET, forced, SOCKET_BUFFER_BYTES)
                except PermissionError:
                    endpoint.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
            endpoint.bind((str(nic_ip(network.fabric, nic)), PORT))
            sockets[nic] = endpoint
        yield sockets


def _records(experiment: CircuitExperiment, pairs: dict[tuple[int, int], Pair], start_s: float) -> Records:
    """Return the records, at real scale; a leg is a message's bytes over one OCS."""
    matrix, rows = experiment.demand.matrix, []
    for (source, destination), pair in sorted(pairs.items()):
        size = int(matrix[source, destination])
        path = path_over(experiment, (source, destination), size, pair.by_ocs)
        times = [experiment.dilation.real_s(at - start_s) for at in (pair.start_s, pair.end_s)]
        rows.append((0, source, destination, size, *times, path))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
