"""All-to-alls between the nodes of a K-hop ring as jobs: a round of the binary exchange per node, or a ring.

A link between nodes has two lanes, one per half of its GPUs' rate (`KHopRing.lanes`), which share the bytes
between two nodes evenly. GPUs forwarding inside a node take no time here.
"""

from topologies.errors import DemandError, ScenarioError
from topologies.events import View
from topologies.khop_ring import KHopRing
from traffic.collectives.node_all_to_all import Hop, RingAllToAll, exchange_rounds
from traffic.collectives.point_to_point import PointToPoint
from traffic.job import Collective, Compute, Job, chain
from traffic.scheme import WholeMessages
from traffic.spraying.policy import QueuePair

LANES = 2


def exchange_job(ring: KHopRing, node_bytes: int, light_s: float) -> Job:
    """Return the binary exchange between all nodes: a node of the job per round, after one that lights.

    Parameters
    ----------
    ring
        Whose nodes, a power of two of them.
    node_bytes
        From every node to every node [bytes].
    light_s
        How long GPUs compute before, while circuits are lit [s].

    Raises
    ------
    DemandError
        If bytes cannot be cut into equal parts, or the nodes are no power of two.
    """
    if node_bytes < 1 or node_bytes % (2 * LANES):
        raise DemandError(f"{node_bytes} bytes to each node", f"give a multiple of {2 * LANES}")
    rounds = [
        Collective(
            f"round {number}",
            PointToPoint(
                tuple(
                    (near.server, far.server, len(blocks) * node_bytes // LANES)
                    for node, blocks in enumerate(each.sent)
                    for near, far in ring.lanes(node, node ^ each.distance)
                )
            ),
        )
        for number, each in enumerate(exchange_rounds(ring.nodes), start=1)
    ]
    return _lit_first("binary exchange", ring, rounds, light_s)


def ring_job(ring: KHopRing, node_bytes: int, light_s: float, *, both_ways: bool) -> Job:
    """Return the all-to-all over the ring of all nodes.

    Parameters
    ----------
    ring, node_bytes, light_s
        As of `exchange_job`.
    both_ways
        Whether bytes go the shorter way round, or all the same way.
    """
    forward, back = (
        tuple(
            tuple(_hop(ring, node, (node + step) % ring.nodes, lane) for node in range(ring.nodes)[::step])
            for lane in range(LANES)
        )
        for step in (1, -1)
    )
    pattern = RingAllToAll(forward, node_bytes, back if both_ways else ())
    name = "two-way ring" if both_ways else "one-way ring"
    return _lit_first(name, ring, [Collective("ring", pattern)], light_s)


def over_lanes(ring: KHopRing) -> WholeMessages:
    """Return the scheme that sends between two GPUs from the NICs that a lane joins, lit or not."""
    joined = {
        (near.server, far.server): QueuePair(near, far)
        for a, b, _ in ring.links
        for pair in ((a, b), (b, a))
        for near, far in ring.lanes(*pair)
    }

    def queue_pair(_view: View, near: int, far: int) -> QueuePair:
        if (near, far) not in joined:
            raise ScenarioError(f"no lane joins the GPUs {near} and {far}", "send over links between nodes")
        return joined[near, far]

    return WholeMessages(queue_pair)


def _hop(ring: KHopRing, node: int, after: int, lane: int) -> Hop:
    near, far = ring.lanes(node, after)[lane]
    return near.server, far.server


def _lit_first(name: str, ring: KHopRing, sending: list[Collective], light_s: float) -> Job:
    gpus = ring.nodes * ring.gpus_per_node
    light = Compute("light", tuple(range(gpus)), light_s)
    return chain(name, gpus, (light, *sending), f"{ring.nodes} nodes of {ring.gpus_per_node} GPUs")
