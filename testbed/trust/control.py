"""The known-answer control: traffic whose duration is known, at the packet rate of what is judged.

Each NIC sends to one NIC, each receives from one, and no link carries more than its rate: a shift
permutation. Every sender then needs its bytes over its NIC's rate, whatever the model says. So many
senders take part that switches forward as many packets a second as in the point, and the engine that moves
the point's bytes moves the control's; what the control takes longer, this machine added.
"""

import time
from dataclasses import dataclass

import numpy as np

from controller.packet.flow_table import Hashing
from testbed.core.packet_paths import Paths, paths_over
from testbed.network.link_sample import settled_rates_bps
from testbed.network.network import Network
from testbed.trust.evidence import cpu_pressure_s
from topologies.fabric import Fabric, Nic, Path
from topologies.own_routing import CheckedRouting
from traffic.packets import frame_bytes, packet_bytes
from traffic.spraying.policy import QueuePair
from traffic.transports.datagram_engine import DatagramEngine
from traffic.transports.engine import Engine
from traffic.transports.registry import algorithm_named
from traffic.transports.transport import NicRate

CONTROL_S = 0.7
LEAST_PACKETS = 40
"""What each sender sends at least: at 3 Mbit/s a packet takes 24 ms."""
ENTROPIES_TRIED = 16


@dataclass(frozen=True)
class Control:
    """What came of a control, at emulated scale."""

    hop_bps: float
    """Payload times switch hops that it was to forward in a second [bit/s]."""
    senders: int
    """How many NICs sent."""
    error: float
    """The time that senders took on average over the time known, less 1."""
    cpu_pressure: float
    """Share of it in which something waited for a CPU, 0..1; NaN if unknown. Beside two busy loops the time
    was 0.4 to 1 % off, as without them, and this 0.8 to 1: the next run may not be let through as well."""


def control(network: Network, hop_bps: float, *, datagrams: bool = False) -> Control | None:
    """Return what came of a control at a packet rate; None where no two servers have a path.

    Parameters
    ----------
    network
        Booted, and idle.
    hop_bps
        Payload times switch hops to forward in a second, at emulated scale [bit/s].
    datagrams
        Whether the engine of datagrams moves the bytes; else TCP does.
    """
    fabric, factor, packet = network.fabric, network.rate_factor, packet_bytes(network.mtu)
    payload_share = packet / frame_bytes(network.mtu)
    paths = shift(
        fabric,
        hop_bps / factor / payload_share,
        network.routing,
        datagrams=datagrams,
        hashing=network.hashing,
    )
    if not paths:
        return None

    def rate_bps(nic: Nic) -> float:
        return fabric.nic_rate_bps(nic) * factor

    payload_bps = np.array([rate_bps(queue_pair.source) * payload_share for queue_pair in paths])
    lasts_s = max(CONTROL_S, LEAST_PACKETS * 8 * packet / payload_bps.min())
    with network.unimpaired(), _engine(network, rate_bps, packet, datagrams=datagrams) as engine:
        numbers = [engine.add(queue_pair) for queue_pair in paths]
        engine.connect(numbers)
        # Whole packets: the last one, if it were smaller, would wait until all before it are acknowledged.
        sizes = np.rint(payload_bps / 8 * lasts_s / packet).astype(np.int64) * packet
        began, waited_s = time.monotonic(), cpu_pressure_s()
        found_bps = settled_rates_bps(engine, numbers, sizes)
        pressure = (cpu_pressure_s() - waited_s) / (time.monotonic() - began)
    hops = np.array([len(path) - 1 for path in paths.values()])
    error = float((payload_bps / found_bps).mean() - 1)
    return Control(float(payload_bps @ hops), len(paths), error, pressure)


def _engine(network: Network, rate_bps: NicRate, packet: int, *, datagrams: bool) -> Engine | DatagramEngine:
    """Return an engine that lets a sender that has its path to itself send at its NIC's rate."""
    if datagrams:
        return DatagramEngine(
            network.datagram_endpoints,
            rate_bps,
            algorithm=algorithm_named("credit"),
            packet_bytes=packet,
            check=network.check_alive,
        )
    return Engine(network.endpoints, check=network.check_alive)


def shift(
    fabric: Fabric,
    hop_bps: float,
    routing: CheckedRouting | None = None,
    *,
    datagrams: bool = False,
    hashing: Hashing = "openvswitch",
) -> dict[QueuePair, Path]:
    """Return the queue pairs of a shift permutation and their paths, on which all can send at full rate.

    Parameters
    ----------
    fabric
        Its NICs may differ in rate; no path has a link that is slower than the NIC that sends.
    hop_bps
        Bits times switch hops to forward in a second, at real rates [bit/s]. Of a permutation that forwards
        more only so many senders take part; where none does, the one that forwards most is taken whole.
    routing
        By which ports switches send on before the shortest path; by default nothing else.
    datagrams
        Whether packets are datagrams, which switches hash otherwise than TCP's.
    hashing
        Whose hash chooses.
    """
    paths = paths_over(fabric, routing=routing, datagrams=datagrams, hashing=hashing)
    half = max(len(fabric.servers) // 2, 1)
    best: dict[QueuePair, Path] = {}
    for servers, nics in dict.fromkeys([(1, 0), (1, 1), (half, 0), (half, 1)]):
        found = _chosen(fabric, servers, nics, hop_bps, paths)
        if _hop_bps(fabric, found) > _hop_bps(fabric, best):
            best = found
        if _hop_bps(fabric, best) >= hop_bps:
            break
    return best


def _chosen(fabric: Fabric, servers: int, nics: int, hop_bps: float, paths: Paths) -> dict[QueuePair, Path]:
    """Return queue pairs from each NIC to the one so many servers and NICs on, until they forward enough."""
    room = {port: link.rate_bps for port, link in fabric.link_at.items()}
    chosen: dict[QueuePair, Path] = {}
    forwarded_bps, heard = 0.0, set[Nic]()
    for index in np.random.default_rng(0).permutation(len(fabric.nics)).tolist():
        if forwarded_bps >= hop_bps:
            break
        source = fabric.nics[index]
        server = (source.server + servers) % len(fabric.servers)
        if server == source.server or not fabric.servers[server].nics:
            continue
        destination = Nic(server, (source.nic + nics) % fabric.servers[server].nics)
        rate_bps = fabric.nic_rate_bps(source)
        queue_pairs = (QueuePair(source, destination, entropy) for entropy in range(ENTROPIES_TRIED))
        found = ((queue_pair, paths.find(queue_pair) or ()) for queue_pair in queue_pairs)
        fits = ((pair, path) for pair, path in found if all(room[port] >= rate_bps for port in path))
        queue_pair, path = next(fits, (None, ()))
        if path and queue_pair and destination not in heard:
            chosen[queue_pair] = path
            heard.add(destination)
            forwarded_bps += rate_bps * (len(path) - 1)
            for port in path:
                room[port] -= rate_bps
    return chosen


def _hop_bps(fabric: Fabric, paths: dict[QueuePair, Path]) -> float:
    return sum(fabric.nic_rate_bps(pair.source) * (len(path) - 1) for pair, path in paths.items())
