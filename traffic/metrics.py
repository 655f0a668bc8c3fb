"""What the tables of a run say: completion times, bandwidths, loads. Everything here is read from them alone.

Percentiles are over the messages that crossed the network. Those inside a server are modelled,
not measured, and would only dilute them; they count for the last byte and for the bandwidth.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from topologies.fabric import Fabric, Path, Port
from traffic.clock import NEVER, SECOND
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.pattern import Pattern, end_to_end
from traffic.collectives.ring import Ring
from traffic.job import Job
from traffic.tables import NVLINK, Tables

GB = 1e9
"""nccl-tests' gigabyte."""


@dataclass(frozen=True, slots=True)
class Cct:
    """How long messages and their collective took."""

    mean_s: float
    """Mean over the messages that crossed the network, NaN as the percentiles are where none did [s]."""
    p80_s: float
    """80th percentile of the same [s]."""
    p95_s: float
    """95th percentile [s]."""
    p99_s: float
    """99th percentile [s]."""
    last_s: float
    """The collective completion time: until the last byte of all, NVLink's too; 0 without messages [s]."""


def cct(tables: Tables) -> Cct:
    """Return the completion times of messages that arrived, each since the first of its node was released.

    With several nodes, percentiles are over the messages of all and ``last_s`` is the slowest node.
    """
    since_s, crosses = _since_s(tables), _arrived(tables, "crosses")[0]
    crossed = since_s[crosses]
    if not len(crossed):
        return Cct(math.nan, math.nan, math.nan, math.nan, float(since_s.max(initial=0.0)))
    p80, p95, p99 = np.percentile(crossed, [80, 95, 99]).tolist()
    return Cct(float(crossed.mean()), p80, p95, p99, float(since_s.max()))


def crossing_times_s(tables: Tables) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return how long each message took that crossed the network, as `cct` has it, and its node [s]."""
    node, crosses = _arrived(tables, "node", "crosses")
    return _since_s(tables)[crosses], node[crosses]


def communication_s(tables: Tables) -> float:
    """Return the collective completion time: how long bytes of any node were under way, without compute [s].

    Where nodes follow each other it is the sum of their times; what overlaps counts once. A collective that
    gave up messages counts until it ended: until then they were waited for.
    """
    _, first_ps, last_ps = _spans_ps(tables)
    total_ps, until_ps = 0, 0
    for start_ps, end_ps in sorted(zip(first_ps.tolist(), last_ps.tolist(), strict=True)):
        total_ps += max(end_ps - max(start_ps, until_ps), 0)
        until_ps = max(until_ps, end_ps)
    return total_ps / SECOND


def collective_times_s(tables: Tables) -> dict[str, float]:
    """Return how long bytes of each collective were under way, by its name [s], as of `communication_s`."""
    nodes, first_ps, last_ps = _spans_ps(tables)
    names = [tables.nodes[node] for node in nodes.tolist()]
    return dict(zip(names, ((last_ps - first_ps) / SECOND).tolist(), strict=True))


def _spans_ps(tables: Tables) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the nodes of which bytes arrived, and when the first were released and the last had arrived."""
    node, released_ps, ended_ps = _arrived(tables, "node", "released_ps", "end_ps")
    nodes, node = np.unique(node, return_inverse=True)
    first_ps, last_ps = np.full(len(nodes), NEVER), np.zeros(len(nodes), dtype=np.int64)
    np.minimum.at(first_ps, node, released_ps)
    np.maximum.at(last_ps, node, ended_ps)
    lost = tables.messages.loc[tables.messages["given_up"], "node"]
    if len(lost):
        spans = tables.spans[(tables.spans["gpu"] < 0) & tables.spans["node"].isin(lost)]
        waited = spans[spans["node"].isin(nodes)]
        np.maximum.at(last_ps, np.searchsorted(nodes, waited["node"]), waited["end_ps"].to_numpy())
    return nodes, first_ps, last_ps


def busbw_gbytes_s(job: Job, took_s: Mapping[str, float]) -> float:
    """Return the bus bandwidth of a job's collectives where all are of one kind [1e9 bytes/s].

    It is NaN where they are of several (`kinds_busbw_gbytes_s`), and 0 where none took any time.

    Parameters
    ----------
    job, took_s
        As of `kinds_busbw_gbytes_s`.
    """
    kinds = kinds_busbw_gbytes_s(job, took_s)
    return math.nan if len(kinds) > 1 else sum(kinds.values())


