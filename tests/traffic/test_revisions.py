"""What becomes of a job by a fault, where that is known before the run."""

import pytest

from topologies.errors import ScenarioError
from topologies.events import View
from topologies.fabric import Port
from topologies.rail import rail_fabric
from traffic.faults import AS_IT_WAS, Fault, KnownRevision, Revision, Revisions
from traffic.job import Compute, chain

VIEW = View(0.0, rail_fabric(2, 2), {}, frozenset())
INSTEAD = chain("instead", 4, (Compute("c", (0,), 1.0), Compute("d", (1,), 1.0)))
REVISIONS = Revisions((KnownRevision("first", ("a", "b"), INSTEAD), KnownRevision("second", ("c",))))


def fault(name: str) -> Fault:
    return Fault(name, (Port("h0", 0),))


def test_each_fault_has_its_revision_and_others_none() -> None:
    assert REVISIONS(VIEW, fault("first")) == Revision(("a", "b"), INSTEAD.nodes)
    assert REVISIONS(VIEW, fault("second")) == Revision(("c",))
    assert REVISIONS(VIEW, fault("third")) == AS_IT_WAS(VIEW, fault("first")) == Revision()


def test_nodes_that_may_be_added_are_those_of_all_revisions() -> None:
    assert [node.name for node in REVISIONS.nodes] == ["c", "d"]
    assert AS_IT_WAS.nodes == ()


def test_two_revisions_for_one_fault_are_refused() -> None:
    with pytest.raises(ScenarioError, match="fault 'first' revises the job twice"):
        Revisions((KnownRevision("first"), KnownRevision("second"), KnownRevision("first")))
