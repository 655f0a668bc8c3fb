"""Circuits that follow a training step, over a booted network: planned, logged, and taken by packets."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scenarios._mfabric.region_plan import RegionalSetup
from testbed.core.run import Run
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.live.emulate import EmulatedRun, emulate
from testbed.live.news import News
from testbed.model.predict import predict
from testbed.network.network import Network
from testbed.trust.carried import carried, carrying, packets_in_the_dark
from tests.emulation.box import Box
from tests.emulation.machine import Machine
from tests.testbed.region_cases import (
    DELAY,
    check_bytes,
    file_step,
    lost,
    toy_experiment,
    toy_step,
    with_delay,
)
from topologies.errors import StuckError
from topologies.light import Circuit
from topologies.mfabric import mfabric_fabric
from traffic.delegated import DelegatedSetup
from traffic.demand import Demand
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup

pytestmark = pytest.mark.emulation

WORKED = np.array([[0, 90, 10, 20], [70, 0, 30, 40], [20, 10, 0, 25], [10, 20, 15, 0]])
"""A skewed demand between 4 servers."""
DILATION = Dilation(rate=1e-3, volume=1.0)
"""10 Mbit/s; 50 us of an OCS are 50 ms."""


def live(experiment: Experiment, lit_before: Mapping[str, Collection[Circuit]] | None = None) -> EmulatedRun:
    host = experiment.host
    with Network(experiment.fabric, DILATION.rate, host=host, mtu=experiment.mtu) as network:
        for ocs, circuits in (lit_before or {}).items():
            network.northbound.light(ocs, sorted(circuits))
            network.northbound.wait_idle(ocs, 5.0)
        return emulate(experiment, network)


def lit(run: Run) -> dict[str, list[set[Circuit]]]:
    """Return what each OCS showed, one after the other."""
    shown: dict[str, list[set[Circuit]]] = {}
    for which in run.events[run.events["what"] == "lit"]["which"]:
        ocs, *circuits = which.split()
        ends = [circuit.split(">") for circuit in circuits if circuit != "-"]
        shown.setdefault(ocs, []).append({(int(a), int(b)) for a, b in ends})
    return shown


def communication_s(run: Run) -> float:
    """Return how long all collectives take, one after the other."""
    collectives = run.tasks[run.tasks["gpu"] == -1]
    return float((collectives["end_s"] - collectives["start_s"]).sum())


def test_an_ocs_that_never_lights_what_is_ordered_ends_the_run(
    sandbox: Box | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = News.read
    monkeypatch.setattr("testbed.live.news.News.read", lambda news: read(news)[:0])
    monkeypatch.setattr("testbed.live.ocses.LIGHT_S", 0.5)
    experiment = with_delay(toy_experiment(toy_step(ranks=4), servers=4), 50e-6)
    with pytest.raises(StuckError, match=r"OCS .* did not light what was ordered within"):
        live(replace(experiment, dilation=DILATION))


@pytest.mark.real_cpus
@pytest.mark.parametrize(
    ("servers", "gpus", "alpha", "layers", "transport"),
    [(8, 1, 3, 1, "credit"), (4, 1, 2, 2, "tcp"), (4, 2, 2, 1, "credit")],
)
def test_circuits_change_as_planned(
    sandbox: Box | None, machine: Machine, servers: int, gpus: int, alpha: int, layers: int, transport: str
) -> None:
    step = toy_step(ranks=servers * gpus, layers=layers, sparsity=0.4)
    assert_as_planned(toy_experiment(step, servers=servers, gpus=gpus, alpha=alpha), transport, machine)


@pytest.mark.real_cpus
def test_a_workload_s_file_has_its_circuits_too(
    sandbox: Box | None, machine: Machine, tmp_path: Path
) -> None:
    step = file_step(tmp_path)
    assert_as_planned(toy_experiment(step, servers=4, gpus=2, alpha=2), "credit", machine)


def assert_as_planned(experiment: Experiment, transport: str, machine: Machine) -> None:
    """Check an emulation against its prediction, and its circuits against the OCSes' logs."""
    experiment = replace(
        with_delay(experiment, 50e-6), dilation=DILATION, transport=TransportSetup(transport)
    )
    predicted = predict(experiment)
    # What is lit before the job is there, whatever another experiment left lit.
    found = live(experiment, {ocs: sets[-1] for ocs, sets in lit(predicted).items()})
    assert all(entry.delay_s == pytest.approx(0.05) for log in found.logs.values() for entry in log[1:])
    sent = [found.run.messages, predicted.messages]
    assert sent[0]["bytes"].tolist() == sent[1]["bytes"].tolist()
    assert (sent[0]["path"] == sent[1]["path"]).all()
    assert sent[0]["end_s"].notna().all()
    assert lit(found.run) == lit(predicted)
    logged = {ocs: [set(entry.circuits) for entry in log] for ocs, log in found.logs.items()}
    assert logged == lit(found.run)
    assert len(logged["ocs0"]) > 1
    assert found.crossings is not None
    wire = carried(found.crossings, found.logs, DILATION)
    for ocs, sets in lit(found.run).items():
        # The first light is replaced before it is used.
        assert carrying(wire, ocs)[1:] == [{f"{a}>{b}" for a, b in circuits} for circuits in sets[1:]]
        assert packets_in_the_dark(wire, ocs) == 0
    assert all(entry.partial for log in found.logs.values() for entry in log[1:])
    assert all(not entry.error for log in found.logs.values() for entry in log)
    assert machine.busy or 0.9 < communication_s(found.run) / communication_s(predicted) < 1.2


