"""Light over a network: what a drain over a dead link comes to, and OCSes that are lit together."""

import pytest

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.status import LogEntry
from testbed.core.run import Run
from testbed.experiment.dilation import Dilation
from testbed.live.backend import LiveBackend
from testbed.live.light_log import drawn_s
from testbed.model.backend import FluidBackend
from testbed.network.network import Network
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from tests.testbed.light_cases import A, B, over_a_dead_link, without_a_daemon
from tests.testbed.run_cases import DELAY_S, Case
from tests.testbed.tables import check_tables
from topologies.events import Reconfigure
from topologies.light import Circuit
from traffic.effects import Daemon

pytestmark = pytest.mark.emulation

DILATION = Dilation(rate=1e-2, volume=1e-2)
"""8 Mbit/s, and times as they are."""


Logs = dict[str, list[LogEntry]]


def both(case: Case) -> tuple[Run, Run, Logs]:
    """Return what comes of a case over a network, and in the model, and what OCSes did over the network."""
    with Network(case.fabric, DILATION.rate) as network:
        for ocs, delay_s in case.delay_s.items():
            network.northbound.set_delay(ocs, ReconfigurationDelay("drawn", DILATION.emulated_s(delay_s)))
        with LiveBackend(network, DILATION, faults=case.faults) as backend:
            run = case.run(backend)
        check_tables(run.tables)
        logs = {ocs: network.northbound.ocs_log(ocs) for ocs in case.delay_s}
    return run, case.run(FluidBackend(case.fabric, case.delay_s)), logs


def happened(run: Run) -> list[tuple[str, str]]:
    """Return what happened, in order."""
    return list(zip(run.events["what"], run.events["which"], strict=True))


def test_a_lane_over_a_dead_link_is_closed_at_the_deadline(sandbox: Box | None, machine: Machine) -> None:
    run, predicted, _ = both(over_a_dead_link(None, Reconfigure({"ocs0": (), "ocs1": A}, 0.1)))
    assert happened(run) == happened(predicted)
    assert machine.busy or 0.9 < run.messages["end_s"].max() / predicted.messages["end_s"].max() < 1.15


def test_what_is_refused_at_the_deadline_goes_on_as_before(sandbox: Box | None) -> None:
    """TCP repeats what the dead link lost only after a timeout, so when it ends is not compared."""
    run, predicted, _ = both(over_a_dead_link(0.5, Reconfigure({"ocs0": (), "ocs1": A}, 0.1, "refuse")))
    assert happened(run) == happened(predicted)
    assert run.messages["end_s"].notna().all()


@pytest.mark.parametrize(
    ("daemon", "shown"),
    [("controller", [A, B]), ("switches", [A, (), A, B])],
)
def test_what_was_lit_is_lit_when_a_daemon_is_back(
    sandbox: Box | None, machine: Machine, daemon: Daemon, shown: list[tuple[Circuit, ...]]
) -> None:
    run, predicted, logs = both(without_a_daemon(daemon))
    assert happened(run) == happened(predicted)
    assert [set(entry.circuits) for entry in logs["ocs0"]] == list(map(set, shown))
    assert drawn_s(logs, DILATION) == {"ocs0": pytest.approx((DELAY_S, DELAY_S)), "ocs1": (0.0,)}
    ratio = run.messages["end_s"] / predicted.messages["end_s"]
    assert machine.busy or ratio.between(0.9, 1.15).all(), ratio
