"""Waste of every HBD architecture: the table counted by hand, a search through the graph, and its order."""

from functools import cache
from itertools import pairwise, product

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.schedulers.infinitehbd_waste import (
    ARCHITECTURES,
    ONE_PATH,
    States,
    block_waste,
    component_sizes,
    expected_waste,
    infinitehbd_waste,
    island_waste,
    one_path_waste,
    waste_bound,
)
from topologies.errors import FabricError

NODES, NODE_GPUS, TP_GPUS = 144, 4, 32
COLUMNS = (
    "InfiniteHBD K=2", "K=2 line", "InfiniteHBD K=3", "big switch", "NVL-36", "NVL-72", "NVL-576",
    "TPUv4 mod", "TPUv4 blocks", "SiP-Ring",
)  # fmt: skip
BY_HAND = [
    ([], (0, 0, 0, 0, 64, 64, 0, 0, 0, 0)),
    ([0], (28, 28, 28, 28, 60, 60, 28, 28, 28, 28)),
    ([0, 1], (24, 24, 24, 24, 88, 56, 24, 24, 24, 24)),
    ([7, 8], (24, 56, 24, 24, 88, 56, 24, 24, 56, 56)),
    ([143, 0], (24, 24, 24, 24, 56, 56, 24, 56, 56, 56)),
    ([0, 1, 72, 73], (48, 48, 16, 16, 112, 48, 16, 48, 48, 48)),
    ([0, 1, 2, 72, 73, 74], (40, 40, 40, 8, 104, 104, 8, 40, 40, 40)),
    (list(range(0, 144, 2)), (0, 0, 0, 0, 288, 32, 0, 0, 288, 288)),
]
"""Faulty nodes, and the wasted GPUs of each column: 144 nodes of 4 GPUs, TP-32."""


def state(faulty: list[int], nodes: int = NODES) -> States:
    """Return a state from its faulty nodes."""
    return np.isin(np.arange(nodes), faulty)


@pytest.mark.parametrize(("faulty", "expected"), BY_HAND)
def test_waste_is_as_counted_by_hand(faulty: list[int], expected: tuple[int, ...]) -> None:
    at = state(faulty)
    line = int(infinitehbd_waste(at, NODE_GPUS, TP_GPUS, hops=2, closed=False))
    wasted = {name: int(waste(at, NODE_GPUS, TP_GPUS)) for name, waste in ARCHITECTURES.items()}
    wasted["K=2 line"] = line
    assert tuple(wasted[name] for name in COLUMNS) == expected


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_many_states_at_once_are_as_one_by_one(name: str) -> None:
    states = np.stack([state(faulty) for faulty, _ in BY_HAND])
    waste = ARCHITECTURES[name]
    one_by_one = [int(waste(row, NODE_GPUS, TP_GPUS)) for row in states]
    assert waste(states, NODE_GPUS, TP_GPUS).tolist() == one_by_one


def test_the_papers_own_examples_of_hbds() -> None:
    two_faulty_gpus = state([0, 32], 64)
    assert int(island_waste(two_faulty_gpus, 1, 16, hbd_gpus=32)) == 15 + 15
    assert int(island_waste(two_faulty_gpus, 1, 16, hbd_gpus=64)) == 14
    assert int(island_waste(state([], 9), 4, 16, hbd_gpus=36)) == 4


@pytest.mark.parametrize(
    ("faulty", "hops", "ring", "line"),
    [
        ([3, 4], 2, [10], [3, 7]),
        ([3, 4], 3, [10], [10]),
        ([3, 4, 9, 10], 2, [4, 4], [3, 4, 1]),
        ([3, 4, 9, 10], 3, [8], [8]),
        ([2, 3, 5], 2, [9], [2, 7]),
        ([2, 3, 5], 1, [8, 1], [2, 1, 6]),
        ([0, 1, 11], 2, [9], [9]),
        (list(range(12)), 2, [], []),
    ],
)
def test_components_are_as_counted_by_hand(
    faulty: list[int], hops: int, ring: list[int], line: list[int]
) -> None:
    for closed, expected in ((True, ring), (False, line)):
        sizes = component_sizes(state(faulty, 12), hops, closed=closed)
        assert sizes[sizes > 0].tolist() == expected


