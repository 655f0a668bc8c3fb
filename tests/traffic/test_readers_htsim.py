"""htsim's connection matrix: what starts when, what is refused, and what the note says."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.trust.outcome import Outcome
from tests.traffic.trace_files import HTSIM, MICE, TRIGGERED, written
from topologies.errors import ScenarioError, TraceError
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.point_to_point import PointToPoint
from traffic.job import Compute, Job
from traffic.readers import htsim
from traffic.readers.detect import read_trace
from traffic.readers.htsim import UNIT_PS, StartUnit, read_htsim
from traffic.steps import demands_of
from traffic.workloads.placement import placed

NODES = 5
ALONE, RAILS = rail_fabric(servers=NODES, rails=1), rail_fabric(servers=3, rails=2)
"""A server for each node, and two nodes in a server."""
CHAINS = """Nodes 4
Connections 4
Triggers 2
0->1 id 1 start 0 size 1000000 send_done_trigger 1
0->1 id 2 trigger 1 size 90000000
2->3 id 3 start 0 size 90000000 send_done_trigger 2
2->3 id 4 trigger 2 size 1000000
trigger id 1 oneshot
trigger id 2 oneshot
"""


@dataclass(frozen=True)
class Line:
    """A connection."""

    ends: tuple[int, int]
    start: int | None
    waits_for: int | None
    fires: tuple[int, ...]

    def text(self, number: int) -> str:
        """Return it as htsim writes it."""
        begins = f"trigger {self.waits_for}" if self.start is None else f"start {self.start}"
        keys = ("send_done_trigger", "recv_done_trigger")
        fires = "".join(f" {key} {trigger}" for key, trigger in zip(keys, self.fires, strict=False))
        return f"{self.ends[0]}->{self.ends[1]} id {number} {begins} size {10_000 * number + number}{fires}"


def matrix(connections: Sequence[Line], nodes: int = NODES) -> str:
    """Return connections and their triggers as a file: a barrier where several fire one."""
    fired = [trigger for each in connections for trigger in each.fires]
    triggers = [
        f"trigger id {each} " + (f"barrier count {fired.count(each)}" if fired.count(each) > 1 else "oneshot")
        for each in dict.fromkeys(fired)
    ]
    header = [f"Nodes {nodes}", f"Connections {len(connections)}", f"Triggers {len(triggers)}"]
    lines = [each.text(number) for number, each in enumerate(connections, 1)]
    return "\n".join([*header, *lines, *triggers])


@st.composite
def graphs(draw: st.DrawFn) -> list[Line]:
    """Draw connections between different nodes, each of which waits for triggers of those before it."""
    pairs = [(a, b) for a in range(NODES) for b in range(NODES) if a != b]
    ends = draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1, max_size=9))
    fires: list[list[int]] = [[] for _ in ends]
    found: list[tuple[int | None, int | None]] = []
    triggers: dict[int, int] = {}
    for number in range(len(ends)):
        free = [each for each in range(number) if len(fires[each]) < 2]
        known = [each for each, declared in triggers.items() if declared <= number]
        waits, is_new = draw(st.booleans()), draw(st.booleans())
        if waits and known and not is_new:
            found.append((None, draw(st.sampled_from(known))))
        elif waits and free:
            trigger = len(triggers) + 1
            triggers[trigger] = number
            for each in draw(st.lists(st.sampled_from(free), unique=True, min_size=1)):
                fires[each].append(trigger)
            found.append((None, trigger))
        else:
            found.append((draw(st.sampled_from([5, 40, 2_000_000])), None))
    return [Line(pair, *begins, tuple(own)) for pair, begins, own in zip(ends, found, fires, strict=True)]


def outcome(job: Job, fabric: Fabric = ALONE, scheme: str = "ecmp") -> Outcome:
    """Return the prediction of a job."""
    experiment = Experiment(fabric, placed(job, fabric), scheme)
    return Outcome(experiment, predict(experiment))


@settings(deadline=None)
@given(graphs(), st.sampled_from(["us", "ps"]))
def test_each_connection_starts_at_its_time_or_when_all_that_fire_its_trigger_have_ended(
    tmp_path_factory: pytest.TempPathFactory, connections: list[Line], unit: StartUnit
) -> None:
    path = written(tmp_path_factory.getbasetemp(), matrix(connections), "graph.cm")
    messages = outcome(read_htsim(path, start_unit=unit)).run.tables.messages
    ends = zip(messages["source"], messages["destination"], strict=True)
    times = dict(zip(ends, zip(messages["released_ps"], messages["end_ps"], strict=True), strict=True))
    first = min(each.start for each in connections if each.start is not None)
    for each in connections:
        fired_ps = [times[other.ends][1] for other in connections if each.waits_for in other.fires]
        starts_ps = max(fired_ps) if each.start is None else (each.start - first) * UNIT_PS[unit]
        assert times[each.ends][0] == starts_ps


@settings(deadline=None)
@given(graphs(), st.sampled_from(["ecmp", "rails", "spray"]))
def test_no_scheme_beats_the_bound_of_a_graph(
    tmp_path_factory: pytest.TempPathFactory, connections: list[Line], scheme: str
) -> None:
    path = written(tmp_path_factory.getbasetemp(), matrix(connections), "graph.cm")
    found = outcome(read_htsim(path, start_unit="ps"), RAILS, scheme)
    assert found.bound_s <= found.cct_s * (1 + 1e-9)


def test_a_chain_does_not_wait_for_another(tmp_path: Path) -> None:
    job = read_htsim(written(tmp_path, CHAINS, "chains.cm"))
    assert {node.name: node.after for node in job.nodes} == {
        "0->1 (line 4)": (),
        "2->3 (line 6)": (),
        "0->1 (line 5)": ("0->1 (line 4)",),
        "2->3 (line 7)": ("2->3 (line 6)",),
    }
    assert all(type(node.pattern) is PointToPoint for node in job.collectives)
    assert job.note == "htsim connection matrix chains.cm, a graph of 4 nodes"
    found = outcome(job)
    assert found.bound_s == pytest.approx(found.cct_s) == pytest.approx(7.28e-3)


def test_connections_between_two_nodes_share_the_link_whatever_starts_them(tmp_path: Path) -> None:
    chained = CHAINS.replace("2->3 id 3 start 0 size 90000000", "0->1 id 3 start 0 size 90000000")
    run = outcome(read_htsim(written(tmp_path, chained))).run
    first = run.messages.set_index("node").loc["0->1 (line 4)"]
    assert first["end_s"] == pytest.approx(160e-6), "half of the link, beside 90 MB"


def test_a_barrier_between_groups_is_a_node_that_takes_no_time(tmp_path: Path) -> None:
    # 0->1, 1->2 | 2->3, 3->4, where another trigger follows one of each.
    connections = [
        Line((0, 1), 0, None, (1, 2)),
        Line((1, 2), 0, None, (1,)),
        Line((2, 3), None, 1, (3,)),
        Line((3, 4), None, 1, ()),
        Line((4, 0), None, 2, ()),
        Line((0, 4), None, 3, ()),
    ]
    job = read_htsim(written(tmp_path, matrix(connections)))
    barrier = Compute("trigger 1", (), 0.0, ("0->1 (line 4)", "1->2 (line 5)"))
    assert barrier in job.nodes
    waits = {node.name for node in job.nodes if node.after == ("trigger 1",)}
    assert waits == {"2->3 (line 6)", "3->4 (line 7)"}


@settings(deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_rounds_between_barriers_are_all_to_alls_and_take_as_long_as_their_graph(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    pairs = [(a, b) for a in range(NODES) for b in range(NODES) if a != b]
    rounds = [
        data.draw(st.lists(st.sampled_from(pairs), unique=True, min_size=size, max_size=size))
        for size in sizes
    ]
    connections = [
        Line(pair, None if number else 0, number or None, (number + 1,) if number + 1 < len(rounds) else ())
        for number, own in enumerate(rounds)
        for pair in own
    ]
    path = written(tmp_path_factory.getbasetemp(), matrix(connections), "rounds.cm")
    job = read_htsim(path)
    assert [set(map(tuple, np.argwhere(step.matrix).tolist())) for step in demands_of(job)] == [
        set(own) for own in rounds
    ]
    assert ("a step per round of triggers" in job.note) == (len(rounds) > 1)
    assert len(demands_of(read_trace(path, all_to_alls=1))) == 1
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(htsim, "MAX_CELLS", 0)
        graph = read_htsim(path)
        assert len(read_htsim(path, all_to_alls=1).nodes) == 1
    assert all(type(node.pattern) is PointToPoint for node in graph.collectives)
    assert outcome(graph).cct_s == pytest.approx(outcome(job).cct_s, abs=1e-11)


def test_connections_that_start_together_are_an_all_to_all(tmp_path: Path) -> None:
    for job in (read_htsim(written(tmp_path, HTSIM)), read_trace(written(tmp_path, HTSIM))):
        (step,) = demands_of(job)
        expected = np.zeros((4, 4), dtype=int)
        expected[0, 1:3], expected[3, 2] = (2000, 500), 7
        assert np.array_equal(step.matrix, expected)
        note = "htsim connection matrix trace.txt; priorities differ and are not modelled: all share alike"
        assert job.note == step.note == note


def test_connections_between_two_nodes_stay_apart(tmp_path: Path) -> None:
    """Three flows leave node 0: two of them to node 1, which by htsim take two thirds of its NIC."""
    lines = [
        "0->1 id 1 start 0 size 3000000",
        "0->1 id 2 start 0 size 3000000",
        "0->2 id 3 start 0 size 3000000",
    ]
    content = "\n".join(["Nodes 3", "Connections 3", *lines])
    job = read_htsim(written(tmp_path, content))
    (node,) = job.collectives
    assert node.pattern == PointToPoint(((0, 1, 3_000_000), (0, 1, 3_000_000), (0, 2, 3_000_000)))
    messages = predict(Experiment(rail_fabric(3, 1, 1, rate_bps=100e9), job, "ecmp")).tables.messages
    assert messages["end_ps"].tolist() == pytest.approx([720e6] * 3, rel=1e-3)


def test_messages_that_no_matrix_has_room_for_stay_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(htsim, "MAX_CELLS", 4 * 4 - 1)
    job = read_htsim(written(tmp_path, HTSIM))
    (node,) = job.collectives
    assert node.pattern == PointToPoint(((0, 1, 2000), (0, 2, 500), (3, 2, 7)))


def test_priorities_that_are_equal_are_nothing_to_say(tmp_path: Path) -> None:
    alike = "Nodes 3\nConnections 2\n0->1 start 0 size 5 prio 3\n1->2 start 0 size 5 prio 3\n"
    assert read_htsim(written(tmp_path, alike)).note == "htsim connection matrix trace.txt"
    urgent = CHAINS.replace("id 2 trigger", "id 2 prio 1 trigger")
    assert "priorities differ" in read_htsim(written(tmp_path, urgent)).note


@pytest.mark.parametrize(("unit", "late_s"), [("us", 50e-6), ("ps", 50e-12)])
def test_connections_that_start_at_a_time_are_a_node_that_waits_for_no_other(
    tmp_path: Path, unit: StartUnit, late_s: float
) -> None:
    job = read_trace(written(tmp_path, MICE, "mice.cm"), start_unit=unit)
    assert [(node.name, node.after, node.at_s) for node in job.nodes] == [
        ("4->0 (line 3)", (), 0.0),
        ("1->0 and 1 more (line 4)", (), pytest.approx(late_s)),
        ("3->0 (line 6)", (), pytest.approx(2 * late_s)),
    ]
    assert job.note == f"htsim connection matrix mice.cm, a graph of 3 nodes; starts from 7 to 107 {unit}"
    assert sorted(outcome(job).run.tasks["start_s"]) == pytest.approx([0.0, late_s, 2 * late_s])


def test_starts_that_differ_need_a_unit_and_others_none(tmp_path: Path) -> None:
    path = written(tmp_path, MICE)
    said = "start at different times, and does not say in which unit; give start_unit .--start-unit.: us if"
    with pytest.raises(TraceError, match=said):
        read_trace(path)
    with pytest.raises(TraceError, match="unknown unit of starts 'ms'; give us or ps"):
        read_htsim(path, start_unit="ms")  # type: ignore[arg-type]
    together = written(tmp_path, HTSIM.replace("start 0", "start 5"), "together.cm")
    assert read_htsim(together) == read_htsim(together, start_unit="us")
    (node,) = read_htsim(together).nodes
    assert not node.at_s, "the first connection starts the job"


@pytest.mark.parametrize("content", ["0,5\n5,0\n", "[[0, 5], [5, 0]]"])
def test_a_unit_of_starts_has_no_effect_on_other_files(tmp_path: Path, content: str) -> None:
    said = r"is no connection matrix of htsim, so start_unit \(--start-unit\) would have no effect"
    with pytest.raises(ScenarioError, match=said):
        read_trace(written(tmp_path, content), start_unit="us")
    np.save(tmp_path / "m.npy", [[0, 5], [5, 0]])
    with pytest.raises(ScenarioError, match=said):
        read_trace(tmp_path / "m.npy", start_unit="us")


@pytest.mark.parametrize("message", ["msg", "msg 7"])
def test_messages_of_a_connection_are_its_bytes(tmp_path: Path, message: str) -> None:
    lines = [f"0->1 id 1 {message} start 0 size 50000"] * 2
    job = read_htsim(written(tmp_path, "\n".join(["Nodes 2", "Connections 2", *lines])))
    (step,) = demands_of(job)
    assert step.matrix.tolist() == [[0, 100_000], [0, 0]]
    assert job.note == "htsim connection matrix trace.txt"


def test_what_no_part_of_htsim_asks_for_changes_nothing(tmp_path: Path) -> None:
    plain = read_htsim(written(tmp_path, CHAINS))
    assert read_htsim(written(tmp_path, CHAINS.replace("id 2 trigger", "id 2 addon trigger"))) == plain
    more = CHAINS.replace("Triggers 2", "Triggers 3") + "trigger id 3 multishot\n"
    assert read_htsim(written(tmp_path, more)) == plain, "nothing waits for trigger 3"
    assert read_htsim(written(tmp_path, CHAINS.replace("1 oneshot", "1 multishot"))) == plain


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (CHAINS.replace("size 1000000 ", "size 0 "), "line 4: a connection of size 0 never ends"),
        (CHAINS.replace("2->3 id 4", "2->2 id 4"), "line 7: node 2 sends to itself"),
        (CHAINS.replace("id 2 trigger", "id 0 trigger"), "line 5: found '0', expected the value of id"),
        (CHAINS.replace("id 2 trigger", "id 3 trigger"), "line 6: found 'id 3', expected an id other"),
        (
            CHAINS.replace("id 2 trigger", "id 1 trigger"),
            "line 5: found 'id 1', expected an id other than that of line 4, or msg in both",
        ),
        (CHAINS.replace("id 1 start", "id 1 msg start"), "line 4: messages of one connection do not all"),
        (CHAINS.replace("trigger id 1 oneshot", "trigger id 4 oneshot"), "line 4: found 'trigger 1'"),
        (CHAINS.replace("trigger id 1 oneshot", "trigger id 2 oneshot"), "line 9: found 'trigger id 2'"),
        (CHAINS.replace("id 1 oneshot", "id 1"), "line 8: found 'trigger id 1', expected a trigger such"),
        (CHAINS.replace("id 1 oneshot", "id 1 oneshot barrier"), "expected a trigger such as"),
        (CHAINS.replace("id 1 oneshot", "id 1 sometimes"), "line 8: found 'sometimes', expected one of"),
        (CHAINS.replace("id 1 oneshot", "id 1 barrier"), "barrier trigger 1 needs 0 firings and has 1"),
        (
            CHAINS.replace("id 1 oneshot", "id 1 barrier count 2"),
            "1 needs 2 firings and has 1; write 'barrier count 1'",
        ),
        ("Nodes 4\n" + CHAINS, "line 2: found 'Nodes', expected each header once"),
        (CHAINS.replace("start 0", "start 0 start 5"), "line 4: found 'start', expected each word once"),
        (
            CHAINS.replace("send_done_trigger 2", "send_done_trigger 1 recv_done_trigger 2"),
            "line 8: oneshot trigger 1 is fired 2 times, which stops htsim; write 'barrier count 2'",
        ),
        (
            CHAINS.replace("trigger 2 size", "trigger 1 size").replace("1 oneshot", "1 multishot"),
            "multishot trigger 1 starts one of its connections .2. at each of its firings .1., in the order",
        ),
    ],
)
def test_what_cannot_be_or_is_not_modelled_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    with pytest.raises(TraceError, match=complaint) as error:
        read_htsim(written(tmp_path, content))
    assert str(tmp_path / "trace.txt") in str(error.value)


def test_a_graph_has_no_first_all_to_alls(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="has no first 2 all-to-alls; take all of it"):
        read_trace(written(tmp_path, CHAINS), all_to_alls=2)


def test_more_nodes_than_a_job_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(htsim, "MOST_NODES", 3)
    with pytest.raises(TraceError, match="holds 4 groups of connections that wait for different ones"):
        read_htsim(written(tmp_path, CHAINS))


def test_send_and_receive_triggers_of_a_connection_are_its_end(tmp_path: Path) -> None:
    job = read_htsim(written(tmp_path, TRIGGERED))
    assert {node.name: node.after for node in job.nodes} == {
        "0->1 and 1 more (line 5)": (),
        "1->2 (line 7)": ("0->1 and 1 more (line 5)",),
        "3->0 (line 4)": ("1->2 (line 7)",),
        "2->3 (line 8)": ("1->2 (line 7)",),
    }
    assert not any(type(node.pattern) is AllToAll for node in job.collectives)
