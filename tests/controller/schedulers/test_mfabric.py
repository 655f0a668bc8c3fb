"""mFabric's Algorithm 1: the worked example, what every topology keeps, and how far it is from the best."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import ArrayLike

from controller.schedulers.demand import Matrix
from controller.schedulers.mfabric import (
    PUBLISHED,
    Counts,
    NicMapping,
    Pair,
    Variant,
    circuit_counts,
    circuit_order,
    circuits_of,
    nic_mapping,
    region_circuits,
    server_demand,
    transfer_bound_s,
    transfer_s,
)
from controller.schedulers.mfabric_exact import best_circuits
from tests.examples import examples
from topologies.errors import DemandError
from topologies.fabric import Fabric, Port
from topologies.mfabric import Region, mfabric_fabric, numa_node, regions
from traffic.workloads.gate import ARTIFACT_TOKENS

WORKED = np.array([[0, 90, 10, 20], [70, 0, 30, 40], [20, 10, 0, 25], [10, 20, 15, 0]]) * 1e6
NIC_BPS = 100e9
UPPER = np.triu_indices(4, 1)
BY_DEMAND = Variant(ties="demand")
PRINTED, ARTIFACT = replace(BY_DEMAND, stop="printed"), replace(BY_DEMAND, rule="artifact")
BY_EPS = Variant(first="eps")

entries = st.one_of(st.just(0.0), st.sampled_from([1.0, 2.0, 4.0]), st.floats(1e-3, 1e3))
demands = st.integers(1, 7).flatmap(lambda n: arrays(np.float64, (n, n), elements=entries))
small = st.integers(2, 4).flatmap(lambda n: arrays(np.float64, (n, n), elements=st.integers(0, 9)))
variants = st.builds(
    Variant,
    st.sampled_from(["paper", "artifact"]),
    st.sampled_from(["infinity", "eps"]),
    st.sampled_from(["exhausted", "printed"]),
    st.sampled_from(["free", "demand"]),
)


def pairs(text: str) -> tuple[Pair, ...]:
    """Return pairs written as ``01, 13``."""
    return tuple((int(word[0]), int(word[1])) for word in text.split(", "))


MESH, FREE_FIRST = "01, 13, 12, 23, 02, 03", "01, 23, 13, 02, 12, 03"
"""All pairs by demand; and servers 2 and 3, dark after 01, before the pair 13 of greater demand."""


@pytest.mark.parametrize(
    ("alpha", "order", "by_demand", "printed"),
    [
        (2, "01, 23, 13, 02", "01, 13, 23, 02", "01, 13"),
        (3, FREE_FIRST, MESH, MESH),
        (4, f"{FREE_FIRST}, 01, 23", f"{MESH}, 01, 23", f"{MESH}, 01"),
        (
            6,
            f"{FREE_FIRST}, 01, 01, 13, 23, 02, 23",
            f"{MESH}, 01, 01, 13, 23, 02, 23",
            f"{MESH}, 01, 01, 13",
        ),
    ],
)
def test_worked_example_gives_circuits_in_order(alpha: int, order: str, by_demand: str, printed: str) -> None:
    assert circuit_order(WORKED, alpha) == pairs(order)
    assert circuit_order(WORKED, alpha, variant=BY_DEMAND) == pairs(by_demand)
    assert circuit_order(WORKED, alpha, variant=PRINTED) == pairs(printed)


@pytest.mark.parametrize(("servers", "alpha"), list(product((4, 5, 8), (2, 3, 6))))
def test_equal_demand_leaves_no_server_in_the_dark(servers: int, alpha: int) -> None:
    demand = np.ones((servers, servers)) - np.eye(servers)
    degrees = circuit_counts(circuit_order(demand, alpha), servers).sum(axis=0)
    assert alpha - 1 <= degrees.min() <= degrees.max() <= alpha


def test_by_demand_alone_a_clique_leaves_one_server_in_the_dark() -> None:
    demand = np.ones((8, 8)) - np.eye(8)
    by_demand, free_first = (
        circuit_counts(circuit_order(demand, 6, variant=variant), 8) for variant in (BY_DEMAND, PUBLISHED)
    )
    assert by_demand.sum(axis=0).tolist() == [6] * 7 + [0]
    assert free_first.sum(axis=0).tolist() == [6] * 8
    assert transfer_s(demand, by_demand, 2, 8.0) == 3.5  # seven peers over two packet NICs
    assert transfer_s(demand, free_first, 2, 8.0) == 1.0


@given(arrays(np.float64, (7, 7), elements=st.floats(0.1, 9)), st.integers(2, 6))
def test_no_server_with_demand_is_dark_whatever_the_demand(demand: Matrix, alpha: int) -> None:
    assert circuit_counts(circuit_order(demand, alpha), 7).sum(axis=0).min() > 0


def test_artifacts_matrix_has_the_same_circuits_by_both_orders_of_ties() -> None:
    found = [circuit_order(ARTIFACT_TOKENS, 6, variant=variant) for variant in (PUBLISHED, BY_DEMAND)]
    assert sorted(found[0]) == sorted(found[1])


@pytest.mark.parametrize(
    ("alpha", "counts", "times"),
    [
        (2, [1, 1, 0, 0, 1, 1], [160, 30, np.inf, np.inf, 60, 40]),
        (3, [1, 1, 1, 1, 1, 1], [160, 30, 30, 40, 60, 40]),
        (4, [2, 1, 1, 1, 1, 2], [80, 30, 30, 40, 60, 20]),
        (6, [3, 2, 1, 1, 2, 3], [160 / 3, 15, 30, 40, 30, 40 / 3]),
    ],
)
def test_worked_example_has_these_circuits_and_times(
    alpha: int, counts: list[int], times: list[float]
) -> None:
    found = circuit_counts(circuit_order(WORKED, alpha), 4)
    assert found[UPPER].tolist() == counts
    assert (found == found.T).all()
    with np.errstate(divide="ignore"):
        assert ((WORKED + WORKED.T)[UPPER] / 1e6 / found[UPPER]).tolist() == pytest.approx(times)


@pytest.mark.parametrize(
    ("alpha", "eps_nics", "greedy_ms", "best_ms", "bound_ms"),
    [(3, 1, 7.2, 3.6, 2.8), (4, 2, 3.6, 2.4, 5.6 / 3), (6, 2, 2.4, 1.8, 1.4)],
)
def test_worked_example_is_up_to_twice_from_the_best(
    alpha: int, eps_nics: int, greedy_ms: float, best_ms: float, bound_ms: float
) -> None:
    greedy = circuit_counts(circuit_order(WORKED, alpha), 4)
    best = best_circuits(WORKED, alpha, eps_nics)
    assert transfer_s(WORKED, greedy, eps_nics, NIC_BPS) * 1e3 == pytest.approx(greedy_ms, rel=1e-12)
    assert transfer_s(WORKED, best.counts, eps_nics, NIC_BPS) * 1e3 == pytest.approx(best_ms, rel=1e-12)
    assert best.lane_bytes * 8e3 / NIC_BPS == pytest.approx(best_ms, rel=1e-12)
    assert transfer_bound_s(WORKED, alpha + eps_nics, NIC_BPS) * 1e3 == pytest.approx(bound_ms, rel=1e-12)


def test_artifacts_rule_goes_round_by_round() -> None:
    order = circuit_order(WORKED, 6, variant=ARTIFACT)
    assert order == pairs(f"{MESH}, {MESH}")
    assert transfer_s(WORKED, circuit_counts(order, 4), 2, NIC_BPS) == pytest.approx(3.6e-3, rel=1e-12)


def test_artifacts_matrix_has_24_circuits_and_6_by_the_printed_end() -> None:
    assert len(circuit_order(ARTIFACT_TOKENS, 6)) == 24
    assert len(circuit_order(ARTIFACT_TOKENS, 6, variant=PRINTED)) == 6


def test_packets_may_come_first() -> None:
    """With one packet NIC the pair 03 of 30 MB is no bottleneck until others are below that."""
    assert circuit_order(WORKED, 3, 1, BY_EPS) == pairs("01, 01, 01, 23, 23, 23")
    assert circuit_order(WORKED, 3, 0, BY_EPS) == circuit_order(WORKED, 3)


def start_time(owed: float, eps_nics: int, variant: Variant) -> float:
    if variant.rule == "artifact":
        return owed
    return owed / eps_nics if variant.first == "eps" and eps_nics else np.inf


@given(demands, st.integers(0, 6), st.integers(0, 2), variants)
def test_each_circuit_goes_to_the_bottleneck(
    demand: Matrix, alpha: int, eps_nics: int, variant: Variant
) -> None:
    n = len(demand)
    owed = {(i, j): demand[i, j] + demand[j, i] for i in range(n) for j in range(i + 1, n)}
    times = {pair: start_time(both, eps_nics, variant) for pair, both in owed.items() if both}
    free, made = [alpha] * n, dict.fromkeys(owed, 0)

    def rank(pair: Pair) -> tuple[float, ...]:
        scarcer, other = sorted(free[server] for server in pair)
        lights_a_server = other == alpha
        ties = (lights_a_server, scarcer, owed[pair], other) if variant.ties == "free" else (owed[pair],)
        return times[pair], *ties, -pair[0], -pair[1]

    def bottleneck() -> Pair | None:
        known = [p for p in times if variant.stop == "printed" or (free[p[0]] and free[p[1]])]
        return max(known, key=rank, default=None)

    for pair in circuit_order(demand, alpha, eps_nics, variant):
        assert pair == bottleneck()
        made[pair] += 1
        artifact = times[pair] / (100 * made[pair])
        times[pair] = artifact if variant.rule == "artifact" else owed[pair] / made[pair]
        for server in pair:
            free[server] -= 1
        assert min(free) >= 0
    last = bottleneck()
    assert last is None or (variant.stop == "printed" and not (free[last[0]] and free[last[1]]))


def test_servers_may_have_fewer_nics() -> None:
    counts = circuit_counts(circuit_order(WORKED, [3, 2, 0, 3]), 4)
    assert counts.sum(axis=0).tolist() == [3, 2, 0, 3]


@given(arrays(np.float64, (4, 4), elements=st.floats(0.1, 9)))
def test_prototype_is_a_full_mesh_whatever_the_demand(demand: Matrix) -> None:
    assert (circuit_counts(circuit_order(demand, 3), 4) == 1 - np.eye(4)).all()


@given(demands, st.integers(0, 6), variants)
def test_demand_and_its_transpose_have_one_topology(demand: Matrix, alpha: int, variant: Variant) -> None:
    assert circuit_order(demand, alpha, 1, variant) == circuit_order(demand.T, alpha, 1, variant)


def least_bytes(demand: Matrix, alpha: int, eps_nics: int) -> float:
    """Return what the busiest lane carries at least, by trying every set of pairs on packets."""
    n = len(demand)
    all_pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    larger = {pair: max(demand[pair], demand[pair[::-1]]) for pair in all_pairs}
    best = np.inf
    for on_packets in product([False, True], repeat=len(all_pairs)):
        packets = np.zeros((n, n))
        for pair, chosen in zip(all_pairs, on_packets, strict=True):
            if chosen:
                packets[pair], packets[pair[::-1]] = demand[pair], demand[pair[::-1]]
        lit = [p for p, chosen in zip(all_pairs, on_packets, strict=True) if not chosen and larger[p]]
        load = max(packets.sum(axis=0).max(), packets.sum(axis=1).max()) / eps_nics
        for lane in {load} | {larger[p] / m for p in lit for m in range(1, alpha + 1)}:
            need = {p: int(np.ceil(larger[p] / lane - 1e-9)) for p in lit} if lane else {}
            fits = all(sum(c for p, c in need.items() if server in p) <= alpha for server in range(n))
            if lane >= load and fits and (lane or not lit):
                best = min(best, lane)
    return best


@settings(max_examples=examples(12, 40))
@given(small, st.integers(0, 4), st.integers(1, 2))
def test_best_circuits_are_the_best(demand: Matrix, alpha: int, eps_nics: int) -> None:
    np.fill_diagonal(demand, 0)
    best = best_circuits(demand, alpha, eps_nics)
    assert best.lane_bytes == pytest.approx(least_bytes(demand, alpha, eps_nics))
    assert (best.counts.sum(axis=0) <= alpha).all()
    assert transfer_s(demand, best.counts, eps_nics, 8.0) <= best.lane_bytes * (1 + 1e-9)
    greedy = circuit_counts(circuit_order(demand, alpha), len(demand))
    assert best.lane_bytes <= transfer_s(demand, greedy, eps_nics, 8.0) * (1 + 1e-9)
    assert best.lane_bytes >= transfer_bound_s(demand, alpha + eps_nics, 8.0) * (1 - 1e-9)


def test_best_circuits_of_six_servers_beat_the_greedy_ones() -> None:
    demand = ARTIFACT_TOKENS[:6, :6] * 8192.0
    best = best_circuits(demand, 3, 1)
    greedy = circuit_counts(circuit_order(demand, 3), 6)
    assert best.lane_bytes < transfer_s(demand, greedy, 1, 8.0)


def check(fabric: Fabric, region: Region, counts: Counts, mapping: NicMapping) -> None:
    """Assert that a mapping has the circuits of the counts, each NIC once, and lights duplex circuits."""
    place = {server: index for index, server in enumerate(region.servers)}
    found = circuit_counts([(place[a.server], place[b.server]) for a, b in mapping], len(place))
    assert (found == counts).all()
    used = [nic for circuit in mapping for nic in circuit]
    assert len(used) == len(set(used))
    own = dict(zip(region.servers, region.nics, strict=True))
    assert all(nic in own[nic.server] for nic in used)
    lit = circuits_of(fabric, region, mapping)
    assert len(lit.pairs) == len(used)
    joined = {frozenset((fabric.nic_port(a), fabric.nic_port(b))) for a, b in mapping}
    assert {frozenset(fabric.peer(Port(region.ocs, end)) for end in pair) for pair in lit.pairs} == joined


@st.composite
def cases(draw: st.DrawFn) -> tuple[Fabric, Region, list[Matrix]]:
    """Return the second region of a fabric, and two demands between its servers."""
    servers, packet_nics = draw(st.integers(1, 6)), draw(st.integers(1, 2))
    nics = packet_nics + draw(st.integers(1, 6))
    fabric = mfabric_fabric(2 * servers, servers, nics=nics, packet_nics=packet_nics, one_packet_switch=True)
    elements = st.integers(0, 9)
    drawn = [draw(arrays(np.float64, (servers, servers), elements=elements)) for _ in range(2)]
    return fabric, regions(fabric)[1], drawn


@given(cases())
def test_circuits_that_stay_keep_their_nics(case: tuple[Fabric, Region, list[Matrix]]) -> None:
    fabric, region, demands = case
    last: NicMapping = ()
    before = np.zeros((len(region.servers),) * 2, dtype=np.intp)
    for demand in demands:
        counts = circuit_counts(circuit_order(demand, len(region.nics[0])), len(region.servers))
        mapping = nic_mapping(fabric, region, counts, demand, last=last)
        check(fabric, region, counts, mapping)
        kept = int(np.minimum(before, counts).sum()) // 2
        assert len(set(mapping) & set(last)) == kept
        lit, then = ({*circuits_of(fabric, region, each).pairs} for each in (last, mapping))
        assert len(lit & then) == 2 * kept
        last, before = mapping, counts


@given(cases())
def test_circuits_of_a_pair_are_on_two_numa_nodes_unless_one_is_full(
    case: tuple[Fabric, Region, list[Matrix]],
) -> None:
    fabric, region, (demand, _) = case
    counts = circuit_counts(circuit_order(demand, len(region.nics[0])), len(region.servers))
    mapping = nic_mapping(fabric, region, counts, demand)
    used = {nic for circuit in mapping for nic in circuit}
    for server, nics in zip(region.servers, region.nics, strict=True):
        left = {numa_node(fabric.servers[server], nic.nic) for nic in nics if nic not in used}
        for other in region.servers:
            ends = [
                numa_node(fabric.servers[server], nic.nic)
                for circuit in mapping
                if {nic.server for nic in circuit} == {server, other}
                for nic in circuit
                if nic.server == server
            ]
            assert len(ends) < 2 or len(set(ends)) == 2 or left <= set(ends)


def test_two_servers_have_all_circuits_spread_over_numa_nodes() -> None:
    fabric = mfabric_fabric(2)
    (region,) = regions(fabric)
    demand = np.array([[0, 1], [0, 0]])
    mapping = nic_mapping(fabric, region, circuit_counts(circuit_order(demand, 6), 2), demand)
    assert [(a.nic, b.nic) for a, b in mapping] == [(nic, nic) for nic in (1, 5, 2, 6, 3, 7)]


def from_gpus(fabric: Fabric, demand: ArrayLike) -> Matrix:
    """Return the demand between servers of 8 GPUs each."""
    return server_demand(demand, [server.gpus for server in fabric.servers])


def test_whole_algorithm_goes_from_gpus_to_nics() -> None:
    fabric = mfabric_fabric(4, nics=4, packet_nics=1)
    (region,) = regions(fabric)
    gpu_demand = np.kron(WORKED, np.ones((8, 8))) / 64
    mapping = region_circuits(fabric, region, from_gpus(fabric, gpu_demand))
    assert len(mapping) == 6
    lit = circuits_of(fabric, region, mapping)
    assert all(pair[::-1] in lit.pairs for pair in lit.pairs)
    assert len(lit.pairs) == 12
    turned = from_gpus(fabric, gpu_demand[::-1, ::-1])
    assert region_circuits(fabric, region, turned, last=mapping) == mapping


def test_failed_nic_gets_no_circuit_and_its_server_one_less() -> None:
    fabric = mfabric_fabric(8)
    (region,) = regions(fabric)
    before = region_circuits(fabric, region, ARTIFACT_TOKENS)
    failed = frozenset({before[0].a})
    after = region_circuits(fabric, region, ARTIFACT_TOKENS, last=before, failed=failed)
    assert not failed & {nic for circuit in after for nic in circuit}
    circuits = [sum(server in (a.server, b.server) for a, b in after) for server in range(8)]
    assert circuits[before[0].a.server] == 5
    assert max(circuits) <= 6


def test_variants_reach_the_circuits() -> None:
    fabric = mfabric_fabric(8)
    (region,) = regions(fabric)
    made = [region_circuits(fabric, region, ARTIFACT_TOKENS, variant=each) for each in (PUBLISHED, PRINTED)]
    assert list(map(len, made)) == [24, 6]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 99))
def test_server_demand_sums_over_gpus_and_leaves_nvlink_out(gpus: list[int], seed: int) -> None:
    matrix = np.random.default_rng(seed).integers(0, 9, (sum(gpus), sum(gpus)))
    home = np.repeat(np.arange(len(gpus)), gpus)
    found = server_demand(matrix, gpus)
    for i, j in product(range(len(gpus)), repeat=2):
        assert found[i, j] == (matrix[np.ix_(home == i, home == j)].sum() if i != j else 0)


def test_64_servers_have_a_circuit_on_every_nic_of_their_ocs() -> None:
    fabric = mfabric_fabric(64)
    (region,) = regions(fabric)
    gpu_demand = np.random.default_rng(1).random((512, 512))
    assert len(region_circuits(fabric, region, from_gpus(fabric, gpu_demand))) == 192


def test_pair_without_lanes_never_ends() -> None:
    none = np.zeros((4, 4), dtype=np.intp)
    assert transfer_s(WORKED, none, 0, NIC_BPS) == np.inf
    assert transfer_s(np.eye(4), none, 0, NIC_BPS) == 0


def test_input_that_makes_no_sense_is_refused() -> None:
    fabric = mfabric_fabric(4)
    (region,) = regions(fabric)
    with pytest.raises(DemandError, match="-1 circuit and 0 packet NICs"):
        circuit_order(WORKED, -1)
    with pytest.raises(DemandError, match="between 4 GPUs in a region of 32"):
        from_gpus(fabric, WORKED)
    with pytest.raises(DemandError, match="with fewer NICs"):
        nic_mapping(fabric, region, circuit_counts([(0, 1)] * 7, 4), WORKED)
    with pytest.raises(DemandError, match="best circuits of 9 servers"):
        best_circuits(np.ones((9, 9)), 6, 2)
    with pytest.raises(DemandError, match="0 packet NICs"):
        best_circuits(WORKED, 6, 0)
