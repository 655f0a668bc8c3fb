"""Clusters in shards: which jobs wait for a flip, which for a panel, and which do not wait."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.circuits.shard_order import Shard
from controller.circuits.shards import Sharded, Shards, ShardsState
from testbed.core.run import Run
from testbed.core.simulation import Simulation
from testbed.experiment.experiment import Experiment
from testbed.model.backend import FluidBackend
from testbed.model.predict import predict
from tests.testbed.shard_cases import (
    FIRST,
    FLIP_S,
    OTHER,
    PANEL_S,
    THIRD,
    ring,
    ring_circuits,
    shard,
    sharded,
)
from topologies.errors import DemandError, LightrailError, ScenarioError
from topologies.events import Event, NodeDone, Order, View
from topologies.fabric import Fabric
from topologies.patch_panel import PANELS, flip_name, patch_panel_fabric
from traffic.job import Collective, Compute, Job
from traffic.records import path_of
from traffic.scheme import Routed
from traffic.scheme_setup import ONCE_LIT, ROUTED


def spans(run: Run) -> dict[str, tuple[float, float]]:
    """Return when each node started and ended [s], to the microsecond."""
    rows = zip(run.tasks["node"], run.tasks["start_s"], run.tasks["end_s"], strict=True)
    return {node: (round(start, 6), round(end, 6)) for node, start, end in rows}


@pytest.mark.parametrize("scheme", [ROUTED, ONCE_LIT])
def test_a_job_waits_for_the_flip_and_another_shard_for_nothing(scheme: str) -> None:
    run = predict(sharded(FIRST, OTHER, THIRD, scheme=scheme))
    assert spans(run) == {
        "first": (0.0, 1.2),
        "other": (0.0, 2.4),
        "third": (1.2, round(1.2 + FLIP_S + 0.6, 6)),
    }
    steps = run.messages[run.messages["node"] == "other"]
    assert (steps["end_s"] - steps["start_s"]).to_numpy() == pytest.approx(2.4 / 6), "no step pauses"
    later = run.events[(run.events["at_s"] > 0) & (run.events["what"] == "lit")]
    assert later["which"].str.split().str[0].tolist() == ["panel1", *map(flip_name, range(4))]
    held = run.events[run.events["what"].isin(["held", "released"])]
    assert held[["at_s", "which"]].to_numpy().tolist() == [[1.2, "third"], [1.2 + FLIP_S, "third"]]


def test_rings_of_shards_go_together_as_their_circuits_stay() -> None:
    experiment = sharded(FIRST, OTHER, THIRD)
    steps, coupled = (predict(experiment, couples=couples) for couples in (False, True))
    assert spans(coupled) == spans(steps)
    assert len(coupled.messages) == 3 * 2 * 4 < len(steps.messages)


def test_servers_that_are_free_before_the_panel_wait_for_it() -> None:
    run = predict(sharded(FIRST, OTHER, THIRD, panel_s=3.0))
    assert spans(run) == {"first": (0.0, 1.2), "other": (0.0, 2.4), "third": (1.2, 3.6)}
    assert run.events.loc[run.events["what"] == "released", "at_s"].tolist() == [3.0]


def test_two_shards_are_prepared_together_and_flip_at_times_of_their_own() -> None:
    """With one idle configuration for all servers the second would wait for a panel once more."""
    third, fourth = replace(THIRD, after=("first",)), ring("fourth", (4, 6, 5, 7), 0.6, ("other",))
    other = ring("other", (4, 5, 6, 7), 1.3)
    run = predict(sharded(FIRST, other, third, fourth, panel_s=1.1))
    assert spans(run)["third"] == (1.2, round(1.8 + FLIP_S, 6))
    assert spans(run)["fourth"] == (1.3, round(1.9 + FLIP_S, 6))
    lit = run.events[(run.events["what"] == "lit") & run.events["which"].str.startswith("panel1 ")]
    assert lit["at_s"].tolist() == [0.0, 1.1], "both in one change"


def test_a_server_s_next_but_one_job_is_prepared_when_its_own_begins() -> None:
    """Each job takes longer than a panel: all but the first wait for a flip only, on sides in turn."""
    nodes = [FIRST]
    for number in range(4):
        members = (0, 2, 1, 3) if number % 2 else (0, 1, 3, 2)
        nodes.append(ring(f"{number}", members, 0.6, (nodes[-1].name,)))
    run = predict(sharded(*nodes, servers=4))
    waited = [end - start for name, (start, end) in spans(run).items() if name != "first"]
    assert waited == pytest.approx([0.6 + FLIP_S] * 4)


def test_a_job_on_servers_of_two_shards_flips_once_both_are_over() -> None:
    across = ring("across", (2, 4, 3, 5), 0.6, ("first", "other"))
    run = predict(sharded(FIRST, OTHER, across))
    assert spans(run)["across"] == (2.4, round(3.0 + FLIP_S, 6))
    assert sides(FIRST, OTHER, across) == (0, 0, 1)


def test_where_sides_cannot_differ_the_last_job_waits_for_the_panel() -> None:
    """Three jobs on three pairs of servers, each of which follows those before it."""
    first = ring("first", (0, 1, 2, 3), 1.2)
    second = ring("second", (2, 3, 4, 5), 1.2, ("first",))
    third = ring("third", (0, 1, 4, 5), 0.6, ("second",))
    assert sides(first, second, third) == (0, 1, 0)
    run = predict(sharded(first, second, third, servers=6))
    assert spans(run)["second"] == (1.2, round(2.4 + FLIP_S, 6))
    assert spans(run)["third"][1] == pytest.approx(2.4 + FLIP_S + 0.6 + FLIP_S), "set when the first was over"


def test_computing_hides_a_flip() -> None:
    warm = Compute("warm", (0, 1, 2, 3), 0.3, ("first",))
    third = replace(THIRD, after=("warm",))
    circuits = Shards((shard(FIRST), Shard("warm", ("third",), shard(third).circuits)), PANEL_S, FLIP_S)
    job = Job("hidden", 8, (FIRST, warm, third))
    run = predict(replace(sharded(FIRST), job=job, circuits=circuits))
    assert run.tasks.loc[run.tasks["node"] == "third", "end_s"].item() == pytest.approx(1.2 + 0.3 + 0.6)


def sides(*nodes: Collective) -> tuple[int, ...]:
    """Return the sides of shards."""
    experiment = sharded(*nodes)
    assert isinstance(experiment.circuits, Shards)
    return Sharded(experiment.fabric, experiment.circuits.shards, experiment.job).sides


class Watched:
    """Decides as shards do, and looks at what they decide."""

    def __init__(self, decides: Sharded, shards: Sequence[Shard]) -> None:
        self.decides, self.shards, self.ended = decides, shards, set[str]()

    def decide(self, state: object, view: View, event: Event) -> tuple[object, Sequence[Order]]:
        """Return what was decided; no server is in a third topology, and no circuit is in two shards."""
        if isinstance(event, NodeDone):
            self.ended.add(event.node)
        after, orders = self.decides.decide(state, view, event)
        assert isinstance(after, ShardsState)
        open_ = [each for each in after.provisioned if self.shards[each].starts not in self.ended]
        for server in range(len(view.fabric.servers)):
            mine = [each for each in open_ if server in self.decides.servers[each]]
            assert len({self.decides.sides[each] for each in mine}) == len(mine) <= 2
        running = [each for each in after.flipped if each in open_]
        taken = [server for each in running for server in self.decides.servers[each]]
        assert len(taken) == len(set(taken))
        return after, orders


@st.composite
def sequences(draw: st.DrawFn) -> list[Collective]:
    """Return jobs on some of five servers, each after those that had its servers before it."""
    nodes, last = list[Collective](), dict[int, str]()
    for number in range(draw(st.integers(2, 6))):
        members = tuple(draw(st.permutations(range(5)))[: draw(st.integers(2, 4))])
        after = tuple(dict.fromkeys(last[server] for server in members if server in last))
        nodes.append(ring(f"j{number}", members, draw(st.sampled_from([0.1, 0.4, 0.9])), after))
        last |= dict.fromkeys(members, nodes[-1].name)
    return nodes


@settings(max_examples=12, deadline=None)
@given(sequences())
def test_any_sequence_runs_each_server_in_two_topologies_at_most(nodes: list[Collective]) -> None:
    experiment = sharded(*nodes, servers=5)
    assert isinstance(experiment.circuits, Shards)
    shards, delays = experiment.circuits.shards, experiment.ocs_delays
    watched = Watched(Sharded(experiment.fabric, shards, experiment.job), shards)
    backend = FluidBackend(experiment.fabric, {ocs: delay.mean_s for ocs, delay in delays.items()})
    job, lit = experiment.job, watched.decides.first
    run = Simulation(experiment.fabric, job, backend, Routed(), circuits=watched, lit=lit).run()
    assert run.messages["end_s"].notna().all()
    own = {node.name: {f"h{server}" for server in node.gpus} for node in nodes}
    for name, path in zip(run.messages["node"], run.messages["path"], strict=True):
        crossed = {port.node for leg in path.split() for port in path_of(leg.split("@")[-1])}
        assert crossed <= own[name] | {f"flip{node[1:]}" for node in own[name]} | set(PANELS)
    for node in nodes:
        start_s = max((run.tasks.loc[run.tasks["node"].isin(node.after), "end_s"]), default=0.0)
        waited = run.tasks.loc[run.tasks["node"] == node.name, "end_s"].item() - start_s
        assert waited < 0.9 + FLIP_S + (len(nodes) + 1) * PANEL_S


def test_shards_are_written_down_and_read_again() -> None:
    experiment = sharded(FIRST, OTHER, THIRD)
    assert Experiment.from_json(experiment.to_json()) == experiment


@pytest.mark.parametrize(
    ("nodes", "shards", "why"),
    [
        ((FIRST, replace(THIRD, after=())), None, "'first' and 'third' share server 0 at the same time"),
        ((FIRST,), (), "has no shard"),
        ((FIRST,), (Shard("first", (), ring_circuits((0, 1, 2))),), "'first' has no end or no circuit"),
        ((FIRST,), (Shard("first", ("first",), ()),), "'first' has no end or no circuit"),
        ((FIRST,), (shard(FIRST), shard(FIRST)), "two shards start with the same node"),
        ((FIRST,), (Shard("lost", ("first",), ring_circuits((0, 1, 2))),), "the node 'lost', which the job"),
        (
            (FIRST, THIRD),
            (Shard("third", ("first",), ring_circuits((0, 1, 2))),),
            "'third' ends with 'first', which does not wait for its start",
        ),
    ],
)
def test_shards_that_make_no_sense_are_refused(
    nodes: tuple[Collective, ...], shards: tuple[Shard, ...] | None, why: str
) -> None:
    with pytest.raises(ScenarioError, match=why):
        Shards(shards if shards is not None else tuple(map(shard, nodes)), PANEL_S, FLIP_S).bind(
            sharded(FIRST).fabric, Job("j", 8, nodes), None, 0
        )


@pytest.mark.parametrize(
    ("fabric", "circuits", "why"),
    [
        (patch_panel_fabric(8, nics=2), ring_circuits((0, 1, 2)), "'patch_panel', which does not have two"),
        (sharded(FIRST).fabric, ((0, 16), (16, 0)), "port 16 of an OCS whose ports are 0 to 15"),
    ],
)
def test_fabrics_that_cannot_show_them_are_named(
    fabric: Fabric, circuits: tuple[tuple[int, int], ...], why: str
) -> None:
    with pytest.raises((ScenarioError, DemandError), match=why) as error:
        Shards((Shard("first", ("first",), circuits),), PANEL_S, FLIP_S).bind(
            fabric, Job("j", 8, (FIRST,)), None, 0
        )
    assert isinstance(error.value, LightrailError)
