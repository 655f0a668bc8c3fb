"""What becomes of a job by a fault, where that is known before the run."""

from dataclasses import replace

import pytest

from topologies.errors import ScenarioError
from topologies.fabric import Port
from traffic.collectives.ring import Ring
from traffic.faults import AS_IT_WAS, Fault, KnownRevision, Moves, Revisions, cut, moved
from traffic.job import Collective, Compute, chain

RING = Ring(((0, 1, 2),), 90)
INSTEAD = chain("instead", 4, (Compute("c", (0,), 1.0), Compute("d", (1,), 1.0)))
REVISIONS = Revisions((KnownRevision("first", ("a", "b"), INSTEAD), KnownRevision("second", ("c",))))


def fault(name: str) -> Fault:
    return cut(name, (Port("h0", 0),))


def test_each_fault_has_its_revision_and_others_none() -> None:
    assert REVISIONS.of(fault("first")) == REVISIONS.known[0]
    assert REVISIONS.of(fault("second")) == REVISIONS.known[1]
    assert REVISIONS.of(fault("third")) == AS_IT_WAS.of(fault("third")) == KnownRevision("third")


def test_nodes_that_may_be_added_are_those_of_all_revisions() -> None:
    assert [node.name for node in REVISIONS.nodes] == ["c", "d"]
    assert AS_IT_WAS.nodes == ()


def test_two_revisions_for_one_fault_are_refused() -> None:
    with pytest.raises(ScenarioError, match="fault 'first' revises the job twice"):
        Revisions((KnownRevision("first"), KnownRevision("second"), KnownRevision("first")))


def test_moved_jobs_have_other_gpus_in_the_places_of_those_that_are_gone() -> None:
    compute = Compute("a", (0, 1), 1.0, durations_s=(1.0, 2.0))
    job = chain("job", 6, (compute, Collective("b", RING)))
    found = moved(job, ((1, 5),))
    assert [node.gpus for node in found.nodes] == [(0, 5), (0, 2, 5)]
    assert found.nodes[0] == replace(compute, gpus=(0, 5))
    assert found.collectives == (Collective("b", Ring(((0, 5, 2),), 90), ("a",)),)
    assert moved(found, ((5, 3),)) == moved(job, ((1, 3),))
    assert moved(job, ()) == job


@pytest.mark.parametrize("moves", [((1, 0),), ((1, 6),), ((1, -1),), ((0, 4), (1, 4))])
def test_only_idle_gpus_take_places(moves: Moves) -> None:
    job = chain("job", 6, (Compute("a", (0, 1), 1.0), Collective("b", RING)))
    with pytest.raises(ScenarioError, match="has another or is not there"):
        moved(job, moves)


def test_no_gpu_is_moved_twice() -> None:
    job = chain("job", 6, (Compute("a", (0, 1), 1.0),))
    with pytest.raises(ScenarioError, match="moved twice"):
        moved(job, ((1, 4), (1, 5)))


def test_revisions_name_what_moves_by_each_fault() -> None:
    revisions = Revisions((KnownRevision("first", moves=((1, 5),)), KnownRevision("second")))
    assert revisions.moves == {"first": ((1, 5),)}
    assert revisions.of(fault("first")).moves == ((1, 5),)
