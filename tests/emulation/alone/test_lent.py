"""What token buckets lend: at 3 Mbit/s two packets are 48 ms, in the prediction as on the wire."""

from dataclasses import replace

import numpy as np
import pytest

from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.trust.outcome import Outcome
from testbed.trust.trial import tried
from tests.emulation.conftest import Booted
from tests.emulation.machine import Machine
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.packets import DEFAULT_MTU, frame_bytes
from traffic.steps import Step, job_of_steps
from traffic.transports.host_settings import TransportSetup
from traffic.transports.transport import PACKET_BYTES

pytestmark = [pytest.mark.emulation, pytest.mark.real_cpus]

SLOW = rail_fabric(4, 1, 0, rate_bps=3e6)
STEP_PACKETS = 24
STEPS = 3
LENT_BYTES = 2 * frame_bytes(DEFAULT_MTU)
UNGRANTED = TransportSetup("ideal")
"""A receiver that grants adds round trips, which are packets here."""


def two_rates() -> Fabric:
    """Return four servers with a NIC of 3 and one of 10 Mbit/s each, on leaves of their own."""
    fabric = rail_fabric(4, 2, 0, rate_bps=3e6)
    links = (
        replace(link, rate_bps=10e6) if "leaf1" in {link.a.node, link.b.node} else link
        for link in fabric.links
    )
    return replace(fabric, links=tuple(links))


def shifted(booted: Booted) -> Outcome:
    """Return what came of steps in which every NIC sends to the next: three times half a second."""
    size = STEP_PACKETS * PACKET_BYTES * np.roll(np.eye(4, dtype=np.int64), 1, axis=1)
    job = job_of_steps("shifts", [Step(Demand("shift", size), 0.0)] * STEPS)
    asked = Experiment(SLOW, job, "ecmp", Dilation(1.0, 1.0), transport=UNGRANTED)
    with booted(SLOW, 1.0) as net:
        return tried(asked, net.network)


def test_slow_links_take_the_predicted_time_and_do_not_beat_the_bound(
    booted: Booted, machine: Machine
) -> None:
    shifts = shifted(booted)
    assert set(shifts.lent_bytes.values()) == {LENT_BYTES}
    assert machine.busy or 0.98 < shifts.cct_s / shifts.predicted_s < 1.03
    assert shifts.cct_s / shifts.bound_s > 0.98
    assert machine.busy or shifts.cct_s / shifts.bound_s < 1.03
    unlent_s = STEPS * STEP_PACKETS * PACKET_BYTES * 8 / 3e6
    assert machine.busy or shifts.cct_s < unlent_s - STEPS * 0.6 * 8 * LENT_BYTES / 3e6


def test_a_fast_nic_lends_its_own_two_packets(booted: Booted, machine: Machine) -> None:
    """14 ms at its rate; what the slow one's take, 48 ms, were a quarter of what is sent here."""
    fabric = two_rates()
    sends = np.zeros((8, 8), dtype=np.int64)
    sends[np.arange(0, 8, 2), np.roll(np.arange(0, 8, 2), -1)] = 6 * PACKET_BYTES
    sends[np.arange(1, 8, 2), np.roll(np.arange(1, 8, 2), -1)] = 28 * PACKET_BYTES
    job = job_of_steps("two rates", [Step(Demand("shift", sends), 0.0)] * STEPS)
    asked = Experiment(fabric, job, "ecmp", Dilation(1.0, 1.0), transport=UNGRANTED)
    with booted(fabric, 1.0) as net:
        found = tried(asked, net.network)
    expected_s = STEPS * 8 * (28 * PACKET_BYTES - LENT_BYTES) / 10e6
    assert found.predicted_s == pytest.approx(expected_s, rel=0.01)
    assert machine.busy or 0.97 < found.cct_s / found.predicted_s < 1.05
    assert found.cct_s / found.bound_s > 0.97
