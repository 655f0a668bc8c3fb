"""The search for a strategy, and for the topology that suits it, in turn.

    T        what an iteration takes, of a strategy on a topology
    alpha    a proposal that takes longer is accepted with probability exp(-alpha (T' - T)), T in ms

A Metropolis chain over strategies goes back to the best one now and then. The paper alternates: the chain on
a topology, TopologyFinder on what its best strategy sends, the chain again. The artifact rebuilds the
topology whenever the strategy changes, and when nothing did for 50 steps; a topology has a test of its own,
and the best strategy keeps the one that it was found on. What finds a topology is an argument: any value
that says when two topologies are equal will do.

References
----------
TopoOpt, section 4.1; FlexFlow's ``model.cc`` (``mcmc_optimize``) and ``network.cc``. How often the paper
alternates is not stated; where a new topology makes its strategy slower, the old one is kept here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np

from topologies.errors import ScenarioError
from traffic.models.layered import LayeredModel
from traffic.strategies.critical_path import Cost, Evaluation
from traffic.strategies.proposals import Proposals
from traffic.strategies.strategy import Strategy, start_strategy

RETURNS = 100
"""How often a chain goes back to its best strategy."""
MOST_BETWEEN_RETURNS = 1000
"""The artifact's limit, when it rebuilds the topology on the way [steps]."""
UNCHANGED = 50
"""After so many steps without a change the artifact rebuilds the topology."""
TOPOLOGY_ALPHA = 0.5
"""The artifact's alpha of a new topology [1/ms]."""
TOLERANCE = 1e-3
"""The paper's alternation ends after a round that makes T shorter by less than this, relative."""
KEPT = 5
"""Candidates that a search returns at most."""
Topology = TypeVar("Topology")
"""A network of strategies, or any value from which their cost follows; None of a chain on one network."""


@dataclass(frozen=True)
class Candidate(Generic[Topology]):
    """A strategy that was evaluated, and on what."""

    strategy: Strategy
    topology: Topology
    time_s: float
    """T, by the search's cost."""


@dataclass(frozen=True)
class Searched(Generic[Topology]):
    """The outcome of a search, and its course."""

    candidates: tuple[Candidate[Topology], ...]
    """Distinct strategies or topologies, the fastest first."""
    accepted: int
    """How many proposals were taken."""
    topologies: int
    """How often a topology was replaced by another."""


def markov_chain(
    cost: Cost, strategy: Strategy, *, steps: int, rng: np.random.Generator, alpha: float = 1.0
) -> Searched[None]:
    """Return the strategies that a Metropolis chain finds on one topology.

    Parameters
    ----------
    cost
        T.
    strategy
        Where it starts.
    steps
        Proposals; FlexFlow's budget.
    rng
        Draws proposals and what is accepted.
    alpha
        Per ms; 0.2 for BERT in the artifact.

    References
    ----------
    TopoOpt, section 4.1; FlexFlow's ``mcmc_optimize``.
    """
    search = _Search[None](cost.model, rng, alpha)
    search.chain(search.evaluated(_Place(cost.start(strategy), cost, None)), steps)
    return search.result()


def alternate(
    model: LayeredModel,
    *,
    cost: Callable[[Topology], Cost],
    finder: Callable[[Strategy], Topology],
    rng: np.random.Generator,
    rounds: int = 5,
    budget: int = 500,
    alpha: float = 1.0,
    style: Literal["paper", "artifact"] = "paper",
) -> Searched[Topology]:
    """Return strategies with topologies, from a search over both that starts from `start_strategy`.

    Parameters
    ----------
    model
        What is trained.
    cost
        T of strategies on a topology.
    finder
        The topology that suits a strategy, as TopologyFinder's for the model's servers.
    rng
        As of `markov_chain`, also for ``alpha``.
    rounds
        The paper's style: how often the two alternate at most.
    budget
        Steps of each round; of the artifact's style, which has one.
    style
        The paper's or the artifact's.

    Raises
    ------
    ScenarioError
        If the style is unknown.

    References
    ----------
    TopoOpt, section 4.1 and Figure 6.
    """
    if style not in ("paper", "artifact"):
        raise ScenarioError(f"unknown style {style!r} of alternating", "take paper or artifact")

    def rebuilt(strategy: Strategy, before: "_Place[Topology] | None") -> "_Place[Topology]":
        topology = finder(strategy)
        if before and topology == before.topology:
            return before
        costs = cost(topology)
        return search.evaluated(_Place(costs.start(strategy), costs, topology))

    search = _Search[Topology](model, rng, alpha)
    start = rebuilt(start_strategy(model), None)
    if style == "artifact":
        search.interleave(start, rebuilt, budget)
    else:
        search.take_turns(start, rebuilt, rounds, budget)
    return search.result()


