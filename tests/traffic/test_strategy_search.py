"""The Markov chain and its alternation with TopologyFinder, on models whose best strategy is known."""

from collections.abc import Mapping
from itertools import pairwise, product
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.schedulers.topoopt import Group, Plan, topology_finder
from scenarios._topoopt.scale.search import plan_network
from tests.traffic.strategy_cases import dense, model_of, models, table
from topologies.errors import ScenarioError
from traffic.models.layered import LayeredModel
from traffic.strategies.critical_path import Cost, Evaluation
from traffic.strategies.network import switch_network
from traffic.strategies.proposals import Proposals
from traffic.strategies.search import RETURNS, Candidate, Searched, Topology, alternate, markov_chain
from traffic.strategies.strategy import (
    Share,
    Strategy,
    check_strategy,
    start_strategy,
    summed,
    transfers,
)

RATE_BPS = 1e9
HYBRID = model_of(
    dense("huge", parameters=100_000_000, features=16, seconds=1e-4),
    dense("middle", ["huge"], parameters=1000, features=16, seconds=5e-3),
    dense("top", ["middle"], parameters=1000),
    servers=8,
)
"""The gradients of its first layer take far longer to sum than to compute elsewhere."""
TOWERS = model_of(
    dense("left", parameters=50_000_000, features=5000, seconds=5e-3),
    dense("right", parameters=50_000_000, features=5000, seconds=5e-3),
    dense("top", ["left", "right"], parameters=50_000_000, seconds=1e-4),
    servers=8,
)
"""Too large to sum: two towers compute at the same time if they are apart, and then send one another much."""
TOY = model_of(
    table("table", features=20_000, seconds=2e-3),
    dense("bottom", parameters=300_000, seconds=3e-4),
    dense("top", ["table", "bottom"], parameters=50_000, seconds=5e-4),
)
seeds = st.integers(0, 2**32 - 1)
styles = pytest.mark.parametrize("style", ["paper", "artifact"])
Style = Literal["paper", "artifact"]