def searched(faulty: States, hops: int, *, closed: bool) -> list[int]:
    """Return the sizes of the components by a search through the graph of healthy nodes."""
    nodes = len(faulty)
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(nodes))
    for node in range(nodes):
        for hop in range(1, hops + 1):
            if closed or node + hop < nodes:
                graph.add_edge(node, (node + hop) % nodes)
    graph.remove_nodes_from([int(node) for node in np.flatnonzero(faulty)])
    return sorted(len(part) for part in nx.connected_components(graph))


@given(st.lists(st.booleans(), min_size=9, max_size=40), st.integers(1, 4), st.booleans())
def test_components_are_those_of_the_graph(bits: list[bool], hops: int, closed: bool) -> None:
    faulty = np.array(bits)
    sizes = component_sizes(faulty, hops, closed=closed)
    assert sorted(sizes[sizes > 0].tolist()) == searched(faulty, hops, closed=closed)


def most_rings(faulty: States, hops: int, size: int) -> int:
    """Return how many groups share no node, of all lines along links that light no bundle's two paths."""
    nodes = len(faulty)
    found = set()
    for start, steps in product(range(nodes), product(range(1, hops + 1), repeat=size - 1)):
        line = [(start + sum(steps[:count])) % nodes for count in range(size)]
        if not faulty[line].any() and len(set(line)) == size and (hops, hops) not in pairwise(steps):
            found.add(sum(1 << node for node in line))

    @cache
    def most(free: int) -> int:
        if not free:
            return 0
        first = free & -free
        with_first = [group for group in found if group & first and group & free == group]
        return max([most(free ^ first), *(1 + most(free ^ group) for group in with_first)])

    return most((1 << nodes) - 1)


rings_with_runs = (
    st.lists(st.sampled_from(["xxo", "xxo", "o", "x"]), min_size=4, max_size=12)
    .map("".join)
    .filter(lambda nodes: 9 <= len(nodes) <= 16)
)
"""Nodes of a ring, faulty where there is an x; many healthy ones are between two runs of faulty ones."""


@given(rings_with_runs, st.integers(1, 4))
def test_one_path_a_bundle_leaves_what_no_placement_can_use(nodes: str, size: int) -> None:
    faulty = np.array([node == "x" for node in nodes])
    left = int((~faulty).sum()) - size * most_rings(faulty, 3, size)
    assert int(one_path_waste(faulty, 4, 4 * size, hops=3)) == 4 * left
    assert int(one_path_waste(np.stack([faulty] * 2), 4, 4 * size, hops=3)[1]) == 4 * left


def test_a_node_between_two_runs_ends_a_group_where_a_bundle_lights_one_path() -> None:
    between = state([1, 2, 4, 5], 12)  # node 3: the ring of 8 is opened there, and is one group
    assert int(infinitehbd_waste(between, 4, 32, hops=3)) == int(one_path_waste(between, 4, 32, hops=3)) == 0
    all_between = state([1, 2, 4, 5, 7, 8, 10, 11], 12)  # 0, 3, 6 and 9
    assert int(infinitehbd_waste(all_between, 4, 12, hops=3)) == 4
    assert int(one_path_waste(all_between, 4, 12, hops=3)) == 16


faults = st.sets(st.integers(0, NODES - 1), max_size=NODES).map(sorted)
clustered = st.builds(
    lambda start, length, more: sorted({(start + i) % NODES for i in range(length)} | more),
    st.integers(0, NODES - 1), st.integers(0, 20), st.sets(st.integers(0, NODES - 1), max_size=12),
)  # fmt: skip
tp_sizes = st.sampled_from([4, 8, 16, 32, 64])


