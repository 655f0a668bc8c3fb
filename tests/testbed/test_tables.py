"""The tables that a run leaves: whole ones, by hand, and what holds of all."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from testbed.core.ops import OpTable
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.experiment.experiment import Experiment
from testbed.model.backend import FluidBackend
from testbed.model.predict import predict
from tests.testbed.forwarding_cases import becomes_direct
from tests.testbed.ocs_cases import experiment_of
from tests.testbed.region_cases import lost
from tests.testbed.run_cases import DELAY_S, Case, When, moe, ring
from tests.testbed.tables import check_tables, rows
from tests.testbed.test_delegated_faults import packet_nics, step
from topologies.events import Hold, NodeStarted, Reconfigure, View
from topologies.fabric import Nic, Port
from topologies.light import duplex
from topologies.mfabric import mfabric_fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.clock import NEVER, ps
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.delegated import DelegatedSetup
from traffic.faults import Fault, cut
from traffic.job import Collective, Compute, Job, chain
from traffic.messages import Messages
from traffic.ops import each_alone
from traffic.scheme import Placement, Scheme, WholeMessages
from traffic.spraying.policy import QueuePair
from traffic.steps import single
from traffic.tables import CROSSES, DARK, GATHER, LIGHT, LIT, NVLINK, PACKETS, SCATTER
from traffic.workloads.synthetic import uniform

RATE = 1000
"""Rate of a link of the fabric below [bytes/s]."""
FABRIC = rail_fabric(2, 2, 0, rate_bps=8.0 * RATE, nvlink_bps=80.0 * RATE)
"""GPUs 0 and 1 in one server, 2 and 3 in another."""
LEG = ("message", "medium", "lane", "from_gpu", "to_gpu", "bytes", "first_ps", "last_ps")


class TwoThirds:
    """Of each message two thirds over the first rail, the rest over the second."""

    def place(self, view: View, messages: Messages) -> Placement:
        """Return two parcels of each."""
        ends = zip(messages.source.tolist(), messages.destination.tolist(), strict=True)
        servers = [(view.fabric.gpu_servers[a], view.fabric.gpu_servers[b]) for a, b in ends]
        pairs = [QueuePair(Nic(a, rail), Nic(b, rail)) for a, b in servers for rail in (0, 1)]
        used = tuple(dict.fromkeys(pairs))
        first = messages.bytes * 2 // 3
        sizes = np.stack([first, messages.bytes - first], axis=1).ravel()
        qp = np.array([used.index(pair) for pair in pairs])
        return Placement(used, qp, np.repeat(np.arange(len(messages)), 2), sizes)


def run(job: Job, scheme: Scheme, *faults: Fault) -> Run:
    backend = FluidBackend(FABRIC, {}, by_bytes=False)
    found = Simulation(FABRIC, job, backend, scheme, faults=faults).run()
    check_tables(found.tables)
    return found


def at(*seconds: float) -> list[int]:
    """Return times [ps]."""
    return [ps(each) for each in seconds]


def test_a_leg_for_each_lane_ends_with_its_own_last_byte() -> None:
    sent = Collective("send", PointToPoint(((0, 2, 3 * RATE), (0, 1, RATE), (2, 1, 600))))
    tables = run(chain("drawn", 4, (Compute("think", (0, 3), 0.5), sent)), TwoThirds()).tables
    assert tables.nodes == ("think", "send")
    assert rows(tables.messages, *tables.messages.columns) == [
        (1, 0, 0, 0, 2, 3 * RATE, *at(0.5, 2.5), False, True, -1),
        (1, 1, 0, 0, 1, RATE, *at(0.5, 0.6), False, False, -1),
        (1, 2, 0, 2, 1, 600, *at(0.5, 0.9), False, True, -1),
    ]
    assert [str(lane) for lane in tables.lanes] == ["0.0>1.0#0", "0.1>1.1#0", "1.0>0.0#0", "1.1>0.1#0"]
    assert rows(tables.legs, *LEG) == [
        (0, PACKETS, 0, 0, 2, 2000, *at(0.5, 2.5)),
        (0, PACKETS, 1, 0, 2, 1000, *at(0.5, 1.5)),
        (1, NVLINK, -1, 0, 1, RATE, *at(0.5, 0.6)),
        (2, PACKETS, 2, 2, 1, 400, *at(0.5, 0.9)),
        (2, PACKETS, 3, 2, 1, 200, *at(0.5, 0.7)),
    ]
    assert [tables.paths[path] for path in tables.legs["path"].tolist() if path >= 0] == [
        (Port("h0", 0), Port("leaf0", 1)),
        (Port("h0", 1), Port("leaf1", 1)),
        (Port("h1", 0), Port("leaf0", 0)),
        (Port("h1", 1), Port("leaf1", 0)),
    ]
    assert rows(tables.spans, *tables.spans.columns) == [
        (0, 0, 0, NEVER, 0, *at(0.0, 0.5)),
        (0, 3, 0, NEVER, 0, *at(0.0, 0.5)),
        (1, -1, *at(0.5), NEVER, *at(0.5, 0.5, 2.5)),
    ]


@pytest.mark.parametrize("couples", [False, True])
def test_a_ring_has_a_leg_for_each_step_or_coupled_for_each_edge(couples: bool) -> None:
    fabric = rail_fabric(2, 1, 0, rate_bps=8.0 * RATE)
    job = Job("ring", 2, (Collective("ring", Ring(((0, 1),), 2 * RATE)),))
    backend = FluidBackend(fabric, {})
    rail = WholeMessages(lambda _view, a, b: QueuePair(Nic(a, 0), Nic(b, 0)))
    tables = Simulation(fabric, job, backend, rail, couples=couples).run().tables
    check_tables(tables)
    whole = [(0, 0, 1, 2 * RATE, *at(0, 2)), (1, 1, 0, 2 * RATE, *at(0, 2))]
    steps = [
        (number, number % 2, 1 - number % 2, RATE, *at(number // 2, number // 2 + 1)) for number in range(4)
    ]
    columns = ("message", "from_gpu", "to_gpu", "bytes", "first_ps", "last_ps")
    assert sorted(rows(tables.legs, *columns)) == (whole if couples else steps)
    assert tables.messages["row"].tolist() == ([-1, -1] if couples else [0, 1, 2, 3])


def test_what_is_taken_back_leaves_its_leg_with_what_that_delivered() -> None:
    def around(view: View, a: int, b: int) -> QueuePair:
        rail = 1 if Port("h0", 0) in view.failed else 0
        return QueuePair(Nic(a, rail), Nic(b, rail))

    job = Job("drawn", 4, (Collective("a", PointToPoint(((0, 2, RATE), (0, 3, RATE)))),))
    fault = cut("cable", (Port("h0", 0),), "a", after_s=0.25, lasts_s=2.5, detect_s=1.0)
    tables = run(job, WholeMessages(around), fault).tables
    assert rows(tables.legs, *LEG) == [
        (0, PACKETS, 0, 0, 2, 250, *at(0.0, 1.25)),
        (0, PACKETS, 1, 0, 2, 750, *at(1.25, 2.0)),
        (1, PACKETS, 1, 0, 3, 1000, *at(1.25, 3.0)),
    ]
    assert tables.ports == (Port("h0", 0),)
    assert rows(tables.links, "port", "at_ps", "up", "known") == [
        (0, *at(0.25), False, False),
        (0, *at(1.25), False, True),
        (0, *at(2.75), True, False),
    ]
    assert list(tables.faults.itertuples(index=False, name=None)) == [
        ("cable", *at(0.25), "failed"),
        ("cable", *at(1.25), "detected"),
        ("cable", *at(1.25), "gone around"),
        ("cable", *at(2.75), "back"),
    ]


def test_a_collective_is_ready_before_it_is_let_go_and_light_has_its_own_table() -> None:
    fabric = parallel_ocs_fabric(2, 1, rate_bps=8.0 * RATE)
    lit = duplex([(0, 1)])
    orders = {NodeStarted("send"): (Reconfigure({"ocs0": lit}), Hold("send", ("ocs0",)))}
    job = Job("held", 2, (Collective("send", PointToPoint(((0, 1, RATE),))),))
    backend = FluidBackend(fabric, {"ocs0": DELAY_S})
    lane = WholeMessages(lambda _view, a, b: QueuePair(Nic(a, 0), Nic(b, 0)))
    tables = Simulation(fabric, job, backend, lane, circuits=When(orders)).run().tables  # type: ignore[arg-type]
    check_tables(tables)
    assert rows(tables.spans, *tables.spans.columns) == [
        (0, -1, 0, 0, *at(DELAY_S, DELAY_S, DELAY_S + 1)),
    ]
    assert rows(tables.legs, *LEG) == [(0, LIGHT, 0, 0, 1, RATE, *at(DELAY_S, DELAY_S + 1))]
    assert tables.ocses == ("ocs0",)
    assert list(tables.light.itertuples(index=False, name=None)) == [
        (0, 0, DARK, ()),
        (0, *at(DELAY_S), LIT, lit),
    ]


def test_a_message_has_a_leg_for_each_route_that_it_took() -> None:
    case = becomes_direct(500_000_000)
    tables = case.run(FluidBackend(case.fabric, case.delay_s)).tables
    check_tables(tables)
    through, direct = (tables.paths[path] for path in tables.legs["path"].tolist())
    assert through == (Port("h0", 0), Port("ocs0", 3), Port("h1", 0), Port("ocs0", 5))
    assert direct == (Port("h0", 0), Port("ocs0", 5))
    assert rows(tables.legs, "message", "medium", "lane", "bytes", "first_ps", "last_ps") == [
        (0, LIGHT, 0, 250_000_000, *at(0.02, 0.05)),
        (0, LIGHT, 0, 250_000_000, *at(0.05, 0.07)),
    ]


def test_a_leg_of_a_schedule_names_the_slot_that_lit_it() -> None:
    experiment = experiment_of("spectra")
    tables = predict(experiment).tables
    check_tables(tables)
    assert set(tables.legs["medium"]) == {LIGHT}
    named = tables.legs[tables.legs["slot"] >= 0]
    assert len(named) > len(tables.legs) / 4
    fabric, lit = experiment.fabric, tables.light[tables.light["what"] == LIT]
    for lane, slot in rows(named, "lane", "slot"):
        ends = tables.lanes[lane].source, tables.lanes[lane].destination
        near, far = (fabric.peer(fabric.nic_port(nic)) for nic in ends)
        shown = lit[lit["ocs"] == tables.ocses.index(near.node)]["circuits"].tolist()
        assert [(near.number, far.number) in circuits for circuits in shown].index(True) == slot
        assert sum((near.number, far.number) in circuits for circuits in shown) == 1


def delegated(couples: bool) -> tuple[Run, Experiment]:
    fabric = mfabric_fabric(3, gpus=2, nics=4, packet_nics=2)
    experiment = Experiment(fabric, single(uniform(fabric.gpus)), DelegatedSetup())
    return predict(experiment, couples=couples), experiment


@pytest.mark.parametrize("couples", [False, True])
def test_gather_cross_and_scatter_are_legs(couples: bool) -> None:
    found, experiment = delegated(couples)
    tables = found.tables
    check_tables(tables)
    legs, servers = tables.legs, np.array(experiment.fabric.gpu_servers)
    inside = servers[legs["from_gpu"]] == servers[legs["to_gpu"]]
    assert (inside == (legs["medium"] == NVLINK)).all()
    together = legs[legs["message"] < 0]
    assert set(together["op"]) == {GATHER, CROSSES, SCATTER}
    assert ((together["op"] == CROSSES) == (together["group"] >= 0)).all()
    ends = [together[together["op"] == op] for op in (GATHER, CROSSES, SCATTER)]
    for before, after in pairwise(ends):
        assert before["last_ps"].max() <= after["first_ps"].min()
    crossing = tables.messages[tables.messages["crosses"]]
    pairs = 3 * 2
    assert len(crossing) == (pairs if couples else 6 * 4)
    assert crossing["group"].nunique() == pairs
    assert (crossing["row"] == -1).all() == couples
    owed = experiment.job.collectives[0].pattern.lower().moves
    stays = tables.messages[~tables.messages["crosses"]]
    assert (owed.source[stays["row"]] == stays["source"]).all()
    assert (owed.destination[stays["row"]] == stays["destination"]).all()
    assert (owed.bytes[stays["row"]] == stays["bytes"]).all()


def test_relayed_bytes_have_a_leg_for_each_hop() -> None:
    experiment = step()
    fabric = experiment.fabric
    faults = tuple(
        replace(fault, when=replace(fault.when, node="F0 0.0 l0 combine", after_s=2e-4), detect_s=5e-5)
        for fault in lost(fabric, *packet_nics(fabric, 0))
    )
    tables = predict(replace(experiment, faults=faults)).tables
    check_tables(tables)
    relayed = tables.legs[tables.legs["hop"] > 0]
    assert len(relayed)
    servers = np.array(fabric.gpu_servers)
    for (message, group), second in relayed.groupby(["message", "group"]):
        hops = tables.legs[(tables.legs["message"] == message) & (tables.legs["group"] == group)]
        first = hops[hops["hop"] == 0]
        assert set(servers[second["from_gpu"]]) <= set(servers[first["to_gpu"]])
        assert second["first_ps"].min() >= first["first_ps"].min()


@pytest.mark.parametrize("case", [moe(), ring()], ids=["moe", "ring"])
def test_what_holds_of_all_holds_with_circuits_and_faults(case: Case) -> None:
    found = case.run(FluidBackend(case.fabric, case.delay_s))
    check_tables(found.tables)
    assert len(found.tables.light)
    assert len(found.tables.faults) >= 3


@pytest.mark.parametrize("scheme", ["ecmp", "rails", "reps", "minrtt", "plb"])
def test_what_holds_of_all_holds_under_every_scheme(scheme: str) -> None:
    fabric = rail_fabric(3, 2, 2)
    tables = predict(Experiment(fabric, single(uniform(fabric.gpus)), scheme)).tables
    check_tables(tables)
    assert (tables.legs["slot"] == -1).all()


def test_what_is_reported_after_its_path_has_changed_ends_when_it_was_seen() -> None:
    changed_ps, seen_ps = 7, 5
    ops = OpTable()
    ops.add(0, each_alone(Messages(np.array([0]), np.array([1]), np.array([100]))))
    ops.put(0, 1, 100, at_ps=0)
    ops.moved(0, 1, 2, 0, at_ps=changed_ps)
    ops.landed(0, 2, at_ps=seen_ps)
    assert [last_ps for *_, last_ps in ops.ended_legs(0)] == [changed_ps]
    ops.end_ps[0] = seen_ps
    assert [last_ps for *_, last_ps in ops.ended_legs(0)] == [seen_ps]
