"""An application held against lightrail's own generator and against the model: the same bytes, both times.

What hosts sent to each other while the application's heaviest phase lasted is a demand between servers. The
generator carries it over the same network, by the same transport, at a scale at which a byte is a byte
(``Dilation(rate, volume=1)``), so that one number stands beside the other: an application that takes longer
waits for itself.

Packets do not say which GPU they are of. Where the application spreads flows by their hash, those over a NIC
count for the GPU beside it, as far as the tap saw paths, so that the generator's bytes and the model's cross
the NICs that the application's did.

The whole application is predicted too: its phases one after the other, with the pauses that it made between
them. What fails, fails at the same time. A pause that a fault makes is not the application's, so phases are
taken for one where a fault came just before the pause between them.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from controller.packet.flow_table import Hashing
from testbed.apps.app_faults import AppFault, at_real_times
from testbed.apps.app_record import Beside
from testbed.apps.phases import MOST_CELLS, TrafficPhase, between_gpus
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.network.network import Network
from testbed.trust.trial import tried
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.demand import Demand, sends
from traffic.job import Collective, Compute, Job, Node, chain
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup

SHORTEST_PAUSE_S = 1e-3
"""Shorter pauses of an application are left out [s]."""
FAULT_S = 0.5
"""How long after a fault a pause may begin that it makes: what has left its NICs still arrives [s]."""
SEEN_S = 0.05
"""By how much earlier than the fault that pause may seem to begin: bins have a width [s]."""


Seen = Mapping[tuple[int, int], Mapping[tuple[int, int], float]]
"""By two servers of which one sends to the other, the shares of its bytes between two of their GPUs."""


@dataclass(frozen=True, eq=False)
class AppScale:
    """How an application's bytes are carried again: over what, by what, at which scale."""

    fabric: Fabric
    dilation: Dilation
    transport: TransportSetup
    mtu: int
    """Of the emulation's links [bytes]."""
    scheme: str
    """How the generator spreads bytes over NICs: ``rails`` evenly, ``ecmp`` by flow."""
    hashing: Hashing = "openvswitch"
    """Whose hash chooses among links that lead the same way."""
    seen: Seen = field(default_factory=dict)
    """By which GPUs' NICs flows went, where bytes go by flow; evenly over all where nothing was seen."""

    def between_gpus(self, matrix: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a demand between servers as one between GPUs, shape (GPUs, GPUs) [bytes]."""
        spread = between_gpus(matrix, self.fabric)
        ends = self.fabric.gpu_offsets
        for (source, destination), shares in self.seen.items():
            edges = np.rint(np.cumsum([*shares.values()]) * matrix[source, destination]).astype(np.int64)
            spread[ends[source] : ends[source + 1], ends[destination] : ends[destination + 1]] = 0
            for (row, column), size in zip(shares, np.diff(edges, prepend=0), strict=True):
                spread[row, column] = size
        return spread

    def experiment(self, job: Job, faults: Sequence[AppFault] = ()) -> Experiment:
        """Return the experiment of a job, with what fails at emulated seconds since its start."""
        return Experiment(
            self.fabric,
            job,
            self.scheme,
            self.dilation,
            transport=self.transport,
            mtu=self.mtu,
            hashing=self.hashing,
            faults=tuple(at_real_times(fault, self.dilation) for fault in faults),
        )


def seen_of(flows: pd.DataFrame, paths: pd.DataFrame, fabric: Fabric, until_s: float = math.inf) -> Seen:
    """Return by which GPUs' NICs the payload of hosts went to each other.

    Parameters
    ----------
    flows, paths
        As of `testbed.apps.app_record.FLOWS` and ``PATHS``.
    fabric
        Whose NICs these are.
    until_s
        Paths that began later do not count: a fault may have led to them [s].
    """
    early = paths[paths["first_s"] < until_s].sort_values("packets").drop_duplicates("flow", keep="last")
    known = flows.merge(early[["flow", "path"]], on="flow")
    known = known[(known["payload_bytes"] > 0) & (known["source"] != known["destination"])]
    sizes = defaultdict[tuple[int, int], Counter[tuple[int, int]]](Counter)
    for source, destination, size, path in known[
        ["source", "destination", "payload_bytes", "path"]
    ].itertuples(index=False):
        if gpus := _gpus_of(path.split(), fabric):
            sizes[source, destination][gpus] += size
    return {ends: {gpus: size / each.total() for gpus, size in each.items()} for ends, each in sizes.items()}


def _gpus_of(path: Sequence[str], fabric: Fabric) -> tuple[int, int] | None:
    """Return the GPUs beside the NICs at both ends of a path; None if a NIC is beside none of its own."""
    ports = {str(port): port for port in fabric.link_at}
    first, last = ports[path[0]], fabric.peer(ports[path[-1]])
    if last.node not in fabric.server_index:  # it was not seen to its end
        return None
    nics = fabric.nic_at(first), fabric.nic_at(last)
    source, destination = map(fabric.pinned_gpu, nics)
    return (source, destination) if (*map(fabric.pinned_nic, (source, destination)),) == nics else None


def heaviest(phases: Sequence[TrafficPhase]) -> TrafficPhase:
    """Return the phase of the most bytes; ScenarioError if no host sent any to another."""
    found = max(phases, key=lambda phase: int(phase.payload_bytes.sum()), default=None)
    if found is None or not sends(found.payload_bytes):
        raise ScenarioError(
            "the application sent nothing from one host to another, so --against has nothing to carry",
            "leave it out",
        )
    return found


def beside(
    network: Network, scale: AppScale, phase: TrafficPhase, what: str, link_error: float, application_s: float
) -> Beside:
    """Carry the bytes of a phase over a network by lightrail's generator, and return what it took.

    Parameters
    ----------
    network
        Booted at the scale, idle.
    scale
        The application's.
    phase
        What is carried.
    what
        The words for it.
    link_error
        The worst relative error of a sampled link.
    application_s
        How long the application took for it; NaN if it did not carry it [s].
    """
    demand = Demand(what, scale.between_gpus(phase.payload_bytes), "captured from an application")
    outcome = tried(scale.experiment(single(demand)), network, link_error)
    return Beside(
        what=what,
        payload_bytes=demand.total_bytes,
        application_s=application_s,
        generator_s=scale.dilation.emulated_s(outcome.cct_s),
        predicted_s=scale.dilation.emulated_s(outcome.predicted_s),
        transport=scale.transport.name,
        verdict=outcome.verdict,
    )


def predicted_s(
    scale: AppScale, phases: Sequence[TrafficPhase], duration_s: float, faults: Sequence[AppFault] = ()
) -> float:
    """Return how long the model says that an application takes, with its own pauses [emulated s].

    It is NaN where nothing was sent, and where a server or a daemon failed: what an application does without
    one is its own.

    Parameters
    ----------
    scale
        The application's.
    phases
        What it sent when, in order of time.
    duration_s
        How long it ran; what it did after its last byte counts as it was [s].
    faults
        What failed.

    Raises
    ------
    ScenarioError
        If there are too many phases.
    """
    if any(fault.host is not None or fault.fault.daemon for fault in faults):
        return math.nan
    sending = [phase for phase in phases if sends(phase.payload_bytes)]
    if not sending:
        return math.nan
    parts = joined(sending, faults)
    if len(parts) * scale.fabric.gpus**2 > MOST_CELLS:
        raise ScenarioError(f"{len(parts)} phases between {scale.fabric.gpus} GPUs are too many to predict")
    job = _job(scale, parts)
    run = predict(scale.experiment(job, faults))
    return scale.dilation.emulated_s(run.iteration_s) + max(duration_s - sending[-1].end_s, 0.0)


def joined(phases: Sequence[TrafficPhase], faults: Sequence[AppFault]) -> list[TrafficPhase]:
    """Return phases of which those are one that a fault parts: the pause between them begins with it.

    A pause counts as the fault's if it begins within `FAULT_S` of it. What comes later, or is over by then,
    did not make it.
    """
    found = list[TrafficPhase]()
    for phase in phases:
        last = found[-1] if found else None
        if last and any(-SEEN_S <= last.end_s - fault.begins_s <= FAULT_S for fault in faults):
            found[-1] = TrafficPhase(
                last.start_s,
                phase.end_s,
                last.payload_bytes + phase.payload_bytes,
                last.wire_bytes + phase.wire_bytes,
            )
        else:
            found.append(phase)
    return found


def _job(scale: AppScale, phases: Sequence[TrafficPhase]) -> Job:
    """Return phases as a job, in which all GPUs compute in the pauses."""
    gpus = tuple(range(scale.fabric.gpus))
    nodes, before_s = list[Node](), 0.0
    for number, phase in enumerate(phases):
        if (pause_s := phase.start_s - before_s) > SHORTEST_PAUSE_S:
            nodes.append(Compute(f"pause {number}", gpus, scale.dilation.real_s(pause_s)))
        demand = Demand(f"phase {number}", scale.between_gpus(phase.payload_bytes))
        nodes.append(Collective(demand.name, AllToAll(demand)))
        before_s = phase.end_s
    return chain("application", len(gpus), tuple(nodes))
