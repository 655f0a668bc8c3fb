"""The late backend: it is late as a network is, equal at every run, and all that is owed still arrives."""

import numpy as np
import pytest

from testbed.core.backend import (
    Arrived,
    Chosen,
    Drained,
    Flows,
    Happening,
    Lead,
    Left,
    LightChanged,
    SetCircuits,
)
from testbed.core.run import Run
from testbed.model.backend import FluidBackend
from tests.audit.as_live import AsLive, Scale
from tests.audit.digests import TABLES, came_of, digest, drawn, late
from tests.testbed.tables import check_tables
from topologies.fabric import Nic
from topologies.light import duplex
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.routes import Routes
from traffic.clock import NEVER, SECOND, ps
from traffic.faults import Fault
from traffic.scheme import WhileLit
from traffic.spraying.policy import LaneSet, QueuePair
from traffic.tables import Tables

RATE = 100_000
"""Rate of a link of the fabric below [bytes/s]."""
FABRIC = parallel_ocs_fabric(4, 1, rate_bps=8.0 * RATE)
LAG_S, GRAIN = 0.01, 10
LANES = QueuePair(Nic(0, 0), Nic(1, 0)), QueuePair(Nic(2, 0), Nic(3, 0))
LIT = {"ocs0": duplex([(0, 1), (2, 3)])}
RUNS = tuple(drawn())
CASES = dict(RUNS)
FEW = ("changes 5", "forwarding 6", "programs 1", "shards 2", "packets 12", "crowded 5", "revised 3", "job 3")


def lit() -> tuple[AsLive, list[int]]:
    """Return a backend whose OCS is lit, and its lanes."""
    backend = AsLive(FluidBackend(FABRIC, {"ocs0": 0.1}, by_bytes=False), Scale(ps(LAG_S), GRAIN))
    lanes = backend.open(LANES)
    backend.carry_out(SetCircuits(LIT, first=True))
    backend.carry_out(Lead(Routes(FABRIC, LIT)))
    return backend, lanes


def on_lane(lane: int, *sizes: int, first: int = 0) -> Flows:
    """Return an operation for each size, numbered from a first one on."""
    ops = np.arange(first, first + len(sizes))
    return Flows(ops, np.array(sizes), np.full(len(sizes), lane), ops, ops)


def reported(backend: AsLive, until_ps: int = NEVER) -> list[Happening]:
    """Return the next report."""
    while not (found := backend.advance(until_ps)):
        pass
    return found


def test_arrivals_are_reported_late_several_at_once_with_the_times_at_which_they_came() -> None:
    backend, lanes = lit()
    backend.start([on_lane(lanes[0], RATE, *[1] * 20)])
    began_ps = backend.now_ps
    reports = [reported(backend)]
    while sum(map(len, reports)) < 21:
        reports.append(reported(backend))
    assert len(reports) < 4
    found = [each for report in reports for each in report if isinstance(each, Arrived)]
    assert [each.op for each in found] == list(range(21))
    came_ps = [each.at_ps - began_ps for each in found]
    assert came_ps == pytest.approx([ps(1 + number / RATE) for number in range(21)], abs=ps(LAG_S) / 100)
    assert ps(1) < backend.now_ps - began_ps <= ps(1.001 + 2 * LAG_S)


def test_light_is_noticed_later_than_it_is_lit() -> None:
    backend, _ = lit()
    backend.carry_out(SetCircuits({"ocs0": duplex([(0, 2)])}))
    ordered_ps, (found,) = backend.now_ps, reported(backend)
    assert isinstance(found, LightChanged)
    assert found.at_ps == backend.now_ps
    assert ps(0.1) < found.at_ps - ordered_ps <= ps(0.1 + LAG_S) + 1


def test_lanes_deliver_what_they_have_on_the_way_before_they_have_drained() -> None:
    backend, lanes = lit()
    backend.start([on_lane(lanes[0], RATE)])
    backend.pause(lanes, 7)
    (before,) = backend.under_way(lanes)
    assert before.on_the_way
    assert reported(backend) == [Drained(7, backend.now_ps)]
    (after,) = backend.under_way(lanes)
    assert not after.on_the_way
    assert after.left < RATE
    backend.advance(backend.now_ps + SECOND)
    assert backend.under_way(lanes) == [after]


