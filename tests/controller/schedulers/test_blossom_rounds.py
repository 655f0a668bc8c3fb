"""Circuits by demand: each round is the heaviest matching, also where few partners are searched first."""

from itertools import chain, permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from controller.schedulers import blossom_rounds as module
from controller.schedulers.blossom_rounds import Pair, blossom_rounds, heaviest_matching
from controller.schedulers.demand import Matrix
from tests.examples import examples

EXAMPLE = np.zeros((4, 4))
for _pair, _weight in {(0, 1): 8, (2, 3): 1, (0, 2): 6, (1, 3): 0, (0, 3): 5, (1, 2): 5}.items():
    EXAMPLE[_pair] = _weight


def symmetric(upper: Matrix) -> Matrix:
    weights = np.triu(upper, 1)
    return weights + weights.T


small = st.integers(2, 8).flatmap(
    lambda n: arrays(np.float64, (n, n), elements=st.integers(0, 9) | st.integers(0, 10**9)).map(symmetric)
)
demands = st.integers(2, 9).flatmap(
    lambda n: arrays(np.float64, (n, n), elements=st.integers(0, 9)).map(lambda m: m * (1 - np.eye(n)))
)


def none_there(servers: int) -> NDArray[np.intp]:
    return np.zeros((servers, servers), dtype=np.intp)


def most_weight(weights: Matrix, servers: tuple[int, ...], resting: int) -> float:
    """Return the weight of the heaviest matching in which a number of servers rest, by trying all."""
    if len(servers) < 2:
        return 0.0 if len(servers) == resting else -np.inf
    first, *others = servers
    best = most_weight(weights, tuple(others), resting - 1) if resting else -np.inf
    for other in others:
        rest = tuple(each for each in others if each != other)
        best = max(best, weights[first, other] + most_weight(weights, rest, resting))
    return best


@given(small)
def test_matching_is_perfect_and_as_heavy_as_any(weights: Matrix) -> None:
    n = len(weights)
    found = heaviest_matching(weights)
    assert len({server for pair in found for server in pair}) == 2 * len(found) == n - n % 2
    assert sum(weights[pair] for pair in found) == most_weight(weights, tuple(range(n)), n % 2)


@given(small, st.data())
def test_only_a_server_that_may_rests(weights: Matrix, data: st.DataObject) -> None:
    n = len(weights) - (len(weights) + 1) % 2
    weights = weights[:n, :n]
    may_rest = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n).filter(any)))
    for partners in (None, 1):
        matched = {server for pair in heaviest_matching(weights, may_rest=may_rest) for server in pair}
        (rests,) = set(range(n)) - matched
        assert may_rest[rests]
        assert len(heaviest_matching(weights, partners=partners, may_rest=may_rest)) == n // 2


