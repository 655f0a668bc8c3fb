"""A sample of links, measured against their nominal rate before a run.

Ways are drawn on which no two senders meet, so that each can send at its NIC's full rate: what it
falls short of that, a link on its way does.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from controller.packet.flow_table import FlowTables, Hashing
from controller.packet.routing import forwarding_rules
from testbed.network.network import Network
from topologies.fabric import Fabric, Nic, Path, Port
from topologies.own_routing import CheckedRouting
from traffic.packets import frame_bytes, packet_bytes
from traffic.spraying.policy import QueuePair
from traffic.transports.datagram_engine import DatagramEngine
from traffic.transports.engine import Engine
from traffic.transports.registry import algorithm_named

SAMPLE_S = 0.4
MOST_HOPS = 8
"""A small part of what the machine carries in a run."""
SETTLED = 0.25
TRIES, SOUND = 3, 0.03
"""A sample off by more is taken again: a pause of the machine is no property of a link."""


def worst_link_error(network: Network, seed: int) -> float:
    """Return the largest of `link_errors`, with its sign; NaN if no two servers have a path to try."""
    return max(link_errors(network, np.random.default_rng(seed)).values(), key=abs, default=math.nan)


def link_errors(network: Network, rng: np.random.Generator) -> dict[Nic, float]:
    """Return how far the senders of `sampled_paths` are from their nominal rate, as a share of it.

    All send at once, for 0.4 s. The rate counts from when the first quarter of the bytes has arrived; of
    several tries the one counts in which a sender was nearest to its rate.
    """
    fabric = network.fabric
    queue_pairs = list(sampled_paths(fabric, rng, routing=network.routing, hashing=network.hashing))

    def rate_bps(nic: Nic) -> float:
        return fabric.nic_rate_bps(nic) * network.rate_factor

    packet = packet_bytes(network.mtu)
    payload_share = packet / frame_bytes(network.mtu)
    nominal_bps = np.array([rate_bps(queue_pair.source) * payload_share for queue_pair in queue_pairs])
    errors = np.full(len(queue_pairs), np.inf)
    with (
        network.unimpaired(),
        DatagramEngine(
            network.datagram_endpoints,
            rate_bps,
            algorithm=algorithm_named("credit"),
            packet_bytes=packet,
            check=network.check_alive,
        ) as engine,
    ):
        numbers = [engine.add(queue_pair) for queue_pair in queue_pairs]
        engine.connect(numbers)
        for _ in range(TRIES):
            sizes = [int(rate_bps(queue_pair.source) / 8 * SAMPLE_S) for queue_pair in queue_pairs]
            found = settled_rates_bps(engine, numbers, np.array(sizes)) / nominal_bps - 1
            errors = np.where(np.abs(found) < np.abs(errors), found, errors)
            if (np.abs(errors) <= SOUND).all():
                break
    return dict(zip((queue_pair.source for queue_pair in queue_pairs), errors.tolist(), strict=True))


def settled_rates_bps(
    engine: Engine | DatagramEngine, numbers: Sequence[int], sizes: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Send so many bytes over each queue pair at once; return the rate of each after its first quarter."""
    count, settled = len(numbers), (sizes * SETTLED).astype(np.int64)
    parcels = np.concatenate([settled, sizes - settled])
    engine.post(np.tile(numbers, 2), parcels, np.arange(2 * count))
    at_s, counts = np.zeros(2 * count), np.zeros(2 * count)
    while not engine.quiet:
        for message, at, _ in engine.serve(float("inf")):
            at_s[message], counts[message] = at, engine.counted(int(numbers[message % count]))
    return np.asarray(8.0 * (counts[count:] - counts[:count]) / (at_s[count:] - at_s[:count]))


def sampled_paths(
    fabric: Fabric,
    rng: np.random.Generator,
    *,
    routing: CheckedRouting | None = None,
    hashing: Hashing = "openvswitch",
) -> dict[QueuePair, Path]:
    """Return queue pairs that can all send at full rate, and their paths: no two share a link.

    Together they have at most `MOST_HOPS` switch hops, and as many as there are servers; the first may have
    more.

    Parameters
    ----------
    fabric
        NICs of all its rails are drawn, so that paths over uplinks are among them; no path has a link
        that is slower than the NIC that sends.
    rng
        Draws them.
    routing
        By which ports switches send on before the shortest path; by default nothing else.
    hashing
        Whose hash chooses.
    """
    tables = FlowTables(fabric, forwarding_rules(fabric, routing=routing), hashing=hashing)
    left = min(MOST_HOPS, len(fabric.servers))
    paths: dict[QueuePair, Path] = {}
    used: set[Port] = set()
    for source in _shuffled(fabric, rng):
        for destination in _shuffled(fabric, rng):
            queue_pair = QueuePair(source, destination)
            path = _path(queue_pair, fabric, tables)
            if path and used.isdisjoint(path) and (not paths or len(path) - 1 <= left):
                paths[queue_pair] = path
                used.update(path)
                left -= len(path) - 1
                break
        if left <= 0:
            break
    return paths


def _shuffled(fabric: Fabric, rng: np.random.Generator) -> Iterator[Nic]:
    return (fabric.nics[index] for index in rng.permutation(len(fabric.nics)).tolist())


def _path(queue_pair: QueuePair, fabric: Fabric, tables: FlowTables) -> Path:
    """Return the path of a queue pair, empty if it has none, or none that is as fast as its NIC."""
    source, destination = queue_pair.source, queue_pair.destination
    if source.server == destination.server:
        return ()
    path = tables.datagram_path(source, destination, queue_pair.entropy) or ()
    slowest_bps = min((fabric.link_at[port].rate_bps for port in path), default=0.0)
    return path if slowest_bps >= fabric.nic_rate_bps(source) else ()
