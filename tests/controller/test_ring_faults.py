"""Groups on a K-hop ring while nodes die: what shrinks, what is replaced, and which circuits change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.ring_circuits import Group, place
from controller.circuits.ring_faults import Mode, foreseen_rings, surviving_groups
from tests.topologies.khop_rings import khop_rings
from topologies.errors import DemandError, LightrailError
from topologies.fabric import Fabric
from topologies.khop_ring import KHopRing, khop_ring_fabric
from topologies.light import light_rings

DELAY = ReconfigurationDelay("ocstrx", 70e-6)
K2, K3 = KHopRing(8, 4, 2), KHopRing(8, 4, 3)
FIRST = (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("ring", "mode", "dying", "groups", "changed"),
    [
        (K2, "shrink", (2,), ((0, 1, 3),), ("n1b1 n3b0",)),
        (K2, "shrink", (2, 0), ((0, 1, 3), (1, 3)), ("n1b1 n3b0", "n1b0")),
        (K2, "replace", (2,), ((0, 1, 3, 4),), ("n1b1 n3b0 n3b1 n4b0",)),
        (K2, "replace", (2, 3), ((0, 1, 3, 4), (4, 5, 6, 7)),
         ("n1b1 n3b0 n3b1 n4b0", "n0b1 n1b0 n1b1 n4b0 n4b1 n5b0 n5b1 n6b0 n6b1 n7b0")),
        (K3, "shrink", (1, 2), ((0, 2, 3), (0, 3)), ("n0b1 n2b0", "n0b1 n0b2 n3b0 n3b2")),
        (K3, "shrink", (6,), (FIRST,), ("",)),
    ],
)  # fmt: skip
def test_worked_examples(
    ring: KHopRing, mode: Mode, dying: tuple[int, ...], groups: tuple[Group, ...], changed: tuple[str, ...]
) -> None:
    found = surviving_groups(ring, FIRST, dying, mode)
    assert found == (FIRST, *groups)
    foreseen = foreseen_rings(ring, found, dying, DELAY)
    assert tuple(" ".join(ocs for ocs, _ in change.circuits) for change in foreseen.changes) == changed
    assert [change.faults for change in foreseen.changes] == [
        tuple(f"node {node}" for node in dying[:count]) for count in range(1, len(dying) + 1)
    ]


def gpus(fabric: Fabric, ring: KHopRing, group: Group) -> set[int]:
    """Return the GPUs of a group's nodes."""
    assert len(fabric.servers) == ring.nodes * ring.gpus_per_node
    return {node * ring.gpus_per_node + gpu for node in group for gpu in range(ring.gpus_per_node)}


@given(ring=khop_rings(most_nodes=10), data=st.data())
def test_light_joins_the_gpus_of_a_group_after_every_fault(ring: KHopRing, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, ring.nodes))
    mode: Mode = data.draw(st.sampled_from(["shrink", "replace"]))
    dying = data.draw(st.lists(st.integers(0, ring.nodes - 1), max_size=3, unique=True))
    placed = place(ring, frozenset(), size)
    if not placed:
        return
    try:
        groups = surviving_groups(ring, placed[0], dying, mode)
    except DemandError:
        return  # no link bridges the gap, or nothing is left
    fabric, foreseen = khop_ring_fabric(ring), foreseen_rings(ring, groups, dying, DELAY)
    foreseen.bind(fabric, None, None, 0, None)
    lit = dict(foreseen.first)
    for count, (group, change) in enumerate(zip(groups[1:], foreseen.changes, strict=True), start=1):
        lit |= dict(change.circuits)
        dead = {f"n{node}b{number}" for node in dying[:count] for number in range(ring.gpus_per_node)}
        assert dead.isdisjoint(ocs for ocs, _ in change.circuits)
        assert any(set(found) == gpus(fabric, ring, group) for found in light_rings(fabric, lit))
        if mode == "shrink":
            assert len(change.circuits) <= 2 * 2, "two neighbours, two bundles each at most"


@pytest.mark.parametrize(
    ("dying", "mode", "why"),
    [
        ((1, 2), "shrink", "no link joins the nodes 0 and 3"),
        ((2, 2), "shrink", "a node dies twice in 2, 2"),
        ((8,), "shrink", "faulty node 8 of nodes 0 to 7"),
        ((-1,), "replace", "faulty node -1"),
        ((0, 1, 2, 3), "shrink", "no link joins|no group of 4 nodes is left"),
        ((0, 2, 4, 6, 1), "replace", "no group of 4 nodes is left without the nodes"),
    ],
)
def test_what_no_group_survives_is_named(dying: tuple[int, ...], mode: Mode, why: str) -> None:
    with pytest.raises(LightrailError, match=why):
        surviving_groups(K2, FIRST, dying, mode)
