"""NICs that fail under delegated all-to-alls: what is left arrives, and circuits go without them."""

from dataclasses import replace

import pytest

from testbed.run.predict import predict
from tests.testbed.region_cases import toy_experiment, toy_step
from topologies.fabric import Nic
from traffic.faults import Fault


@pytest.mark.parametrize("nic", [0, 1])
def test_steps_without_a_nic_from_the_start_are_coupled(nic: int) -> None:
    experiment = toy_experiment(toy_step(ranks=4, layers=1), servers=4, alpha=1, packet_nics=2)
    fault = Fault("lost", (experiment.fabric.nic_port(Nic(0, nic)),))
    standing = replace(experiment, faults=(fault,))
    coupled, lanes = (predict(standing, couples=couples) for couples in (True, False))
    assert len(coupled.messages) < len(lanes.messages)
    assert coupled.iteration_s == pytest.approx(lanes.iteration_s, rel=0.02)
    later = replace(standing, faults=(replace(fault, after_s=1e-9),))
    assert predict(later, couples=True).iteration_s == pytest.approx(lanes.iteration_s)
    assert coupled.iteration_s >= predict(experiment, couples=True).iteration_s
