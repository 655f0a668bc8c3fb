"""The simulation over the fluid backend: whole tables, computed by hand."""

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core import circuits
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.model.backend import FluidBackend
from tests.testbed.run_cases import Case, When, moe, ring
from tests.traffic.job_cases import OPERATIONS
from topologies.errors import ScenarioError, StuckError
from topologies.events import Event, NodeDone, NodeStarted, Order, Reconfigure, SetTimer, TimerFired, View
from topologies.fabric import Nic, Port
from topologies.light import duplex
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Operation, Ring
from traffic.demand import Demand
from traffic.faults import Fault, KnownRevision, Revisions, cut
from traffic.job import Collective, Compute, Job, chain
from traffic.messages import Messages
from traffic.records import NVLINK
from traffic.scheme import Placement, Sprayed, WholeMessages
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.policy import Lanes, Message, QueuePair
from traffic.spraying.registry import policy_named

SECOND = 1000
"""Rate of a link of the fabric below [bytes/s]."""
FABRIC = rail_fabric(2, 2, 0, rate_bps=8.0 * SECOND, nvlink_bps=80.0 * SECOND)
"""GPUs 0 and 1 in one server, 2 and 3 in another."""


class SameRail:
    """Each message on the rail of the GPU that sends it."""

    def place(self, view: View, messages: Messages) -> Placement:
        """Return a queue pair per message, even where two are the same."""
        ends = zip(messages.source.tolist(), messages.destination.tolist(), strict=True)
        near = [(view.fabric.pinned_nic(source), view.fabric.gpu_servers[to]) for source, to in ends]
        each = [QueuePair(nic, Nic(server, nic.nic)) for nic, server in near]
        used = tuple(dict.fromkeys(each))
        qp = np.array([used.index(queue_pair) for queue_pair in each])
        return Placement(used, qp, np.arange(len(messages)), messages.bytes)


same_rail = SameRail()


def run(job: Job, *faults: Fault) -> Run:
    """Run a job over `FABRIC`."""
    return Simulation(FABRIC, job, FluidBackend(FABRIC, {}), same_rail, faults=faults).run()


def sends(name: str, *messages: tuple[int, int, int], after: tuple[str, ...] = ()) -> Collective:
    return Collective(name, PointToPoint(messages), after)


def rows(table: pd.DataFrame, *columns: str) -> list[tuple[object, ...]]:
    """Return some columns of a table as rows, times rounded to microseconds."""
    return [tuple(row) for row in table[list(columns)].round(6).to_numpy().tolist()]


def test_nodes_of_a_chain_follow_each_other() -> None:
    job = chain("drawn", 4, (Compute("a", (0, 3), 1.0), sends("b", (0, 2, SECOND)), Compute("c", (0,), 2.0)))
    assert rows(run(job).tasks, "node", "gpu", "start_s", "end_s") == [
        ("a", 0, 0.0, 1.0),
        ("a", 3, 0.0, 1.0),
        ("b", -1, 1.0, 2.0),
        ("c", 0, 2.0, 4.0),
    ]


def test_a_gpu_does_one_task_at_a_time_in_job_order_while_bytes_move() -> None:
    nodes = (Compute("a", (0,), 2.0), Compute("b", (0, 1), 1.0), sends("c", (0, 2, SECOND)))
    assert rows(run(Job("drawn", 4, nodes)).tasks, "node", "gpu", "start_s", "end_s") == [
        ("c", -1, 0.0, 1.0),
        ("b", 1, 0.0, 1.0),
        ("a", 0, 0.0, 2.0),
        ("b", 0, 2.0, 3.0),
    ]


def test_a_gpu_computes_for_a_duration_of_its_own() -> None:
    nodes = (Compute("a", (3, 0), 1.0, durations_s=(2.0, 0.5)), Compute("b", (0,), 1.0))
    assert rows(run(Job("drawn", 4, nodes)).tasks, "node", "gpu", "start_s", "end_s") == [
        ("a", 0, 0.0, 0.5),
        ("b", 0, 0.5, 1.5),
        ("a", 3, 0.0, 2.0),
    ]


