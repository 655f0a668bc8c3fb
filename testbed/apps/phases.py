"""The phases of an application: stretches of time in which its bytes flow, each with its demand.

What divides two phases is a pause, in which hosts send next to nothing. A demand is what each host sent each
other, payload that was sent for the first time; as a job it can be replayed over any fabric.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.pattern import bytes_between
from traffic.demand import Demand
from traffic.job import Collective, Compute, Job, Node, chain

PAUSE_S = 0.05
"""The least pause that divides two phases, where bins are narrow [s]."""
QUIET = 0.01
"""A bin is quiet in which hosts sent less than this share of what they sent in a busy one."""
BUSY = 0.95
"""The quantile of bins with bytes that counts as a busy one."""
MOST_CELLS = 1 << 21
"""Cells of all matrices of a job; of an application with more phases those with the most bytes are kept."""


@dataclass(frozen=True, eq=False)
class TrafficPhase:
    """A stretch of time in which bytes flow."""

    start_s: float
    """Since the start of the processes [s]."""
    end_s: float
    payload_bytes: NDArray[np.int64]
    """Sent for the first time, from server to server [bytes]."""
    wire_bytes: NDArray[np.int64]
    """IP lengths of all packets, from server to server [bytes]."""


def traffic_phases(traffic: pd.DataFrame, servers: int, bin_s: float) -> list[TrafficPhase]:
    """Return the phases of an application, in order of time.

    Parameters
    ----------
    traffic
        As of `testbed.apps.app_record.TRAFFIC`.
    servers
        How many the fabric has.
    bin_s
        Width of its bins [s].
    """
    if not len(traffic):
        return []
    number = np.rint((traffic["at_s"].to_numpy() - traffic["at_s"].min()) / bin_s).astype(int)
    sent = np.bincount(number, traffic["wire_bytes"])
    busy = np.flatnonzero(sent > QUIET * np.quantile(sent[sent > 0], BUSY))
    parts = np.split(busy, np.flatnonzero(np.diff(busy) > round(least_pause_s(bin_s) / bin_s)) + 1)
    begin_s = float(traffic["at_s"].min())
    return [
        TrafficPhase(
            begin_s + part[0] * bin_s,
            begin_s + (part[-1] + 1) * bin_s,
            *demand_of(traffic[(number >= part[0]) & (number <= part[-1])], servers),
        )
        for part in parts
    ]


def least_pause_s(bin_s: float) -> float:
    """Return the least pause that divides two phases, with bins of a width [s]."""
    return max(PAUSE_S, 3 * bin_s)


def demand_of(traffic: pd.DataFrame, servers: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return payload that was sent for the first time, and all bytes of packets, from server to server."""
    place = traffic["source"].to_numpy(np.int64) * servers + traffic["destination"].to_numpy()
    payload, wire = (
        np.bincount(place, traffic[name], servers**2).astype(np.int64).reshape(servers, servers)
        for name in ("payload_bytes", "wire_bytes")
    )
    return payload, wire


def busy_share(phases: Sequence[TrafficPhase], duration_s: float) -> float:
    """Return the share of a time in which bytes flowed, 0..1."""
    busy_s = sum(
        max(min(phase.end_s, duration_s) - max(phase.start_s, 0.0), 0.0)  # what processes left may send later
        for phase in phases
    )
    return min(busy_s / duration_s, 1.0) if duration_s > 0 else 0.0


def between_gpus(matrix: NDArray[np.int64], fabric: Fabric) -> NDArray[np.int64]:
    """Return a matrix from server to server as one from GPU to GPU: spread evenly over their pairs of GPUs.

    Packets say which host sent them, not which of its GPUs. Sums from server to server stay what they are.
    """
    sizes = [server.gpus for server in fabric.servers]
    ends = np.cumsum(sizes)
    spread = np.zeros((fabric.gpus, fabric.gpus), dtype=np.int64)
    for source, destination in np.argwhere(matrix).tolist():
        shape = sizes[source], sizes[destination]
        pairs = shape[0] * shape[1]
        edges = np.arange(pairs + 1) * int(matrix[source, destination]) // pairs
        rows, columns = (slice(ends[each] - sizes[each], ends[each]) for each in (source, destination))
        spread[rows, columns] = np.diff(edges).reshape(shape)
    return spread


def between_servers(job: Job, fabric: Fabric) -> NDArray[np.int64]:
    """Return the bytes of a job from server to server.

    Parameters
    ----------
    job
        Between as many GPUs as the fabric has, or as servers: each is then a server.
    fabric
        Whose servers they are.

    Raises
    ------
    ScenarioError
        If it is between another number.
    """
    servers = len(fabric.servers)
    if job.gpus == fabric.gpus:
        of = np.asarray(fabric.gpu_servers)
    elif job.gpus == servers:
        of = np.arange(servers)
    else:
        raise ScenarioError(
            f"{job.name} is between {job.gpus}, the fabric has {servers} servers and {fabric.gpus} GPUs",
            "give a matrix with a row for each server, or for each GPU",
        )
    found = np.zeros((servers, servers), dtype=np.int64)
    for node in job.collectives:
        np.add.at(found, (of[:, None], of[None]), bytes_between(node.pattern, job.gpus))
    np.fill_diagonal(found, 0)
    return found


def kept_phases(phases: Sequence[TrafficPhase], fabric: Fabric) -> list[int]:
    """Return the places of the phases that are kept: all with payload, of too many cells the heaviest."""
    most = max(MOST_CELLS // fabric.gpus**2, 1)
    sizes = np.array([phase.payload_bytes.sum() for phase in phases])
    heaviest = np.sort(np.argsort(-sizes, kind="stable")[:most])
    return [place for place in heaviest.tolist() if sizes[place]]


def job_of_phases(phases: Sequence[TrafficPhase], fabric: Fabric, name: str, sent_bytes: int) -> Job | None:
    """Return phases as a job: an all-to-all each, and between them computes as long as the pauses were.

    A program's own time is not slowed down, so that a pause is as long as it was. Where phases have too many
    cells together (`MOST_CELLS`) those with the most bytes are kept, and pauses are longer by the others.

    Parameters
    ----------
    phases, fabric, name
        What the job is made of, and its name.
    sent_bytes
        The payload of the application as a whole, of which the job's note says a share [bytes].

    Returns
    -------
    Job
        Between all GPUs of the fabric; None where no phase has payload.
    """
    kept = kept_phases(phases, fabric)
    if not kept:
        return None
    nodes: list[Node] = []
    for place, number in enumerate(kept):
        phase = phases[number]
        if place:
            pause_s = phase.start_s - phases[kept[place - 1]].end_s
            nodes.append(Compute(f"pause {place}", tuple(range(fabric.gpus)), pause_s))
        demand = Demand(f"phase {number + 1}", between_gpus(phase.payload_bytes, fabric))
        nodes.append(Collective(demand.name, AllToAll(demand)))
    share = sum(int(phases[number].payload_bytes.sum()) for number in kept) / sent_bytes
    note = f"captured from the wire: {len(kept)} of {len(phases)} phases, {share:.1%} of all payload"
    return chain(name, fabric.gpus, tuple(nodes), note)
