"""Rings over a fabric: how they go through servers, and how long they take at best.

A ring visits server after server and all of its GPUs in each. It enters a server at the GPU at which it
left the one before, so that NICs pinned to GPUs are of one rail and no spine is crossed; in a ring of an odd
number of servers the last edge changes rails. Of several rings over m GPUs a server, ring k joins servers
by the GPUs k and k + 1 in turn: each NIC then sends for one ring, and receives for one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from traffic.collectives.ring import Ring
from traffic.job import Collective, Job, Node

HowMany = Literal["one", "per-rail"]
"""One ring over the GPUs of a group, or one for each of its GPUs in a server."""


def with_rings(job: Job, fabric: Fabric, how_many: str) -> Job:
    """Return a job whose ring collectives go over a fabric in as many rings as asked for.

    Groups inside one server keep one ring, and so do those that have not as many GPUs in each server.

    Parameters
    ----------
    job
        For the GPUs of the fabric.
    fabric
        Where its GPUs are.
    how_many
        One of `HowMany`.

    Raises
    ------
    ScenarioError
        If ``how_many`` is neither.
    """
    if how_many not in get_args(HowMany):
        raise ScenarioError(f"{how_many!r} rings", f"choose one of {', '.join(get_args(HowMany))}")
    known: dict[Ring, Ring] = {}
    return replace(job, nodes=tuple(_over(node, fabric, how_many == "per-rail", known) for node in job.nodes))


def rings_over(group: Iterable[int], fabric: Fabric, *, per_rail: bool) -> tuple[tuple[int, ...], ...]:
    """Return the rings over a group of GPUs, each in the order in which bytes travel."""
    of_server: dict[int, list[int]] = {}
    for gpu in sorted(group):
        of_server.setdefault(fabric.gpu_servers[gpu], []).append(gpu)
    servers = list(of_server.values())
    alike = len({len(gpus) for gpus in servers}) == 1
    count = len(servers[0]) if per_rail and alike and len(servers) > 1 else 1
    return tuple(
        tuple(gpu for turn, gpus in enumerate(servers) for gpu in _through(gpus, ring, turn))
        for ring in range(count)
    )


def closed_form_s(ring: Ring, fabric: Fabric) -> float:
    """Return how long a ring collective takes with its links to itself [s].

    What the busiest GPU sends, (n - 1) / n of all bytes and twice that for AllReduce, over the rates of all
    rings together. A ring is as fast as its slowest edge: a NIC, or NVLink, which the rings share.

    References
    ----------
    nccl-tests, doc/PERFORMANCE.md, solved for the time.
    """
    ranks = len(ring.rings[0])
    rate_bps = sum(_rate_bps(each, len(ring.rings), fabric) for each in ring.rings)
    passes = 2 if ring.operation == "all-reduce" else 1
    return passes * (ranks - 1) / ranks * 8 * ring.bytes / rate_bps


def _over(node: Node, fabric: Fabric, per_rail: bool, known: dict[Ring, Ring]) -> Node:
    """Return a node over its rings; equal patterns stay equal, and are made once."""
    if not isinstance(node, Collective) or not isinstance(node.pattern, Ring):
        return node
    if node.pattern not in known:
        rings = rings_over(node.pattern.gpus, fabric, per_rail=per_rail)
        least = len(rings) * len(rings[0])
        known[node.pattern] = replace(node.pattern, rings=rings, bytes=max(node.pattern.bytes, least))
    return replace(node, pattern=known[node.pattern])


def _through(gpus: Sequence[int], ring: int, turn: int) -> list[int]:
    """Return the GPUs of a server in a ring's order: every other server is crossed the other way."""
    between = [gpus[(ring + 1 + step) % len(gpus)] for step in range(1, len(gpus) - 1)]
    ends = [gpus[ring], gpus[(ring + 1) % len(gpus)]][: len(gpus)]
    order = [ends[0], *between, *ends[1:]]
    return order[::-1] if turn % 2 else order


def _rate_bps(ring: Sequence[int], rings: int, fabric: Fabric) -> float:
    """Return the rate of the slowest edge of one of several rings [bit/s]."""
    rates = []
    for source, destination in zip(ring, np.roll(ring, -1).tolist(), strict=True):
        server = fabric.gpu_servers[source]
        if server == fabric.gpu_servers[destination]:
            rates.append(fabric.servers[server].nvlink_bps / rings)
        else:
            rates += [fabric.nic_rate_bps(fabric.pinned_nic(gpu)) for gpu in (source, destination)]
    return min(rates)
