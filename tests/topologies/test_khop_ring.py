"""The K-hop ring: its links, its bundles, and which nodes faults leave together."""

from collections import Counter

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.topologies.khop_rings import khop_rings, wired
from topologies.errors import FabricError
from topologies.fabric import Fabric, Nic, Port
from topologies.khop_ring import COPPER, GPU_BPS, PATHS, Exit, KHopRing, TrxBundle, khop_ring_fabric


@given(khop_rings())
def test_links_are_those_of_the_definition_each_once(ring: KHopRing) -> None:
    links = Counter(frozenset(link[:2]) for link in ring.links)
    assert links == Counter(map(frozenset, wired(ring).edges))
    for a, b, distance in ring.links:
        assert (ring.ends(a, b), ring.ends(b, a)) == ((distance, -distance), (-distance, distance))
    pairs = {(a, b) for a in range(-1, ring.nodes + 1) for b in range(ring.nodes)}
    assert {ring.ends(a, b) for a, b in pairs if frozenset((a, b)) not in links} == {None}


@pytest.mark.parametrize(
    ("bundles", "closed", "doubling", "links"),
    [
        (2, True, False, 16),
        (3, True, False, 24),
        (2, False, False, 13),
        (3, False, False, 18),
        (3, True, True, 20),
    ],
)
def test_eight_nodes_have_the_links_of_the_paper(
    bundles: int, closed: bool, doubling: bool, links: int
) -> None:
    assert len(KHopRing(8, 4, bundles, closed, doubling).links) == links


@given(khop_rings())
def test_each_signed_distance_has_a_path_of_its_own(ring: KHopRing) -> None:
    assert sorted(ring.exits) == sorted([*ring.distances, *(-distance for distance in ring.distances)])
    assert len(set(ring.exits.values())) == 2 * ring.bundles
    assert {out.bundle for out in ring.exits.values()} == set(range(ring.bundles))
    shared = {d for d in ring.distances if ring.exits[d].bundle == ring.exits[-d].bundle}
    assert shared == ({ring.distances[-1]} if ring.bundles % 2 else set())


def test_two_and_three_bundles_have_the_paths_of_the_table() -> None:
    two = {-1: Exit(0, 1), -2: Exit(0, 2), 1: Exit(1, 1), 2: Exit(1, 2)}
    assert KHopRing(8, 4, 2).exits == two
    assert KHopRing(8, 4, 3).exits == two | {-3: Exit(2, 1), 3: Exit(2, 2)}


def joined(graph: "nx.Graph[int]", faulty: set[int]) -> set[frozenset[int]]:
    """Return the connected components of the healthy nodes."""
    healthy = graph.subgraph(set(graph) - faulty)
    return {frozenset(part) for part in nx.connected_components(healthy)}


@given(khop_rings(), st.data())
def test_components_are_those_of_the_graph_and_each_is_a_line(ring: KHopRing, data: st.DataObject) -> None:
    faulty = data.draw(st.sets(st.integers(0, ring.nodes - 1)))
    found = ring.components(faulty)
    graph = wired(ring)
    assert sorted(node for part in found for node in part) == sorted(set(range(ring.nodes)) - faulty)
    assert all(nx.is_path(graph, part) for part in found)
    if not ring.closed:
        assert all(part == tuple(sorted(part)) for part in found)
    if not ring.doubling:
        assert {frozenset(part) for part in found} == joined(graph, faulty)


@pytest.mark.parametrize(
    ("faulty", "bundles", "on_ring", "on_line"),
    [
        ({3, 4}, 2, [10], [3, 7]),
        ({3, 4}, 3, [10], [10]),
        ({3, 4, 9, 10}, 2, [4, 4], [3, 4, 1]),
        ({3, 4, 9, 10}, 3, [8], [8]),
        ({2, 3, 5}, 2, [9], [2, 7]),
        (set(range(12)), 2, [], []),
    ],
)
def test_components_of_twelve_nodes_have_the_sizes_worked_by_hand(
    faulty: set[int], bundles: int, on_ring: list[int], on_line: list[int]
) -> None:
    for closed, sizes in ((True, on_ring), (False, on_line)):
        assert [len(part) for part in KHopRing(12, 4, bundles, closed).components(faulty)] == sizes


def test_a_ring_with_one_break_starts_behind_it() -> None:
    assert KHopRing(8, 4, 2).components({2, 3}) == [(4, 5, 6, 7, 0, 1)]
    assert KHopRing(8, 4, 2).components({2}) == [(0, 1, 3, 4, 5, 6, 7)]
    assert KHopRing(8, 4, 2).components({0, 7}) == [(1, 2, 3, 4, 5, 6)]


