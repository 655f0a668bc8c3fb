"""All-to-alls between nodes over the fluid backend: the times of their closed forms, circuits and all."""

import pytest

from controller.circuits.round_circuits import InRounds, exchange_paths, node_ring_paths, rounds_that_wait
from testbed.run.fluid_backend import FluidBackend
from testbed.run.runner import Run, Runner
from topologies.khop_ring import GPU_BPS, KHopRing, khop_ring_fabric
from traffic.collectives.node_all_to_all import binary_exchange_s, ring_all_to_all_s
from traffic.job import Job
from traffic.workloads.khop_all_to_all import exchange_job, over_lanes, ring_job

DELAY_S, NODE_BYTES = 70e-6, 32_000_000
LIGHT_S = 4 * DELAY_S


def sent_s(run: Run) -> float:
    """Return how long the collectives took, those that wait for circuits included [s]."""
    sending = run.tasks[run.tasks["gpu"] == -1]
    return float(sending["end_s"].max() - sending["start_s"].min())


def carried(ring: KHopRing, job: Job, circuits: InRounds) -> Run:
    fabric = khop_ring_fabric(ring)
    backend = FluidBackend(fabric, {ocs.name: DELAY_S for ocs in fabric.switches})
    return Runner(fabric, job, backend, over_lanes(ring), circuits=circuits).run()


@pytest.mark.parametrize("by_distance", [False, True])
@pytest.mark.parametrize("bundles", [2, 3, 4])
def test_a_binary_exchange_takes_its_closed_form_and_a_delay_for_each_round_that_waits(
    bundles: int, by_distance: bool
) -> None:
    ring = KHopRing(1 << bundles, 4, bundles, True, True, by_distance)
    rounds = exchange_paths(ring)
    named = [(f"round {number}", paths) for number, paths in enumerate(rounds, start=1)]
    run = carried(ring, exchange_job(ring, NODE_BYTES, LIGHT_S), InRounds(ring, named))
    dark_s = DELAY_S * len(rounds_that_wait(rounds))
    expected_s = binary_exchange_s(ring.nodes, NODE_BYTES, GPU_BPS, dark_s=dark_s)
    assert sent_s(run) == pytest.approx(expected_s, rel=1e-9)


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("bundles", [2, 3, 4])
def test_a_ring_takes_its_closed_form(bundles: int, both_ways: bool) -> None:
    ring = KHopRing(1 << bundles, 4, bundles, doubling=True)
    circuits = InRounds(ring, [("ring", node_ring_paths(ring))])
    run = carried(ring, ring_job(ring, NODE_BYTES, LIGHT_S, both_ways=both_ways), circuits)
    expected_s = ring_all_to_all_s(ring.nodes, NODE_BYTES, GPU_BPS, both_ways=both_ways)
    assert sent_s(run) == pytest.approx(expected_s, rel=1e-9)
