"""A static patch panel over a booted network: what servers forward takes the routes and time predicted."""

from dataclasses import replace

import pytest

from testbed.experiment.dilation import Dilation
from testbed.live.emulate import emulate
from testbed.model.predict import predict
from testbed.network.network import Network
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from tests.testbed.panel_cases import panel_step, took_s
from traffic.transports.host_settings import TransportSetup

pytestmark = pytest.mark.emulation

DILATION = Dilation(rate=1e-3, volume=0.02)
"""10 Mbit/s; 1 ms of the panel's is 20 ms."""


@pytest.mark.real_cpus
def test_forwarded_bytes_take_the_time_predicted(sandbox: Box | None, machine: Machine) -> None:
    """Four servers in a ring: each sends to the one opposite through both neighbours."""
    experiment = replace(
        panel_step(0, servers=4, nics=2, gpus=2), dilation=DILATION, transport=TransportSetup("credit")
    )
    with Network(experiment.fabric, DILATION.rate, host=experiment.host, mtu=experiment.mtu) as network:
        found = emulate(experiment, network).run
    predicted = predict(experiment)
    assert found.messages["end_s"].notna().all()
    assert (found.messages["path"] == predicted.messages["path"]).all()
    assert found.messages["path"].str.contains("h1:").any(), "server 1 forwards"
    for node in ("all-to-all", "ring"):
        assert machine.busy or 0.9 < took_s(found, node) / took_s(predicted, node) < 1.2, node
