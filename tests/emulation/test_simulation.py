"""The simulation over a booted network: the same decisions as over fluids, and times near theirs."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from controller.circuits.devices import ReconfigurationDelay
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.experiment.dilation import Dilation
from testbed.live.backend import LiveBackend
from testbed.model.backend import FluidBackend
from testbed.network.network import Network
from testbed.report.nodes import node_table
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from tests.testbed.run_cases import DELAY_S, Case, moe, ring
from tests.testbed.tables import check_tables
from topologies.errors import StuckError
from topologies.events import Event, Lit, NodeStarted, Order, Reconfigure, SetTimer, TimerFired, View
from topologies.fabric import Nic
from topologies.light import duplex
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.job import Collective, Compute, Job
from traffic.job_bounds import node_bounds_s
from traffic.scheme import WholeMessages
from traffic.spraying.policy import QueuePair

pytestmark = pytest.mark.emulation

DILATION = Dilation(rate=1e-4, volume=4e-3)
"""10 Mbit/s; 10 ms of an OCS are 0.4 s, a GPU's 20 ms of compute 0.8 s."""


def live(case: Case) -> Run:
    """Run a case over a network."""
    with Network(case.fabric, DILATION.rate) as network:
        for ocs in case.delay_s:
            network.northbound.set_delay(ocs, ReconfigurationDelay("drawn", DILATION.emulated_s(DELAY_S)))
        with LiveBackend(network, DILATION) as backend:
            run = case.run(backend)
    check_tables(run.tables)
    return run


def test_a_job_that_nothing_can_carry_is_named(sandbox: Box | None) -> None:
    case = ring()
    job = Job("drawn", 3, (Collective("a", PointToPoint(((0, 1, 1_000_000),))),))
    with (
        Network(case.fabric, DILATION.rate) as network,
        LiveBackend(network, DILATION, stuck_s=1.0) as backend,
        pytest.raises(StuckError, match=r"queue pair 0\.0>1\.1#0 waits for light, and none is to come"),
    ):
        Simulation(case.fabric, job, backend, case.scheme).run()


def decisions(run: Run) -> list[tuple[str, str]]:
    """Return what happened to circuits and by faults, without times; at one instant in any order."""
    return [tuple(row) for row in run.events[["what", "which"]].sort_values(["what", "which"]).to_numpy()]


@pytest.mark.parametrize(
    "case", [pytest.param(moe(), marks=pytest.mark.real_cpus, id="moe"), pytest.param(ring(), id="ring")]
)
def test_a_job_runs_as_its_fluids_do(sandbox: Box | None, machine: Machine, case: Case) -> None:
    fluid, emulated = case.run(FluidBackend(case.fabric, case.delay_s)), live(case)
    assert decisions(emulated) == decisions(fluid)
    ratio = node_table(case.job, node_bounds_s(case.job, case.fabric), emulated, fluid)["over_predicted"]
    assert machine.busy or ratio.between(0.9, 1.2).all(), ratio
    same = emulated.messages["path"].str.findall(r"@(\S+)") == fluid.messages["path"].str.findall(r"@(\S+)")
    assert same[fluid.messages["end_s"].notna()].mean() > 0.9  # what a fault catches is a matter of moments
    done = [run.messages["end_s"].notna() for run in (emulated, fluid)]
    assert (done[0] == done[1]).all()


def test_compute_and_what_stays_inside_servers_take_their_time_to_the_moment(sandbox: Box | None) -> None:
    fabric = rail_fabric(2, 4)
    inside = [
        Collective(f"ring {first}", Ring((tuple(range(first, first + 4)),), 1_000_003)) for first in (0, 4)
    ]
    compute = Compute("compute", tuple(range(8)), 1e-6, after=("ring 0",))
    job = Job("drawn", 8, (*inside, compute, replace(inside[0], name="last", after=("compute",))))
    scheme = WholeMessages(lambda _view, a, b: QueuePair(Nic(a, 0), Nic(b, 0)))
    fluid = Simulation(fabric, job, FluidBackend(fabric, {}), scheme).run()
    with Network(fabric, DILATION.rate) as network, LiveBackend(network, DILATION) as backend:
        emulated = Simulation(fabric, job, backend, scheme).run()
    assert DILATION.emulated_s(fluid.iteration_s) < 0.001  # less than Linux waits, and it is exact
    for column in ("start_s", "end_s"):
        assert emulated.tasks[column].tolist() == pytest.approx(fluid.tasks[column].tolist(), rel=1e-6)


class Alternate:
    """Circuits that change to others and back, a while after they are lit."""

    def decide(self, state: object, view: View, event: Event) -> tuple[object, Sequence[Order]]:
        """Light one pairing after the other; the state counts them."""
        turn = state if isinstance(state, int) else 0
        if isinstance(event, NodeStarted | TimerFired):
            pairs = ((0, 1), (2, 3)) if turn % 2 == 0 else ((0, 2), (1, 3))
            return turn + 1, [Reconfigure({"ocs0": duplex(pairs)})]
        return turn, [SetTimer("change", 0.025)] if isinstance(event, Lit) else []


@pytest.mark.real_cpus
def test_queue_pairs_wait_in_the_dark_and_nothing_is_lost(sandbox: Box | None) -> None:
    fabric = parallel_ocs_fabric(4, 1)
    sent = tuple(
        (a, b, 400_000_000) for pair in ((0, 1), (2, 3), (0, 2), (1, 3)) for a, b in (pair, pair[::-1])
    )
    job = Job("drawn", 4, (Collective("a", PointToPoint(sent)),))
    scheme = WholeMessages(lambda _view, a, b: QueuePair(Nic(a, 0), Nic(b, 0)))
    scale = Dilation(rate=2e-4, volume=4e-3)
    with Network(fabric, scale.rate) as network:
        network.northbound.set_delay("ocs0", ReconfigurationDelay("drawn", 0.1))
        with LiveBackend(network, scale) as backend:
            run = Simulation(fabric, job, backend, scheme, circuits=Alternate()).run()
            health = backend.health
    assert run.events["what"].eq("lit").sum() >= 3, "what is sent does not fit into one turn of each"
    assert run.messages["end_s"].notna().all()
    assert health.payload_bytes == round(sum(size for *_, size in sent) * scale.volume)
    assert health.retransmits == 0
