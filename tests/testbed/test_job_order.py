"""Job order breaks ties between nodes that are ready at the same time, whatever made them ready."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.core.job_graph import JobGraph
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.model.backend import FluidBackend
from topologies.events import Event, NodeDone, NodeStarted, Order, View
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.job import Collective, Compute, Job, Node
from traffic.scheme import Sprayed
from traffic.spraying.ecmp import Ecmp

SECOND = 1000
"""Rate of a link of the fabric below [bytes/s]."""
FABRIC = rail_fabric(2, 2, 1, rate_bps=8.0 * SECOND, nvlink_bps=80.0 * SECOND)
NOTHING = PointToPoint(())
SOMETHING = PointToPoint(((0, 2, SECOND),))
PATTERNS = (
    NOTHING,
    AllToAll(Demand("none", np.zeros((4, 4), dtype=np.int64))),
    SOMETHING,
    Ring(((0, 1, 2, 3),), 4 * SECOND),
)


class Listening:
    """Lights nothing, and notes what happens and when."""

    def __init__(self) -> None:
        self.heard: list[tuple[float, Event]] = []

    def decide(self, state: object, view: View, event: Event) -> tuple[object, tuple[Order, ...]]:
        """Return no order."""
        self.heard.append((view.now_s, event))
        return state, ()

    @property
    def started(self) -> dict[str, float]:
        """When each node started, in that order [s]."""
        return {event.node: at_s for at_s, event in self.heard if isinstance(event, NodeStarted)}

    @property
    def done(self) -> dict[str, float]:
        """When each node ended [s]."""
        return {event.node: at_s for at_s, event in self.heard if isinstance(event, NodeDone)}


class Creeping(FluidBackend):
    """Has a clock that goes on between two looks at it, as a live one does."""

    _late_ps = 0

    @property
    def now_ps(self) -> int:
        """A picosecond later than before, or later."""
        self._late_ps = max(self._late_ps + 1, self._network.now_ps)
        return self._late_ps


def run(job: Job, backend: FluidBackend) -> tuple[Listening, Run]:
    listening = Listening()
    return listening, Simulation(FABRIC, job, backend, Sprayed(Ecmp), circuits=listening).run()


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Node, ...]:
    """Draw nodes many of which take no time, each of which waits for some of those before it."""
    found: list[Node] = []
    for number in range(draw(st.integers(2, 8))):
        names = [node.name for node in found]
        after = tuple(draw(st.lists(st.sampled_from(names), unique=True, max_size=2))) if names else ()
        gpus = tuple(draw(st.lists(st.integers(0, 3), unique=True, max_size=2)))
        kinds: list[Node] = [Compute(str(number), gpus, lasts_s, after) for lasts_s in (0.0, 1.0)]
        kinds += [Collective(str(number), pattern, after) for pattern in PATTERNS]
        found.append(draw(st.sampled_from(kinds)))
    return tuple(found)


def takes_time(node: Node) -> bool:
    if isinstance(node, Compute):
        return bool(node.gpus and node.duration_s)
    return node.pattern not in PATTERNS[:2]


def assert_ties_follow(job: Job, among: set[str]) -> None:
    """Check the order of nodes that are ready at the same time, at once and on each GPU."""
    listening, ran = run(job, FluidBackend(FABRIC, {}))
    place = {name: at for at, name in enumerate(listening.started)}
    done = listening.done
    ready_s = {node.name: max((done[name] for name in node.after), default=0.0) for node in job.nodes}
    tasks = ran.tasks.set_index(["node", "gpu"])["start_s"].to_dict()
    for first, second in combinations([node for node in job.nodes if node.name in among], 2):
        if ready_s[first.name] != ready_s[second.name]:
            continue
        if all(listening.started[each.name] == ready_s[each.name] for each in (first, second)):
            assert place[first.name] < place[second.name], (first, second)
        if isinstance(first, Compute) and isinstance(second, Compute):
            for gpu in {*first.gpus} & {*second.gpus}:
                assert tasks[first.name, gpu] <= tasks[second.name, gpu]


SEND = Collective("send", SOMETHING, ("empty",))
EMPTY = (Compute("empty", (), 1.0), Compute("empty", (0,), 0.0), Collective("empty", NOTHING))


@given(nodes())
def test_nodes_ready_at_one_time_start_in_job_order(drawn: tuple[Node, ...]) -> None:
    assert_ties_follow(Job("drawn", 4, drawn), {node.name for node in drawn})


@given(nodes().flatmap(st.permutations))
@example([SEND, Collective("other", SOMETHING), EMPTY[1]])
def test_in_a_job_that_lists_nodes_before_what_they_wait_for_those_that_take_time_do(
    drawn: list[Node],
) -> None:
    assert_ties_follow(Job("drawn", 4, tuple(drawn)), {node.name for node in drawn if takes_time(node)})


@given(nodes().flatmap(st.permutations))
def test_nodes_start_in_the_same_order_while_a_clock_goes_on(drawn: list[Node]) -> None:
    after = [replace(node, after=node.after or ("begin",)) for node in drawn]
    job = Job("drawn", 4, (Compute("begin", (0,), 1.0), *after))
    at_s = run(job, FluidBackend(FABRIC, {}))[0].started
    together = [name for name in at_s if at_s[name] == 1.0]
    assert list(run(job, Creeping(FABRIC, {}))[0].started)[1 : len(together) + 1] == together


@pytest.mark.parametrize("empty", EMPTY)
def test_the_first_of_two_messages_goes_first_though_it_waits_for_an_empty_node(empty: Node) -> None:
    send, other = (
        Collective(name, SOMETHING, after, "one") for name, after in (("send", ("empty",)), ("other", ()))
    )
    for order in ((empty, send, other), (send, other, empty)):
        found = run(Job("tie", 4, order), FluidBackend(FABRIC, {}))[1].messages
        assert found.set_index("node")["end_s"].to_dict() == {"send": 1.0, "other": 2.0}


def test_an_empty_node_in_the_place_of_another_starts_before_what_waited_for_that() -> None:
    graph = JobGraph(Job("drawn", 4, (Compute("long", (0,), 1.0), Compute("then", (0,), 1.0, ("long",)))))
    graph.replace(["long"], [Compute("other", (0,), 1.0), Compute("empty", (), 0.0)])
    assert graph.rank("empty") <= graph.rank("then") < graph.rank("other")
