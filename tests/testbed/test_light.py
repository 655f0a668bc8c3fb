"""Light: changes of one OCS and of several, what stands meanwhile, deadlines, and what is set beside."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.audit.audit import audited
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.model.backend import FluidBackend
from tests.examples import examples
from tests.testbed.forwarding_cases import ring_fabric, stride_circuits
from tests.testbed.light_cases import FABRIC, RATE, WARM, A, B, over_a_dead_link
from tests.testbed.light_reference import Reference
from tests.testbed.run_cases import DELAY_S, When
from topologies.errors import LightrailError, StuckError
from topologies.events import (
    Event,
    Flip,
    Hold,
    NodeStarted,
    Order,
    Provision,
    Provisioned,
    Reconfigure,
    SetTimer,
    Show,
    TimedCircuits,
    TimerFired,
)
from topologies.fabric import Fabric, Link, Nic, Port, Switch, equal_servers
from topologies.light import duplex
from topologies.parallel_ocs import parallel_ocs_fabric
from traffic.collectives.point_to_point import PointToPoint
from traffic.faults import Fault, cut
from traffic.job import Collective, Compute, Job, Node, chain
from traffic.scheme import Scheme, WholeMessages
from traffic.spraying.policy import QueuePair


def lane(nic: int) -> WholeMessages:
    """Return a scheme that sends by a NIC of the same number at both ends."""
    return WholeMessages(lambda _view, a, b: QueuePair(Nic(a, nic), Nic(b, nic)))


def run(
    fabric: Fabric,
    nodes: Sequence[Node],
    orders: Mapping[Event, tuple[Order, ...]],
    scheme: Scheme,
    *,
    delay_s: Mapping[str, float] | None = None,
    flip_s: Mapping[str, float] | None = None,
    faults: Sequence[Fault] = (),
) -> Run:
    """Return what comes of nodes one after the other."""
    ocses = [switch.name for switch in fabric.switches if switch.kind == "ocs"]
    backend = FluidBackend(fabric, delay_s or dict.fromkeys(ocses, DELAY_S), flip_s=flip_s)
    job = chain("drawn", fabric.gpus, tuple(nodes))
    return Simulation(fabric, job, backend, scheme, circuits=When(dict(orders)), faults=faults).run()


def sends(name: str, *messages: tuple[int, int, int]) -> Collective:
    """Return messages that start together."""
    return Collective(name, PointToPoint(messages))


def light(found: Run) -> list[tuple[float, str]]:
    """Return what happened to circuits: when [s], and what to which OCS."""
    rows = zip(found.events["at_s"], found.events["what"], found.events["which"], strict=True)
    return [(at_s, f"{what} {which.split()[0]}") for at_s, what, which in rows]


def test_ocses_that_change_together_are_one_change() -> None:
    """The message from 0 to 2 has its circuit at 1.6, and goes when the other OCS is lit as well."""
    change, back = Reconfigure({"ocs0": B, "ocs1": B}), Reconfigure({"ocs0": A, "ocs1": A})
    orders: dict[Event, tuple[Order, ...]] = {
        NodeStarted("warm up"): (back,),
        NodeStarted("send"): (SetTimer("change", 0.5), SetTimer("back", 1.0)),
        TimerFired("change"): (change,),
        TimerFired("back"): (back,),
    }
    nodes = (WARM, sends("send", (0, 1, RATE), (0, 2, RATE // 10)))
    found = run(FABRIC, nodes, orders, lane(0), delay_s={"ocs0": 0.1, "ocs1": 0.3})
    assert light(found)[4:8] == [
        (1.5, "drained ocs0"),
        (1.5, "drained ocs1"),
        (1.6, "lit ocs0"),
        (1.8, "lit ocs1"),
    ]
    assert found.messages["end_s"].tolist() == pytest.approx([2.3 + 0.5, 1.8 + 0.1])


def test_what_waits_for_two_ocses_starts_when_both_are_lit_or_its_time_is_up() -> None:
    both = Reconfigure({"ocs0": A}), Reconfigure({"ocs1": A})
    for deadline_s, starts_s in ((None, 1.3), (0.2, 1.2), (0.5, 1.3)):
        held = (*both, Hold("send", ("ocs0", "ocs1"), deadline_s))
        nodes = (WARM, sends("send", (0, 1, RATE)))
        found = run(FABRIC, nodes, {NodeStarted("send"): held}, lane(0), delay_s={"ocs0": 0.1, "ocs1": 0.3})
        assert found.messages["end_s"].tolist() == pytest.approx([starts_s + 1])


def chord_fabric() -> Fabric:
    """Return five servers in a ring of light on ``ocs0``, with a third NIC each on ``ocs1``."""
    ring = ring_fabric(5, 8 * RATE)
    chords = tuple(Link(Port(f"h{server}", 2), Port("ocs1", server), 8 * RATE) for server in range(5))
    switches = (*ring.switches, Switch("ocs1", 5, "ocs"))
    servers = equal_servers(5, 3, 1, 1e12)
    return Fabric("chord", servers, switches, (*ring.links, *chords), servers_forward=True)


@pytest.mark.parametrize(("chord", "stands_s"), [((1, 3), DELAY_S), ((0, 2), 0.0)])
def test_a_lane_whose_route_becomes_shorter_stands_for_the_change(
    chord: tuple[int, int], stands_s: float
) -> None:
    """From server 0 by NIC 0 to NIC 1 of server 4, through 1, 2 and 3; NIC 2 of server 0 is no shortcut."""
    orders: dict[Event, tuple[Order, ...]] = {
        NodeStarted("warm up"): (Reconfigure({"ocs0": stride_circuits(5, 1)}),),
        NodeStarted("send"): (SetTimer("change", 0.5),),
        TimerFired("change"): (Reconfigure({"ocs1": duplex([chord])}),),
    }
    pinned = WholeMessages(lambda _view, a, b: QueuePair(Nic(a, 0), Nic(b, 1)))
    found = run(chord_fabric(), (WARM, sends("send", (0, 4, RATE))), orders, pinned)
    assert found.messages["end_s"].tolist() == pytest.approx([2.0 + stands_s])
    legs = found.tables.legs
    assert sorted(legs["bytes"].tolist()) == ([RATE // 2, RATE // 2] if stands_s else [RATE])


def without_a_link(lasts_s: float | None, *order: Reconfigure) -> Run:
    """Return what the model makes of `over_a_dead_link`."""
    case = over_a_dead_link(lasts_s, *order)
    return case.run(FluidBackend(case.fabric, case.delay_s))


def test_lanes_over_a_dead_link_are_closed_at_the_deadline_and_sent_anew_when_there_is_light() -> None:
    order = Reconfigure({"ocs0": (), "ocs1": A}, deadline_s=0.1)
    found = without_a_link(None, order)
    assert (1.4, "drained ocs0") in light(found)
    assert found.messages["end_s"].tolist() == pytest.approx([1.4 + DELAY_S + 0.8])


def test_a_change_is_refused_at_the_deadline_and_lanes_go_on_as_before() -> None:
    order = Reconfigure({"ocs0": (), "ocs1": A}, deadline_s=0.1, at_deadline="refuse")
    found = without_a_link(0.5, order)
    assert light(found)[2:6] == [
        (1.2, "failed cut"),
        (1.4, "refused ocs0"),
        (1.4, "refused ocs1"),
        (1.5, "drained ocs1"),
    ]
    assert found.messages["end_s"].tolist() == pytest.approx([1.7 + 0.8])


def test_without_a_deadline_draining_takes_until_the_link_is_back() -> None:
    kept = without_a_link(0.5, Reconfigure({"ocs0": A, "ocs1": A}))
    assert (1.3, "drained ocs0") in light(kept)  # its circuits stay: nothing has to drain
    found = without_a_link(0.5, Reconfigure({"ocs0": B}), Reconfigure({"ocs0": A}))
    assert (1.7, "drained ocs0") in light(found)
    assert found.messages["end_s"].tolist() == pytest.approx([1.7 + 2 * DELAY_S + 0.8])
    with pytest.raises(StuckError, match="nothing more can arrive after cut"):
        without_a_link(None, Reconfigure({"ocs0": B}))


def test_what_is_set_beside_is_flipped_to_and_back() -> None:
    fabric = parallel_ocs_fabric(4, 1, rate_bps=8 * RATE)
    orders: dict[Event, tuple[Order, ...]] = {
        NodeStarted("warm up"): (Reconfigure({"ocs0": A}),),
        NodeStarted("send"): (Provision("ocs0", B), SetTimer("back", 0.5)),
        Provisioned("ocs0"): (Flip(("ocs0",)),),
        TimerFired("back"): (Flip(("ocs0",)),),
    }
    nodes = (WARM, sends("send", (0, 1, RATE), (0, 2, RATE // 10)))
    found = run(fabric, nodes, orders, lane(0), delay_s={"ocs0": 0.3}, flip_s={"ocs0": 0.02})
    assert light(found)[2:] == [
        (1.3, "drained ocs0"),
        (1.32, "lit ocs0"),
        (1.5, "drained ocs0"),
        (1.52, "lit ocs0"),
    ]
    assert found.messages["end_s"].tolist() == pytest.approx([1.52 + 0.7, 1.32 + 0.1])


def test_a_flip_waits_until_all_have_provisioned() -> None:
    orders: dict[Event, tuple[Order, ...]] = {
        NodeStarted("warm up"): (Provision("ocs0", A), Provision("ocs1", A), Flip(("ocs0", "ocs1"))),
    }
    nodes = (WARM, sends("send", (0, 1, RATE)))
    found = run(FABRIC, nodes, orders, lane(0), delay_s={"ocs0": 0.1, "ocs1": 0.3})
    assert light(found) == [
        (0.3, "drained ocs0"),
        (0.3, "drained ocs1"),
        (0.3, "lit ocs0"),
        (0.3, "lit ocs1"),
    ]


SHOW = Show((("ocs0", (TimedCircuits(A, 0.1),)),))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ((Flip(("ocs0",)),), "was to provision nothing"),
        ((Provision("ocs0", A), Flip(("ocs0",)), Provision("ocs0", B)), "while it was to flip"),
        ((Reconfigure({"ocs9": A}),), "'ocs9', which is not an OCS of 'parallel_ocs'"),
        ((Provision("leaf0", A),), "'leaf0', which is not an OCS"),
        ((Reconfigure({"ocs0": ((0, 1), (2, 1))}),), "1"),
        ((Provision("ocs0", ((9, 7),)),), "9"),
        ((SHOW, SHOW), "while it shows another"),
        ((replace(SHOW, programs=2 * SHOW.programs),), "OCS ocs0 was to show two programs at once"),
        ((Show((("ocs9", ()),)),), "'ocs9', which is not an OCS"),
        ((Show((("ocs0", (TimedCircuits(((0, 1), (2, 1)), 0.1),)),)),), "port 1"),
        ((Reconfigure({"ocs0": A}), SHOW), "while it was to be reconfigured"),
        ((SHOW, Reconfigure({"ocs1": A, "ocs0": A})), "while it shows a program"),
    ],
)
def test_orders_that_do_not_go_together_are_errors(wrong: tuple[Order, ...], says: str) -> None:
    with pytest.raises(LightrailError, match=says):
        run(FABRIC, (WARM,), {NodeStarted("warm up"): wrong}, lane(0))


C = duplex([(0, 3), (1, 2)])


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[float, Order]]:
    """Return orders at some times; at the end each of three configurations has its turn on both OCSes."""
    configurations = st.sampled_from([A, B, C, A[:2], ()])
    drawn: list[tuple[float, Order]] = []
    beside = set[str]()
    for at_s in sorted(draw(st.lists(st.floats(0.0, 2.0), max_size=8))):
        ocses = draw(st.sampled_from([("ocs0",), ("ocs1",), ("ocs0", "ocs1")]))
        kind = draw(st.sampled_from(["reconfigure", "provision", "flip"]))
        if kind == "provision" and ocses[0] not in beside:
            drawn.append((at_s, Provision(ocses[0], draw(configurations))))
            beside.add(ocses[0])
        elif kind == "flip" and beside.issuperset(ocses):
            drawn.append((at_s, Flip(ocses)))
        else:
            drawn.append((at_s, Reconfigure({ocs: draw(configurations) for ocs in ocses})))
    for turn, shown in enumerate((A, B, C), start=1):
        drawn.append((20.0 * turn, Reconfigure({"ocs0": shown, "ocs1": shown})))
    return drawn


@settings(max_examples=examples(40, 400), deadline=None)
@given(
    orders=changes(),
    delay_s=st.tuples(st.floats(0.001, 0.5), st.floats(0.001, 0.5)),
    flip_s=st.floats(0.0, 0.1),
)
def test_whatever_is_ordered_all_arrives_when_circuits_have_been_lit_for_it(
    orders: list[tuple[float, Order]], delay_s: tuple[float, float], flip_s: float
) -> None:
    check_ends(orders, delay_s, flip_s)


def check_ends(orders: list[tuple[float, Order]], delay_s: tuple[float, float], flip_s: float) -> None:
    """Check that each message ends when the reference says, with these delays of two OCSes."""
    events: dict[Event, tuple[Order, ...]] = {}
    for number, (_, order) in enumerate(orders):
        events[TimerFired(str(number))] = (order,)
    events[NodeStarted("send")] = tuple(SetTimer(str(n), at_s) for n, (at_s, _) in enumerate(orders))
    pairs = [(a, b, RATE // 10) for a in range(4) for b in range(4) if a != b]
    nodes = (sends("send", *pairs),)
    delays_s, flips_s = {"ocs0": delay_s[0], "ocs1": delay_s[1]}, {"ocs0": flip_s, "ocs1": flip_s / 2}
    by_nic = WholeMessages(lambda _view, a, b: QueuePair(Nic(a, (a + b) % 2), Nic(b, (a + b) % 2)))
    found = run(FABRIC, nodes, events, by_nic, delay_s=delays_s, flip_s=flips_s)
    messages = [(f"ocs{(a + b) % 2}", (a, b)) for a, b, _ in pairs]
    expected_s = Reference(delays_s, flips_s).ends_s(orders, messages, 0.1)
    assert found.messages["end_s"].tolist() == pytest.approx(expected_s, abs=1e-8)
    job = chain("drawn", FABRIC.gpus, nodes)
    assert audited(found.tables, job, FABRIC).findings == ()


def test_an_order_of_nothing_does_nothing() -> None:
    nothing: tuple[Order, ...] = (Reconfigure({}), Flip(()), Reconfigure({"ocs0": A}))
    found = run(FABRIC, (WARM,), {NodeStarted("warm up"): nothing}, lane(0))
    assert light(found) == [(0.0, "drained ocs0"), (DELAY_S, "lit ocs0")]


def beside_each_other(late: Collective, starts_s: float) -> Job:
    """Return a message of half a second from 0 to 1, and others that start so long after it."""
    waits = Compute("waits", (2,), starts_s, ("warm up",))
    first = Collective("send", PointToPoint(((0, 1, RATE // 2),)), ("warm up",))
    return Job("drawn", 4, (WARM, first, waits, replace(late, after=("waits",))))


def test_a_lane_that_was_closed_at_a_deadline_carries_again_when_it_is_opened_anew() -> None:
    """The same lane is used for what it lacked: it does not stand for the change before any more."""
    orders = Reconfigure({"ocs0": B}, deadline_s=0.1), Reconfigure({"ocs0": A})
    found = without_a_link(0.5, *orders)
    assert found.messages["end_s"].tolist() == pytest.approx([1.7 + 0.8])


@pytest.mark.parametrize("deadline_s", [0.0, 0.4])
def test_what_drains_by_the_deadline_has_drained(deadline_s: float) -> None:
    """At once where nothing is held back; and in the instant in which the link is back."""
    lasts_s = 0.5 if deadline_s else 1e-9
    order = Reconfigure({"ocs0": B}, deadline_s, "refuse")
    found = without_a_link(lasts_s, order, Reconfigure({"ocs0": A}))
    assert [what for _, what in light(found)].count("lit ocs0") == 3
    assert found.messages["end_s"].notna().all()


def test_what_waits_for_light_goes_on_when_a_change_is_refused() -> None:
    case = over_a_dead_link(0.5, Reconfigure({"ocs0": B}, 0.1, "refuse"))
    job = beside_each_other(sends("late", (2, 3, RATE // 10)), 0.35)
    found = replace(case, job=job).run(FluidBackend(FABRIC, case.delay_s))
    assert found.messages["end_s"].tolist() == pytest.approx([1.7 + 0.3, 1.4 + 0.1])


def test_two_holds_of_a_collective_are_one_of_all_their_ocses() -> None:
    holds = Hold("send", ("ocs1",)), Hold("send", ("ocs0",))
    orders: dict[Event, tuple[Order, ...]] = {
        NodeStarted("send"): (Reconfigure({"ocs0": A}), Reconfigure({"ocs1": A}), *holds)
    }
    delay_s = {"ocs0": 0.1, "ocs1": 0.3}
    found = run(FABRIC, (WARM, sends("send", (0, 1, RATE))), orders, lane(0), delay_s=delay_s)
    assert found.messages["end_s"].tolist() == pytest.approx([2.3])


@pytest.mark.parametrize("opened", ["since", "before"])
def test_a_lane_that_gets_its_route_during_a_change_stands_for_it(opened: str) -> None:
    """It would send over 1, 2 and 3 until the chord from 1 to 3 is lit, and over that from then on."""
    ring, chord = stride_circuits(5, 1), duplex([(1, 3)])
    at_first = ring if opened == "since" else tuple(circuit for circuit in ring if 4 not in circuit)
    changes: tuple[Order, ...] = (Reconfigure({"ocs1": chord}),)
    if opened == "before":  # it has a route when the first of two changes is done
        changes = (Reconfigure({"ocs0": ring}), *changes)
    starts_s = 0.6 if opened == "since" else 0.0
    orders: dict[Event, tuple[Order, ...]] = {
        NodeStarted("warm up"): (Reconfigure({"ocs0": at_first}),),
        NodeStarted("waits"): (SetTimer("change", 0.5),),
        TimerFired("change"): changes,
    }
    nodes = (
        WARM,
        Compute("waits", (1,), starts_s, ("warm up",)),
        Collective("send", PointToPoint(((0, 4, RATE),)), ("waits",)),
    )
    pinned = WholeMessages(lambda _view, a, b: QueuePair(Nic(a, 0), Nic(b, 1)))
    backend = FluidBackend(chord_fabric(), {"ocs0": 0.1, "ocs1": 0.3})
    found = Simulation(chord_fabric(), Job("drawn", 5, nodes), backend, pinned, circuits=When(orders)).run()
    assert found.messages["end_s"].tolist() == pytest.approx([1.8 + 1.0])


def test_a_lane_over_circuits_that_end_stands_when_it_is_opened_while_others_drain() -> None:
    """From 2 to 3, begun at 1.35 while the lane from 0 to 1 drains until its link is back at 1.7."""
    case = over_a_dead_link(0.5, Reconfigure({"ocs0": B}), Reconfigure({"ocs0": A}))
    job = beside_each_other(sends("late", (2, 3, RATE // 10)), 0.35)
    found = replace(case, job=job, scheme=lane(0)).run(FluidBackend(FABRIC, case.delay_s))
    begins_s = 1.7 + 2 * DELAY_S
    assert found.messages["end_s"].tolist() == pytest.approx([begins_s + 0.3, begins_s + 0.1])


def test_a_lane_that_has_a_route_again_while_others_drain_stands_with_them() -> None:
    """The change drains from 1.3 to its deadline at 1.8; the link of server 2 is known to be back at 1.5."""
    orders: dict[Event, tuple[Order, ...]] = {
        NodeStarted("warm up"): (Reconfigure({"ocs0": A}),),
        NodeStarted("send"): (SetTimer("change", 0.3),),
        TimerFired("change"): (Reconfigure({"ocs0": B}, 0.5), Reconfigure({"ocs0": A})),
    }
    drains = cut("drains", (Port("h0", 0),), "send", 0.2, 5.0, 3.0)
    known = cut("known", (Port("h2", 0),), "send", 0.1, 0.1, 0.3)
    nodes = (WARM, sends("send", (0, 1, RATE), (2, 3, RATE)))
    found = run(FABRIC, nodes, orders, lane(0), faults=(drains, known))
    lit_s = 1.8 + 2 * DELAY_S
    assert found.messages["end_s"].tolist() == pytest.approx([4.2 + 0.8, lit_s + 0.9])


def test_a_newer_provision_takes_the_place_of_one_that_is_not_done() -> None:
    fabric = parallel_ocs_fabric(4, 1, rate_bps=8 * RATE)
    orders: dict[Event, tuple[Order, ...]] = {
        NodeStarted("warm up"): (Reconfigure({"ocs0": A}),),
        NodeStarted("send"): (Provision("ocs0", A), SetTimer("newer", 0.2)),
        TimerFired("newer"): (Provision("ocs0", B), Flip(("ocs0",))),
    }
    nodes = (WARM, sends("send", (0, 2, RATE // 10)))
    found = run(fabric, nodes, orders, lane(0), delay_s={"ocs0": 0.3})
    assert found.messages["end_s"].tolist() == pytest.approx([1.2 + 0.3 + 0.1])
