"""The cost of relaying: the bandwidth tax, as computed and as counted on interfaces, and the CPU for it.

Computed is from circuits and demand alone: what servers send each other times the hops of the shortest path
between them. Counted is what the interfaces of all servers sent besides headers, relayed bytes included.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import shortest_path

from controller.schedulers.coin_change import bandwidth_tax
from testbed.experiment.experiment import Experiment
from testbed.trust.outcome import Outcome
from topologies.fabric import Fabric, Port
from traffic.bounds import server_matrix
from traffic.collectives.pattern import Pattern
from traffic.metrics import link_bytes
from traffic.packets import ETHERNET_HEADER_BYTES, TCP_HEADER_BYTES

Bytes = NDArray[np.int64]
HEADER_BYTES = ETHERNET_HEADER_BYTES + TCP_HEADER_BYTES
"""Of a packet: data, and an acknowledgement, which has nothing else."""


@dataclass(frozen=True)
class Relaying:
    """The relayed bytes and packets of a run."""

    computed_tax: float
    """Hops that a byte takes, on average, by the shortest paths."""
    counted_tax: float
    """The same by the interfaces; NaN if nothing was emulated."""
    relayed_packets: float
    """Packets that kernels forwarded, acknowledgements among them, in proportion to payload; else NaN."""
    cpu_s: float
    """CPU time of the switches' daemon, in which kernels forward, and of the engine [s]; else NaN."""
    sent_bytes: float
    """The bytes that servers had to send in the emulation; else NaN."""


def relaying(outcome: Outcome) -> Relaying:
    """Return the relaying of a run over circuits."""
    experiment = outcome.experiment
    sent = sent_between(experiment)
    computed = bandwidth_tax(0.0, sent, circuit_hops(experiment))
    run = outcome.emulated
    if run is None or not outcome.is_sound:
        return Relaying(computed, *(math.nan,) * 4)
    wire = run.tables.wire
    nics = [run.tables.ports[port].node in experiment.fabric.server_index for port in wire["port"]]
    packets = float(wire["packets"][nics].sum())
    payload, own = float(wire["bytes"][nics].sum()) - HEADER_BYTES * packets, float(sent.sum())
    own *= experiment.dilation.volume
    counted = payload / own
    cpus = outcome.measures.switch_cpu + outcome.measures.engine_cpu
    cpu_s = run.iteration_s * experiment.dilation.time * cpus
    return Relaying(computed, counted, packets * (1 - 1 / max(counted, 1.0)), cpu_s, own)


def sent_between(experiment: Experiment) -> Bytes:
    """Return the bytes that servers send each other in a job, shape (servers, servers)."""
    fabric = experiment.fabric
    sent = [between_servers(node.pattern, fabric) for node in experiment.job.collectives]
    matrix: Bytes = np.sum(sent, axis=0)
    return matrix


def between_servers(pattern: Pattern, fabric: Fabric) -> Bytes:
    """Return the bytes that a collective sends from server to server, shape (servers, servers)."""
    return server_matrix(pattern.lower(coupled=True).moves, fabric)


def circuit_hops(experiment: Experiment) -> NDArray[np.int64]:
    """Return the hops of the shortest paths over first circuits, 0 without one, shape (servers, servers)."""
    joined = np.zeros((len(experiment.fabric.servers),) * 2, dtype=bool)
    for ends in circuits_between(experiment):
        joined[ends] = True
    return np.nan_to_num(shortest_path(joined, unweighted=True), posinf=0).astype(np.int64)


def circuits_between(experiment: Experiment) -> list[tuple[int, int]]:
    """Return the servers that each circuit joins, from which to which."""
    fabric, rule = experiment.fabric, experiment.rule
    if rule is None:
        return []
    return [
        (_server(fabric, ocs, a), _server(fabric, ocs, b))
        for ocs, circuits in rule.first.items()
        for a, b in circuits
    ]


def circuit_loads(outcome: Outcome) -> NDArray[np.float64]:
    """Return the bytes that each circuit carried, in the order of the NICs at their inputs."""
    fabric = outcome.experiment.fabric
    sent = link_bytes(outcome.run.tables)
    return np.array([sent.get(fabric.nic_port(nic), 0) for nic in fabric.nics], dtype=float)


def _server(fabric: Fabric, ocs: str, port: int) -> int:
    return fabric.server_index[fabric.peer(Port(ocs, port)).node]
