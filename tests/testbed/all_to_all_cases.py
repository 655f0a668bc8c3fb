"""All-to-alls between the nodes of a K-hop ring, with the time of each one's closed form."""

from dataclasses import dataclass

from controller.circuits.round_circuits import InRounds, exchange_paths, node_ring_paths, rounds_that_wait
from testbed.run.backend import Backend
from testbed.run.runner import Run, Runner
from topologies.fabric import Fabric
from topologies.khop_ring import GPU_BPS, KHopRing, khop_ring_fabric
from traffic.collectives.node_all_to_all import binary_exchange_s, ring_all_to_all_s
from traffic.job import Job
from traffic.workloads.khop_all_to_all import exchange_job, over_lanes, ring_job

DELAY_S = 70e-6
"""How long an OCSTrx is dark, at real scale."""
NODE_BYTES = 32_000_000


@dataclass(frozen=True)
class AllToAllCase:
    """All that a runner takes but a backend, and how long bytes are under way."""

    ring: KHopRing
    job: Job
    circuits: InRounds
    closed_form_s: float

    @property
    def fabric(self) -> Fabric:
        """What is wired."""
        return khop_ring_fabric(self.ring)

    def run(self, backend: Backend) -> Run:
        """Return what comes of it."""
        return Runner(self.fabric, self.job, backend, over_lanes(self.ring), circuits=self.circuits).run()


def exchange(bundles: int, *, by_distance: bool = False, light_s: float = 4 * DELAY_S) -> AllToAllCase:
    """Return a binary exchange between as many nodes as distances that double reach."""
    ring = KHopRing(1 << bundles, 4, bundles, True, True, by_distance)
    rounds = exchange_paths(ring)
    named = [(f"round {number}", paths) for number, paths in enumerate(rounds, start=1)]
    dark_s = DELAY_S * len(rounds_that_wait(rounds))
    closed_form_s = binary_exchange_s(ring.nodes, NODE_BYTES, GPU_BPS, dark_s=dark_s)
    return AllToAllCase(ring, exchange_job(ring, NODE_BYTES, light_s), InRounds(ring, named), closed_form_s)


def over_a_ring(bundles: int, *, both_ways: bool, light_s: float = 4 * DELAY_S) -> AllToAllCase:
    """Return the same over the ring of the nodes."""
    ring = KHopRing(1 << bundles, 4, bundles, doubling=True)
    circuits = InRounds(ring, [("ring", node_ring_paths(ring))])
    closed_form_s = ring_all_to_all_s(ring.nodes, NODE_BYTES, GPU_BPS, both_ways=both_ways)
    job = ring_job(ring, NODE_BYTES, light_s, both_ways=both_ways)
    return AllToAllCase(ring, job, circuits, closed_form_s)


def sent_s(run: Run) -> float:
    """Return how long the collectives took, with what they waited for circuits [s]."""
    sending = run.tasks[run.tasks["gpu"] == -1]
    return float(sending["end_s"].max() - sending["start_s"].min())
