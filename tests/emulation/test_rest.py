"""What schedules leave over, over a booted network: circuits and packets beside their prediction."""

import numpy as np
import pytest

from controller.circuits.devices import ReconfigurationDelay
from testbed.core.backend import Backend
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.experiment.dilation import Dilation
from testbed.live.backend import LiveBackend
from testbed.model.backend import FluidBackend
from testbed.network.network import Network
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from tests.testbed.rest_cases import DELAY_S, Rest, by_kind, halves_case, legs_of, partial_case
from tests.testbed.run_cases import When, ring
from topologies.errors import ScenarioError, StuckError
from topologies.events import NodeStarted, Show, TimedCircuits
from topologies.fabric import Fabric, Link, Port, Switch, equal_servers
from traffic.collectives.point_to_point import PointToPoint
from traffic.job import Collective, Job
from traffic.scheme import OverCircuits

pytestmark = [pytest.mark.emulation, pytest.mark.early]

DILATION = Dilation(rate=1e-4, volume=2e-3)
"""10 Mbit/s over circuits; 10 ms of an OCS are 0.2 s."""


def live(case: Rest) -> tuple[Run, int]:
    """Run a case over a network; return also what TCP delivered [bytes, emulated]."""
    with Network(case.fabric, DILATION.rate) as network:
        for ocs in case.delay_s:
            network.northbound.set_delay(ocs, ReconfigurationDelay("drawn", DILATION.emulated_s(DELAY_S)))
        with LiveBackend(network, DILATION) as backend:
            return case.run(backend), backend.health.payload_bytes


@pytest.mark.real_cpus
@pytest.mark.parametrize("policy", [pytest.param("ecmp", marks=pytest.mark.slow), "minrtt"])
def test_what_a_plan_leaves_over_goes_over_packets_once(
    sandbox: Box | None, machine: Machine, policy: str
) -> None:
    case = partial_case(policy)
    predicted = case.run(FluidBackend(case.fabric, case.delay_s))
    run, tcp_bytes = live(case)
    carried, expected = (by_kind(case.fabric, each.messages["path"].tolist()) for each in (run, predicted))
    assert (carried.sum(axis=1) == run.messages["bytes"]).all()
    assert ((carried > 0) == (expected > 0)).all()
    # Slots are a little longer than planned, so circuits carry a little more.
    assert machine.busy or np.allclose(carried, expected, atol=0.1 * run.messages["bytes"].max())
    assert tcp_bytes == pytest.approx(carried[:, 1].sum() * DILATION.volume, rel=0.001)
    assert machine.busy or 0.9 < run.iteration_s / predicted.iteration_s < 1.15


@pytest.mark.real_cpus
def test_without_packets_the_same_plan_ends_in_clean_up_rounds(sandbox: Box | None, machine: Machine) -> None:
    case = partial_case(None, packets=False)
    predicted = case.run(FluidBackend(case.fabric, case.delay_s))
    run, tcp_bytes = live(case)
    carried = by_kind(case.fabric, run.messages["path"].tolist())
    assert (carried[:, 0] == run.messages["bytes"]).all()
    assert tcp_bytes == 0
    shown = int(np.flatnonzero(run.events["what"] == "shown")[0])
    assert "lit" in set(run.events["what"][shown:])
    # The plan's last slots are lit a tenth and 50 ms longer, for bytes that are late: here that is not all.
    assert machine.busy or 0.9 < run.iteration_s / predicted.iteration_s < 1.3


@pytest.mark.real_cpus
def test_packets_carry_beside_circuits_what_no_circuit_joins(sandbox: Box | None, machine: Machine) -> None:
    case = halves_case()
    predicted = case.run(FluidBackend(case.fabric, case.delay_s))
    run, _ = live(case)
    carried = by_kind(case.fabric, run.messages["path"].tolist())
    assert carried[1].tolist() == [0, run.messages["bytes"][1]]
    assert carried[0].sum() == run.messages["bytes"][0]
    assert machine.busy or (run.messages["end_s"] / predicted.messages["end_s"]).between(0.9, 1.15).all()


