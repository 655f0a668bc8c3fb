"""A GPU and a server are lost in mid-step over a booted network: all bytes arrive where others took over."""

from dataclasses import replace

import pytest

from testbed.experiment.dilation import Dilation
from testbed.network.network import Network
from testbed.trust.trial import tried
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from tests.testbed.moved_cases import GPU_MOVES, HEALTHY, SERVER_MOVES, losing
from tests.testbed.test_moved import check
from traffic.transports.host_settings import TransportSetup

pytestmark = [pytest.mark.emulation, pytest.mark.real_cpus]

DILATION = Dilation(rate=0.2, volume=0.2)
"""10 Mbit/s, in real time."""


def test_what_is_lost_in_mid_step_arrives_elsewhere(sandbox: Box | None, machine: Machine) -> None:
    healthy = replace(HEALTHY, dilation=DILATION, transport=TransportSetup("credit"))
    with Network(healthy.fabric, DILATION.rate, host=healthy.host) as network:
        for moves in (GPU_MOVES, SERVER_MOVES):
            experiment = losing(healthy, moves, 0.26, detect_s=0.02)
            outcome = tried(experiment, network)
            emulated, predicted = outcome.run, outcome.predicted
            check(experiment, emulated, moves)
            happened = [events.set_index("what")["which"] for events in (emulated.events, predicted.events)]
            assert happened[0]["given up"] == happened[1]["given up"] == "F0 0.0 l0 dispatch"
            assert machine.busy or emulated.iteration_s == pytest.approx(predicted.iteration_s, rel=0.1)
