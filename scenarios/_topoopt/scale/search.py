"""The strategies to predict on a fabric: TopologyFinder and the search in turn, or a search on a network.

Strategies are searched on the network of the point, a packet fabric being one switch. What finds circuits
knows nothing of strategies, and the search nothing of circuits; here they are put together.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice

import numpy as np

from controller.schedulers.coin_change import coin_change
from controller.schedulers.topoopt import Plan
from controller.schedulers.totient import Rule, ring_over, totient_jumps
from scenarios._topoopt.experiments import INSIDE, Trained, plan_for
from scenarios._topoopt.fabrics import EXPANDER, TOPOOPT, expander_pairs
from traffic.models.layered import LayeredModel
from traffic.strategies.critical_path import Cost
from traffic.strategies.network import Indices, Members, RoutedNetwork, circuit_network, switch_network
from traffic.strategies.search import Searched, alternate, markov_chain
from traffic.strategies.strategy import Strategy, start_strategy

RESCORED = 1
"""Strategies of a search that are predicted, beside the start."""
ROUNDS = 5
"""How often the search alternates with TopologyFinder at most: they share its steps, so that no fabric has
more of them than another."""
ALPHA = {"bert": 0.2}
"""Of the search, where it is not 1 per ms (the artifact's scripts)."""
Candidates = tuple[tuple[Trained, Plan | None], ...]


@lru_cache(maxsize=8)
def searched(
    model: LayeredModel, fabric: str, degree: int, rate_bps: float, *, budget: int, seed: int, rule: Rule
) -> Candidates:
    """Return the start strategy and the best of a search; on TopoOpt with the circuits for each.

    Parameters
    ----------
    model
        What is trained.
    fabric
        TopoOpt, the expander, or for one switch any other.
    degree, rate_bps
        d and B.
    budget, seed
        Of the search: its steps, and what it draws.
    rule
        How TopoOpt's jumps are selected.
    """

    def circuits_for(strategy: Strategy) -> Plan:
        return plan_for(Trained(model, strategy), degree, rule)

    start, rng = start_strategy(model), np.random.default_rng(seed)
    alpha = ALPHA.get(model.name.partition(" ")[0], 1.0)
    found: Searched[Plan] | Searched[None]
    if fabric == TOPOOPT:
        found = alternate(
            model,
            cost=lambda plan: Cost(model, plan_network(plan, rate_bps)),
            finder=circuits_for,
            rng=rng,
            rounds=ROUNDS,
            budget=budget // ROUNDS,
            alpha=alpha,
        )
    else:
        cost = Cost(model, _network(fabric, model.servers, degree, rate_bps, seed))
        found = markov_chain(cost, start, steps=budget, rng=rng, alpha=alpha)
    others = (each.strategy for each in found.candidates if each.strategy != start)
    return tuple(
        (
            Trained(model, each, gpus=INSIDE, coupled=True),
            circuits_for(each) if fabric == TOPOOPT else None,
        )
        for each in (start, *islice(others, RESCORED))
    )


def plan_network(plan: Plan, rate_bps: float) -> RoutedNetwork:
    """Return the circuits of a plan, with its rings and the next hops of its coin change, as its runs have.

    A group that it was not made for has a ring by one of its steps, over circuits of others: of all steps the
    one of the fewest hops.
    """
    coins = coin_change(plan.servers, plan.coins).first
    network = circuit_network(
        plan.pairs, rate_bps, servers=plan.servers, duplex=plan.duplex, first_jumps=coins
    )
    planned = {group.members: rings for group, rings in plan.rings}
    hops = np.diff(network.starts).reshape(plan.servers, plan.servers)
    return replace(
        network, rings_of=lambda members: planned.get(members) or _multi_hop(members, hops, plan.duplex)
    )


def _multi_hop(members: Members, hops: Indices, duplex: bool) -> Sequence[Members]:
    """Return the rings of a group that takes the circuits of others."""
    steps = totient_jumps(len(members), len(members), duplex=duplex)
    rings = [ring_over(members, step) for step in steps]
    best = min(rings, key=lambda ring: hops[ring, np.roll(ring, -1)].sum())
    return (best, best[::-1]) if duplex and len(best) > 2 else (best,)


def _network(fabric: str, servers: int, degree: int, rate_bps: float, seed: int) -> RoutedNetwork:
    if fabric == EXPANDER:
        return circuit_network(expander_pairs(servers, degree, seed), rate_bps, servers=servers)
    return switch_network(servers, degree * rate_bps)