def test_a_change_that_lanes_stand_for_no_more_is_not_reported() -> None:
    backend, lanes = lit()
    backend.pause(lanes, 7)
    backend.resume(lanes)
    assert backend.advance(backend.now_ps + SECOND) == []
    backend.pause(lanes, 8)
    backend.stop(lanes)
    assert reported(backend) == [Drained(8, backend.now_ps)]


def test_of_what_is_taken_back_and_kept_some_still_arrives() -> None:
    backend, lanes = lit()
    backend.start([on_lane(lanes[0], 500, 300)])
    assert backend.stop(lanes[:1], in_flight="keep") == [
        Left(0, lanes[0], left=420, on_the_way=True),
        Left(1, lanes[0], left=300),
    ]
    (arrived,) = reported(backend)
    assert isinstance(arrived, Arrived)
    assert (arrived.op, arrived.lane) == (0, lanes[0])


def test_a_closed_lane_has_another_number_and_what_was_not_reported_lacks_nothing() -> None:
    backend, lanes = lit()
    backend.start([on_lane(lanes[0], 5, RATE)])
    backend.advance(backend.now_ps + ps(7e-5))
    arrived, lacking = backend.stop(lanes[:1])
    assert arrived == Left(0, lanes[0])
    assert lacking == Left(1, lanes[0], left=lacking.left // GRAIN * GRAIN)
    assert lacking.left == pytest.approx(RATE, rel=LAG_S)
    assert backend.open(LANES) == [2, lanes[1]]
    assert backend.advance(backend.now_ps + SECOND) == []


def test_what_takes_light_is_carried_in_whole_grains_until_it_is_over() -> None:
    backend, (lane, _) = lit()
    among = WhileLit(((LaneSet((LANES[0].source,), (LANES[0].destination,)),),))
    backend.start([Chosen(np.array([0]), np.array([10_004]), [(lane,)], among)])
    backend.advance(backend.now_ps + ps(0.0333))
    carried, lacking = backend.stop(ops=[0])
    assert carried.carried % GRAIN == 0
    assert carried.carried == pytest.approx(3330, rel=0.1)
    assert carried.carried + lacking.left == 10_004


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("creeps", [False, True])
def test_all_that_is_owed_arrives_however_often_the_clock_is_looked_at(name: str, creeps: bool) -> None:
    _, found = late(CASES[name], creeps=creeps)
    assert isinstance(found, Run)
    check_tables(found.tables)


@pytest.mark.parametrize("name", FEW[:3])
def test_equal_runs_have_equal_records(name: str) -> None:
    one, two = late(CASES[name]), late(CASES[name])
    assert one[0].record == two[0].record
    assert isinstance(one[1], Run)
    assert isinstance(two[1], Run)
    assert digest(one[1].tables) == digest(two[1].tables)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("panel")])
def test_all_that_is_owed_arrives_in_every_run(name: str) -> None:
    """Over panels legs over NVLink to another lane's NIC count beside those that cross."""
    _, found = late(CASES[name])
    if isinstance(found, Run):
        check_tables(found.tables)
    else:
        assert type(found) is type(came_of(CASES[name]))


# Digests


def without_a_row(tables: Tables, name: str) -> Tables:
    """Return tables one of which has lost its last row."""
    kept = {each: getattr(tables, each) for each in TABLES}
    names = {each: getattr(tables, each) for each in ("nodes", "paths", "lanes", "ports", "ocses")}
    return Tables(**{**kept, name: kept[name][:-1]}, **names)


@pytest.mark.parametrize("name", TABLES)
def test_a_digest_tells_of_every_table(name: str) -> None:
    found = came_of(CASES["changes 5"])
    assert isinstance(found, Run)
    assert len(getattr(found.tables, name))
    assert digest(without_a_row(found.tables, name)) != digest(found.tables)


def test_the_drawn_runs_differ_and_use_every_kind_of_fault() -> None:
    assert len(CASES) == len(RUNS) > 80
    faults: list[Fault] = [fault for case in CASES.values() for fault in case.faults]
    assert {type(effect).__name__ for fault in faults for effect in fault.effects} == {
        "Down",
        "Gone",
        "Killed",
        "Lossy",
        "Slow",
    }
