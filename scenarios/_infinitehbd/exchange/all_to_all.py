"""All-to-alls between the nodes of a K-hop ring: what is compared, each with its closed form."""

from dataclasses import dataclass, replace
from itertools import product

from controller.circuits.devices import device_named, real_delay
from controller.circuits.round_circuits import (
    exchange_paths,
    foreseen_rounds,
    node_ring_paths,
    rounds_that_wait,
)
from testbed.experiment.experiment import Experiment
from testbed.study.options import size_bytes
from topologies.errors import ScenarioError
from topologies.khop_ring import GPU_BPS, KHopRing, khop_ring_fabric
from traffic.collectives.node_all_to_all import (
    binary_exchange_s,
    least_all_to_all_s,
    ring_all_to_all_s,
)
from traffic.scheme_setup import ONCE_LIT
from traffic.workloads.khop_all_to_all import exchange_job, ring_job

MOST_BUNDLES = 8
"""K of nodes of 8 GPUs: a binary exchange between 256 nodes."""
DELAY = real_delay(device_named("ocstrx"))
EXCHANGE, ONE_WAY, TWO_WAY = "binary exchange", "ring, one way", "ring, both ways"
RINGS = {ONE_WAY: False, TWO_WAY: True}
"""Whether a ring's bytes go both ways round."""
BY_DISTANCE = "exchange, by distance"
"""Between nodes with a bundle per distance."""


@dataclass(frozen=True)
class AllToAllPoint:
    """An all-to-all, and how long it takes by its closed form."""

    experiment: Experiment
    nodes: int
    """p."""
    node_bytes: int
    """m, from every node to every node [bytes]."""
    waiting_rounds: int
    """Rounds that wait for a reconfiguration."""
    closed_form_s: float
    least_s: float
    """Bound of all-to-alls whose nodes light one bundle each [s]."""

    @property
    def scheme(self) -> str:
        """How bytes go."""
        return self.experiment.label


def all_to_alls(
    bundles: list[int], node_gpus: int, mb: list[float], *, by_distance: bool = False
) -> list[AllToAllPoint]:
    """Return the all-to-alls between as many nodes as distances that double reach: 2^K.

    Parameters
    ----------
    bundles
        K: bundles that leave a node, and 2^K nodes; at most as many as GPUs.
    node_gpus
        R, GPUs of a node; it has as many bundles.
    mb
        Sizes from every node to every node, multiples of 4 bytes [MB].
    by_distance
        Add nodes with a bundle per distance: all rounds are lit at once, and no ring of nodes can be.

    Raises
    ------
    ScenarioError
        If there are no such bundles, or no such size.
    """
    most, sizes = min(node_gpus, MOST_BUNDLES), [*map(size_bytes, mb)]
    if strange := [count for count in bundles if not 2 <= count <= most]:
        raise ScenarioError(f"{strange[0]} bundles of nodes of {node_gpus} GPUs", f"give 2 to {most}")
    if strange := [size for size in sizes if not size or size % 4]:
        raise ScenarioError(f"{strange[0]} bytes to each node", "give multiples of 4 bytes")
    points = []
    for count, size in product(bundles, sizes):
        ring = KHopRing(1 << count, node_gpus, count, doubling=True)
        points += [_point(scheme, ring, size) for scheme in (EXCHANGE, *RINGS)]
        if by_distance:
            points.append(_point(BY_DISTANCE, replace(ring, by_distance=True), size))
    return points


def _point(scheme: str, ring: KHopRing, node_bytes: int) -> AllToAllPoint:
    if scheme in RINGS:
        both_ways, waiting = RINGS[scheme], 0
        job = ring_job(ring, node_bytes, both_ways=both_ways)
        lit = [(job.collectives[0].name, node_ring_paths(ring))]
        closed_form_s = ring_all_to_all_s(ring.nodes, node_bytes, GPU_BPS, both_ways=both_ways)
    else:
        job, rounds = exchange_job(ring, node_bytes), exchange_paths(ring)
        waiting = len(rounds_that_wait(rounds))
        lit = [(node.name, paths) for node, paths in zip(job.collectives, rounds, strict=True)]
        closed_form_s = binary_exchange_s(ring.nodes, node_bytes, GPU_BPS, dark_s=waiting * DELAY.mean_s)
    circuits = foreseen_rounds(ring, lit, DELAY)
    experiment = Experiment(khop_ring_fabric(ring), job, ONCE_LIT, label=scheme, circuits=circuits)
    least_s = least_all_to_all_s(ring.nodes, node_bytes, GPU_BPS)
    return AllToAllPoint(experiment, ring.nodes, node_bytes, waiting, closed_form_s, least_s)