def test_collectives_side_by_side_share_links() -> None:
    sent = (sends("a", (0, 2, SECOND)), sends("b", (0, 3, SECOND)), sends("c", (1, 3, SECOND)))
    apart = run(Job("drawn", 4, sent)).messages
    assert rows(apart, "node", "source", "destination", "bytes", "start_s", "end_s", "path") == [
        ("a", 0, 2, SECOND, 0.0, 2.0, f"{SECOND}@h0:0,leaf0:1"),  # of two communicators: side by side
        ("b", 0, 3, SECOND, 0.0, 2.0, f"{SECOND}@h0:0,leaf0:1"),
        ("c", 1, 3, SECOND, 0.0, 1.0, f"{SECOND}@h0:1,leaf1:1"),
    ]
    nodes = tuple(replace(node, communicator="one") for node in sent)
    found = run(Job("drawn", 4, nodes)).messages
    assert rows(found, "node", "source", "destination", "bytes", "start_s", "end_s", "path") == [
        ("a", 0, 2, SECOND, 0.0, 1.0, f"{SECOND}@h0:0,leaf0:1"),  # one queue pair: first come, first served
        ("b", 0, 3, SECOND, 0.0, 2.0, f"{SECOND}@h0:0,leaf0:1"),
        ("c", 1, 3, SECOND, 0.0, 1.0, f"{SECOND}@h0:1,leaf1:1"),
    ]


def test_messages_inside_a_server_share_their_gpus_nvlink() -> None:
    found = run(Job("drawn", 4, (sends("a", (0, 1, SECOND), (0, 1, SECOND), (1, 0, SECOND)),))).messages
    assert rows(found, "end_s", "path") == [(0.1, NVLINK), (0.2, NVLINK), (0.1, NVLINK)]


@pytest.mark.parametrize("operation", ["all-reduce", "reduce-scatter", "all-gather"])
def test_a_ring_takes_what_its_steps_add_up_to(operation: str) -> None:
    fabric = rail_fabric(4, 1, 0, rate_bps=8.0 * SECOND)
    job = Job("drawn", 4, (Collective("a", Ring(((0, 2, 1, 3),), 4 * SECOND, operation)),))  # type: ignore[arg-type]
    took_s = Simulation(fabric, job, FluidBackend(fabric, {}), same_rail).run().iteration_s
    assert took_s == pytest.approx(6.0 if operation == "all-reduce" else 3.0)


@given(
    st.integers(2, 8).flatmap(lambda gpus: st.lists(st.permutations(range(gpus)), min_size=1, max_size=3)),
    st.sampled_from(OPERATIONS),
    st.integers(1, 1 << 28),
)
def test_a_ring_takes_the_time_of_its_closed_form_and_several_no_less(
    rings: list[list[int]], operation: Operation, chunk: int
) -> None:
    gpus, size = len(rings[0]), chunk * len(rings) * len(rings[0])
    fabric = rail_fabric(gpus, 1, 0, rate_bps=8.0 * SECOND)
    job = Job("drawn", gpus, (Collective("a", Ring(tuple(map(tuple, rings)), size, operation)),))
    took_s = Simulation(fabric, job, FluidBackend(fabric, {}, by_bytes=False), same_rail).run().iteration_s
    expected_s = (2 if operation == "all-reduce" else 1) * (gpus - 1) / gpus * size / SECOND
    assert took_s >= expected_s * (1 - 1e-9)
    if len(rings) == 1:  # several in different orders collide at receivers, step by step
        assert took_s == pytest.approx(expected_s, rel=1e-9)


def test_a_job_without_bytes_or_gpus_ends() -> None:
    nodes = (sends("a"), Compute("b", (), 1.0, ("a",)), sends("c", (0, 2, SECOND), after=("b",)))
    assert rows(run(Job("drawn", 4, nodes)).tasks, "node", "end_s") == [("a", 0.0), ("c", 1.0)]


def test_what_a_failed_link_did_not_deliver_goes_elsewhere() -> None:
    def around(view: View, a: int, b: int) -> QueuePair:
        rail = 1 if Port("h0", 0) in view.failed else 0
        return QueuePair(Nic(a, rail), Nic(b, rail))

    job = Job("drawn", 4, (sends("a", (0, 2, SECOND), (0, 3, SECOND)),))
    fault = cut("cable", (Port("h0", 0),), "a", after_s=0.25, detect_s=1.0)
    found = Simulation(FABRIC, job, FluidBackend(FABRIC, {}), WholeMessages(around), faults=[fault]).run()
    assert rows(found.messages, "end_s", "path") == [
        (2.0, "250@h0:0,leaf0:1 750@h0:1,leaf1:1"),
        (3.0, "1000@h0:1,leaf1:1"),
    ]
    assert rows(found.events, "at_s", "what", "which") == [
        (0.25, "failed", "cable"),
        (1.25, "detected", "cable"),
        (1.25, "gone around", "cable"),
    ]