def rng_of(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def switch_cost(model: LayeredModel) -> Cost:
    return Cost(model, switch_network(model.servers, RATE_BPS))


def plan_cost(model: LayeredModel, plan: Plan) -> Cost:
    return Cost(model, plan_network(plan, RATE_BPS / 4))


def alternated(model: LayeredModel, style: Style, seed: int = 0, budget: int = 60) -> Searched[Plan]:
    """Return the outcome of alternating with TopologyFinder on servers of four ports."""

    def plan_for(strategy: Strategy) -> Plan:
        groups = [Group(members, size) for members, size in summed(model, strategy)]
        return topology_finder(groups, transfers(model, strategy), servers=model.servers, degree=4)

    return alternate(
        model,
        cost=lambda plan: plan_cost(model, plan),
        finder=plan_for,
        rng=rng_of(seed),
        rounds=3,
        budget=budget,
        style=style,
    )


def best_of(found: Searched[Topology]) -> Candidate[Topology]:
    return found.candidates[0]


def all_times_s(model: LayeredModel) -> list[float]:
    """Return T of every strategy there is."""
    n = model.servers
    dense_shares = [Share(g, s) for g in (1, 2, 4) for s in range(n // g)]
    shares = [[Share(1, s) for s in range(n)] if layer.is_table else dense_shares for layer in model.layers]
    cost, names = switch_cost(model), [layer.name for layer in model.layers]
    return [cost.start(dict(zip(names, each, strict=True))).time_s for each in product(*shares)]


@given(model=models(12), seed=seeds)
def test_proposals_fit_the_model_and_change_something(model: LayeredModel, seed: int) -> None:
    rng, proposals, strategy = rng_of(seed), Proposals(model), dict(start_strategy(model))
    for _ in range(20):
        changes = proposals.draw(strategy, rng)
        assert all(share != strategy[name] for name, share in changes.items())
        strategy |= changes
        check_strategy(model, strategy)


def test_proposals_reach_every_share() -> None:
    rng, proposals, start = rng_of(), Proposals(TOY), start_strategy(TOY)
    drawn = {(name, share) for _ in range(800) for name, share in proposals.draw(start, rng).items()}
    assert {share for name, share in drawn if name == "table"} == {Share(1, s) for s in (1, 2, 3)}
    assert {share for name, share in drawn if name == "bottom"} == {
        *(Share(1, s) for s in range(4)),
        Share(2, 0),
        Share(2, 1),
    }
    assert any(name == "top" for name, _ in drawn)  # by propagation only


def test_the_chain_finds_the_best_of_all_strategies() -> None:
    best_s = min(all_times_s(TOY))
    cost = switch_cost(TOY)
    start_s = cost.start(start_strategy(TOY)).time_s
    found = best_of(markov_chain(cost, start_strategy(TOY), steps=1500, rng=rng_of()))
    assert found.time_s == pytest.approx(best_s)
    assert found.time_s < 0.9 * start_s
    assert cost.start(found.strategy).time_s == found.time_s


def test_the_chain_leaves_data_parallelism_where_a_layer_is_huge() -> None:
    cost, start = switch_cost(HYBRID), start_strategy(HYBRID)
    found = best_of(markov_chain(cost, start, steps=400, rng=rng_of()))
    assert found.strategy["huge"].parts == 1
    assert found.strategy["middle"].parts == 8
    assert found.time_s < 0.05 * cost.start(start).time_s


def test_the_chain_keeps_data_parallelism_where_layers_compute_long_and_sum_little() -> None:
    model = model_of(dense("a", parameters=100), dense("b", ["a"], parameters=100), servers=8)
    found = best_of(markov_chain(switch_cost(model), start_strategy(model), steps=200, rng=rng_of()))
    assert dict(found.strategy) == start_strategy(model)


@given(model=models(8), seed=seeds)
@settings(max_examples=10)
def test_a_chain_is_repeatable_and_keeps_the_best_that_it_evaluates(model: LayeredModel, seed: int) -> None:
    cost, start = Watched(model), start_strategy(model)
    found = markov_chain(cost, start, steps=40, rng=rng_of(seed))
    assert found == markov_chain(switch_cost(model), start, steps=40, rng=rng_of(seed))
    times_s = [each.time_s for each in found.candidates]
    assert times_s == sorted(times_s)
    assert times_s == [cost.start(each.strategy).time_s for each in found.candidates]
    assert all(
        one.strategy != other.strategy
        for one, other in product(found.candidates, repeat=2)
        if one is not other
    )
    assert times_s[0] == min([cost.start(start).time_s, *(after_s for _, after_s in cost.seen)])
    assert found.accepted <= len(cost.seen) <= 40


class Watched(Cost):
    """A cost that notes from where each proposal goes."""

    def __init__(self, model: LayeredModel) -> None:
        super().__init__(model, switch_network(model.servers, RATE_BPS))
        self.seen: list[tuple[float, float]] = []

    def changed(self, before: Evaluation, changes: Mapping[str, Share]) -> Evaluation:
        found = super().changed(before, changes)
        self.seen.append((before.time_s, found.time_s))
        return found


def test_with_a_great_alpha_nothing_slower_is_accepted_and_with_none_all_is() -> None:
    strict, loose = Watched(HYBRID), Watched(HYBRID)
    found = markov_chain(strict, start_strategy(HYBRID), steps=99, rng=rng_of(), alpha=1e9)
    assert all(after <= before for (before, _), (after, _) in pairwise(strict.seen))
    assert found.accepted
    found = markov_chain(loose, start_strategy(HYBRID), steps=99, rng=rng_of(), alpha=0.0)
    assert found.accepted == len(loose.seen)
    assert any(after > before for before, after in loose.seen)


def test_slower_proposals_are_accepted_as_often_as_alpha_says() -> None:
    layers = dense("a", parameters=0, features=0), dense("b", ["a"], parameters=0, features=0, seconds=0.0)
    cost = Watched(model_of(*layers, servers=2))  # 3 ms, and 6 ms with a on one server
    found = markov_chain(cost, start_strategy(cost.model), steps=2000, rng=rng_of(), alpha=0.1)
    slower = [after - before for before, after in cost.seen if after > before]
    assert slower == pytest.approx([3e-3] * len(slower))
    taken = found.accepted - (len(cost.seen) - len(slower))  # all others are
    assert taken / len(slower) == pytest.approx(np.exp(-0.3), abs=0.08)
    assert len(slower) > 200


def test_the_chain_goes_back_to_the_best_a_hundred_times() -> None:
    cost = Watched(HYBRID)
    markov_chain(cost, start_strategy(HYBRID), steps=RETURNS, rng=rng_of(), alpha=0.0)
    best_s = cost.seen[0][0]
    for before_s, found_s in cost.seen:  # at this budget, before each step
        assert before_s == best_s
        best_s = min(best_s, found_s)


@styles
def test_alternating_puts_two_towers_apart_and_joins_their_servers(style: Style) -> None:
    searched = alternated(TOWERS, style, budget=100)
    found = best_of(searched)
    assert {share.parts for share in found.strategy.values()} == {1}
    left, right, top = (share.start for share in found.strategy.values())
    assert left != right
    assert top in (left, right)
    assert sum({left, right} == set(pair) for pair in found.topology.pairs) >= 2
    first = best_of(alternated(TOWERS, style, budget=0)).topology
    assert found.time_s < 0.9 * plan_cost(TOWERS, first).start(found.strategy).time_s
    assert searched.topologies > 0


@styles
@given(model=models(8), seed=seeds)
@settings(max_examples=6)
def test_alternating_never_ends_worse_than_it_started(style: Style, model: LayeredModel, seed: int) -> None:
    found = alternated(model, style, seed, budget=20)
    start = best_of(alternated(model, style, seed, budget=0))
    assert start.strategy == start_strategy(model)
    assert best_of(found).time_s <= start.time_s
    for each in found.candidates:
        assert plan_cost(model, each.topology).start(each.strategy).time_s == each.time_s


@styles
def test_alternating_over_one_topology_is_the_chain_on_it(style: Style) -> None:
    """A topology is any value: here the rate of a switch."""
    found = alternate(
        TOY,
        cost=lambda rate_bps: Cost(TOY, switch_network(TOY.servers, rate_bps)),
        finder=lambda _: RATE_BPS,
        rng=rng_of(),
        rounds=1,
        budget=60,
        style=style,
    )
    chain = markov_chain(switch_cost(TOY), start_strategy(TOY), steps=60, rng=rng_of())
    same = [Candidate(each.strategy, RATE_BPS, each.time_s) for each in chain.candidates]
    assert [*found.candidates] == same
    assert (found.accepted, found.topologies) == (chain.accepted, 0)


@styles
def test_equal_seeds_find_the_same(style: Style) -> None:
    assert alternated(TOY, style, 3) == alternated(TOY, style, 3)


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(ScenarioError, match="unknown style 'both'"):
        alternated(TOY, "both")  # type: ignore[arg-type]
