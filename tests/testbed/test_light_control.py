"""The control of schedules: slots that all ports fill take the time that is known for them."""

from dataclasses import replace

import pytest

from controller.circuits.devices import ReconfigurationDelay
from testbed.core.simulation import Simulation
from testbed.experiment.dilation import Dilation
from testbed.experiment.ocs_plan import plan_of
from testbed.model.backend import FluidBackend
from testbed.trust.light_control import LIT_S, LONGEST_DELAY_S, SLOTS, FilledSlots
from tests.testbed.ocs_cases import experiment_of, planned
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.scheme import OverCircuits
from traffic.scheme_setup import WhileLitSetup
from traffic.transports.slots import GUARD_S, START_S, Margins, header_share
from traffic.workloads.synthetic import uniform


@pytest.mark.parametrize("servers", [2, 3, 6])
@pytest.mark.parametrize("ocses", [1, 2, 4])
def test_all_light_is_used_from_the_first_dark_to_the_last_byte(servers: int, ocses: int) -> None:
    fabric = parallel_ocs_fabric(servers, ocses)
    delay = ReconfigurationDelay("delay", 1e-3)
    experiment = planned(fabric, uniform(servers), "spectra", delay, Dilation(2e-4, 4e-3))
    slots = FilledSlots(experiment)
    backend = FluidBackend(fabric, dict.fromkeys(plan_of(experiment.rule).ocses, slots.delay_s))
    run = Simulation(fabric, slots.job, backend, OverCircuits(), circuits=slots.circuits).run()
    assert slots.delay_s == pytest.approx(20e-3)
    lit_bytes = LIT_S * fabric.nic_rate_bps(fabric.nics[0]) / 8
    assert run.records["bytes"].sum() == pytest.approx(servers * ocses * SLOTS * lit_bytes, rel=1e-6)
    took_s = run.records["end_s"].max()
    assert took_s == pytest.approx(SLOTS * (20e-3 + LIT_S), rel=1e-6)
    share = header_share(plan_of(experiment.rule).emulated_rate_bps)
    margins_s = (SLOTS - 1) * (GUARD_S + START_S)
    assert slots.known_s == pytest.approx(SLOTS * (20e-3 + share * LIT_S) + margins_s)


def test_what_a_slow_machine_needs_is_known_and_no_delay_is_waited_for_long() -> None:
    experiment = experiment_of("spectra")
    wider = replace(experiment, scheme=WhileLitSetup(margins=Margins(0.01, 0.011)))
    more_s = FilledSlots(wider).known_s - FilledSlots(experiment).known_s
    assert more_s == pytest.approx(0.021 - GUARD_S - START_S)
    slow = experiment_of("spectra", delay=ReconfigurationDelay("patch", 180.0))
    assert FilledSlots(slow).known_s < SLOTS * (LONGEST_DELAY_S + 1.1 * LIT_S)
