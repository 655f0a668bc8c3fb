"""All-to-alls between nodes: what algorithm 6 moves, what rings pass on, and the paper's closed forms."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.topologies.khop_rings import khop_rings
from topologies.errors import DemandError, FabricError
from topologies.khop_ring import KHopRing, khop_ring_fabric
from traffic.collectives.node_all_to_all import (
    ExchangeRound,
    RingAllToAll,
    binary_exchange_s,
    exchange_rounds,
    least_all_to_all_s,
    ring_all_to_all_s,
    ring_steps,
)
from traffic.collectives.pattern import bytes_between, end_to_end
from traffic.workloads.khop_all_to_all import exchange_job, ring_job

POWERS = st.integers(1, 6).map(lambda log: 1 << log)
RATE_BPS = 6.4e12


@given(POWERS)
def test_after_the_rounds_each_node_holds_what_all_had_for_it(nodes: int) -> None:
    held = [{(node, to) for to in range(nodes)} for node in range(nodes)]
    for each in exchange_rounds(nodes):
        before = [set(blocks) for blocks in held]
        for node, blocks in enumerate(each.sent):
            assert len(blocks) == nodes // 2, "p m / 2 bytes in every round"
            assert before[node].issuperset(blocks), "a node sends what it has"
            held[node ^ each.distance].update(blocks)
    assert all({(a, node) for a in range(nodes)} <= blocks for node, blocks in enumerate(held))


def test_four_nodes_pair_as_figure_24_has_it() -> None:
    assert [each.distance for each in exchange_rounds(4)] == [2, 1]
    first, second = exchange_rounds(4)
    assert first.sent == (((0, 2), (0, 3)), ((1, 2), (1, 3)), ((2, 0), (2, 1)), ((3, 0), (3, 1)))
    assert second.sent == (((0, 1), (2, 1)), ((1, 0), (3, 0)), ((0, 3), (2, 3)), ((1, 2), (3, 2)))


@pytest.mark.parametrize("nodes", [0, 1, 3, 6, 12])
def test_an_exchange_needs_a_power_of_two(nodes: int) -> None:
    with pytest.raises(DemandError, match=f"between {nodes} nodes"):
        exchange_rounds(nodes)


@pytest.mark.parametrize(
    ("nodes", "one_way", "two_way"),
    [(4, 1.5, 0.5), (8, 7 / 3, 2 / 3), (16, 3.75, 1), (32, 6.2, 1.6), (64, 10.5, 8 / 3)],
)
def test_rings_over_the_exchange_are_the_table_of_the_closed_forms(
    nodes: int, one_way: float, two_way: float
) -> None:
    exchange_s = binary_exchange_s(nodes, 1e6, RATE_BPS)
    for both_ways, ratio in ((False, one_way), (True, two_way)):
        ring_s = ring_all_to_all_s(nodes, 1e6, RATE_BPS, both_ways=both_ways)
        assert ring_s / exchange_s == pytest.approx(ratio, rel=1e-12)
        assert ring_s >= least_all_to_all_s(nodes, 1e6, RATE_BPS) / (2 if both_ways else 1)
    assert exchange_s >= least_all_to_all_s(nodes, 1e6, RATE_BPS)


def test_the_dark_counts_once() -> None:
    assert binary_exchange_s(8, 1.0, 8.0, dark_s=5.0) == 3 * 4 + 5


@given(st.integers(2, 40), st.booleans())
def test_a_step_passes_on_what_is_for_nodes_farther_along(nodes: int, both_ways: bool) -> None:
    halves = Counter[int]()
    for away in range(1, nodes):
        hops = {away: 1, nodes - away: 1} if both_ways and 2 * away != nodes else {away: 2}
        if both_ways and 2 * away != nodes:
            hops = {min(away, nodes - away): 1}  # its opposite sends as much the other way
        for distance, share in hops.items():
            each_way = 1 if both_ways and 2 * away == nodes else share
            for step in range(1, distance + 1):
                halves[step] += each_way
    assert ring_steps(nodes, both_ways=both_ways) == [halves[step] for step in sorted(halves)]


@given(st.integers(2, 9), st.integers(1, 3), st.booleans())
def test_a_ring_all_to_all_carries_every_step_over_every_hop_in_turn(
    nodes: int, rings: int, both_ways: bool
) -> None:
    forward = tuple(
        tuple((ring * nodes + node, ring * nodes + (node + 1) % nodes) for node in range(nodes))
        for ring in range(rings)
    )
    back = tuple(tuple((b, a) for a, b in reversed(ring)) for ring in forward) if both_ways else ()
    pattern = RingAllToAll(forward, 2 * rings * 5, back)
    ops = pattern.lower()
    per_hop = sum(ring_steps(nodes, both_ways=both_ways)) * 5
    sent = bytes_between(pattern, nodes * rings)
    expected = Counter(hop for ring in (*forward, *back) for hop in ring)
    assert {(a, b): sent[a, b] for a, b in np.argwhere(sent).tolist()} == {
        hop: per_hop * times for hop, times in expected.items()
    }
    messages = ops.moves
    for before, then in ops.after.tolist():
        assert messages.destination[before] == messages.source[then]
    assert len(ops.after) == len(messages) - len(forward + back) * nodes
    assert pattern.renumbered(range(nodes * rings)) == pattern


def test_what_cannot_be_shared_is_refused() -> None:
    ring = ((0, 1), (1, 0))
    for rings, size, back in (((ring,), 3, ()), ((), 4, ()), ((ring,), 4, (ring, ring)), ((ring,), 0, ())):
        with pytest.raises(DemandError):
            RingAllToAll(rings, size, back)
    with pytest.raises(DemandError, match="multiple of 4"):
        exchange_job(KHopRing(4, 4, 2, doubling=True), 6)
    with pytest.raises(DemandError):
        ring_steps(1, both_ways=False)


@pytest.mark.parametrize("bundles", [2, 3, 4])
def test_messages_of_a_job_go_over_the_lanes_of_links_and_share_them_evenly(bundles: int) -> None:
    ring = KHopRing(1 << bundles, 4, bundles, doubling=True)
    lanes = {
        (near.server, far.server): {a, b}
        for a, b, _ in ring.links
        for pair in ((a, b), (b, a))
        for near, far in ring.lanes(*pair)
    }
    assert len(lanes) == 4 * len(ring.links), "two lanes, both ways"
    for job in (exchange_job(ring, 400), *(ring_job(ring, 400, both_ways=way) for way in (False, True))):
        for node in job.collectives:
            messages = node.pattern.lower().moves
            sent = Counter[frozenset[int]]()
            ends = zip(messages.source.tolist(), messages.destination.tolist(), strict=True)
            for pair, size in zip(ends, messages.bytes.tolist(), strict=True):
                assert pair in lanes
                sent[frozenset(pair)] += size
            assert len(set(sent.values())) == 1


@given(st.integers(1, 4), st.integers(2, 4), st.integers(1, 100), st.booleans())
def test_rounds_and_rings_owe_the_same_all_to_all_from_end_to_end(
    bundles: int, gpus: int, quarter: int, both_ways: bool
) -> None:
    """Each node owes each other one m, half of it between its GPUs of either lane, once in all rounds."""
    bundles = max(2, min(bundles, gpus))
    ring, m = KHopRing(1 << bundles, gpus, bundles, doubling=True), 4 * quarter
    p = ring.nodes
    due = np.zeros((p, gpus, p, gpus), dtype=np.int64)
    for lane in range(2):
        due[:, lane, :, lane] = m // 2 * ~np.eye(p, dtype=bool)
    for job in (exchange_job(ring, m), ring_job(ring, m, both_ways=both_ways)):
        owed = np.zeros((p * gpus, p * gpus), dtype=np.int64)
        for node in job.collectives:
            found = end_to_end(node.pattern)
            np.add.at(owed, (found.messages.source, found.messages.destination), found.messages.bytes)
            assert found.nodes == tuple(tuple(range(node * gpus, (node + 1) * gpus)) for node in range(p))
        assert (owed.reshape(due.shape) == due).all()


@given(st.integers(1, 5).flatmap(lambda log: st.tuples(st.just(log), st.integers(0, log - 1))))
def test_a_round_owes_the_blocks_that_algorithm_6_brings_to_their_last_node(drawn: tuple[int, int]) -> None:
    p, w = 1 << drawn[0], 1 << drawn[1]
    rounds = exchange_rounds(p)
    sent = next(each.sent for each in rounds if each.distance == w)
    arrives = {(a, b) for node, blocks in enumerate(sent) for a, b in blocks if b == node ^ w}
    hops = tuple((node, node ^ w) for node in range(p))
    found = end_to_end(ExchangeRound((hops,), tuple((node,) for node in range(p)), w, 5)).messages
    assert set(zip(found.source.tolist(), found.destination.tolist(), strict=True)) == arrives
    assert (found.bytes == 5).all()
    assert len(found) == len(arrives)


def test_nodes_of_a_ring_are_the_gpus_that_its_hops_join() -> None:
    forward, back = ((1, 2), (3, 4), (5, 0)), ((0, 5), (4, 3), (2, 1))
    pattern = RingAllToAll((forward,), 4, (back,))
    assert pattern.nodes == ((0, 1), (2, 3), (4, 5))
    assert end_to_end(pattern).nodes == pattern.nodes
    moved = pattern.renumbered([5, 4, 3, 2, 1, 0])
    assert moved.nodes == ((5, 4), (3, 2), (1, 0))


@pytest.mark.parametrize(
    ("nodes", "back"),
    [
        (((0,), (1,)), ()),
        (((0, 3), (1,), (2, 3)), ()),
        (((0,), (2,), (1,)), ()),
        ((), (((0, 1), (1, 2), (2, 0)),)),
        ((), (((3, 4), (4, 5), (5, 3)),)),
    ],
    ids=["too few", "one GPU twice", "another order", "not back", "of other nodes"],
)
def test_rings_whose_hops_do_not_join_their_nodes_are_refused(
    nodes: tuple[tuple[int, ...], ...], back: tuple[tuple[tuple[int, int], ...], ...]
) -> None:
    with pytest.raises(DemandError, match="do not join"):
        RingAllToAll((((0, 1), (1, 2), (2, 0)),), 4, back, nodes)


@pytest.mark.parametrize(
    ("nodes", "hops", "distance", "size", "said"),
    [
        (3, ((0, 1), (1, 0), (2, 2)), 1, 4, "a round over 1 of 3 nodes"),
        (4, ((0, 3), (1, 2), (2, 1), (3, 0)), 3, 4, "a round over 3 of 4 nodes"),
        (2, ((0, 1), (1, 0)), 2, 4, "a round over 2 of 2 nodes"),
        (4, ((0, 1), (1, 0), (2, 3), (3, 2)), 2, 4, "do not join 4 nodes"),
        (2, ((0, 1),), 1, 4, "do not join 2 nodes"),
        (2, ((0, 1), (1, 0)), 1, 0, "0 bytes"),
    ],
)
def test_rounds_that_no_exchange_has_are_refused(
    nodes: int, hops: tuple[tuple[int, int], ...], distance: int, size: int, said: str
) -> None:
    with pytest.raises(DemandError, match=said):
        ExchangeRound((hops,), tuple((node,) for node in range(nodes)), distance, size)


@given(khop_rings())
def test_cables_join_the_nics_of_lanes_half_by_half(ring: KHopRing) -> None:
    fabric = khop_ring_fabric(ring)
    for a, b, _ in ring.links:
        for half, (near, far) in enumerate(ring.lanes(a, b)):
            ends = [fabric.peer(fabric.nic_port(nic)) for nic in (near, far)]
            assert [end.number for end in ends] == [half, half]
            assert [end.node.split("b")[0] for end in ends] == [f"n{a}", f"n{b}"]
            assert any({link.a.node, link.b.node} == {end.node for end in ends} for link in fabric.links)


def test_nodes_without_a_link_are_named() -> None:
    with pytest.raises(FabricError, match="nodes 0 and 3"):
        KHopRing(8, 4, 3, doubling=True).lanes(0, 3)
