"""Networks as a search sees them: which links bytes cross, by hops of other code, and what is refused."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.schedulers.coin_change import coin_change, hops_between
from topologies.errors import ScenarioError
from traffic.strategies.network import circuit_network, switch_network

RATE_BPS = 1e9


def test_a_pair_on_a_switch_crosses_both_nics() -> None:
    network = switch_network(3, RATE_BPS)
    loads_s = network.loads_s(np.array([0, 0, 2]), np.array([1, 2, 1]), np.array([125, 250, 500]))
    assert (loads_s * 1e6).tolist() == pytest.approx([3, 0, 4, 0, 5, 2])


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("coins", [(1,), (1, 5), (1, 3, 4)])
def test_paths_are_as_long_as_the_coin_change(coins: tuple[int, ...], drawn: bool) -> None:
    pairs = [(s, (s + coin) % 12) for coin in coins for s in range(12)]
    rng = np.random.default_rng(1) if drawn else None
    network = circuit_network(pairs, RATE_BPS, servers=12, rng=rng)
    changes = coin_change(12, tuple({*coins, *(12 - coin for coin in coins)}))
    crossed = np.diff(network.starts).reshape(12, 12)
    assert (crossed == hops_between(changes)).all()


@given(seed=st.integers(0, 2**32 - 1))
def test_what_servers_send_on_is_what_they_get(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = [*nx.random_regular_graph(3, 8, seed=seed % 1000).edges, *pairwise(range(8))]
    network = circuit_network(pairs, RATE_BPS, servers=8, rng=rng)
    source, destination = np.nonzero(~np.eye(8, dtype=bool))
    size = rng.integers(1, 1000, len(source))
    carried = network.loads_s(source, destination, size) * network.rates_bps / 8
    joined = sorted(
        {*pairs, *((b, a) for a, b in pairs)}, key=lambda link: (link[0], (link[1] - link[0]) % 8)
    )
    near, far = np.array(joined).T
    out, into = np.bincount(near, carried), np.bincount(far, carried)
    owed = np.bincount(source, size) - np.bincount(destination, size)
    assert out - into == pytest.approx(owed)


def test_parallel_circuits_are_one_link_of_both_rates() -> None:
    network = circuit_network([(0, 1), (1, 0), (1, 2)], RATE_BPS, servers=3)
    assert sorted(network.rates_bps) == [RATE_BPS, RATE_BPS, 2 * RATE_BPS, 2 * RATE_BPS]


def test_servers_that_circuits_do_not_join_are_refused() -> None:
    with pytest.raises(ScenarioError, match="do not join 3 servers"):
        circuit_network([(0, 1)], RATE_BPS, servers=3)
