"""What schedules leave over goes over packets: held against the slots' arithmetic, and packets alone."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from controller.circuits.devices import ReconfigurationDelay
from controller.schedulers.registry import scheduler_named
from controller.schedulers.schedule import Schedule, Slot
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import Scheduled, over_ocses
from testbed.model.backend import FluidBackend
from testbed.model.choices import ROUNDING
from testbed.model.predict import predict
from testbed.trust.outcome import bound_s
from tests.examples import examples
from tests.testbed.rest_cases import (
    CIRCUIT_BPS,
    DELAY_S,
    OCSES,
    PACKET_BPS,
    SECOND,
    Rest,
    by_kind,
    halves_case,
    legs_of,
    mixed_fabric,
    partial_case,
)
from tests.testbed.run_cases import When
from topologies.big_switch import big_switch_fabric
from topologies.errors import ScenarioError
from topologies.events import Event, NodeStarted, Order, ProgramsEnded, SendRest, Show, TimedCircuits, View
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.demand import Demand
from traffic.job import Collective, Job, chain
from traffic.messages import Messages
from traffic.scheme import Choice, OverCircuits, Placement, Sprayed, WhileLit
from traffic.scheme_setup import WHILE_LIT, WhileLitSetup
from traffic.spraying.registry import POLICIES, policy_named


def over_fluids(case: Rest) -> Run:
    return case.run(FluidBackend(case.fabric, case.delay_s))


@st.composite
def rests(draw: st.DrawFn, gpus: int = 1, policy: str = "ecmp") -> Rest:
    """Draw a demand and a schedule of up to three slots on each OCS that need not cover it."""
    servers = draw(st.integers(2, 4))
    few = st.integers(0, SECOND // 20) | st.just(0)
    matrix = np.array([[draw(few) for _ in range(servers * gpus)] for _ in range(servers * gpus)])
    np.fill_diagonal(matrix, 0)
    slot = st.builds(
        lambda outputs, weight: Slot(np.array(outputs), weight),
        st.permutations(range(servers)),
        st.floats(0.001, 0.03),
    )
    slots = [tuple(draw(st.lists(slot, max_size=3))) for _ in OCSES]
    return Rest(mixed_fabric(servers, gpus=gpus), matrix, Schedule(tuple(slots), DELAY_S), policy)


def left_over(case: Rest) -> NDArray[np.float64]:
    """Return what the slots leave over between servers of one GPU, rounding apart."""
    left = np.maximum(case.matrix - case.served, 0.0)
    return np.where((left > ROUNDING * case.matrix.max()) | (case.served == 0), left, 0.0)


@given(rests())
def test_circuits_carry_what_slots_have_room_for_and_packets_the_rest(case: Rest) -> None:
    check_carried(case)


def check_carried(case: Rest) -> None:
    """Check what circuits carry and what packets, by the room of the slots."""
    found = over_fluids(case).messages
    pairs = found["source"].to_numpy(dtype=int), found["destination"].to_numpy(dtype=int)
    carried = by_kind(case.fabric, found["path"].tolist())
    assert (carried.sum(axis=1) == found["bytes"]).all()
    assert np.allclose(carried[:, 1], left_over(case)[pairs], rtol=0, atol=1)


@given(rests())
def test_the_rest_takes_as_long_as_it_does_over_packets_alone(case: Rest) -> None:
    run = over_fluids(case)
    found, left = run.messages, np.rint(left_over(case)).astype(np.int64)
    alone = big_switch_fabric(len(left), nics=1, rate_bps=PACKET_BPS)
    scheme = Sprayed(partial(policy_named, "ecmp"))
    job = Job("alone", len(left), (Collective("rest", AllToAll(Demand("rest", left))),))
    ends_s = (
        Simulation(alone, job, FluidBackend(alone, {}), scheme)
        .run()
        .messages.set_index(["source", "destination"])["end_s"]
    )
    over_packets = found[by_kind(case.fabric, found["path"].tolist())[:, 1] > 0]
    ends = over_packets.set_index(["source", "destination"])["end_s"]
    assert sorted(ends.index) == sorted(ends_s.index)
    assert (ends - ends_s[ends.index]).to_numpy() == pytest.approx(case.light_s, rel=1e-6)
    # Shared by what is left, the busiest NIC never idles.
    busiest = max(left.sum(axis=0).max(), left.sum(axis=1).max())
    if busiest:
        assert run.iteration_s == pytest.approx(case.light_s + 8 * busiest / PACKET_BPS, rel=1e-6)


@given(rests(), st.data())
def test_nothing_is_placed_again_of_what_ends_with_its_light(case: Rest, data: st.DataObject) -> None:
    exact = (1 - ROUNDING / 3) * (8 * case.matrix / CIRCUIT_BPS).max(axis=1)  # but for rounding: the largest
    slots = [
        tuple(
            Slot(slot.permutation, data.draw(st.sampled_from([slot.weight, *exact[exact > 0]])))
            for slot in own
        )
        for own in case.schedule.switches
    ]
    case, placed = replace(case, schedule=Schedule(tuple(slots), DELAY_S)), list[int]()

    class Noting(Sprayed):
        def place(self, view: View, messages: Messages) -> Placement | Choice | WhileLit:
            placed.extend(messages.bytes.tolist())
            return super().place(view, messages)

    backend = FluidBackend(case.fabric, case.delay_s)
    scheme = OverCircuits(Noting(partial(policy_named, "ecmp")))
    found = Simulation(case.fabric, case.job, backend, scheme, circuits=case.circuits).run().messages
    assert 0 not in placed
    assert (by_kind(case.fabric, found["path"].tolist()).sum(axis=1) == found["bytes"]).all()


@given(rests(gpus=2))
def test_messages_of_two_servers_take_turns_over_circuits_and_lack_accordingly(case: Rest) -> None:
    found = over_fluids(case).messages
    servers = np.array(case.fabric.gpu_servers)
    found = found[servers[found["source"]] != servers[found["destination"]]]
    near, far = servers[found["source"]], servers[found["destination"]]
    carried = by_kind(case.fabric, found["path"].tolist())
    assert (carried.sum(axis=1) == found["bytes"]).all()
    for pair in set(zip(near.tolist(), far.tolist(), strict=True)):
        mine = (near == pair[0]) & (far == pair[1])
        sizes = np.sort(found["bytes"].to_numpy()[mine])
        room = min(case.served[pair], sizes.sum())
        # Byte by byte: each has its size, or the level up to which all are served.
        level = np.interp(room, np.minimum.outer(np.append(0, sizes), sizes).sum(axis=1), np.append(0, sizes))
        assert np.allclose(np.sort(carried[mine, 0]), np.minimum(sizes, level), rtol=1e-6, atol=2)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@settings(max_examples=examples(5, 15))
@given(data=st.data())
def test_under_every_policy_all_bytes_arrive_once_over_nics_that_belong_together(
    policy: str, data: st.DataObject
) -> None:
    case = data.draw(rests(gpus=2, policy=policy))
    found = over_fluids(case).messages
    servers = np.array(case.fabric.gpu_servers)
    crossing = found[servers[found["source"]] != servers[found["destination"]]]
    assert (by_kind(case.fabric, crossing["path"].tolist()).sum(axis=1) == crossing["bytes"]).all()
    for row in crossing.itertuples():
        for _, near, far in legs_of(case.fabric, str(row.path)):
            assert (near.server, far.server) == (servers[row.source], servers[row.destination])
    assert found["end_s"].notna().all()


def test_a_users_scheduler_may_leave_pairs_out() -> None:
    run = over_fluids(partial_case())
    # Two pairs of each server have 0.075 s of 0.1 s of light; packets take a quarter of both and all of one.
    ends_s = [0.085 + 2 * (0.1 + 2 * 0.025)] * 12
    assert run.messages["end_s"].tolist() == pytest.approx(ends_s)
    carried = by_kind(mixed_fabric(), run.messages["path"].tolist())
    assert (
        sorted(map(tuple, carried.tolist()))
        == [(0, SECOND // 10)] * 4 + [(SECOND * 3 // 40, SECOND // 40)] * 8
    )
    shown = run.events[run.events["what"] == "shown"]
    assert shown["which"].tolist() == list(OCSES)
    assert shown["at_s"].tolist() == pytest.approx([0.085] * 2)


def test_a_users_scheduler_that_leaves_pairs_out_is_refused_where_circuits_carry_all() -> None:
    matrix = np.ones((4, 4)) - np.eye(4)
    with pytest.raises(ScenarioError, match="returned a schedule that leaves 1 of demand"):
        scheduler_named("tests.testbed.rest_cases:partly")(matrix, 2, 0.1)


@pytest.mark.parametrize("case", [partial_case(None, packets=False), partial_case(None)])
def test_without_packets_or_a_rest_the_same_plan_ends_in_clean_up_rounds(case: Rest) -> None:
    run = over_fluids(case)
    assert (by_kind(case.fabric, run.messages["path"].tolist())[:, 1] == 0).all()
    shown = int(np.flatnonzero(run.events["what"] == "shown")[0])
    assert "lit" in set(run.events["what"][shown:])
    assert run.messages["end_s"].notna().all()


def test_without_packets_a_plan_that_hopes_for_them_ends_in_clean_up_rounds_too() -> None:
    bare = over_fluids(partial_case(None, packets=False))
    hopeful = over_fluids(partial_case("ecmp", packets=False))
    assert hopeful.messages.equals(bare.messages)
    assert hopeful.events.equals(bare.events)


def test_servers_without_a_circuit_between_them_use_packets_at_once() -> None:
    case = halves_case()
    run = over_fluids(case)
    assert run.messages["end_s"].tolist() == pytest.approx([0.11, 0.2])
    assert run.messages["path"].str.contains("@h0:0,ocs0:1").tolist() == [True, False]
    with pytest.raises(ScenarioError, match="no circuit can join the servers of a message"):
        over_fluids(replace(case, policy=None))


def test_what_starts_when_light_is_over_uses_packets_at_once() -> None:
    case = partial_case()
    later = Collective("later", PointToPoint(((0, 1, SECOND // 10),)))
    job = chain("two", 4, (*case.job.nodes, later))
    scheme = OverCircuits(Sprayed(partial(policy_named, "ecmp")))
    backend = FluidBackend(case.fabric, case.delay_s)
    run = Simulation(case.fabric, job, backend, scheme, circuits=case.circuits).run()
    row = run.messages[run.messages["node"] == "later"].iloc[0]
    assert by_kind(case.fabric, [row["path"]]).tolist() == [[0, SECOND // 10]]
    assert row["end_s"] - row["start_s"] == pytest.approx(0.2)


SHOW = Show((("ocs0", (TimedCircuits(((0, 1),), 0.01),)),))


@pytest.mark.parametrize(
    ("rest", "orders", "why"),
    [
        (
            None,
            {ProgramsEnded(((0, 1, SECOND - SECOND // 100),)): (SendRest(),)},
            "under a scheme without a rest",
        ),
        ("ecmp", {NodeStarted("a"): (SHOW, SendRest())}, "while OCSes show programs"),
    ],
)
def test_a_rest_that_cannot_go_over_packets_is_refused(
    rest: str | None, orders: dict[Event, tuple[Order, ...]], why: str
) -> None:
    fabric, job = mixed_fabric(), Job("one", 4, (Collective("a", PointToPoint(((0, 1, SECOND),))),))
    scheme = OverCircuits(Sprayed(partial(policy_named, rest)) if rest else None)
    decided = When({NodeStarted("a"): (SHOW,)} | orders)
    backend = FluidBackend(fabric, dict.fromkeys(OCSES, DELAY_S))
    with pytest.raises(ScenarioError, match=why):
        Simulation(fabric, job, backend, scheme, circuits=decided).run()


def test_equal_runs_are_equal_bit_by_bit() -> None:
    case = replace(partial_case(), policy="reps")
    one, two = over_fluids(case), over_fluids(case)
    assert one.messages.equals(two.messages)
    assert one.events.equals(two.events)


def test_an_experiment_sends_over_packets_what_its_schedule_leaves_over() -> None:
    fabric = parallel_ocs_fabric(4, 2, packet_switch=True)
    matrix = np.full((4, 4), SECOND // 10)
    np.fill_diagonal(matrix, 0)
    circuits = Scheduled("tests.testbed.rest_cases:partly", ReconfigurationDelay("delay", DELAY_S))
    job = over_ocses(Demand("uniform", matrix), 2)
    asked = Experiment(fabric, job, WhileLitSetup(rest="ecmp"), Dilation(1e-4, 2e-3), circuits=circuits)
    assert Experiment.from_json(asked.to_json()) == asked
    records = predict(asked).records
    assert records["bytes"].sum() == matrix.sum()
    assert records["end_s"].max() >= bound_s(asked) == pytest.approx(3 * 0.1 / 3)
    switches = records["path"].str.findall(r"(?:eps|ocs)\d").explode()
    assert set(switches) == {"eps0", "ocs0", "ocs1"}
    with pytest.raises(ScenarioError, match="leaves bytes to the packet NICs, and while lit has no rest"):
        replace(asked, scheme=WHILE_LIT)
