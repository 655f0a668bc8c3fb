"""AllReduces on TopoOpt's testbed of 12 servers with real packets: on rings of their own, and relayed."""

from dataclasses import replace

import pytest

from scenarios._topoopt.relaying import relaying
from scenarios._topoopt.testbed.points import DIRECT, RELAYED
from scenarios.topoopt_testbed import topoopt_testbed
from testbed.experiment.dilation import Dilation
from testbed.network.network import Network
from testbed.trust.trial import tried
from tests.emulation.box import Box
from tests.emulation.machine import Machine

pytestmark = pytest.mark.emulation

RATE = 4.8e-4
"""Interfaces have 12 Mbit/s, as the scenario gives them."""
VOLUMES = {DIRECT: 1.5e-2, RELAYED: 8e-3}
"""Steps of 14 and of 30 packets: each takes some milliseconds besides its bytes."""


@pytest.mark.real_cpus
def test_rings_have_their_circuits_and_relayed_bytes_are_on_the_wire_twice(
    sandbox: Box | None, machine: Machine
) -> None:
    scenario = topoopt_testbed(models="none")
    experiments = [
        replace(each, dilation=Dilation(RATE, VOLUMES[each.job.name])) for each in scenario.experiments
    ]
    assert [each.job.name for each in experiments] == list(VOLUMES)
    first = experiments[0]
    with Network(first.fabric, RATE, host=first.host, routing=first.bound_routing) as network:
        outcomes = [tried(each, network) for each in experiments]
    for outcome, tax in zip(outcomes, (1.0, 2.0), strict=True):
        assert outcome.is_sound, outcome.verdict.reasons
        found = relaying(outcome)
        assert found.computed_tax == tax
        assert found.counted_tax == pytest.approx(tax, rel=0.05), "as interfaces have counted"
        assert machine.busy or 0.85 < outcome.over_predicted < 1.2
    assert outcomes[1].measures.switch_cpu > 0
