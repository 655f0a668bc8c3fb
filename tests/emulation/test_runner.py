"""The runner over a booted network: the same decisions as over fluids, and times near theirs."""

import pytest

from controller.circuits.devices import Darkness
from testbed.network.network import Network
from testbed.report.timeline import node_table
from testbed.run.dilation import Dilation
from testbed.run.fluid_backend import FluidBackend
from testbed.run.live_backend import LiveBackend
from testbed.run.runner import Run, Runner
from tests.emulation.box import Box
from tests.testbed.run_cases import DELAY_S, Case, moe, ring
from topologies.errors import StuckError
from traffic.collectives.point_to_point import PointToPoint
from traffic.job import Collective, Job

pytestmark = pytest.mark.emulation

DILATION = Dilation(rate=1e-4, volume=4e-3)
"""10 Mbit/s; 10 ms of an OCS are 0.4 s, a GPU's 20 ms of compute 0.8 s."""


def live(case: Case) -> Run:
    """Run a case over a network."""
    with Network(case.fabric, DILATION.rate) as network:
        for ocs in case.delay_s:
            network.northbound.set_darkness(ocs, Darkness("drawn", DILATION.emulated_s(DELAY_S)))
        with LiveBackend(network, DILATION) as backend:
            return case.run(backend)


def test_a_job_that_nothing_can_carry_is_named(sandbox: Box | None) -> None:
    case = ring()
    job = Job("drawn", 3, (Collective("a", PointToPoint(((0, 1, 1_000_000),))),))
    with (
        Network(case.fabric, DILATION.rate) as network,
        LiveBackend(network, DILATION, stuck_s=1.0) as backend,
        pytest.raises(StuckError, match=r"queue pair 0\.0>1\.1#0 waits for light, and none is to come"),
    ):
        Runner(case.fabric, job, backend, case.scheme).run()


def decisions(run: Run) -> list[tuple[str, str]]:
    """Return what happened to circuits and by faults, without times; at one instant in any order."""
    return [tuple(row) for row in run.events[["what", "which"]].sort_values(["what", "which"]).to_numpy()]


@pytest.mark.parametrize(
    "case", [pytest.param(moe(), marks=pytest.mark.real_cpus, id="moe"), pytest.param(ring(), id="ring")]
)
def test_a_job_runs_as_its_fluids_do(sandbox: Box | None, case: Case) -> None:
    fluid, emulated = case.run(FluidBackend(case.fabric, case.delay_s)), live(case)
    assert decisions(emulated) == decisions(fluid)
    ratio = node_table(emulated, fluid)["over_predicted"]
    assert ratio.between(0.9, 1.2).all(), ratio
    same = emulated.messages["path"].str.findall(r"@(\S+)") == fluid.messages["path"].str.findall(r"@(\S+)")
    assert same[fluid.messages["end_s"].notna()].mean() > 0.9  # what a fault catches is a matter of moments
    done = [run.messages["end_s"].notna() for run in (emulated, fluid)]
    assert (done[0] == done[1]).all()