@pytest.mark.real_cpus
def test_pairs_without_a_circuit_go_through_a_server_between(sandbox: Box | None, machine: Machine) -> None:
    """Algorithm 1 makes a ring of the worked example; who is opposite is reached over both neighbours."""
    demand = Demand("ring", 2000 * WORKED)
    fabric = mfabric_fabric(4, gpus=1, nics=3, packet_nics=1, rate_bps=10e9, one_packet_switch=True)
    experiment = Experiment(
        replace(fabric, servers_forward=True),
        single(demand),
        DelegatedSetup(two_hops=True),
        circuits=RegionalSetup(replace(DELAY, delay_s=50e-6)),
        dilation=DILATION,
        transport=TransportSetup("credit"),
    )
    found, predicted = live(experiment, {}).run, predict(experiment)
    assert found.messages["end_s"].notna().all()
    assert (found.messages["path"] == predicted.messages["path"]).all()
    relayed = found.messages[found.messages["path"].str.contains(",h")]
    assert set(zip(relayed["source"], relayed["destination"], strict=True)) == {
        (0, 3),
        (3, 0),
        (1, 2),
        (2, 1),
    }
    assert machine.busy or 0.9 < communication_s(found) / communication_s(predicted) < 1.2


@pytest.mark.real_cpus
def test_nics_lost_in_mid_step_cost_no_byte(sandbox: Box | None, machine: Machine) -> None:
    """Server 0 loses both packet NICs in its dispatch, server 1 a circuit NIC in the combine that follows."""
    step = toy_step(ranks=4, layers=1, sparsity=0.4)
    experiment = toy_experiment(step, servers=4, alpha=2, packet_nics=2)
    assert isinstance(experiment.circuits, RegionalSetup)
    regional = replace(experiment.circuits, delay=replace(DELAY, delay_s=50e-6))
    places = {(0, 0): "F0 0.0 l0 dispatch", (0, 2): "F0 0.0 l0 dispatch", (1, 1): "F0 0.0 l0 combine"}
    faults = tuple(
        replace(fault, when=replace(fault.when, node=node))
        for nic, node in places.items()
        for fault in lost(experiment.fabric, nic, after_s=150e-6, detect_s=30e-6)
    )
    experiment = replace(
        experiment,
        circuits=regional,
        dilation=DILATION,
        transport=TransportSetup("credit"),
        faults=faults,
    )
    found, predicted = live(experiment, {}), predict(experiment)
    check_bytes(experiment.fabric, found.run)
    assert found.run.messages["bytes"].tolist() == predicted.messages["bytes"].tolist()
    for fault in faults:
        stages = found.run.events[found.run.events["which"] == fault.name].set_index("what")["at_s"]
        assert list(stages.index) == ["failed", "detected", "gone around"]
        late_s = stages["detected"] - stages["failed"] - fault.detect_s
        assert late_s > -0.05 * fault.detect_s
        # The simulation looks at its timers between two turns of the engine.
        assert machine.busy or late_s < 0.3 * fault.detect_s + DILATION.real_s(found.health.stall_s)
    assert lit(found.run) == lit(predicted)
    logged = {ocs: [set(entry.circuits) for entry in log] for ocs, log in found.logs.items()}
    assert logged == lit(found.run)
    dead = experiment.fabric.peer(faults[-1].ports[0]).number
    assert dead in {end for circuit in logged["ocs0"][0] for end in circuit}
    assert dead not in {end for circuit in logged["ocs0"][-1] for end in circuit}
    assert machine.busy or 0.85 < communication_s(found.run) / communication_s(predicted) < 1.25