class _Place(NamedTuple, Generic[Topology]):
    """Where a search is."""

    found: Evaluation
    cost: Cost
    topology: Topology


_Rebuilt = Callable[[Strategy, _Place[Topology]], _Place[Topology]]
"""A strategy on the topology that suits it: the place before, if that has this topology."""


def _better(one: _Place[Topology], other: _Place[Topology]) -> _Place[Topology]:
    return other if other.found.time_s < one.found.time_s else one


class _Search(Generic[Topology]):
    """A search under way: what it draws from, and the best that it has evaluated."""

    def __init__(self, model: LayeredModel, rng: np.random.Generator, alpha: float) -> None:
        self._proposals, self._rng, self._alpha = Proposals(model), rng, alpha
        self._kept: list[Candidate[Topology]] = []
        self._accepted = self._topologies = 0

    def result(self) -> Searched[Topology]:
        """Return the outcome."""
        return Searched(tuple(self._kept), self._accepted, self._topologies)

    def evaluated(self, place: _Place[Topology]) -> _Place[Topology]:
        """Return a place, and keep its strategy if it is among the best."""
        found = place.found
        if len(self._kept) < KEPT or found.time_s < self._kept[-1].time_s:
            candidate = Candidate(dict(found.strategy), place.topology, found.time_s)
            if candidate not in self._kept:
                self._kept = sorted([*self._kept, candidate], key=lambda each: each.time_s)[:KEPT]
        return place

    def chain(self, start: _Place[Topology], steps: int) -> _Place[Topology]:
        """Return the best strategy of a chain on one topology."""
        here = best = start
        for step in range(steps):
            if step % max(1, steps // RETURNS) == 0:
                here = best
            here, _ = self._stepped(here)
            best = _better(best, here)
        return best

    def take_turns(
        self, here: _Place[Topology], rebuilt: _Rebuilt[Topology], rounds: int, budget: int
    ) -> None:
        """Alternate as the paper does: a chain, then the topology of its best strategy."""
        for _ in range(rounds):
            best = self.chain(here, budget)
            if best.found.time_s >= here.found.time_s:
                return
            after = rebuilt(best.found.strategy, best)
            before_s, here = here.found.time_s, _better(best, after)
            self._topologies += here is not best
            if here.found.time_s > (1 - TOLERANCE) * before_s:
                return

    def interleave(self, start: _Place[Topology], rebuilt: _Rebuilt[Topology], budget: int) -> None:
        """Alternate as the artifact does: a new topology when the strategy changes, or nothing else does."""
        unchanged, here, best = 0, start, start
        for step in range(budget):
            if step % min(max(1, budget // RETURNS), MOST_BETWEEN_RETURNS) == 0:
                here = best
            here, accepted = self._stepped(here)
            best = _better(best, here)
            unchanged = 0 if accepted else unchanged + 1
            if not accepted and unchanged < UNCHANGED:
                continue
            unchanged, after = 0, rebuilt(here.found.strategy, here)
            if after is not here and self._accepts(after, here, TOPOLOGY_ALPHA):
                here, best = after, _better(best, after)
                self._topologies += 1

    def _accepts(self, after: _Place[Topology], before: _Place[Topology], alpha: float) -> bool:
        """Return whether a change is taken (Metropolis)."""
        longer_s = after.found.time_s - before.found.time_s
        return longer_s < 0 or self._rng.random() < exp(-alpha * 1e3 * longer_s)

    def _stepped(self, here: _Place[Topology]) -> tuple[_Place[Topology], bool]:
        """Return where a proposal leads, and whether it was accepted."""
        changes = self._proposals.draw(here.found.strategy, self._rng)
        if not changes:
            return here, False
        after = self.evaluated(here._replace(found=here.cost.changed(here.found, changes)))
        if not self._accepts(after, here, self._alpha):
            return here, False
        self._accepted += 1
        return after, True