@given(st.one_of(faults, clustered), tp_sizes)
def test_waste_is_ordered_as_the_architectures_are(faulty: list[int], tp_gpus: int) -> None:
    at = state(faulty)
    wasted = {name: int(waste(at, NODE_GPUS, tp_gpus)) for name, waste in ARCHITECTURES.items()}
    healthy = NODE_GPUS * (NODES - len(faulty))
    for waste in wasted.values():
        assert 0 <= waste <= healthy
        assert (healthy - waste) % tp_gpus == 0
    assert wasted["big switch"] == min(wasted.values())
    assert wasted["InfiniteHBD K=3"] <= wasted[ONE_PATH]
    assert wasted["InfiniteHBD K=4"] <= wasted["InfiniteHBD K=3"] <= wasted["InfiniteHBD K=2"]
    assert wasted["NVL-576"] == wasted["big switch"]
    assert wasted["SiP-Ring"] == wasted["TPUv4 blocks"] >= wasted["TPUv4 mod"]
    for hops in (2, 3):
        line = int(infinitehbd_waste(at, NODE_GPUS, tp_gpus, hops=hops, closed=False))
        assert wasted[f"InfiniteHBD K={hops}"] <= line


@given(clustered, st.integers(0, NODES - 1), st.integers(1, 4), tp_sizes)
def test_a_ring_wastes_the_same_wherever_it_starts(
    faulty: list[int], turn: int, hops: int, tp_gpus: int
) -> None:
    at = state(faulty)
    turned = infinitehbd_waste(np.roll(at, turn), NODE_GPUS, tp_gpus, hops=hops)
    assert int(turned) == int(infinitehbd_waste(at, NODE_GPUS, tp_gpus, hops=hops))


def test_groups_above_a_cube_take_whole_healthy_cubes() -> None:
    one_cube_lost = state([0])
    assert int(block_waste(one_cube_lost, NODE_GPUS, 128)) == 60
    assert int(block_waste(state([0, 16]), NODE_GPUS, 128)) == 60 + 60 + 64


@pytest.mark.parametrize(
    ("name", "nodes", "node_gpus", "tp_gpus", "said"),
    [
        ("big switch", 8, 4, 6, "TP groups of 6 GPUs on nodes of 4"),
        ("big switch", 8, 4, 0, "TP groups of 0 GPUs"),
        ("NVL-36", 9, 8, 8, "cannot be divided into HBDs of 36 GPUs"),
        ("NVL-72", 20, 4, 8, "20 nodes of 4 GPUs cannot be divided"),
        ("SiP-Ring", 9, 4, 8, "cannot be divided"),
        ("TPUv4 blocks", 48, 4, 24, "blocks of 24 GPUs"),
        ("InfiniteHBD K=3", 6, 4, 8, "a 3-hop ring of 6 nodes"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    name: str, nodes: int, node_gpus: int, tp_gpus: int, said: str
) -> None:
    with pytest.raises(FabricError, match=said):
        ARCHITECTURES[name](state([], nodes), node_gpus, tp_gpus)


TABLE_7 = [
    (4, 0.0367, (0.0754258, 0.00276813, 1.01590e-4), (0.004538, 0.0001667, 6.12e-6)),
    (8, 0.0722, (0.250216, 0.0180656, 0.00130434), (0.007261, 0.0005238, 3.78e-5)),
]


@pytest.mark.parametrize(("node_gpus", "probability", "bounds", "exact"), TABLE_7)
def test_bound_is_table_7_and_the_exact_value_lies_below(
    node_gpus: int, probability: float, bounds: tuple[float, ...], exact: tuple[float, ...]
) -> None:
    for hops, bound, value in zip((2, 3, 4), bounds, exact, strict=True):
        assert waste_bound(probability, node_gpus, 32, hops) == pytest.approx(bound, rel=5e-6)
        assert expected_waste(probability, node_gpus, 32, hops) == pytest.approx(value, rel=1e-3)
        assert value < bound


@pytest.mark.parametrize(("probability", "hops"), [(0.0722, 2), (0.2, 3), (0.3, 4)])
def test_exact_value_is_what_a_long_line_wastes(probability: float, hops: int) -> None:
    nodes = 1_000_000
    faulty = np.random.default_rng(0).random(nodes) < probability
    wasted = int(infinitehbd_waste(faulty, 4, 32, hops=hops, closed=False))
    assert wasted / (4 * nodes) == pytest.approx(expected_waste(probability, 4, 32, hops), rel=0.03)
