"""A ring AllReduce whose nodes die, over foreseen circuits: whole tables, computed by hand."""

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.foreseen import Foreseen
from controller.circuits.ring_faults import Mode, foreseen_rings, node_fault, surviving_groups
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from topologies.errors import ScenarioError, StuckError
from topologies.fabric import Port
from topologies.khop_ring import KHopRing, khop_ring_fabric
from topologies.light import light_rings
from traffic.collectives.ring import Ring
from traffic.faults import AS_IT_WAS, KnownRevision, Revisions, cut
from traffic.job import Collective, Job, chain
from traffic.scheme_setup import ONCE_LIT
from traffic.transports.host_settings import TransportSetup

SIZE_PER_GPU = 600
"""Of an AllReduce, for each GPU of a node [bytes]: a half-bundle carries 1000 in a second."""
DELAY = ReconfigurationDelay("drawn", 0.07)
AFTER_S, KNOWN_S = 0.4, 0.05


def experiment(ring: KHopRing, *dying: int, mode: Mode = "shrink") -> Experiment:
    """Return AllReduces over the nodes 0 to 2, in one of which each of some nodes dies."""
    fabric, per_node = khop_ring_fabric(ring, gpu_bps=16e3), ring.gpus_per_node
    groups = surviving_groups(ring, (0, 1, 2), dying, mode)
    foreseen = foreseen_rings(ring, groups, dying, DELAY)
    lit, rings = dict(foreseen.first), list[tuple[int, ...]]()
    for group, change in zip(groups, [*foreseen.changes, None], strict=True):
        (found,) = (each for each in light_rings(fabric, lit) if each[0] // per_node == group[0])
        rings.append(found)
        lit |= dict(change.circuits) if change else {}

    def reduces(count: int, *names: str) -> Job:
        pattern = Ring((rings[count], rings[count][::-1]), SIZE_PER_GPU * per_node)
        return chain("reduces", fabric.gpus, tuple(Collective(name, pattern) for name in names))

    faults = tuple(
        cut(
            node_fault(node),
            tuple(port for bundle in range(per_node) for port in fabric.used_ports(f"n{node}b{bundle}")),
            f"hit {count}",
            AFTER_S,
            KNOWN_S,
            gpus=tuple(range(per_node * node, per_node * (node + 1))),
        )
        for count, node in enumerate(dying)
    )
    revisions = [
        KnownRevision(fault.name, (f"hit {count}",), reduces(count + 1, f"again {count}", f"hit {count + 1}"))
        for count, fault in enumerate(faults)
    ]
    return Experiment(
        fabric,
        reduces(0, "hit 0"),
        ONCE_LIT,
        label="shrunk",
        faults=faults,
        circuits=foreseen,
        revisions=Revisions(tuple(revisions)),
        transport=TransportSetup("credit"),
    )


def rows(table: pd.DataFrame, *columns: str) -> list[tuple[object, ...]]:
    """Return some columns of a table as rows, times rounded to microseconds."""
    return [tuple(row) for row in table[list(columns)].round(6).to_numpy().tolist()]


@pytest.mark.parametrize(
    ("ring", "took_s"), [(KHopRing(5, 2, 2), 6 * 0.15), (KHopRing(7, 3, 3), 10 * 0.15)], ids=["K=2", "K=3"]
)
def test_an_allreduce_is_whole_on_the_shrunken_ring(ring: KHopRing, took_s: float) -> None:
    found, far = predict(experiment(ring, 1)), "0>4 1>5 4>0 5>1"
    # Steps of 150 bytes, the first of which waits 0.07 s for light on one edge.
    whole_s = 0.45 + 0.07 + took_s
    assert rows(found.tasks, "node", "gpu", "start_s", "end_s") == [
        ("hit 0", -1, 0.0, 0.45),
        ("again 0", -1, 0.45, round(whole_s, 6)),
        ("hit 1", -1, round(whole_s, 6), round(whole_s + took_s, 6)),
    ]
    first = [row for row in rows(found.events, "at_s", "what", "which") if row[0] == 0.0]
    assert len(first) == ring.nodes * ring.gpus_per_node
    assert {what for _, what, _ in first} == {"lit"}
    assert rows(found.events[len(first) :], "at_s", "what", "which") == [
        (0.4, "failed", "node 1"),
        (0.45, "detected", "node 1"),
        (0.45, "gone around", "node 1"),
        (0.45, "given up", "hit 0"),
        (0.45, "drained", "n0b1"),
        (0.45, "drained", "n2b0"),
        (0.52, "lit", f"n0b1 {far}"),
        (0.52, "lit", f"n2b0 {far}"),
    ]
    whole = found.messages[found.messages["node"] != "hit 0"]
    assert whole["end_s"].notna().all()
    per_node = ring.gpus_per_node
    assert set(whole["source"]) == {*range(per_node), *range(2 * per_node, 3 * per_node)}
    assert len(whole) == 2 * 2 * (2 * per_node) * 2 * (2 * per_node - 1)


def test_messages_over_light_that_is_to_come_wait_for_it_and_no_others() -> None:
    found = predict(experiment(KHopRing(5, 2, 2), 1)).messages
    again = found[found["node"] == "again 0"]
    first = again.groupby(["source", "destination"])["end_s"].min().round(6)
    assert set(first.unique()) == {0.45 + 0.15, 0.52 + 0.15}
    late = first[first == 0.52 + 0.15].reset_index()
    nodes = {frozenset(pair) for pair in (late[["source", "destination"]] // 2).to_numpy().tolist()}
    assert nodes == {frozenset({0, 2})}
    assert len(late) == 4, "two lanes, both ways"


def test_two_nodes_die_and_what_is_left_of_three_is_a_node() -> None:
    found = predict(experiment(KHopRing(5, 2, 2), 1, 0)).tasks
    ends_s = [0.45, 0.45 + 0.07 + 0.9]
    # Two steps of twice 300 bytes: the first over bundle 1, until bundle 0 loops back and takes half of it.
    ends_s += [ends_s[1] + 0.45, ends_s[1] + 0.45 + 0.07 + (0.6 - 0.07) / 2 + 0.3]
    ends_s += [ends_s[3] + 0.3 + 0.3]
    assert found["node"].tolist() == ["hit 0", "again 0", "hit 1", "again 1", "hit 2"]
    assert found["end_s"].tolist() == pytest.approx(ends_s)


def test_a_spare_node_takes_the_place_of_a_dead_one() -> None:
    found = predict(experiment(KHopRing(7, 3, 3), 1, mode="replace"))
    assert found.tasks["end_s"].tolist() == pytest.approx([0.45, 0.45 + 0.07 + 1.6, 2.12 + 1.6])
    again = found.messages[found.messages["node"] == "again 0"]
    assert set(again["source"]) == {0, 1, 2, *range(6, 12)}


def test_an_experiment_with_foreseen_circuits_and_revisions_survives_json() -> None:
    before = experiment(KHopRing(7, 3, 3), 1, 0, mode="replace")
    after = Experiment.from_json(before.to_json())
    assert after == before
    assert after.key == before.key
    assert predict(after).tasks.equals(predict(before).tasks)


def test_a_fault_that_nothing_was_foreseen_for_is_named_and_light_that_never_comes_too() -> None:
    asked = experiment(KHopRing(5, 2, 2), 1)
    assert isinstance(asked.circuits, Foreseen)
    with pytest.raises(ScenarioError, match="no circuits are foreseen for node 1; foreseen are: none"):
        predict(replace(asked, circuits=Foreseen(asked.circuits.first, (), DELAY)))
    dark = Foreseen((), asked.circuits.changes, DELAY)
    with pytest.raises(StuckError, match="nothing is on its way"):
        predict(replace(asked, circuits=dark, faults=(), revisions=AS_IT_WAS))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (lambda e: replace(e, faults=()), "the job is revised by fault 'node 1', which is not there"),
        (lambda e: replace(e, circuits=Foreseen((("n9b0", ()),), (), DELAY)), "'n9b0', which is not an OCS"),
        (lambda e: replace(e, dilation=Dilation(1e-3, 1e-5)), "a delay of 0.07 s would be 0.0007 s"),
    ],
)
def test_what_does_not_fit_together_is_refused(changed: Callable[[Experiment], Experiment], why: str) -> None:
    with pytest.raises(ScenarioError, match=why):
        changed(experiment(KHopRing(5, 2, 2), 1))


def test_a_fault_may_count_from_a_node_that_a_revision_adds_and_from_no_other() -> None:
    asked = experiment(KHopRing(5, 2, 2), 1)
    late = cut("late", (Port("h0", 0),), "hit 9")
    with pytest.raises(ScenarioError, match="counts from node 'hit 9', which job"):
        predict(replace(asked, faults=(*asked.faults, late)))
