"""Over a static patch panel: forwarded bytes arrive, and links are as busy as bounds say, coupled or not."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.circuits.foreseen import Foreseen
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.model.backend import FluidBackend
from testbed.model.predict import predict
from tests.testbed.forwarding_cases import ring_fabric, stride_circuits
from tests.testbed.panel_cases import panel_step, took_s
from tests.testbed.run_cases import DELAY_S, When
from tests.traffic.delegated_bounds import bounds
from topologies.events import Event, NodeStarted, Order, Reconfigure, SetTimer, TimerFired, View
from topologies.fabric import Nic
from topologies.light import duplex
from traffic.collectives.ring import Ring
from traffic.delegated import Delegated
from traffic.delegation import Lanes
from traffic.faults import cut
from traffic.job import Collective, Compute, chain
from traffic.records import legs_of, path_of
from traffic.transports.host_settings import TransportSetup


def loads(run: Run, node: str) -> Counter[str]:
    """Return the bytes over each port that sends, as the paths of a node's messages have them."""
    sent = Counter[str]()
    legs = legs_of(run.messages[run.messages["node"] == node])
    for path, size in zip(legs["path"], legs["bytes"], strict=True):
        for port in path_of(path):
            sent[str(port)] += size
    return sent


def best_s(experiment: Experiment) -> float:
    """Return what the legs of the all-to-all take when their busiest links are always busy [s]."""
    assert isinstance(experiment.circuits, Foreseen)
    view = View(0.0, experiment.fabric, dict(experiment.circuits.first), frozenset())
    scheme = experiment.new_scheme()
    assert isinstance(scheme, Delegated)
    messages = experiment.job.collectives[0].pattern.lower().moves
    return bounds(view, scheme.delegate(view, messages)).in_turn_s


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_an_all_to_all_takes_its_bound_coupled_or_not(seed: int) -> None:
    experiment = panel_step(seed)
    runs = [predict(experiment, couples=couples) for couples in (False, True)]
    least_s = best_s(experiment)
    for run in runs:
        assert run.messages["end_s"].notna().all()
        assert took_s(run, "all-to-all") == pytest.approx(least_s, rel=1e-6)
        owed, carried = run.messages, legs_of(run.messages)["bytes"].sum()
        inside = owed.loc[owed["path"] == "nvlink", "bytes"].sum()
        assert carried + inside == owed["bytes"].sum()
    forwarded = [path for path in legs_of(runs[1].messages)["path"] if path.count("h") > 1]
    assert forwarded, "of 5 other servers at most 3 are joined"
    busiest = max(loads(runs[0], "all-to-all").values())
    assert took_s(runs[0], "all-to-all") >= 8 * busiest / 10e9
    assert loads(runs[0], "all-to-all").keys() == loads(runs[1], "all-to-all").keys()
    for node in ("ring", "send"):
        assert took_s(runs[1], node) == pytest.approx(took_s(runs[0], node), rel=0.01)


def test_shares_of_a_circuit_that_forwards_are_fair_under_tcp_too() -> None:
    experiment = replace(panel_step(1, sends=False), transport=TransportSetup("tcp"))
    run = predict(experiment)
    assert 1 - 1e-9 < took_s(run, "all-to-all") / best_s(experiment) < 1.3


def test_a_send_takes_shortest_routes() -> None:
    """Six servers in a ring of one NIC each way: what goes halfway round crosses three circuits."""
    run = predict(panel_step(0, nics=2))
    (legs,) = run.messages.loc[run.messages["node"] == "send", "path"]
    for leg in legs.split():
        assert len(path_of(leg.split("@")[1])) == 6  # a NIC and the panel, three times
    assert took_s(run, "send") == pytest.approx(8 * 20e6 / 10e9 / len(legs.split()))


def test_circuits_that_stay_have_no_delay_that_must_be_honoured() -> None:
    experiment = replace(panel_step(0), dilation=Dilation(1e-3, 1e-3))
    assert Experiment.from_json(experiment.to_json()) == experiment
    assert experiment.ocs_delays["panel0"].mean_s == 0


def test_all_servers_send_what_they_owe_in_an_all_to_all() -> None:
    experiment = panel_step(3, sends=False)
    run = predict(experiment, couples=True)
    rows = run.messages[run.messages["path"] != "nvlink"]
    servers = np.asarray(experiment.fabric.gpu_servers)
    sent = np.zeros((6, 6), dtype=int)
    np.add.at(sent, (servers[rows["source"]], servers[rows["destination"]]), rows["bytes"])
    exchange = experiment.job.collectives[0].pattern.lower().moves
    owed = np.zeros((6, 6), dtype=int)
    np.add.at(owed, (servers[exchange.source], servers[exchange.destination]), exchange.bytes)
    np.fill_diagonal(owed, 0)
    assert (sent == owed).all()


@pytest.mark.parametrize("lasts_s", [None, 0.01])
def test_traffic_goes_around_a_nic_that_fails(lasts_s: float | None) -> None:
    experiment = panel_step(0)
    fault = cut("nic", (experiment.fabric.nic_port(Nic(0, 0)),), "all-to-all", 0.02, 0.001, lasts_s=lasts_s)
    run = predict(replace(experiment, faults=(fault,)))
    assert run.messages["end_s"].notna().all()
    assert legs_of(run.messages)["bytes"].sum() == legs_of(predict(experiment).messages)["bytes"].sum()
    after = run.messages[run.messages["node"] != "all-to-all"]
    assert after["path"].str.contains("h0:0").any() == bool(lasts_s)
    assert (run.events["what"] == "lit").sum() == 1


def test_a_ring_alone_on_routes_is_led_over_new_ones_when_circuits_change() -> None:
    """Servers 0 and 2 send through 1 and 3, then directly and through both."""
    direct = duplex([(0, 5), (2, 7), (4, 3), (6, 1)])
    orders: dict[Event, tuple[Order, ...]] = {
        NodeStarted("warm up"): (Reconfigure({"ocs0": stride_circuits(4, 1)}),),
        NodeStarted("ring"): (SetTimer("change", 0.02),),
        TimerFired("change"): (Reconfigure({"ocs0": direct}),),
    }
    nodes = (
        Compute("warm up", (0,), 2 * DELAY_S),
        Collective("ring", Ring(((0, 2),), 800_000_000)),
    )
    runs = []
    for couples in (False, True):
        backend = FluidBackend(ring_fabric(4), {"ocs0": DELAY_S})
        job = chain("ring", 4, nodes)
        runs.append(
            Simulation(ring_fabric(4), job, backend, Lanes(), circuits=When(orders), couples=couples).run()
        )
    assert took_s(runs[0], "ring") == pytest.approx(0.032 + DELAY_S, rel=1e-3)
    assert took_s(runs[1], "ring") == pytest.approx(took_s(runs[0], "ring"), rel=0.01)