def two_each() -> Fabric:
    """Return two servers with two NICs each on one OCS."""
    links = tuple(
        Link(Port(f"h{server}", nic), Port("ocs0", 2 * server + nic), 100e9)
        for server in range(2)
        for nic in range(2)
    )
    return Fabric("two each", equal_servers(2, 2, 1, 3.6e12), (Switch("ocs0", 4, "ocs"),), links)


def unequal() -> Fabric:
    """Return two servers on two OCSes, of which one has links at a quarter of the other's rate."""
    links = tuple(
        Link(Port(f"h{server}", nic), Port(f"ocs{nic}", server), rate_bps)
        for server in range(2)
        for nic, rate_bps in enumerate((100e9, 25e9))
    )
    switches = tuple(Switch(f"ocs{nic}", 2, "ocs") for nic in range(2))
    return Fabric("unequal", equal_servers(2, 2, 1, 3.6e12), switches, links)


TWICE = TimedCircuits(((0, 2), (1, 3)), 0.005), TimedCircuits(((0, 3), (1, 2)), 0.005)
ONCE = (TimedCircuits(((0, 1),), 0.016),)


@pytest.mark.real_cpus
@pytest.mark.parametrize(
    ("fabric", "programs"),
    [
        pytest.param(two_each(), (("ocs0", TWICE),), id="two NICs on one OCS"),
        pytest.param(unequal(), (("ocs0", ONCE), ("ocs1", ONCE)), id="unequal OCSes"),
    ],
)
def test_a_message_takes_all_that_is_lit_at_its_rate(
    sandbox: Box | None,
    machine: Machine,
    fabric: Fabric,
    programs: tuple[tuple[str, tuple[TimedCircuits, ...]], ...],
) -> None:
    job = Job("one", 2, (Collective("a", PointToPoint(((0, 1, 250_000_000),))),))
    circuits = When({NodeStarted("a"): (Show(programs),)})

    def run(backend: Backend) -> Run:
        return Simulation(fabric, job, backend, OverCircuits(), circuits=circuits).run()

    predicted = run(FluidBackend(fabric, {ocs: DELAY_S for ocs, _ in programs}))
    scale = Dilation(rate=1e-4, volume=1e-2)
    with Network(fabric, scale.rate) as network:
        for ocs, _ in programs:
            network.northbound.set_delay(ocs, ReconfigurationDelay("drawn", scale.emulated_s(DELAY_S)))
        with LiveBackend(network, scale) as backend:
            emulated = run(backend)
    legs, expected = (
        {leg[1:]: leg[0] for leg in legs_of(fabric, each.messages["path"][0])}
        for each in (emulated, predicted)
    )
    assert sum(legs.values()) == 250_000_000
    assert machine.busy or legs == {ends: pytest.approx(size, rel=0.15) for ends, size in expected.items()}
    assert machine.busy or 0.9 < emulated.iteration_s / predicted.iteration_s < 1.15


def test_programs_over_ocses_in_series_are_refused(sandbox: Box | None) -> None:
    case = ring()
    job = Job("one", 3, (Collective("a", PointToPoint(((0, 1, 1_000_000),))),))
    circuits = When({NodeStarted("a"): (Show((("a", (TimedCircuits(((0, 3),), 0.01),)),)),)})
    with (
        Network(case.fabric, DILATION.rate) as network,
        LiveBackend(network, DILATION) as backend,
        pytest.raises(ScenarioError, match="OCS a is linked to b, and datagrams over programs cross one OCS"),
    ):
        Simulation(case.fabric, job, backend, OverCircuits(), circuits=circuits).run()


def test_what_no_program_carries_is_stuck_and_not_waited_for(sandbox: Box | None) -> None:
    job = Job("one", 2, (Collective("a", PointToPoint(((0, 1, 1_000_000),))),))
    with (
        Network(two_each(), DILATION.rate) as network,
        LiveBackend(network, DILATION) as backend,
        pytest.raises(StuckError, match="what takes circuits of programs waits for light, and none"),
    ):
        Simulation(two_each(), job, backend, OverCircuits()).run()