def collectives_busbw_gbytes_s(job: Job, took_s: Mapping[str, float]) -> dict[str, float]:
    """Return the bus bandwidth of each collective, by its name: `bus_bytes` over its own time [1e9 bytes/s].

    Parameters
    ----------
    job, took_s
        As of `kinds_busbw_gbytes_s`.
    """
    return {name: size / GB / took_s[name] for name, (_, size) in _counted(job, took_s).items()}


def kinds_busbw_gbytes_s(job: Job, took_s: Mapping[str, float]) -> dict[str, float]:
    """Return the bus bandwidth of each kind of a job's collectives, by its pattern's name [1e9 bytes/s].

    Of a collective it is `bus_bytes` over its own time. Of several of a kind it is the bytes of all over the
    times of all, the mean that weighs each by its time: collectives at once on GPUs of their own have the
    busbw of one of them.

    Parameters
    ----------
    job
        Whose collectives.
    took_s
        How long each took, by its name: `collective_times_s`. Those that took no time do not count.

    References
    ----------
    NVIDIA/nccl-tests, doc/PERFORMANCE.md.
    """
    counted: defaultdict[str, float] = defaultdict(float)
    seconds: defaultdict[str, float] = defaultdict(float)
    for name, (kind, size) in _counted(job, took_s).items():
        counted[kind] += size
        seconds[kind] += took_s[name]
    return {kind: size / GB / seconds[kind] for kind, size in counted.items()}


def _counted(job: Job, took_s: Mapping[str, float]) -> dict[str, tuple[str, float]]:
    """Return the kind and the bus bytes of each collective that took any time, by its name."""
    timed = [node for node in job.collectives if took_s.get(node.name)]
    sizes = {pattern: bus_bytes(pattern) for pattern in {node.pattern for node in timed}}
    return {node.name: (node.pattern.name, sizes[node.pattern]) for node in timed}


def bus_bytes(pattern: Pattern) -> float:
    """Return the bytes that nccl-tests' busbw counts: all that the busiest rank owes others, or is owed.

    They are owed from end to end, whatever GPUs pass on: of an even all-to-all nccl-tests' S (n - 1) / n, of
    a ring AllReduce its S 2 (n - 1) / n, of an all-to-all between nodes of L ranks each (p - 1) m / L
    (`traffic.collectives.node_all_to_all`). Of an uneven all-to-all nccl-tests takes (n - 1) / n of the
    largest row or column, as if a rank kept 1 / n of it. Here it is what leaves the rank, so that ranks which
    keep more, or idle, do not change it.

    References
    ----------
    NVIDIA/nccl-tests, doc/PERFORMANCE.md; src/alltoallv.cu, AlltoAllvGetBw.
    """
    messages = end_to_end(pattern).messages
    ends = (messages.source, messages.destination)
    return max((float(np.bincount(end, messages.bytes).max()) for end in ends if len(end)), default=0.0)


def size_bytes(pattern: Pattern) -> int:
    """Return S, nccl-tests' column *size*, of a collective; of patterns that it does not have `bus_bytes`."""
    if isinstance(pattern, Ring):
        return pattern.bytes
    size = bus_bytes(pattern)
    if isinstance(pattern, AllToAll) and size:
        messages = end_to_end(pattern).messages
        n = len(np.union1d(messages.source, messages.destination))
        size *= n / (n - 1)
    return round(size)


def link_bytes(tables: Tables) -> dict[Port, int]:
    """Return how many bytes each port sent that arrived; ports that sent nothing are left out."""
    sent: dict[Port, int] = {}
    for path, size in path_bytes(tables).items():
        for port in path:
            sent[port] = sent.get(port, 0) + size
    return sent


def crossed_bytes(tables: Tables) -> float:
    """Return how many bytes of messages arrived in another server than they came from."""
    crosses, size = _arrived(tables, "crosses", "bytes")
    return float(size[crosses].sum())


def path_bytes(tables: Tables) -> dict[Path, int]:
    """Return how many bytes arrived over each path between servers that carried some."""
    crosses = tables.legs["medium"].to_numpy() != NVLINK
    path, size = (tables.legs[column].to_numpy()[crosses] for column in ("path", "bytes"))
    sizes = np.zeros(len(tables.paths), dtype=np.int64)
    np.add.at(sizes, path, size)
    return {path: size for path, size in zip(tables.paths, sizes.tolist(), strict=True) if size}