def test_doubling_distances_bridge_one_and_three_faulty_nodes_and_not_two() -> None:
    line = KHopRing(12, 4, 3, closed=False, doubling=True)
    runs = [{4}, {4, 5}, {4, 5, 6}, {4, 5, 6, 7}]
    assert [len(line.components(run)) for run in runs] == [1, 2, 1, 2]
    long = KHopRing(9, 4, 4, closed=False, doubling=True)
    assert long.components({1, 2, 4, 5, 6, 7}) == [(0,), (3,), (8,)], "8 and 0 are joined, but 3 is between"


@given(khop_rings(most_nodes=12))
def test_fabric_has_a_bundle_as_ocs_and_a_gpu_as_endpoint(ring: KHopRing) -> None:
    fabric = khop_ring_fabric(ring)
    r = ring.gpus_per_node
    assert len(fabric.servers) == len(fabric.switches) == fabric.gpus == ring.nodes * r
    assert {switch.kind for switch in fabric.switches} == {"ocs"}
    for gpu in range(fabric.gpus):
        node, index = divmod(gpu, r)
        upper, lower = (fabric.peer(fabric.nic_port(Nic(gpu, half))) for half in range(2))
        assert upper == Port(f"n{node}b{index}", 0)
        assert lower == Port(f"n{node}b{(index - 1) % r}", 1)
        assert fabric.nic_rate_bps(Nic(gpu, 0)) + fabric.nic_rate_bps(Nic(gpu, 1)) == GPU_BPS
    for switch in fabric.switches:
        inner = int(switch.name.partition("b")[2]) >= ring.bundles
        assert (switch.ports, switch.permitted) == ((2, COPPER) if inner else (6, PATHS))


@given(khop_rings(most_nodes=12))
def test_lanes_of_a_path_meet_the_same_half_at_its_far_end(ring: KHopRing) -> None:
    fabric = khop_ring_fabric(ring)
    spans = []
    for link in fabric.links:
        if link.a.node in fabric.switch_index:
            near, far = (tuple(map(int, port.node[1:].split("b"))) for port in (link.a, link.b))
            assert link.a.number % 2 == link.b.number % 2
            assert link.rate_bps == GPU_BPS / 2
            distance = next(d for a, b, d in ring.links if (a, b) == (near[0], far[0]))
            assert ring.exits[distance] == Exit(near[1], link.a.number // 2)
            assert ring.exits[-distance] == Exit(far[1], link.b.number // 2)
            spans.append((near[0], far[0]))
    assert Counter(spans) == Counter({link[:2]: 2 for link in ring.links})


def test_permutations_of_a_bundle_are_the_three_of_the_transceiver() -> None:
    """Ports: upper, lower, then upper and lower lane of path 1 and of path 2."""
    lit = [{frozenset(pair) for pair in enumerate(path) if pair[1] >= 0} for path in PATHS]
    assert lit == [
        {frozenset((0, 2)), frozenset((1, 3))},
        {frozenset((0, 4)), frozenset((1, 5))},
        {frozenset((0, 1))},
    ]
    assert all(path[path[port]] == port for path in PATHS for port in range(6) if path[port] >= 0)


def test_fabric_comes_back_from_json() -> None:
    fabric = khop_ring_fabric(KHopRing(5, 3, 2))
    assert Fabric.from_json(fabric.to_json()) == fabric
    assert fabric.name == "khop_ring"
    assert khop_ring_fabric(KHopRing(5, 3, 2, closed=False)).name == "khop_line"
    assert [str(TrxBundle(3, 1)), fabric.switches[10].name] == ["n3b1", "n3b1"]


@pytest.mark.parametrize(
    ("ring", "culprit"),
    [
        (lambda: KHopRing(8, 4, 1), "1 bundles on a node of 4 GPUs"),
        (lambda: KHopRing(16, 4, 5), "5 bundles on a node of 4 GPUs"),
        (lambda: KHopRing(4, 4, 2), "4 nodes with links over 2; give a ring at least 5 nodes"),
        (lambda: KHopRing(2, 4, 2, closed=False), "2 nodes with links over 2; give a line at least 3"),
        (lambda: KHopRing(7, 4, 3, doubling=True), "7 nodes with links over 4; give a ring at least 9"),
        (lambda: KHopRing(8, 4, 2).components({8}), "faulty node 8 of nodes 0 to 7"),
        (lambda: khop_ring_fabric(KHopRing(8, 4, 2), gpu_bps=0), "rate of 0 bit/s"),
    ],
)
def test_what_cannot_be_wired_is_named(ring: object, culprit: str) -> None:
    with pytest.raises(FabricError, match=culprit):
        ring()  # type: ignore[operator]