def test_a_scheme_that_chooses_hears_of_each_message_until_it_has_arrived_or_is_placed_anew() -> None:
    heard: list[Counter[str]] = []

    class Own(MinRtt):
        def __init__(self) -> None:
            heard.append(Counter())
            self.heard, self.under_way = heard[-1], set[int]()

        def admit(self, *, message: Message) -> Lanes:
            self.heard["admitted"] += 1
            self.under_way.add(message.number)
            return super().admit(message=message)

        def withdraw(self, *, message: int) -> None:
            self.heard["withdrawn"] += 1
            self.under_way.remove(message)

    job = Job("drawn", 4, (sends("a", (0, 2, SECOND), (1, 3, SECOND)), sends("b", (0, 3, SECOND))))
    fault = cut("cable", (Port("h0", 0),), "a", after_s=1e-9, detect_s=1e-9)
    fabric = rail_fabric(2, 2)
    Simulation(fabric, job, FluidBackend(fabric, {}), Sprayed(Own), faults=[fault]).run()
    asked = [each for each in heard if each]
    rehearsed = asked.pop(1)
    assert [each["admitted"] for each in asked] == [2, 1, 2, 1], (
        "two communicators, before it is known and after"
    )
    assert all(each["withdrawn"] == each["admitted"] for each in (rehearsed, *asked))


def test_a_collective_that_was_given_up_is_replaced_for_those_that_wait_for_it() -> None:
    instead = Job("instead", 4, (sends("d", (1, 3, SECOND)), Compute("e", (1,), 1.0, ("d",))))
    revisions = Revisions((KnownRevision("cable", ("a",), instead),))
    nodes = (sends("a", (0, 2, SECOND)), sends("b", (1, 3, SECOND)), Compute("c", (0,), 1.0, ("a",)))
    fault = cut("cable", (Port("h0", 0),), "a", after_s=0.5, detect_s=0.0)
    backend = FluidBackend(FABRIC, {})
    found = Simulation(
        FABRIC, Job("drawn", 4, nodes), backend, same_rail, faults=[fault], revisions=revisions
    ).run()
    assert rows(found.tasks, "node", "start_s", "end_s") == [
        ("a", 0.0, 0.5),
        ("b", 0.0, 1.0),
        ("d", 0.5, 2.0),
        ("e", 2.0, 3.0),
        ("c", 3.0, 4.0),
    ]


def test_a_collective_that_was_given_up_is_not_sent_again_when_gpus_move() -> None:
    nodes = (sends("a", (0, 2, SECOND)), sends("b", (1, 3, SECOND)), Compute("c", (3,), 1.0, ("a",)))
    instead = Job("instead", 4, (sends("d", (1, 3, SECOND)),))
    faults = (cut("cable", (Port("h0", 0),), "b", 0.5, 0.0), cut("gpu", (), "b", 0.75, 0.0, gpus=(0,)))
    revisions = KnownRevision("cable", ("a",), instead), KnownRevision("gpu", moves=((0, 1),))
    found = Simulation(
        FABRIC,
        Job("drawn", 4, nodes),
        FluidBackend(FABRIC, {}),
        same_rail,
        faults=faults,
        revisions=Revisions(revisions),
    ).run()
    assert rows(found.tasks, "node", "start_s", "end_s") == [
        ("a", 0.0, 0.5),
        ("b", 0.0, 1.0),
        ("d", 0.5, 2.0),
        ("c", 2.0, 3.0),
    ]


def test_timers_decide_too() -> None:
    case = ring()
    orders: dict[Event, tuple[Order, ...]] = {
        NodeStarted("warm up"): (SetTimer("later", 0.005),),
        TimerFired("later"): (Reconfigure({"a": ((0, 3),)}), Reconfigure({"a": ((1, 4), (0, 3))})),
        NodeDone("warm up"): (),
    }
    job = Job("drawn", 3, (Compute("warm up", (0,), 0.1),))
    backend = FluidBackend(case.fabric, case.delay_s)
    found = Simulation(case.fabric, job, backend, case.scheme, circuits=When(orders)).run()
    assert rows(found.events, "at_s", "what", "which") == [
        (0.005, "drained", "a"),
        (0.015, "lit", "a 0>3"),
        (0.015, "drained", "a"),
        (0.025, "lit", "a 1>4 0>3"),
    ]


