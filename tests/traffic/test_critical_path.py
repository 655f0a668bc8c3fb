"""T of a strategy: closed forms, bounds made of other code, and proposals evaluated as from scratch."""

from collections.abc import Callable
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scenarios.test_topoopt_search import ring_plan_network
from tests.traffic.strategy_cases import dense, model_of, models, table
from topologies.errors import DemandError
from traffic.models.layered import LayeredModel
from traffic.strategies.critical_path import Cost
from traffic.strategies.iteration_walk import GPU_LINK_BPS
from traffic.strategies.network import RoutedNetwork, circuit_network, switch_network
from traffic.strategies.proposals import Proposals
from traffic.strategies.strategy import Share, Strategy, replicas, start_strategy, summed, transfers

RATE_BPS = 1e9
SUM_S = 2 * 3 / 4 * 8 * 4e6 / RATE_BPS
"""A ring of 4 servers over 4 MB."""
Networks = Callable[[int], RoutedNetwork]
seeds = st.integers(0, 2**32 - 1)


def random_network(servers: int, seed: int) -> RoutedNetwork:
    """Return a connected random graph of three circuits a server."""
    graph = nx.random_regular_graph(3, servers, seed=seed)
    return circuit_network([*graph.edges, *pairwise(range(servers))], RATE_BPS, servers=servers)


def time_s(model: LayeredModel, strategy: Strategy, network: RoutedNetwork | None = None) -> float:
    return Cost(model, network or switch_network(model.servers, RATE_BPS)).start(strategy).time_s


def test_one_layer_computes_reduces_and_sums() -> None:
    model = model_of(dense("only"), gpus=4)
    reduction_s = 2 * 8 * 4e6 / (4 * GPU_LINK_BPS)
    assert time_s(model, start_strategy(model)) == pytest.approx(3e-3 + reduction_s + SUM_S)


def test_sums_overlap_with_the_backward_of_earlier_layers() -> None:
    model = model_of(dense("a", seconds=5e-3), dense("b", ["a"], seconds=5e-3))
    # forwards 10 ms, backwards to 20 and 30 ms; the sums of 48 ms each are one after the other
    assert time_s(model, start_strategy(model)) == pytest.approx(20e-3 + 2 * SUM_S)


def test_fewer_parts_compute_longer_and_sum_less() -> None:
    model = model_of(dense("only"))
    assert time_s(model, {"only": Share(1, 3)}) == pytest.approx(4 * 3e-3)
    assert time_s(model, {"only": Share(2, 1)}) == pytest.approx(2 * 3e-3 + 8 * 4e6 / RATE_BPS)


@pytest.mark.parametrize(("owners", "senders"), [((0, 0), 1), ((0, 1), 2)])
def test_what_is_sent_at_the_same_time_adds_up_on_a_link(owners: tuple[int, int], senders: int) -> None:
    model = model_of(table("t"), table("u"), dense("top", ["t", "u"], parameters=0))
    strategy = {"t": Share(1, owners[0]), "u": Share(1, owners[1]), "top": Share(4)}
    sent_s = 32 * 100 * 4 * (3 / 4) * 8 / RATE_BPS
    tables_s = (1e-3 + 2e-3) * 2 / senders
    assert time_s(model, strategy) == pytest.approx(tables_s + 2 * sent_s * 2 / senders + 3e-3)


def test_what_is_on_the_same_server_is_not_sent() -> None:
    model = model_of(dense("a", parameters=0), dense("b", ["a"], parameters=0))
    for share in (Share(4), Share(2, 1), Share(1, 2)):
        assert time_s(model, {"a": share, "b": share}) == pytest.approx(6e-3 * 4 / share.parts)


def test_layers_on_the_same_servers_compute_beside_an_exchange() -> None:
    layers = table("t", features=1000), dense("bottom", parameters=0, seconds=4e-3)
    model = model_of(*layers, dense("top", ["t", "bottom"], parameters=0))
    # 1 ms: server 0 has looked up, and computes the bottom until 5 ms; the same backward
    sent_s = 32 * 4e3 * (3 / 4) * 8 / RATE_BPS
    assert time_s(model, start_strategy(model)) == pytest.approx(
        5e-3 + 3e-3 + max(2e-3 + sent_s, 8e-3 + 2e-3)
    )
    assert sent_s < 4e-3

    long = model_of(table("t", features=10_000), *model.layers[1:])
    assert time_s(long, start_strategy(long)) == pytest.approx(1e-3 + 3e-3 + 2 * 10 * sent_s + 2e-3)


NETWORKS = [
    pytest.param(lambda seed: switch_network(8, RATE_BPS), id="switch"),
    pytest.param(lambda seed: ring_plan_network(8), id="plan"),
    pytest.param(lambda seed: random_network(8, seed % 100), id="expander"),
]


@pytest.mark.parametrize("network_of", NETWORKS)
@given(model=models(8), seed=seeds)
def test_proposals_are_evaluated_as_from_scratch(
    network_of: Networks, model: LayeredModel, seed: int
) -> None:
    rng, proposals = np.random.default_rng(seed), Proposals(model)
    cost = Cost(model, network_of(seed))
    here = cost.start(start_strategy(model))
    for _ in range(8):
        found = cost.changed(here, proposals.draw(here.strategy, rng))
        assert found.time_s == cost.start(found.strategy).time_s
        if rng.random() < 0.6:  # else it is refused, and the next one starts from the same
            here = found


@pytest.mark.parametrize("network_of", NETWORKS)
@given(model=models(8), seed=seeds)
def test_no_server_and_no_link_does_more_than_t_and_something_always_goes_on(
    network_of: Networks, model: LayeredModel, seed: int
) -> None:
    rng, proposals, network = np.random.default_rng(seed), Proposals(model), network_of(seed)
    strategy = dict(start_strategy(model))
    for _ in range(8):
        strategy |= proposals.draw(strategy, rng)
    found_s = Cost(model, network).start(strategy).time_s
    busy_s, computed_s = np.zeros(8), 0.0
    for layer in model.layers:
        share = strategy[layer.name]
        took_s = (layer.forward_s + layer.backward_s) * (1 if layer.is_table else 8 / share.parts)
        busy_s[list(replicas(share, 8))] += took_s
        computed_s += took_s + 2 * 8 * 4 * layer.parameters / (4 * GPU_LINK_BPS)
    sent = transfers(model, strategy)
    source, destination = np.nonzero(sent)
    moved_s = network.loads_s(source, destination, sent[source, destination])
    for members, size in summed(model, strategy):
        moved_s = moved_s + size * network.ring_loads_s(members)
    assert max(busy_s.max(), moved_s.max()) <= found_s * (1 + 1e-9)
    assert found_s <= (computed_s + moved_s.sum()) * (1 + 1e-9)


def test_a_strategy_or_network_that_does_not_fit_is_refused() -> None:
    model = model_of(dense("only"))
    with pytest.raises(DemandError, match="in 3 parts"):
        time_s(model, {"only": Share(3)})
    with pytest.raises(DemandError, match="4 servers and a network of 8"):
        Cost(model, switch_network(8, RATE_BPS))