def structured(kind: str, n: int, seed: int) -> Matrix:
    """Return weights as jobs have them: even, few owners of tables, few that all send to, or heavy-tailed."""
    rng = np.random.default_rng(seed)
    upper = {
        "even": np.ones((n, n)),
        "owners": np.ones((n, n)) * (np.arange(n) < n // 6)[:, None],
        "dear": rng.integers(1, 100, (n, n)) + 10_000.0 * (np.arange(n) < n // 4)[:, None],
        "random": rng.integers(0, 10**9, (n, n)),
        "tailed": np.rint(rng.lognormal(10, 3, (n, n))),
        "islands": np.kron(np.eye(2), np.ones((n // 2, n // 2))) * 100 + rng.integers(0, 9, (n, n)),
    }[kind]
    return symmetric(upper)


KINDS = ["even", "owners", "dear", "random", "tailed", "islands"]


@pytest.mark.parametrize(("kind", "n"), [*((kind, 30) for kind in KINDS), ("dear", 64), ("random", 64)])
def test_prices_and_pruning_keep_the_heaviest_matching(kind: str, n: int) -> None:
    """All partners are as good as networkx without prices, and so are few."""
    weights = structured(kind, n, seed=n)
    graph: nx.Graph[int] = nx.Graph()
    for a, b in zip(*np.triu_indices(len(weights), 1), strict=True):
        graph.add_edge(int(a), int(b), weight=int(weights[a, b]))
    best = sum(weights[pair] for pair in nx.max_weight_matching(graph, maxcardinality=True))
    for partners in (None, 8, 1):
        found = heaviest_matching(weights, partners=partners)
        assert len(found) == len(weights) // 2
        assert sum(weights[pair] for pair in found) == best


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_with_pruning_weigh_as_much_as_without(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 3 rounds, of which each depends on which of equally heavy matchings those before found."""
    transfers = np.triu(structured(kind, 38, seed=3)).astype(float)
    exact = served(transfers, blossom_rounds(transfers, none_there(38), 3))
    monkeypatch.setattr(module, "FEW", 0)
    assert served(transfers, blossom_rounds(transfers, none_there(38), 3)) == pytest.approx(exact, rel=2e-3)


def served(transfers: Matrix, circuits: list[Pair]) -> float:
    """Return what circuits are worth, each after the first of its pair half of the one before."""
    weights = transfers + transfers.T
    worth = 0.0
    for a, b in circuits:
        worth += weights[a, b]
        weights[a, b] /= 2
        weights[b, a] /= 2
    return worth


def test_worked_example_goes_round_by_round() -> None:
    expected = [[(0, 3), (1, 2)], [(0, 1), (2, 3)], [(0, 2), (1, 3)]]
    for rounds in (1, 2, 3):
        assert blossom_rounds(EXAMPLE, none_there(4), rounds) == [*chain(*expected[:rounds])]


def test_circuits_that_exist_discount_their_pair_or_do_not() -> None:
    there = none_there(4)
    for a, b in [(0, 1), (1, 2), (2, 3), (3, 0)]:
        there[a, b] = there[b, a] = 1
    demand = np.triu(np.ones((4, 4)), 1)
    demand[0, 1] = demand[2, 3] = 1.5
    assert blossom_rounds(demand, there, 3) == [(0, 2), (1, 3)]
    assert blossom_rounds(demand, there, 3, discounted=False) == [(0, 1), (2, 3)]


@settings(max_examples=examples(30, 100))
@given(demands, st.integers(1, 5), st.booleans())
def test_ports_are_used_up_but_for_one(transfers: Matrix, degree: int, duplex: bool) -> None:
    """And no server has more circuits than ports, or one to itself."""
    n = len(transfers)
    circuits = blossom_rounds(transfers, none_there(n), degree, duplex=duplex)
    assert all(a < b if duplex else a != b for a, b in circuits)
    sends, receives = (np.bincount([pair[end] for pair in circuits], minlength=n) for end in (0, 1))
    if duplex:
        sends = receives = sends + receives
    assert max(sends.max(), receives.max()) <= degree
    dark = n * degree - sends.sum()
    assert dark == (n * degree) % 2 if duplex and degree <= n else dark <= degree


@given(demands)
def test_simplex_round_is_the_heaviest_permutation_without_fixed_points(transfers: Matrix) -> None:
    n = min(len(transfers), 6)
    transfers = transfers[:n, :n]
    circuits = blossom_rounds(transfers, none_there(n), 1, duplex=False)
    best = max(
        sum(transfers[a, b] for a, b in enumerate(order))
        for order in permutations(range(n))
        if all(a != b for a, b in enumerate(order))
    )
    assert sum(transfers[pair] for pair in circuits) == best


def test_servers_without_demand_get_circuits_to_different_ones() -> None:
    """Of 8 servers only 0 sends; 7 rounds of matchings make the full mesh all the same."""
    transfers = np.zeros((8, 8))
    for demand in (0.0, 1.0):
        transfers[0, 1:] = demand
        circuits = blossom_rounds(transfers, none_there(8), 7)
        assert len(set(circuits)) == 28


def test_free_ports_of_few_servers_are_joined_by_what_is_left() -> None:
    """Servers 0 and 1 have no free port; of the others those of most demand are joined first."""
    there = none_there(5)
    there[0, 1] = there[1, 0] = 2
    transfers = np.zeros((5, 5))
    transfers[2, 4], transfers[3, 4], transfers[0, 4] = 8, 3, 99
    assert blossom_rounds(transfers, there, 2) == [(2, 4), (2, 4)]
    transfers[3, 4] = 5
    assert blossom_rounds(transfers, there, 2) == [(2, 4), (3, 4), (2, 3)]
