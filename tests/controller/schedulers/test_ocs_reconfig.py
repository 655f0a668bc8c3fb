"""TopoOpt's Algorithm 5: worked examples, each greedy step by brute force, and what connected graphs keep."""

from collections import Counter
from collections.abc import Iterable, Sequence

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from controller.schedulers.demand import Matrix
from controller.schedulers.ocs_reconfig import (
    DISCOUNTS,
    NO_DISCOUNT,
    Pair,
    connected,
    random_circuits,
    reconfigured,
)
from tests.examples import examples
from topologies.errors import DemandError

seeds, degrees, both_ways = st.integers(0, 10**6), st.integers(2, 4), st.booleans()
discounts = st.sampled_from(sorted(DISCOUNTS))


def owed(servers: int, text: str = "") -> Matrix:
    """Return a demand written as ``01=16 12=8``: server 0 owes server 1 16 bytes."""
    matrix = np.zeros((servers, servers))
    for word in text.split():
        matrix[int(word[0]), int(word[1])] = int(word[3:])
    return matrix


def drawn(rng: np.random.Generator, servers: int) -> Matrix:
    """Return a demand of which a random share is zero, in units that can be halved."""
    some = rng.random((servers, servers)) < rng.random()
    return np.asarray(rng.integers(1, 30, (servers, servers)) * some * 1024.0)


def pairs(text: str) -> tuple[Pair, ...]:
    """Return pairs written as ``01 13``."""
    return tuple((int(word[0]), int(word[1])) for word in text.split())


def ports_used(circuits: Iterable[Pair], servers: int, duplex: bool) -> NDArray[np.int64]:
    """Return how many ports of each server send, and how many receive; duplex ones do both."""
    used = np.zeros((2, servers), dtype=np.int64)
    for i, j in circuits:
        used[0, i] += 1
        used[1, j] += 1
        if duplex:
            used[0, j] += 1
            used[1, i] += 1
    return used