def test_moe_over_packets_and_circuits_survives_a_nic() -> None:
    case = moe()
    found = case.run(FluidBackend(case.fabric, case.delay_s))
    combine = found.messages[found.messages["node"] == "combine"]
    # Two milliseconds of a message that had the circuit's queue pair for itself until its link failed.
    assert "25000000@h3:0,ocs0:0 16147184@h3:2,eps0:0" in set(combine["path"])
    assert rows(found.events, "what", "which")[4:] == [
        ("drained", "ocs0"),
        ("lit", "ocs0 0>3 3>0 1>2 2>1"),
        ("failed", "h0:0"),
        ("detected", "h0:0"),
        ("gone around", "h0:0"),
    ]
    assert found.messages["end_s"].notna().all()
    moved = found.messages["path"].str.findall(r"(\d+)@").map(lambda sizes: sum(map(int, sizes)))
    crossing = found.messages["path"] != NVLINK
    assert (moved[crossing] == found.messages["bytes"][crossing]).all()


def test_a_ring_in_series_goes_on_without_its_dead_gpu() -> None:
    case = ring()
    found = case.run(FluidBackend(case.fabric, case.delay_s))
    assert rows(found.tasks, "node", "gpu", "start_s", "end_s") == [
        ("warm up", 0, 0.0, 0.02),
        ("warm up", 1, 0.0, 0.02),
        ("warm up", 2, 0.0, 0.02),
        ("gradients", -1, 0.02, 0.034),
        # Half of the bytes wait for light around the dead one, 12 ms each way after it came.
        ("gradients of two", -1, 0.034, 0.068),
        ("step", 0, 0.068, 0.078),
        ("step", 2, 0.068, 0.078),
    ]
    assert rows(found.events, "at_s", "what", "which")[4:] == [
        (0.033, "failed", "h1"),
        (0.034, "detected", "h1"),
        (0.034, "gone around", "h1"),
        (0.034, "given up", "gradients"),
        (0.034, "drained", "b"),
        (0.044, "lit", "b 3>2 2>3 5>0 0>5"),
    ]


@pytest.mark.parametrize("case", [moe(), ring()], ids=["moe", "ring"])
def test_equal_runs_are_equal_bit_by_bit(case: Case) -> None:
    one, two = (case.run(FluidBackend(case.fabric, case.delay_s)) for _ in range(2))
    for table in ("messages", "tasks", "events"):
        pd.testing.assert_frame_equal(getattr(one, table), getattr(two, table), check_exact=True)


def test_a_job_that_nothing_can_carry_is_named() -> None:
    case = ring()
    job = Job("drawn", 3, (sends("a", (0, 1, SECOND)),))
    with pytest.raises(StuckError, match="nothing is on its way, and the job has not ended"):
        Simulation(case.fabric, job, FluidBackend(case.fabric, case.delay_s), case.scheme).run()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ScenarioError, match="is for 5 GPUs, and the fabric has 4"):
        run(Job("drawn", 5, (sends("a"),)))
    with pytest.raises(ScenarioError, match="counts from node 'b', which job 'drawn' has not"):
        run(Job("drawn", 4, (sends("a"),)), cut("cable", (Port("h0", 0),), "b"))


def test_only_a_collective_that_runs_can_be_given_up() -> None:
    nodes = (sends("a", (0, 2, SECOND)), sends("b", (0, 2, SECOND), after=("a",)))
    fault = cut("cable", (Port("h0", 1),), "a", 0.5, 0.0)
    runner = Simulation(
        FABRIC,
        Job("drawn", 4, nodes),
        FluidBackend(FABRIC, {}),
        same_rail,
        faults=[fault],
        revisions=Revisions((KnownRevision("cable", ("b",)),)),
    )
    with pytest.raises(ScenarioError, match="'b' is given up, and is not a collective that runs now"):
        runner.run()


def test_a_long_chain_of_nodes_with_nothing_to_do_ends_at_once() -> None:
    nothing = Demand("nothing", np.zeros((4, 4), dtype=np.int64))
    nodes = tuple(Collective(f"n{number}", AllToAll(nothing)) for number in range(3000))
    fabric = rail_fabric(2, 2)
    run = Simulation(fabric, chain("long", 4, nodes), FluidBackend(fabric, {}), same_rail).run()
    assert len(run.tasks) == 3000
    assert run.iteration_s == 0.0


