"""The emulation: an experiment's bytes over a booted network."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from testbed.experiment import Experiment
from testbed.kernel import inside_namespace
from testbed.network import Network
from testbed.tap import Tap
from testbed.work import Work, emulated_bytes, work_of
from topologies.addresses import nic_ip
from topologies.errors import ScenarioError
from topologies.fabric import Nic
from traffic.connections import Connection, Endpoints, connected
from traffic.engine import STUCK_S, Delivery, Engine
from traffic.feeders import Feeder, ProactiveFeeder
from traffic.late_binding import ReactiveFeeder
from traffic.path_effects import path_effects
from traffic.records import Records, records_of
from traffic.spraying.policy import Assignment, QueuePair, ReactivePolicy
from traffic.transfers import Path, Transfers, measured_transfers

LOSSY_WINDOW_PACKETS = 2
"""A queue pair's least window where links lose packets: of one packet alone TCP notices a loss late."""


@dataclass(frozen=True, eq=False)
class Emulation:
    """What the engine saw of an experiment."""

    records: Records
    """In real seconds and bytes."""
    paths: dict[QueuePair, Path]
    """The path of each queue pair, read off the wire."""
    deliveries: tuple[Delivery, ...]
    """For each step what the engine measured, at emulated scale."""
    emulated_s: float
    """How long the steps' transfers took together, at emulated scale [s]."""
    payload_bytes: int
    """What they carried, at emulated scale."""


def emulate(
    experiment: Experiment,
    network: Network,
    *,
    stuck_s: float = STUCK_S,
    sleep: Callable[[float], None] = time.sleep,
) -> Emulation:
    """Carry an experiment's collective over a network that was booted at its scale.

    Parameters
    ----------
    experiment, network
        The network's fabric and rate are the experiment's.
    stuck_s
        After how long without progress a queue pair is an error, at emulated scale [s].
    sleep
        How compute between steps passes, at emulated scale.

    Raises
    ------
    ScenarioError
        If the network is another fabric's, or at another rate, or a link's delay cannot be honoured.
    StuckError, NetworkError
        If bytes do not arrive, or a part of the network died.
    """
    if (network.fabric, network.rate_factor) != (experiment.fabric, experiment.dilation.rate):
        raise ScenarioError("the network was booted for another experiment", "boot one for this")
    runs: list[_Run] = []
    with contextlib.ExitStack() as stack:
        open_now: _Open | None = None
        for index, step in enumerate(experiment.collective.steps):
            work = work_of(experiment, index)
            if open_now is None or open_now.queue_pairs != work.queue_pairs:
                stack.close()
                # A SYN that is lost costs a second, and its path would be seen in part only.
                network.impair(experiment.dilation.time, loss=False)
                open_now = stack.enter_context(_opened(work.queue_pairs, network))
                network.impair(experiment.dilation.time)
            runs.append(_carry(work, open_now, experiment, network, stuck_s))
            sleep(experiment.dilation.emulated_s(step.compute_s))
    transfers = [run.transfers for run in runs]
    return Emulation(
        _records(runs, experiment),
        {qp: path for each in transfers for qp, path in zip(each.queue_pairs, each.paths, strict=True)},
        tuple(run.delivery for run in runs),
        sum(float(each.delivered_s.max(initial=0.0)) for each in transfers),
        sum(run.payload_bytes for run in runs),
    )


def endpoints(network: Network) -> Endpoints:
    """Return how sockets are made in a network's servers."""

    def open_socket(server: int) -> socket.socket:
        with inside_namespace(network.wiring.namespaces[server]):
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM)

    return Endpoints(open_socket, lambda nic: nic_ip(network.fabric, nic))


@dataclass(frozen=True, eq=False)
class _Open:
    """Queue pairs that are connected, and the ways they took."""

    queue_pairs: tuple[QueuePair, ...]
    connections: list[Connection]
    paths: tuple[Path, ...]


@dataclass(frozen=True, eq=False)
class _Run:
    """One step that was carried; times and bytes at emulated scale."""

    work: Work
    delivery: Delivery
    transfers: Transfers
    payload_bytes: int


@contextlib.contextmanager
def _opened(queue_pairs: tuple[QueuePair, ...], network: Network) -> Iterator[_Open]:
    """Connect queue pairs, and see which way each takes."""
    with Tap(network.fabric) as tap, connected(queue_pairs, endpoints(network)) as connections:
        paths = tap.paths(queue_pairs)
        yield _Open(queue_pairs, connections, paths)


def _carry(work: Work, opened: _Open, experiment: Experiment, network: Network, stuck_s: float) -> _Run:
    """Move one step's bytes."""
    sizes = emulated_bytes(work.chunks, experiment.dilation.volume)

    def nic_rate_bps(nic: Nic) -> float:
        return network.fabric.nic_rate_bps(nic) * network.rate_factor

    effects = path_effects(opened.paths, network.fabric)
    round_trip_s = effects.round_trip_s * experiment.dilation.time
    engine = Engine(
        work.queue_pairs,
        opened.connections,
        _feeder(work, sizes, nic_rate_bps, round_trip_s),
        nic_rate_bps=nic_rate_bps,
        check=network.check_alive,
        stuck_s=stuck_s,
        round_trip_s=round_trip_s,
        least_packets=LOSSY_WINDOW_PACKETS if network.fabric.lossy else 1,
    )
    delivery = engine.run()
    transfers = measured_transfers(
        work.queue_pairs,
        opened.paths,
        sizes,
        delivery.chunk_qp,
        delivery.order,
        delivery.sent_curves,
        delivery.curves,
    )
    return _Run(work, delivery, transfers, int(sizes.sum()))


def _records(runs: Sequence[_Run], experiment: Experiment) -> Records:
    """Return the steps' records, one after the other with compute between, in real seconds."""
    tables, start_s = [], 0.0
    for index, (run, step) in enumerate(zip(runs, experiment.collective.steps, strict=True)):
        table = records_of(
            messages=run.work.messages,
            chunks=run.work.chunks,
            transfers=_at_real_scale(run.transfers, experiment),
            fabric=experiment.fabric,
            step=index,
            start_s=start_s,
        )
        tables.append(table)
        start_s = float(table["end_s"].max() if len(table) else start_s) + step.compute_s
    return pd.concat(tables, ignore_index=True)


def _feeder(
    work: Work,
    sizes: NDArray[np.int64],
    nic_rate_bps: Callable[[Nic], float],
    round_trip_s: NDArray[np.float64],
) -> Feeder:
    if isinstance(work.plan, Assignment):
        return ProactiveFeeder(work.plan, sizes)
    assert isinstance(work.policy, ReactivePolicy)
    return ReactiveFeeder(work.policy, work.plan, work.chunks, sizes, nic_rate_bps, round_trip_s)


def _at_real_scale(transfers: Transfers, experiment: Experiment) -> Transfers:
    scale = experiment.dilation.time
    return Transfers(
        transfers.queue_pairs,
        transfers.paths,
        transfers.chunk_qp,
        transfers.sent_s / scale,
        transfers.delivered_s / scale,
    )
