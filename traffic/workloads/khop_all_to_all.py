"""All-to-alls between the nodes of a K-hop ring as jobs: rounds of the binary exchange, or a ring.

A link between nodes has two lanes, one per half of its GPUs' rate (`KHopRing.lanes`), which share the bytes
between two nodes evenly. GPUs forwarding inside a node take no time here.
"""

from topologies.errors import DemandError
from topologies.khop_ring import KHopRing
from traffic.collectives.node_all_to_all import ExchangeRound, Hop, Nodes, RingAllToAll, exchange_rounds
from traffic.job import Collective, Job, chain

LANES = 2


def exchange_job(ring: KHopRing, node_bytes: int) -> Job:
    """Return the binary exchange between all nodes: ``round 1``, ``round 2`` and so on.

    Parameters
    ----------
    ring
        Whose nodes, a power of two of them.
    node_bytes
        From every node to every node [bytes].

    Raises
    ------
    DemandError
        If bytes cannot be cut into equal parts, or the nodes are no power of two.
    """
    if node_bytes < 1 or node_bytes % (2 * LANES):
        raise DemandError(f"{node_bytes} bytes to each node", f"give a multiple of {2 * LANES}")
    rounds = [
        ExchangeRound(
            tuple(
                tuple(_hop(ring, node, node ^ w, lane) for node in range(ring.nodes)) for lane in range(LANES)
            ),
            _nodes(ring),
            w,
            node_bytes,
        )
        for w in (each.distance for each in exchange_rounds(ring.nodes))
    ]
    sending = [Collective(f"round {number}", sent) for number, sent in enumerate(rounds, start=1)]
    return _job(ring, node_bytes, sending)


def ring_job(ring: KHopRing, node_bytes: int, *, both_ways: bool) -> Job:
    """Return the all-to-all over the ring of all nodes, a collective ``ring``.

    Parameters
    ----------
    ring, node_bytes
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
    pattern = RingAllToAll(forward, node_bytes, back if both_ways else (), _nodes(ring))
    return _job(ring, node_bytes, [Collective("ring", pattern)])


def _hop(ring: KHopRing, node: int, after: int, lane: int) -> Hop:
    near, far = ring.lanes(node, after)[lane]
    return near.server, far.server


def _nodes(ring: KHopRing) -> Nodes:
    r = ring.gpus_per_node
    return tuple(tuple(range(node * r, node * r + r)) for node in range(ring.nodes))


def _job(ring: KHopRing, node_bytes: int, sending: list[Collective]) -> Job:
    name = f"all-to-all, {ring.nodes} nodes, {node_bytes / 1e6:g} MB"
    note = f"between nodes of {ring.gpus_per_node} GPUs; from every node to every node"
    return chain(name, ring.nodes * ring.gpus_per_node, tuple(sending), note)
