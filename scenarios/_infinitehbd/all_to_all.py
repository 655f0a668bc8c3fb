"""All-to-alls between the nodes of a K-hop ring: what is compared, each with its closed form."""

from collections.abc import Sequence
from dataclasses import dataclass

from controller.circuits.devices import device_named, real_delay
from controller.circuits.ring_circuits import Paths
from controller.circuits.round_circuits import (
    exchange_paths,
    foreseen_rounds,
    node_ring_paths,
    rounds_that_wait,
)
from testbed.run.experiment import Experiment
from topologies.khop_ring import GPU_BPS, KHopRing, khop_ring_fabric
from traffic.collectives.node_all_to_all import (
    binary_exchange_s,
    least_all_to_all_s,
    ring_all_to_all_s,
)
from traffic.job import Job
from traffic.scheme_setup import ONCE_LIT
from traffic.workloads.khop_all_to_all import exchange_job, ring_job

DELAY = real_delay(device_named("ocstrx"))
EXCHANGE, ONE_WAY, TWO_WAY = "binary exchange", "ring, one way", "ring, both ways"
BY_DISTANCE = "exchange, by distance"
"""Between nodes with a bundle per distance."""


@dataclass(frozen=True)
class Point:
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
    """What no all-to-all beats whose nodes light one bundle each [s]."""

    @property
    def scheme(self) -> str:
        """How bytes go."""
        return self.experiment.label


def all_to_alls(bundles: int, node_bytes: int, gpus_per_node: int, *, by_distance: bool) -> list[Point]:
    """Return the all-to-alls between as many nodes as distances that double reach: 2^K.

    Parameters
    ----------
    bundles
        K, bundles that leave a node.
    node_bytes
        From every node to every node [bytes].
    gpus_per_node
        R.
    by_distance
        Whether to add the exchange on nodes that have a bundle per distance.
    """
    ring = KHopRing(1 << bundles, gpus_per_node, bundles, doubling=True)
    points = [
        _exchange(EXCHANGE, ring, node_bytes),
        _ring(ONE_WAY, ring, node_bytes, both_ways=False),
        _ring(TWO_WAY, ring, node_bytes, both_ways=True),
    ]
    if by_distance:
        paired = KHopRing(1 << bundles, gpus_per_node, bundles, doubling=True, by_distance=True)
        points.append(_exchange(BY_DISTANCE, paired, node_bytes))
    return points


def _exchange(scheme: str, ring: KHopRing, node_bytes: int) -> Point:
    job, rounds = exchange_job(ring, node_bytes), exchange_paths(ring)
    waiting = len(rounds_that_wait(rounds))
    lit = [(node.name, paths) for node, paths in zip(job.collectives, rounds, strict=True)]
    closed_form_s = binary_exchange_s(ring.nodes, node_bytes, GPU_BPS, dark_s=waiting * DELAY.mean_s)
    return _point(scheme, ring, node_bytes, job, lit, waiting, closed_form_s)


def _ring(scheme: str, ring: KHopRing, node_bytes: int, *, both_ways: bool) -> Point:
    job = ring_job(ring, node_bytes, both_ways=both_ways)
    lit = [(job.collectives[0].name, node_ring_paths(ring))]
    closed_form_s = ring_all_to_all_s(ring.nodes, node_bytes, GPU_BPS, both_ways=both_ways)
    return _point(scheme, ring, node_bytes, job, lit, 0, closed_form_s)


def _point(
    scheme: str,
    ring: KHopRing,
    node_bytes: int,
    job: Job,
    lit: Sequence[tuple[str, Paths]],
    waiting: int,
    closed_form_s: float,
) -> Point:
    circuits = foreseen_rounds(ring, lit, DELAY)
    experiment = Experiment(khop_ring_fabric(ring), job, ONCE_LIT, label=scheme, circuits=circuits)
    least_s = least_all_to_all_s(ring.nodes, node_bytes, GPU_BPS)
    return Point(experiment, ring.nodes, node_bytes, waiting, closed_form_s, least_s)
