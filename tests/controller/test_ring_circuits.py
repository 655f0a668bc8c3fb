"""Rings of GPUs through bundles: every group is one cycle of light, and a fault changes two bundles."""

from collections.abc import Mapping
from itertools import combinations, pairwise, permutations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.circuits.circuits import Circuits, Pair
from controller.circuits.ring_circuits import (
    Group,
    Paths,
    bundle_circuits,
    changed_bundles,
    place,
    ring_paths,
    shrunk,
)
from controller.schedulers.infinitehbd import FatTree, deployment_line, fat_tree_groups, line_groups
from tests.topologies.khop_rings import khop_rings, wired
from topologies.errors import DemandError
from topologies.fabric import Fabric, Port
from topologies.khop_ring import LOOPBACK, KHopRing, TrxBundle, khop_ring_fabric

EIGHT = KHopRing(8, 4, 2)
Placed = tuple[KHopRing, set[int], int, tuple[Group, ...]]


def ring_circuits(ring: KHopRing, paths: Paths) -> dict[str, tuple[Pair, ...]]:
    """Return the circuits of every OCS of a K-hop ring."""
    return dict(bundle_circuits(ring, paths, ring.every_bundle))


def light_graph(fabric: Fabric, circuits: Mapping[str, tuple[Pair, ...]]) -> "nx.MultiGraph[int]":
    """Return which GPUs light joins, followed cable by cable from each GPU's two halves."""
    graph: nx.MultiGraph[int] = nx.MultiGraph()
    graph.add_nodes_from(range(fabric.gpus))
    for nic in fabric.nics:
        start = fabric.nic_port(nic)
        port: Port | None = start
        while port is not None:
            reached = fabric.peer(port)
            if reached.node in fabric.server_index:
                if start < reached:
                    graph.add_edge(nic.server, fabric.server_index[reached.node])
                break
            out = dict(circuits[reached.node]).get(reached.number)
            onward = None if out is None else Port(reached.node, out)
            port = onward if onward in fabric.link_at else None
    return graph


def cycles(graph: "nx.MultiGraph[int]") -> set[frozenset[int]]:
    """Return the rings of a graph in which every joined GPU has two neighbours; one alone has none."""
    parts = [graph.subgraph(part) for part in nx.connected_components(graph)]
    assert all(degree in (0, 2) for _, degree in graph.degree())
    return {frozenset(part) for part in parts if part.number_of_edges()}


def gpus_of(ring: KHopRing, nodes: tuple[int, ...]) -> frozenset[int]:
    r = ring.gpus_per_node
    return frozenset(node * r + gpu for node in nodes for gpu in range(r))


def alone(ring: KHopRing, faulty: set[int], placed: tuple[Group, ...]) -> list[Group]:
    """Return the healthy nodes in no group, each by itself."""
    taken = faulty.union(*placed)
    return [(node,) for node in range(ring.nodes) if node not in taken]


