"""A trace's collectives over TopoOpt's circuits with real packets: rings go direct, transfers are relayed."""

from dataclasses import replace

import pytest

from scenarios._topoopt.relaying import relaying
from scenarios._topoopt.trace_rings import circuits_table, trace_scenario
from testbed.experiment.dilation import Dilation
from testbed.network.network import Network
from testbed.trust.trial import tried
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from topologies.patch_panel import patch_panel_fabric
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.job import Collective, Job

pytestmark = [pytest.mark.emulation, pytest.mark.slow]

DILATION = Dilation(rate=2e-4, volume=1e-2)
"""20 Mbit/s."""
MB = 1_000_000


@pytest.mark.real_cpus
def test_groups_of_a_step_share_its_rings_and_transfers_are_relayed(
    sandbox: Box | None, machine: Machine
) -> None:
    """Four servers of two GPUs, whose circuits are a ring: 0 and 2 have none with each other."""
    fabric = patch_panel_fabric(4, nics=2, rate_bps=100e9)
    sums = [Ring((tuple(range(rail, 8, 2)),), 40 * MB) for rail in range(2)]
    summed = tuple(Collective(f"sum {rail}", ring) for rail, ring in enumerate(sums))
    across = Collective("across", PointToPoint(((0, 4, 160 * MB),)), ("sum 0", "sum 1"))
    (experiment,) = trace_scenario(Job("step", 8, (*summed, across)), fabric, "title", [0]).experiments
    asked = replace(experiment, dilation=DILATION)
    with Network(fabric, DILATION.rate, host=asked.host, routing=asked.bound_routing) as network:
        outcome = tried(asked, network)
    assert outcome.is_sound, outcome.verdict.reasons
    ring_bytes, relayed_bytes = 2 * 2 * 3 * 40 * MB, 160 * MB
    tax = (ring_bytes + 2 * relayed_bytes) / (ring_bytes + relayed_bytes)
    assert relaying(outcome).counted_tax == pytest.approx(tax, rel=0.05), "as interfaces have counted"
    rows = circuits_table(outcome).set_index("kind")
    assert rows["hops"].to_dict() == {"ring all-reduce": 1.0, "point to point": 2.0}
    assert machine.busy or (rows["busbw"] / rows["circuits"]).between(0.85, 1.02).all()
