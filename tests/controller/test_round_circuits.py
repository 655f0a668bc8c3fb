"""Circuits in rounds: what OCSes permit, what is lit beforehand, and what each round waits for."""

import pytest

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.ring_circuits import bundle_circuits, link_paths
from controller.circuits.round_circuits import (
    exchange_paths,
    foreseen_rounds,
    node_ring_paths,
    rounds_that_wait,
)
from topologies.errors import DemandError
from topologies.events import NodeDone, Reconfigure, View
from topologies.khop_ring import PATHS, KHopRing, TrxBundle, khop_ring_fabric
from topologies.light import light_path

FOUR = KHopRing(4, 4, 2, doubling=True)


def doubling(bundles: int, by_distance: bool = False) -> KHopRing:
    """Return as many nodes as distances that double reach."""
    return KHopRing(1 << bundles, 4, bundles, True, True, by_distance)


@pytest.mark.parametrize("by_distance", [False, True])
@pytest.mark.parametrize("bundles", [2, 3, 4])
def test_each_round_joins_the_halves_of_its_partners_over_permitted_circuits(
    bundles: int, by_distance: bool
) -> None:
    ring = doubling(bundles, by_distance)
    fabric = khop_ring_fabric(ring)
    for distance, paths in zip((ring.nodes >> k for k in range(1, 7)), exchange_paths(ring), strict=False):
        lit = dict(bundle_circuits(ring, paths, ring.every_bundle))
        for name, shown in lit.items():
            assert fabric.switches[fabric.switch_index[name]].permits(shown)
        for node in range(ring.nodes):
            for near, far in ring.lanes(node, node ^ distance):
                assert light_path(fabric, lit, near).end == fabric.nic_port(far)
                assert light_path(fabric, lit, far).end == fabric.nic_port(near)


def test_two_bundles_wait_in_every_round_but_the_first() -> None:
    first, second = exchange_paths(FOUR)
    up, down = TrxBundle(0, 1), TrxBundle(3, 0)
    assert (first[up], second[up]) == (2, 1)
    assert (first[down], second[down]) == (2, 1)
    assert rounds_that_wait([first, second]) == [1]


@pytest.mark.parametrize(("bundles", "waiting"), [(2, [1]), (3, [2]), (4, [1, 3])])
def test_only_rounds_wait_whose_bundle_was_in_use_before(bundles: int, waiting: list[int]) -> None:
    assert rounds_that_wait(exchange_paths(doubling(bundles))) == waiting
    assert rounds_that_wait(exchange_paths(doubling(bundles, by_distance=True))) == []


def test_a_bundle_per_distance_cannot_join_a_node_with_both_beside_it() -> None:
    paths = node_ring_paths(FOUR)
    assert set(paths) == {TrxBundle(node, number) for node in range(4) for number in (0, 1)}
    with pytest.raises(DemandError, match="would light both paths"):
        node_ring_paths(doubling(2, by_distance=True))


def test_what_no_link_joins_is_refused() -> None:
    with pytest.raises(DemandError, match="nodes 0 and 4"):
        exchange_paths(KHopRing(8, 4, 2))
    with pytest.raises(DemandError, match="between 6 nodes"):
        exchange_paths(KHopRing(6, 4, 2))
    with pytest.raises(DemandError, match="nodes 3 and 0"):
        node_ring_paths(KHopRing(4, 4, 2, closed=False))
    with pytest.raises(DemandError, match="n0b1 would light both paths"):
        link_paths(KHopRing(8, 4, 2), [(0, 1), (0, 2)])


def test_bundles_change_when_the_round_that_used_them_last_has_ended() -> None:
    rounds = exchange_paths(FOUR)
    delay = ReconfigurationDelay("ocstrx", 70e-6)
    foreseen = foreseen_rounds(FOUR, [("first", rounds[0]), ("second", rounds[1])], delay)
    path = {number: tuple((a, b) for a, b in enumerate(PATHS[number - 1]) if b >= 0) for number in (1, 2)}
    assert dict(foreseen.first) == {
        "n0b1": path[2], "n1b1": path[2], "n2b0": path[2], "n3b0": path[2],
        "n1b0": path[1], "n2b1": path[1],
    }  # fmt: skip
    assert foreseen.after == (("first", (("n0b1", path[1]), ("n3b0", path[1]))),)
    foreseen.bind(khop_ring_fabric(FOUR), None, None, 0, None)
    view = View(0.0, khop_ring_fabric(FOUR), {}, frozenset())
    orders = {name: foreseen.decide(None, view, NodeDone(name))[1] for name in ("first", "second", "other")}
    assert orders == {
        "first": [Reconfigure({"n0b1": path[1], "n3b0": path[1]})],
        "second": [],
        "other": [],
    }
