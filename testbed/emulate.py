"""The emulation: an experiment's bytes over a booted network."""

import socket
import time
from collections.abc import Callable
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
from traffic.connections import Endpoints, connected
from traffic.engine import PACKET_BYTES, STUCK_S, Delivery, Engine
from traffic.feeders import Feeder, ProactiveFeeder, ReactiveFeeder
from traffic.records import Records, records_of
from traffic.spraying.policy import Assignment, Permitted, ReactivePolicy
from traffic.transfers import Path, Transfers, transfers_of_curves

WINDOW_PACKETS = 4
"""A reactive policy's queue pair takes another chunk while less than this is on its way."""


@dataclass(frozen=True, eq=False)
class Emulation:
    """What the engine saw of an experiment."""

    records: Records
    """In real seconds and bytes."""
    paths: tuple[tuple[Path, ...], ...]
    """For each step the way of each queue pair, read off the wire."""
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
        If the network is another fabric's, or at another rate.
    StuckError, NetworkError
        If bytes do not arrive, or a part of the network died.
    """
    if (network.fabric, network.rate_factor) != (experiment.fabric, experiment.dilation.rate):
        raise ScenarioError("the network was booted for another experiment", "boot one for this")
    records, paths, deliveries = [], [], []
    start_s, emulated_s, payload = 0.0, 0.0, 0
    for index, step in enumerate(experiment.collective.steps):
        work = work_of(experiment, index)
        delivery, transfers = _carry(work, experiment, network, stuck_s)
        records.append(
            records_of(
                messages=work.messages,
                chunks=work.chunks,
                transfers=_at_real_scale(transfers, experiment),
                fabric=experiment.fabric,
                step=index,
                start_s=start_s,
            )
        )
        start_s = float(records[-1]["end_s"].max()) + step.compute_s if len(records[-1]) else start_s
        sleep(experiment.dilation.emulated_s(step.compute_s))
        paths.append(transfers.paths)
        deliveries.append(delivery)
        emulated_s += float(transfers.delivered_s.max(initial=0.0))
        payload += int(sum(curve[1][-1] for curve in delivery.curves))
    return Emulation(
        pd.concat(records, ignore_index=True), tuple(paths), tuple(deliveries), emulated_s, payload
    )


def endpoints(network: Network) -> Endpoints:
    """Return how sockets are made in a network's servers."""

    def open_socket(server: int) -> socket.socket:
        with inside_namespace(network.wiring.namespaces[server]):
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM)

    return Endpoints(open_socket, lambda nic: nic_ip(network.fabric, nic))


def _carry(
    work: Work, experiment: Experiment, network: Network, stuck_s: float
) -> tuple[Delivery, Transfers]:
    """Connect the queue pairs, see which way each takes, and move one step's bytes."""
    sizes = emulated_bytes(work.chunks, experiment.dilation.volume)
    feeder = _feeder(work, sizes)
    with Tap(network.fabric) as tap, connected(work.queue_pairs, endpoints(network)) as connections:
        paths = tap.paths(work.queue_pairs)
        tap.close()
        engine = Engine(
            work.queue_pairs,
            connections,
            feeder,
            nic_rate_bps=lambda nic: network.fabric.nic_rate_bps(nic) * network.rate_factor,
            check=network.check_alive,
            stuck_s=stuck_s,
        )
        delivery = engine.run()
    transfers = transfers_of_curves(
        work.queue_pairs, paths, sizes, delivery.chunk_qp, delivery.order, delivery.curves
    )
    return delivery, transfers


def _feeder(work: Work, sizes: NDArray[np.int64]) -> Feeder:
    if isinstance(work.plan, Assignment):
        return ProactiveFeeder(work.plan, sizes)
    assert isinstance(work.plan, Permitted) and isinstance(work.policy, ReactivePolicy)
    return ReactiveFeeder(work.policy, work.plan, work.chunks, sizes, WINDOW_PACKETS * PACKET_BYTES)


def _at_real_scale(transfers: Transfers, experiment: Experiment) -> Transfers:
    scale = experiment.dilation.time
    return Transfers(
        transfers.queue_pairs,
        transfers.paths,
        transfers.chunk_qp,
        transfers.sent_s / scale,
        transfers.delivered_s / scale,
    )
