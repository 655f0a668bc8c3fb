"""A collective takes the time that is predicted, over the computed paths."""

import pytest

from testbed.live.emulate import emulate
from testbed.model.predict import predict
from tests.emulation.conftest import Booted
from tests.emulation.machine import Machine
from tests.emulation.test_collective import DILATION, assert_all_arrived, computed, experiment
from topologies.rail import rail_fabric

pytestmark = [pytest.mark.emulation, pytest.mark.real_cpus]


@pytest.mark.parametrize("policy", ["rails", "ecmp"])
def test_bytes_are_conserved_and_take_the_predicted_time(
    booted: Booted, machine: Machine, policy: str
) -> None:
    asked = experiment(rail_fabric(4, 2, 2), policy)
    with booted(asked.fabric, DILATION.rate) as net:
        emulation = emulate(asked, net.network)
    assert_all_arrived(emulation, asked)
    assert emulation.paths == computed(asked)
    predicted_s = predict(asked).records["end_s"].max()
    assert machine.busy or 0.9 < emulation.run.records["end_s"].max() / predicted_s < 1.15