def is_connected(circuits: Iterable[Pair], servers: int, duplex: bool) -> bool:
    """Return whether all servers reach each other."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(servers))
    graph.add_edges_from(circuits)
    return nx.is_weakly_connected(graph) if duplex else nx.is_strongly_connected(graph)


# Algorithm 5


@pytest.mark.parametrize(
    ("discount", "demand", "found"),
    [
        ("exponential", "01=100 02=30 12=20", "01 01 02 12"),  # 100, 50, then 25 < 30
        ("factorial", "01=100 02=30 12=20", "01 01 02 12"),  # 100, 50, then 16 < 30
        ("linear", "01=100 02=30 12=20", "01 01 01"),  # 100, 50, 33
        ("exponential", "01=100 02=20 12=18", "01 01 01"),  # 100, 50, 25
        ("factorial", "01=100 02=20 12=18", "01 01 02 12"),
        ("none", "01=100 02=99 12=99", "01 01 01"),
        ("exponential", "01=60 10=100 02=30 12=20", "01 01 02 12"),  # the greater direction
        ("exponential", "01=1 02=8", "02 02 02"),  # 8, 4, 2 before 1
        ("exponential", "01=1 02=1", "01 02 01 12"),  # none of a byte is left for a second
    ],
)
def test_worked_examples_of_three_duplex_ports(discount: str, demand: str, found: str) -> None:
    assert reconfigured(owed(3, demand), 3, discount=discount) == pairs(found)


def test_directed_circuits_follow_a_ring_with_all_ports_and_duplex_ones_go_both_ways() -> None:
    ring = np.roll(5000 * np.eye(5), 1, axis=1)
    for discount in DISCOUNTS:
        found = reconfigured(ring, 4, duplex=False, discount=discount)
        assert Counter(found) == dict.fromkeys(pairs("01 12 23 34 40"), 4)
    assert Counter(reconfigured(ring, 4)) == dict.fromkeys(pairs("01 12 23 34 04"), 2)
    assert Counter(reconfigured(ring, 4, discount=NO_DISCOUNT)) == {(0, 1): 4, (2, 3): 4}


def test_free_ports_join_named_pairs_then_the_lowest_servers_that_have_fewest_circuits() -> None:
    nothing = owed(4)
    assert reconfigured(nothing, 2, spare=pairs("03 12 03 03")) == pairs("03 12 03 12")
    assert reconfigured(nothing, 2) == pairs("01 02 12")
    assert reconfigured(nothing, [1, 0, 3, 0]) == pairs("02")
    assert reconfigured(owed(1, "00=5"), 2) == ()


def utility(
    demand: Matrix, circuits: Sequence[Pair], *, duplex: bool = True, discount: str = "exponential"
) -> float:
    """Return what circuits are worth for a demand: the sum of T Discount(L) (TopoOpt, appendix E.4)."""
    parallel = Counter(tuple(sorted(pair)) if duplex else pair for pair in circuits)
    either = np.floor(np.maximum(demand, demand.T)) if duplex else demand
    return sum(
        float(either[pair]) * sum(DISCOUNTS[discount](circuit) for circuit in range(1, count + 1))
        for pair, count in parallel.items()
    )


@settings(max_examples=examples(25, 400))
@given(seeds, degrees, both_ways, discounts)
def test_each_circuit_has_the_greatest_marginal_utility(
    seed: int, degree: int, duplex: bool, discount: str
) -> None:
    n = 2 + seed % 3
    demand = drawn(np.random.default_rng(seed), n)
    chosen = reconfigured(demand, degree, duplex=duplex, discount=discount)
    worth = [
        utility(demand, chosen[:count], duplex=duplex, discount=discount) for count in range(len(chosen) + 1)
    ]
    for count, gain in enumerate(np.diff(worth)):
        before = list(chosen[:count])
        sends, receives = ports_used(before, n, duplex)
        could = [
            utility(demand, [*before, (i, j)], duplex=duplex, discount=discount) - worth[count]
            for i in range(n)
            for j in range(n)
            if i != j and sends[i] < degree and receives[j] < degree
        ]
        assert gain >= max(could) - 1, "but for a byte that is rounded off"


def test_the_first_circuit_halves_and_the_next_adds_a_quarter() -> None:
    """The utility as printed: the x-th of the circuits of a pair adds T / 2^x."""
    demand = owed(3, "01=16 12=8")
    worth = [utility(demand, pairs(text)) for text in ("01", "01 01", "01 01 12", "01 01 01")]
    assert worth == [8, 12, 16, 14]


@settings(max_examples=examples(40, 600))
@given(seeds, degrees, both_ways, discounts)
def test_no_server_has_more_circuits_than_ports_and_all_are_connected(
    seed: int, degree: int, duplex: bool, discount: str
) -> None:
    n, rng = 2 + seed % 7, np.random.default_rng(seed)
    demand, spare = drawn(rng, n), random_circuits(n, degree, rng, duplex=duplex)
    chosen = reconfigured(demand, degree, duplex=duplex, discount=discount, spare=spare)
    assert chosen == reconfigured(demand.copy(), degree, duplex=duplex, discount=discount, spare=spare)
    used = ports_used(chosen, n, duplex)
    assert np.max(used) <= degree
    assert (used.min(axis=0) < degree).sum() <= 1, "free ports are left at one server at most"
    joined = connected(chosen, demand, servers=n, duplex=duplex, discount=discount)
    assert joined == connected(chosen, demand, servers=n, duplex=duplex, discount=discount)
    assert is_connected(joined, n, duplex)
    new = 2 if duplex else 1
    assert (ports_used(joined, n, duplex) == np.where(used == 0, new, used)).all()
    if is_connected(chosen, n, duplex):
        assert joined == chosen


# Two-edge replacement


def test_two_parts_swap_the_ends_of_their_circuits_of_least_worth() -> None:
    demand = owed(4, "01=16 12=6 02=5 23=1")
    chosen = reconfigured(demand, 2)
    assert chosen == pairs("01 01 23 23")
    assert connected(chosen, demand, servers=4) == pairs("01 23 03 12")


def test_single_servers_get_two_circuits_and_come_between_the_ends_of_one() -> None:
    assert connected((), owed(2), servers=2) == pairs("01 01")
    assert connected(pairs("01 12 02"), owed(4, "01=9 02=8"), servers=4) == pairs("01 02 13 23")
    assert Counter(connected(pairs("01 10"), owed(3), servers=3, duplex=False)) == Counter(pairs("01 12 20"))


def test_a_bridge_of_least_worth_stays() -> None:
    triangles = "01 02 12 23 34 35 45"  # 23 joins two of them
    demand = owed(8, " ".join(f"{pair}=10" for pair in triangles.split()) + " 23=1 67=20")
    found = connected(pairs(f"{triangles} 67"), demand, servers=8)
    assert is_connected(found, 8, duplex=True)
    assert (2, 3) in found
    assert Counter(found)[6, 7] == 0


@settings(max_examples=examples(40, 600))
@given(seeds)
def test_any_circuits_are_connected_if_there_are_enough(seed: int) -> None:
    n, rng = 2 + seed % 8, np.random.default_rng(seed)
    circuits = [(i, int((i + rng.integers(1, n)) % n)) for i in (*range(n), *rng.integers(0, n, seed % 5))]
    found = connected(circuits, drawn(rng, n), servers=n)
    assert is_connected(found, n, duplex=True)
    assert (ports_used(found, n, duplex=True) == ports_used(circuits, n, duplex=True)).all()
    assert not any(i == j for i, j in found)


@pytest.mark.parametrize("duplex", [True, False])
@pytest.mark.parametrize(("servers", "degree"), [(2, 2), (3, 4), (9, 5), (12, 4), (64, 3)])
def test_random_circuits_are_regular_and_connected(servers: int, degree: int, duplex: bool) -> None:
    found = [
        random_circuits(servers, degree, np.random.default_rng(seed), duplex=duplex) for seed in (0, 0, 1)
    ]
    assert found[0] == found[1]
    assert found[0] != found[2] or servers == 2
    assert is_connected(found[0], servers, duplex)
    is_odd = int(duplex and servers % 2 and degree % 2)
    for used in ports_used(found[0], servers, duplex).tolist():
        assert sorted(used) == [degree - 1] * is_odd + [degree] * (servers - is_odd)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(DemandError, match="unknown discount 'halved'"):
        reconfigured(owed(2), 1, discount="halved")
    with pytest.raises(DemandError, match="servers of -1 ports"):
        reconfigured(owed(2), -1)
    with pytest.raises(DemandError, match="do not connect all servers"):
        connected(pairs("01 23"), owed(4), servers=4)
    with pytest.raises(DemandError, match="server 0 sends over 2 circuits and receives over 1"):
        connected(pairs("01 02 10"), owed(3), servers=3, duplex=False)