@pytest.mark.parametrize("ring_bytes", [661, 1283, 2999])
def test_a_pool_that_rounding_empties_before_its_end_still_ends(ring_bytes: int) -> None:
    fabric = rail_fabric(8, 1, 0, rate_bps=8000.0)
    nodes = (
        Collective("one byte", PointToPoint(((1, 0, 1),))),
        Collective("ring", Ring(((0, 1, 2, 3),), ring_bytes)),
    )
    scheme = WholeMessages(lambda _view, a, b: QueuePair(Nic(a, 0), Nic(b, 0)))
    run = Simulation(fabric, Job("both", 8, nodes), FluidBackend(fabric, {}), scheme).run()
    assert run.messages["end_s"].notna().all()


@pytest.mark.parametrize("faults", [1, 2])
@pytest.mark.parametrize("scheme", ["minrtt", "plb", "reps"])
def test_what_arrives_as_a_link_fails_is_not_sent_again(scheme: str, faults: int) -> None:
    fabric = rail_fabric(2, 2, 1, rate_bps=8.0 * SECOND, nvlink_bps=80.0 * SECOND)
    job = Job("drawn", 4, (sends("a", (0, 2, 2 * SECOND), (1, 3, 2 * SECOND)),))
    fail = [cut(server, (Port(server, 1),), "a", 2.0, 0.0) for server in ("h0", "h1")[:faults]]
    chosen = partial(policy_named, scheme)
    without, found = (
        Simulation(fabric, job, FluidBackend(fabric, {}), Sprayed(chosen), faults=some).run().messages
        for some in ([], fail)
    )
    assert found["end_s"].tolist() == [2.0, 2.0]
    assert found.equals(without)


@dataclass
class Asks:
    """A rule that asks four times a second what has to be lit for, and orders nothing else."""

    owed: list[int] = field(default_factory=list)

    def decide(self, state: object, view: View, event: Event) -> tuple[object, tuple[Order, ...]]:
        """Return that it will ask again."""
        if isinstance(event, TimerFired):
            self.owed.append(int(view.owed().sum()))
        return state, (SetTimer("ask", 0.25),) * (isinstance(event, NodeStarted | TimerFired))


def test_what_a_rule_asks_leaves_what_lanes_have_carried() -> None:
    fabric = parallel_ocs_fabric(2, 1, rate_bps=8.0 * SECOND)
    job = Job("drawn", 2, (sends("a", (0, 1, 1000), (0, 1, 500)),))
    scheme, rule, backend = (
        Sprayed(partial(policy_named, "minrtt")),
        Asks(),
        FluidBackend(fabric, {"ocs0": 0}),
    )
    tables = (
        Simulation(fabric, job, backend, scheme, circuits=rule, lit={"ocs0": duplex([(0, 1)])}).run().tables
    )
    assert rule.owed[:5] == [1250, 1000, 750, 500, 250]
    assert tables.legs["bytes"].tolist() == tables.messages["bytes"].tolist() == [1000, 500]


def test_a_rule_may_decide_until_a_node_starts_at_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuits, "MOST_IN_VAIN", 3)
    late = replace(sends("late", (0, 2, 1000)), at_s=5.0)
    rule = When(
        {
            NodeStarted("first"): (SetTimer("again", 0.25),),
            TimerFired("again"): (SetTimer("again", 0.25),),
            NodeStarted("late"): (),
        }
    )
    job, backend = Job("drawn", 4, (Compute("first", (), 0.0), late)), FluidBackend(FABRIC, {})
    found = Simulation(FABRIC, job, backend, same_rail, circuits=rule).run()
    assert found.messages["start_s"].tolist() == [5.0]


def test_a_state_is_printed_for_people() -> None:
    simulation = Simulation(
        FABRIC, Job("drawn", 4, (sends("a", (0, 2, 10)),)), FluidBackend(FABRIC, {}), same_rail
    )
    assert "next event: none" in str(simulation.state)
    simulation.run()
    assert "nodes      0 open; held: none\noperations 1 done\nlanes      1, of which 0" in str(
        simulation.state
    )
    assert repr(simulation.state.ops[0]) == "op 0 of node 0: 0>2, 10 bytes, done"
