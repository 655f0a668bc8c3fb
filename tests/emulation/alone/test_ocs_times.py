"""How long OCSes on the wire are dark, and that a schedule waits as long and no longer."""

import numpy as np
import pytest

from controller.circuits.devices import ReconfigurationDelay
from testbed.experiment.dilation import Dilation
from testbed.experiment.ocs_plan import plan_of
from testbed.live.emulate import emulate
from testbed.network.ocs_bench import ocs_figures
from testbed.trust.trial import tried
from tests.emulation.box import Box
from tests.emulation.conftest import Booted
from tests.testbed.ocs_cases import light_of, planned
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.demand import Demand
from traffic.transports.slots import Meeting

DELAY = ReconfigurationDelay("delay", 0.5e-3)

pytestmark = [pytest.mark.emulation, pytest.mark.real_cpus]


def test_dark_and_lit_are_the_wires(sandbox: Box | None) -> None:
    figures = ocs_figures(ports=16, delay_s=0.01, rounds=30, traffic=4)
    assert figures.strays == 0
    assert figures.early_s >= -0.001  # the probes are 0.5 ms apart
    assert figures.probes > 1000


def test_delays_drawn_short_are_predicted_as_drawn_and_no_reason_for_doubt(booted: Booted) -> None:
    fabric, demand = parallel_ocs_fabric(2, 1), np.array([[0, 100_000_000], [100_000_000, 0]])
    delay = ReconfigurationDelay("delay", 10e-3, 60e-3)
    # 160 times as slow, so that what a busy machine adds is less than what the draw is short by: 0.6 s.
    experiment = planned(fabric, Demand("one slot", demand), "spectra", delay, Dilation(2e-4, 3.2e-2))
    with booted(fabric, experiment.dilation.rate) as net:
        outcome = tried(experiment, net.network)
    shown = light_of(outcome)
    ((drawn_s,),) = shown.delays_s.values()
    assert drawn_s < 0.8 * plan_of(experiment.rule).delay_s, "the first draw of the OCSes' own seed"
    assert outcome.predicted_s == pytest.approx(drawn_s + 8e-3)
    assert drawn_s < shown.cct_s < 0.98 * plan_of(experiment.rule).lower_bound_s
    assert not any("least time possible" in reason for reason in outcome.verdict.reasons)


@pytest.mark.parametrize("meeting", ["drain", "pause", "cut"])
def test_a_schedule_delivers_every_byte(booted: Booted, meeting: Meeting) -> None:
    fabric = parallel_ocs_fabric(4, 2)
    demand = np.random.default_rng(0).integers(1, 6, (4, 4)) * 10_000_000
    np.fill_diagonal(demand, 0)
    experiment = planned(fabric, Demand("random", demand), "spectra", DELAY, Dilation(2e-4, 4e-3), meeting)
    with booted(fabric, experiment.dilation.rate) as net:
        emulation = emulate(experiment, net.network)
    shown = emulation.light
    assert shown
    assert shown.undelivered_bytes[-1] == 0
    assert emulation.run.records["bytes"].sum() == demand.sum()
    assert shown.cct_s >= plan_of(experiment.rule).lower_bound_s - plan_of(experiment.rule).delay_s
    if meeting == "drain":  # 3 ms are enough to stop
        assert shown.lost_bytes == 0
