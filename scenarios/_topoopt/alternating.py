"""The search for a strategy, and for the topology that suits it, in turn.

    T        what an iteration takes, of a strategy on a topology
    alpha    a proposal that takes longer is accepted with probability exp(-alpha (T' - T)), T in ms

A Metropolis chain over strategies goes back to the best one now and then. The paper alternates: the chain on
a topology, TopologyFinder on what its best strategy sends, the chain again. The artifact rebuilds the
topology whenever the strategy changes, and when nothing did for 50 steps; a topology has a test of its own,
and the best strategy keeps the one that it was found on.

References
----------
TopoOpt, section 4.1; FlexFlow's ``model.cc`` (``mcmc_optimize``) and ``network.cc``. How often the paper
alternates is not stated; where a new topology makes its strategy slower, the old one is kept here.
"""

from collections.abc import Callable, Mapping, Sequence
from math import exp
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from controller.schedulers.topoopt import Group, Plan
from scenarios._topoopt.proposals import Proposals
from scenarios._topoopt.searched import Evaluated, Log, Progress, Searched
from topologies.errors import ScenarioError
from traffic.models.layered import LayeredModel
from traffic.models.strategy import Share, Strategy, start_strategy, summed, transfers

RETURNS = 100
"""How often a chain goes back to its best strategy."""
MOST_BETWEEN_RETURNS = 1000
"""The artifact's limit, when it rebuilds the topology on the way [steps]."""
UNCHANGED = 50
"""After so many steps without a change the artifact rebuilds the topology."""
TOPOLOGY_ALPHA = 0.5
"""The artifact's alpha of a new topology [1/ms]."""


E = TypeVar("E", bound=Evaluated)


class Costs(Protocol[E]):
    """T of strategies on one topology, as of `scenarios._topoopt.critical_path.Cost`."""

    @property
    def model(self) -> LayeredModel:
        """What is trained."""

    def start(self, strategy: Strategy) -> E:
        """Return the cost of a strategy."""

    def changed(self, before: E, changes: Mapping[str, Share]) -> E:
        """Return the cost of one that differs from another in some shares."""


class Finder(Protocol):
    """A topology for groups and transfers, as `controller.schedulers.topoopt.topology_finder`."""

    def __call__(
        self, groups: Sequence[Group], transfers: NDArray[np.int64], /, *, servers: int, degree: int
    ) -> Plan:
        """Return the circuits."""