@st.composite
def placements(draw: st.DrawFn) -> Placed:
    """Return a ring or line, faulty nodes, the nodes of a group and their placement."""
    ring = draw(khop_rings())
    faulty = draw(st.sets(st.integers(0, ring.nodes - 1), max_size=ring.nodes // 2))
    size = draw(st.integers(1, 6))
    return ring, faulty, size, place(ring, faulty, size)


@given(placements())
def test_light_joins_the_gpus_of_each_group_into_one_ring(
    placement: Placed,
) -> None:
    ring, faulty, _, placed = placement
    circuits = ring_circuits(ring, ring_paths(ring, placed, faulty))
    found = cycles(light_graph(khop_ring_fabric(ring), circuits))
    assert found == {gpus_of(ring, nodes) for nodes in (*placed, *alone(ring, faulty, placed))}


@given(placements())
def test_circuits_are_what_their_ocs_permits_and_faulty_nodes_are_dark(
    placement: Placed,
) -> None:
    ring, faulty, _, placed = placement
    circuits = ring_circuits(ring, ring_paths(ring, placed, faulty))
    fabric = khop_ring_fabric(ring)
    assert circuits.keys() == fabric.switch_index.keys()
    for switch in fabric.switches:
        shown = circuits[switch.name]
        assert switch.permits(Circuits(switch.ports, shown).pairs)
        assert bool(shown) == (int(switch.name[1:].split("b")[0]) not in faulty)


@given(placements())
def test_placement_uses_healthy_nodes_once_and_leaves_no_room(
    placement: Placed,
) -> None:
    ring, faulty, size, placed = placement
    nodes = [node for group in placed for node in group]
    assert len(set(nodes)) == len(nodes)
    assert faulty.isdisjoint(nodes)
    assert {len(group) for group in placed} <= {size}
    room = sum(len(part) // size for part in ring.components(faulty))
    assert len(placed) <= room
    # With distances that double a link the other way round may need the bundle of the one before it.
    if size < 3 or (ring.bundles % 2 == 0 and not ring.doubling):
        assert len(placed) == room


@given(placements())
def test_placement_on_a_line_is_the_paper_s(
    placement: Placed,
) -> None:
    ring, faulty, size, placed = placement
    if not (ring.closed or ring.doubling):
        assert list(placed) == line_groups(range(ring.nodes), faulty, ring.bundles, size)


@given(st.sets(st.integers(0, 23), max_size=8), st.integers(0, 20))
def test_orchestrated_groups_can_be_lit_by_their_positions_on_the_line(
    faulty: set[int], constraints: int
) -> None:
    tree = FatTree(24, 2, 6)
    positions = {node: position for position, node in enumerate(deployment_line(tree))}
    groups = fat_tree_groups(tree, faulty, 2, 3, min(constraints, tree.all_constraints))
    ring = KHopRing(24, 4, 2, closed=False)
    placed = [tuple(positions[node] for node in group) for group in groups]
    circuits = ring_circuits(ring, ring_paths(ring, placed, {positions[node] for node in faulty}))
    found = cycles(light_graph(khop_ring_fabric(ring), circuits))
    assert {gpus for gpus in found if len(gpus) > ring.gpus_per_node} == {
        gpus_of(ring, each) for each in placed
    }


def test_worked_example_lights_what_the_paper_s_figure_shows() -> None:
    placed = place(EIGHT, {2}, 4)
    assert placed == ((0, 1, 3, 4),)
    paths = ring_paths(EIGHT, placed, {2})
    lit = {str(bundle): path for bundle, path in paths.items() if path != LOOPBACK}
    # 0: +1; 1: -1 and +2; 3: -2 and +1; 4: -1.
    assert lit == {"n0b1": 1, "n1b0": 1, "n1b1": 2, "n3b0": 2, "n3b1": 1, "n4b0": 1}
    assert len(paths) == 14


def test_two_faults_in_a_row_break_two_bundles_and_leave_one_component() -> None:
    assert place(EIGHT, {2, 3}, 4) == ((4, 5, 6, 7),)


def test_shrinking_over_a_dead_node_changes_its_neighbours_bundles_only() -> None:
    before = ring_paths(EIGHT, [(0, 1, 2, 3)])
    groups = shrunk(EIGHT, [(0, 1, 2, 3)], {2})
    after = ring_paths(EIGHT, groups, {2})
    assert groups == ((0, 1, 3),)
    assert changed_bundles(before, after) == (TrxBundle(1, 1), TrxBundle(3, 0))
    assert [(before[b], after[b]) for b in changed_bundles(before, after)] == [(1, 2), (1, 2)]


def test_shrinking_over_two_dead_nodes_moves_both_neighbours_to_mixed_bundles() -> None:
    ring = KHopRing(8, 4, 3)
    before = ring_paths(ring, [(0, 1, 2, 3, 4, 5)])
    groups = shrunk(ring, [(0, 1, 2, 3, 4, 5)], {2, 3})
    after = ring_paths(ring, groups, {2, 3})
    assert groups == ((0, 1, 4, 5),)
    changes = {str(bundle): (before[bundle], after[bundle]) for bundle in changed_bundles(before, after)}
    assert changes == {
        "n1b1": (1, LOOPBACK), "n1b2": (LOOPBACK, 2), "n4b0": (1, LOOPBACK), "n4b2": (LOOPBACK, 1),
    }  # fmt: skip


def closes(ring: KHopRing, nodes: tuple[int, ...]) -> bool:
    """Return whether links join nodes in this order, at each by two bundles."""
    graph = wired(ring)
    if any(not graph.has_edge(a, b) for a, b in pairwise(nodes)):
        return False
    bundles = {
        (node, other): ring.exits[distance].bundle
        for a, b, span in ring.links
        for node, other, distance in ((a, b, span), (b, a, -span))
    }
    return all(bundles[b, a] != bundles[b, c] for a, b, c in zip(nodes, nodes[1:], nodes[2:], strict=False))


@given(placements(), st.data())
def test_a_dead_node_changes_bundles_of_its_two_neighbours_only(
    placement: Placed, data: st.DataObject
) -> None:
    ring, faulty, _, placed = placement
    if not placed:
        return
    group = data.draw(st.sampled_from(placed))
    dead = data.draw(st.sampled_from(group))
    place_in_ring = group.index(dead)
    beside = {
        *group[max(0, place_in_ring - 1) : place_in_ring],
        *group[place_in_ring + 1 : place_in_ring + 2],
    }
    before = ring_paths(ring, placed, faulty)
    survivors = tuple(node for node in group if node != dead)
    if not closes(ring, survivors):
        with pytest.raises(DemandError, match=r"no link joins|both paths"):
            shrunk(ring, placed, {dead})
        return
    groups = shrunk(ring, placed, {dead})
    after = ring_paths(ring, groups, faulty | {dead})
    changed = changed_bundles(before, after)
    assert {bundle.node for bundle in changed} <= beside
    assert len(changed) <= 2 * len(beside)
    circuits = ring_circuits(ring, after)
    found = cycles(light_graph(khop_ring_fabric(ring), circuits))
    assert not survivors or gpus_of(ring, survivors) in found


def test_a_mixed_bundle_that_two_paths_need_cuts_the_line_and_is_named() -> None:
    """Node 3 would need -3 and +3, both in bundle 2."""
    ring = KHopRing(12, 4, 3)
    faulty = {1, 2, 4, 5}
    assert ring.components(faulty) == [(0, 3, 6, 7, 8, 9, 10, 11)]
    assert place(ring, faulty, 4) == ((3, 6, 7, 8),)
    assert place(ring, faulty, 2) == ((0, 3), (6, 7), (8, 9), (10, 11)), "a group ends there anyway"
    for groups in ([(0, 3, 6, 7)], [(11, 0, 3, 6)]):
        with pytest.raises(DemandError, match="bundle n3b2 would light both paths"):
            ring_paths(ring, groups, faulty)
    with pytest.raises(DemandError, match="bundle n3b2"):
        shrunk(ring, [(0, 1, 2, 3, 4, 5, 6)], faulty)
    assert place(KHopRing(12, 4, 4), faulty, 4) == ((0, 3, 6, 7), (8, 9, 10, 11))


def most_groups(ring: KHopRing, left: frozenset[int], size: int) -> int:
    """Return how many groups some nodes have room for, by trying every order of every choice of them."""
    groups = {frozenset(nodes) for nodes in permutations(left, size) if closes(ring, nodes)}
    return max((1 + most_groups(ring, left - group, size) for group in groups), default=0)


@pytest.mark.parametrize("nodes", [5, 6])
def test_small_rings_that_links_span_from_behind_have_all_groups_that_can_be(nodes: int) -> None:
    """Five nodes of which 1 and 2 died: 0 and 3 are joined, but a group through both is 3, 4, 0."""
    ring = KHopRing(nodes, 2, 2)
    for count in range(nodes):
        for faulty in map(frozenset, combinations(range(nodes), count)):
            for size in range(2, nodes + 1):
                placed = place(ring, faulty, size)
                assert all(closes(ring, group) for group in placed)
                assert len(placed) == most_groups(ring, frozenset(range(nodes)) - faulty, size)
    assert place(KHopRing(5, 2, 2), {1, 2}, 3) == ((3, 4, 0),)


@given(
    khop_rings() | st.just(KHopRing(30, 3, 3, closed=False)),
    st.sets(st.integers(0, 29), max_size=22),
    st.integers(3, 5),
)
def test_cuts_lose_as_few_groups_as_can_be(ring: KHopRing, dead: set[int], size: int) -> None:
    """Dynamic programming over every run of nodes that could be a group."""
    faulty = {node for node in dead if node < ring.nodes}
    most = 0
    for part in ring.components(faulty):
        best = [0] * (len(part) + 1)
        for end in range(1, len(part) + 1):
            run = part[max(0, end - size) : end]
            fits = len(run) == size and closes(ring, run)
            best[end] = max(best[end - 1], best[end - size] + 1 if fits else 0)
        most += best[-1]
    assert len(place(ring, faulty, size)) == most


def test_replacing_keeps_the_size_of_groups() -> None:
    ring = KHopRing(9, 4, 2)
    assert place(ring, set(), 4) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert place(ring, {2}, 4) == ((0, 1, 3, 4), (5, 6, 7, 8))
    assert shrunk(ring, place(ring, set(), 4), {2, 0}) == ((1, 3), (4, 5, 6, 7))


@pytest.mark.parametrize(
    ("groups", "culprit"),
    [
        ([(0, 3)], "no link joins the nodes 0 and 3"),
        ([(0, 1), (1, 2)], "node 1 of the group \\(1, 2\\) is in two groups"),
        ([(4, 5)], "node 5 of the group \\(4, 5\\) is faulty or does not exist"),
        ([(8,)], "node 8 of the group \\(8,\\) is faulty or does not exist"),
    ],
)
def test_groups_that_cannot_be_lit_are_named(groups: list[tuple[int, ...]], culprit: str) -> None:
    with pytest.raises(DemandError, match=culprit):
        ring_paths(EIGHT, groups, {5})


def test_gap_without_a_link_cannot_be_closed() -> None:
    with pytest.raises(DemandError, match="no link joins the nodes 0 and 3"):
        shrunk(EIGHT, [(0, 1, 2, 3)], {1, 2})
    assert shrunk(EIGHT, [(0, 1, 2, 3), (4, 5)], {0, 1, 4, 5}) == ((2, 3),)
    with pytest.raises(DemandError, match="groups of 0 nodes"):
        place(EIGHT, set(), 0)
