"""What token buckets lend: at 3 Mbit/s two packets are 48 ms, in the prediction as on the wire."""

import numpy as np
import pytest

from testbed.run.dilation import Dilation
from testbed.run.experiment import Experiment
from testbed.run.outcome import Outcome
from testbed.run.trial import tried
from tests.emulation.conftest import Booted
from tests.emulation.machine import Machine
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.steps import Step, job_of_steps
from traffic.transports.host_settings import TransportSetup
from traffic.transports.transport import PACKET_BYTES

pytestmark = [pytest.mark.emulation, pytest.mark.real_cpus]

SLOW = rail_fabric(4, 1, 0, rate_bps=3e6)
STEP_PACKETS = 24
STEPS = 3


def shifted(booted: Booted) -> Outcome:
    """Return what came of steps in which every NIC sends to the next: three times half a second."""
    size = STEP_PACKETS * PACKET_BYTES * np.roll(np.eye(4, dtype=np.int64), 1, axis=1)
    job = job_of_steps("shifts", [Step(Demand("shift", size), 0.0)] * STEPS)
    # A receiver that grants adds round trips, which are packets here.
    asked = Experiment(SLOW, job, "ecmp", Dilation(1.0, 1.0), transport=TransportSetup("ideal"))
    with booted(SLOW, 1.0) as net:
        return tried(asked, net.network)


def test_slow_links_take_the_predicted_time_and_do_not_beat_the_bound(
    booted: Booted, machine: Machine
) -> None:
    shifts = shifted(booted)
    assert shifts.lent_s == pytest.approx(0.048, rel=0.01)
    assert machine.busy or 0.98 < shifts.cct_s / shifts.predicted_s < 1.03
    assert shifts.cct_s / shifts.bound_s > 0.98
    assert machine.busy or shifts.cct_s / shifts.bound_s < 1.03
    unlent_s = STEPS * STEP_PACKETS * PACKET_BYTES * 8 / 3e6
    assert machine.busy or shifts.cct_s < unlent_s - STEPS * 0.6 * shifts.lent_s