def uplink_bytes(sent: Mapping[Port, int], fabric: Fabric) -> pd.DataFrame:
    """Return how many bytes each leaf sent to each switch above it: a heat map's numbers.

    Parameters
    ----------
    sent
        As from `link_bytes`.
    fabric
        What they were sent over.

    Returns
    -------
    DataFrame
        A row per leaf, a column per switch one tier up, NaN where no link joins them.
    """
    tiers = {switch.name: switch.tier for switch in fabric.switches}
    rows = [name for name, at in tiers.items() if at == 0]
    columns = [name for name, at in tiers.items() if at == 1]
    table = np.full((len(rows), len(columns)), np.nan)
    for port in fabric.link_at:
        above = fabric.peer(port).node
        if port.node in rows and above in columns:
            cell = rows.index(port.node), columns.index(above)
            table[cell] = np.nan_to_num(table[cell]) + sent.get(port, 0)
    return pd.DataFrame(table, index=pd.Index(rows, name="from"), columns=pd.Index(columns, name="to"))


def nic_sent_bytes(sent: Mapping[Port, int], fabric: Fabric) -> NDArray[np.float64]:
    """Return what each NIC sent, shape (servers, most NICs), NaN where a server has fewer [bytes].

    Parameters
    ----------
    sent
        As from `link_bytes`.
    fabric
        What it was sent over.
    """
    return _of_nics(fabric, lambda port: sent.get(port, 0))


def nic_received_bytes(sent: Mapping[Port, int], fabric: Fabric) -> NDArray[np.float64]:
    """Return what each NIC received, as `nic_sent_bytes`: what the port at its other end sent."""
    return _of_nics(fabric, lambda port: sent.get(fabric.peer(port), 0))


def load_mse(nic_bytes: NDArray[np.float64]) -> float:
    """Return how unevenly servers use their NICs: 0 is evenly, 1 is all on one NIC.

    Per server the mean squared deviation from its mean (eq. 6), divided by the most that it could
    be, (N - 1) / N^2 * total^2, which is all its bytes on one of its N NICs. Then the mean over the
    servers that have a load, NaN if none has; a server with one NIC is even.

    Parameters
    ----------
    nic_bytes
        As from `nic_sent_bytes` or `nic_received_bytes`, NaN where there is no NIC.

    References
    ----------
    RailS, eq. 6, and "Normalized MSE of Load" of section VI-A, whose divisor the paper leaves open.

    Examples
    --------
    >>> load_mse(np.array([[4.0, 0.0], [1.0, 1.0]]))
    0.5
    """
    there = ~np.isnan(nic_bytes)
    nics = there.sum(axis=1)
    total = np.nansum(nic_bytes, axis=1)
    mean = total / nics
    mse = np.nansum((nic_bytes - mean[:, None]) ** 2, axis=1) / nics
    most = (nics - 1) / nics**2 * total**2
    loaded = total > 0
    normalised = np.divide(mse, most, out=np.zeros(len(total)), where=most > 0)[loaded]
    return float(normalised.mean()) if loaded.any() else math.nan


def _arrived(tables: Tables, *columns: str) -> list[NDArray[np.int64]]:
    """Return columns of the messages that were not given up."""
    arrived = ~tables.messages["given_up"].to_numpy()
    return [tables.messages[column].to_numpy()[arrived] for column in columns]


def _since_s(tables: Tables) -> NDArray[np.float64]:
    """Return how long each message took that arrived, since the first of its node was released [s]."""
    node, released_ps, end_ps = _arrived(tables, "node", "released_ps", "end_ps")
    first_ps = np.full(int(node.max(initial=-1)) + 1, NEVER)
    np.minimum.at(first_ps, node, released_ps)
    return np.asarray((end_ps - first_ps[node]) / SECOND)


def _of_nics(fabric: Fabric, load_of: Callable[[Port], int]) -> NDArray[np.float64]:
    loads = np.full((len(fabric.servers), max(server.nics for server in fabric.servers)), np.nan)
    for nic in fabric.nics:
        loads[nic] = load_of(fabric.nic_port(nic))
    return loads
