"""Verdicts of disturbed runs: each has the right words, and an undisturbed one is faithful."""

from dataclasses import replace

import pytest

from controller.circuits.devices import ReconfigurationDelay
from scenarios._bench.honesty import CASES, cases_over
from testbed.experiment.dilation import Dilation
from testbed.machine.datapath import Datapath, datapath_named, default_datapath
from testbed.trust.control import control
from testbed.trust.fidelity import CONTROL
from testbed.trust.light_control import light_control
from testbed.trust.outcome import Outcome
from tests.emulation.box import Box
from tests.emulation.conftest import Booted
from tests.emulation.machine import Machine
from tests.testbed.ocs_cases import planned
from topologies.fabric import Fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.scheme_setup import WhileLitSetup
from traffic.transports.slots import Margins
from traffic.workloads.synthetic import uniform

pytestmark = pytest.mark.emulation

DATAPATHS = tuple(dict.fromkeys([default_datapath(), datapath_named("route")]))
RUNS = [(datapath, name) for datapath in DATAPATHS for name in cases_over(datapath)]


@pytest.mark.real_cpus
@pytest.mark.parametrize(("datapath", "name"), RUNS)
def test_the_right_things_are_said(
    sandbox: Box | None, machine: Machine, datapath: Datapath, name: str
) -> None:
    outcome = CASES[name].outcome(datapath)
    said = outcome.verdict, outcome.over_predicted, outcome.findings, outcome.measures
    undisturbed = "faithful" in CASES[name].words
    assert CASES[name].right(outcome) or (undisturbed and excused(outcome, machine)), said
    assert (outcome.free is None) == (name != "polarised"), "paths are those of the hash unless it is changed"


def excused(outcome: Outcome, machine: Machine) -> bool:
    """Return whether a run is rightly said not to be faithful, though nothing was meant to disturb it.

    What takes longer than is known of it, or waits for a CPU, is disturbed by what else this machine does.
    """
    disturbed = machine.busy or abs(outcome.measures.control_error) > CONTROL.strained
    return disturbed and outcome.verdict.word != "faithful"


@pytest.mark.real_cpus
@pytest.mark.parametrize(
    ("fabric", "datagrams"),
    [(rail_fabric(4, 2, 2), False), (rail_fabric(4, 2, 2), True), (leaf_spine_fabric(4, 2, 2), True)],
)
def test_a_control_takes_the_time_that_is_known(
    booted: Booted, machine: Machine, fabric: Fabric, datagrams: bool
) -> None:
    with booted(fabric, 1e-4) as net:
        tries = (control(net.network, hop_bps, datagrams=datagrams) for hop_bps in (40e6, 80e6, 80e6))
        done = [found for found in tries if found]
    assert len(done) == 3
    assert machine.busy or [each.error for each in done] == pytest.approx([0.0] * 3, abs=0.05)
    rates_bps = [each.hop_bps for each in done]
    assert rates_bps[0] < rates_bps[1] == rates_bps[2]


@pytest.mark.real_cpus
@pytest.mark.parametrize("ocses", [1, 4])
def test_a_control_over_ocses_takes_the_time_that_is_known(
    booted: Booted, machine: Machine, ocses: int
) -> None:
    """Slots have the margins of a slow machine: those of a fast one are for what a run has measured.

    One of three may be late: a slot that lacks a packet, as the engine waited for a CPU, takes a round more.
    """
    fabric, delay = parallel_ocs_fabric(6, ocses), ReconfigurationDelay("delay", 1e-3)
    full = planned(fabric, uniform(6), "spectra", delay, Dilation(2e-4, 8e-3))
    experiment = replace(full, scheme=WhileLitSetup(margins=Margins(0.012, 0.013)))
    with booted(fabric, experiment.dilation.rate) as net:
        controls = [light_control(net.network, experiment) for _ in range(3)]
    errors = [control.error for control in controls if control]
    assert len(errors) == 3
    assert machine.busy or sorted(errors)[:2] == pytest.approx([0.0] * 2, abs=0.05)


def test_a_server_alone_has_no_control(booted: Booted) -> None:
    with booted(rail_fabric(1, 2)) as net:
        assert control(net.network, 1e6) is None
