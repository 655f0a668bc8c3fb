"""Light over a network: what a drain over a dead link comes to, and OCSes that are lit together."""

import pytest

from controller.circuits.devices import ReconfigurationDelay
from testbed.core.run import Run
from testbed.experiment.dilation import Dilation
from testbed.live.backend import LiveBackend
from testbed.model.backend import FluidBackend
from testbed.network.network import Network
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from tests.testbed.light_cases import A, over_a_dead_link
from tests.testbed.run_cases import Case
from tests.testbed.tables import check_tables
from topologies.events import Reconfigure

pytestmark = pytest.mark.emulation

DILATION = Dilation(rate=1e-2, volume=1e-2)
"""8 Mbit/s, and times as they are."""


def both(case: Case) -> tuple[Run, Run]:
    """Return what comes of a case over a network, and in the model."""
    with Network(case.fabric, DILATION.rate) as network:
        for ocs, delay_s in case.delay_s.items():
            network.northbound.set_delay(ocs, ReconfigurationDelay("drawn", DILATION.emulated_s(delay_s)))
        with LiveBackend(network, DILATION, faults=case.faults) as backend:
            run = case.run(backend)
        check_tables(run.tables)
    return run, case.run(FluidBackend(case.fabric, case.delay_s))


def happened(run: Run) -> list[tuple[str, str]]:
    """Return what happened, in order."""
    return list(zip(run.events["what"], run.events["which"], strict=True))


def test_a_lane_over_a_dead_link_is_closed_at_the_deadline(sandbox: Box | None, machine: Machine) -> None:
    run, predicted = both(over_a_dead_link(None, Reconfigure({"ocs0": (), "ocs1": A}, 0.1)))
    assert happened(run) == happened(predicted)
    assert machine.busy or 0.9 < run.messages["end_s"].max() / predicted.messages["end_s"].max() < 1.15


def test_what_is_refused_at_the_deadline_goes_on_as_before(sandbox: Box | None) -> None:
    """TCP repeats what the dead link lost only after a timeout, so when it ends is not compared."""
    run, predicted = both(over_a_dead_link(0.5, Reconfigure({"ocs0": (), "ocs1": A}, 0.1, "refuse")))
    assert happened(run) == happened(predicted)
    assert run.messages["end_s"].notna().all()