def markov_chain(
    cost: Costs[E],
    strategy: Strategy,
    *,
    steps: int,
    rng: np.random.Generator,
    alpha: float = 1.0,
    keep: int = 5,
    progress: Progress | None = None,
) -> Searched:
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
    keep
        Candidates that are returned at most.
    progress
        Told about each step.

    References
    ----------
    TopoOpt, section 4.1; FlexFlow's ``mcmc_optimize``.
    """
    log, start = Log(keep, steps, progress), _Place(cost.start(strategy), cost, None)
    log.evaluated(start.found, None)
    _chain(start, steps, rng, alpha, log)
    return log.result()


def alternate(
    model: LayeredModel,
    *,
    servers: int,
    degree: int,
    cost: Callable[[Plan], Costs[E]],
    finder: Finder,
    rng: np.random.Generator,
    rounds: int = 5,
    tolerance: float = 1e-3,
    budget: int = 500,
    alpha: float = 1.0,
    keep: int = 5,
    progress: Progress | None = None,
    style: Literal["paper", "artifact"] = "paper",
) -> Searched:
    """Return strategies with topologies, from a search over both that starts from `start_strategy`.

    Parameters
    ----------
    model
        What is trained.
    servers, degree
        n and d.
    cost
        T of strategies on a topology.
    finder
        TopologyFinder.
    rng
        As of `markov_chain`, also for ``alpha``, ``keep`` and ``progress``.
    rounds
        The paper's style: how often the two alternate at most.
    tolerance
        It ends after a round that makes T shorter by less than this, relative.
    budget
        Steps of each round; of the artifact's style, which has one.
    style
        The paper's or the artifact's.

    Raises
    ------
    ScenarioError
        If the model is for another number of servers, or the style is unknown.

    References
    ----------
    TopoOpt, section 4.1 and Figure 6.
    """
    if model.servers != servers:
        raise ScenarioError(
            f"a model on {model.servers} servers and a topology of {servers}", "give both as many servers"
        )
    if style not in ("paper", "artifact"):
        raise ScenarioError(f"unknown style {style!r} of alternating", "take paper or artifact")

    def rebuilt(strategy: Strategy, before: "_Place[E] | None") -> "_Place[E]":
        groups = [Group(members, size) for members, size in summed(model, strategy)]
        plan = finder(groups, transfers(model, strategy), servers=servers, degree=degree)
        if before and plan == before.plan:
            return before
        costs = cost(plan)
        return _Place(costs.start(strategy), costs, plan)

    start = rebuilt(start_strategy(model), None)
    log = Log(keep, budget if style == "artifact" else rounds * budget, progress)
    log.evaluated(start.found, start.plan)
    if style == "artifact":
        _interleave(start, rebuilt, budget, rng, alpha, log)
    else:
        _take_turns(start, rebuilt, rounds, tolerance, budget, rng, alpha, log)
    return log.result()


class _Place(NamedTuple, Generic[E]):
    """Where a search is."""

    found: E
    costs: Costs[E]
    plan: Plan | None


Rebuilt = Callable[[Strategy, _Place[E]], _Place[E]]
"""A strategy on the topology that suits it: the place before, if that has this topology."""


def _accepts(after_s: float, before_s: float, alpha: float, rng: np.random.Generator) -> bool:
    """Return whether a change is taken (Metropolis)."""
    return after_s < before_s or rng.random() < exp(-alpha * 1e3 * (after_s - before_s))


def _stepped(
    here: _Place[E], proposals: Proposals, rng: np.random.Generator, alpha: float, log: Log
) -> tuple[_Place[E], bool]:
    """Return where a proposal leads, and whether it was accepted."""
    changes = proposals.draw(here.found.strategy, rng)
    if not changes:
        return here, False
    found = here.costs.changed(here.found, changes)
    log.evaluated(found, here.plan)
    if not _accepts(found.time_s, here.found.time_s, alpha, rng):
        return here, False
    return here._replace(found=found), True


def _better(one: _Place[E], other: _Place[E]) -> _Place[E]:
    return other if other.found.time_s < one.found.time_s else one


def _chain(start: _Place[E], steps: int, rng: np.random.Generator, alpha: float, log: Log) -> _Place[E]:
    """Return the best strategy of a chain on one topology."""
    proposals = Proposals(start.costs.model)
    here = best = start
    for step in range(steps):
        if step % max(1, steps // RETURNS) == 0:
            here = best
        here, accepted = _stepped(here, proposals, rng, alpha, log)
        best = _better(best, here)
        log.step(here.found, accepted=accepted)
    return best


def _take_turns(
    start: _Place[E],
    rebuilt: Rebuilt[E],
    rounds: int,
    tolerance: float,
    budget: int,
    rng: np.random.Generator,
    alpha: float,
    log: Log,
) -> None:
    """Alternate as the paper does: a chain, then the topology of its best strategy."""
    here = start
    for _ in range(rounds):
        best = _chain(here, budget, rng, alpha, log)
        if best.found.time_s >= here.found.time_s:
            return
        after = rebuilt(best.found.strategy, best)
        before_s, here = here.found.time_s, _better(best, after)
        if after is not best:
            log.evaluated(after.found, after.plan)
            log.topologies += here is after
        if here.found.time_s > (1 - tolerance) * before_s:
            return


def _interleave(
    start: _Place[E],
    rebuilt: Rebuilt[E],
    budget: int,
    rng: np.random.Generator,
    alpha: float,
    log: Log,
) -> None:
    """Alternate as the artifact does: a new topology whenever the strategy changes, or nothing else does."""
    proposals, unchanged = Proposals(start.costs.model), 0
    here = best = start
    for step in range(budget):
        if step % min(max(1, budget // RETURNS), MOST_BETWEEN_RETURNS) == 0:
            here = best
        here, accepted = _stepped(here, proposals, rng, alpha, log)
        best = _better(best, here)
        unchanged = 0 if accepted else unchanged + 1
        if accepted or unchanged == UNCHANGED:
            unchanged = 0
            after = rebuilt(here.found.strategy, here)
            if after is not here:
                log.evaluated(after.found, after.plan)
                if _accepts(after.found.time_s, here.found.time_s, TOPOLOGY_ALPHA, rng):
                    here, best = after, _better(best, after)
                    log.topologies += 1
        log.step(here.found, accepted=accepted)
