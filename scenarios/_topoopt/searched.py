"""What a search over strategies found, and how it went."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from controller.schedulers.topoopt import Plan
from traffic.models.strategy import Strategy

Progress = Callable[[int, int, float], None]
"""Told after each step: steps done, steps at most, the best T so far [s]."""


class Evaluated(Protocol):
    """A strategy with its cost."""

    @property
    def strategy(self) -> Strategy:
        """What was evaluated."""

    @property
    def time_s(self) -> float:
        """T, what an iteration takes."""


@dataclass(frozen=True)
class Candidate:
    """A strategy that was evaluated, and on what."""

    strategy: Strategy
    plan: Plan | None
    """Its topology; None of a chain on a network of its own."""
    time_s: float
    """T, by the search's cost."""


@dataclass(frozen=True)
class History:
    """What a search did, step by step."""

    times_s: tuple[float, ...]
    """T of the strategy at which the chain was after each."""
    accepted: tuple[bool, ...]
    """Whether its proposal was taken."""
    rounds: tuple[int, ...]
    """How many topologies had been replaced before."""


@dataclass(frozen=True)
class Searched:
    """What a search found."""

    candidates: tuple[Candidate, ...]
    """Distinct strategies or topologies, the fastest first."""
    history: History
    evaluations: int
    """How often T was computed."""

    @property
    def strategy(self) -> Strategy:
        """The best one."""
        return self.candidates[0].strategy

    @property
    def plan(self) -> Plan | None:
        """Its topology."""
        return self.candidates[0].plan

    @property
    def time_s(self) -> float:
        """Its T."""
        return self.candidates[0].time_s


class Log:
    """What a search has evaluated and done, and the best of it."""

    def __init__(self, keep: int, steps: int, progress: Progress | None) -> None:
        self._keep, self._steps, self._progress = keep, steps, progress
        self._kept: list[Candidate] = []
        self._times_s, self._accepted, self._rounds = list[float](), list[bool](), list[int]()
        self._evaluations = 0
        self.topologies = 0

    def evaluated(self, found: Evaluated, plan: Plan | None) -> None:
        """Note a cost, and keep the strategy if it is among the best."""
        self._evaluations += 1
        if len(self._kept) == self._keep and found.time_s >= self._kept[-1].time_s:
            return
        candidate = Candidate(dict(found.strategy), plan, found.time_s)
        if candidate not in self._kept:
            self._kept = sorted([*self._kept, candidate], key=lambda each: each.time_s)[: self._keep]

    def step(self, found: Evaluated, *, accepted: bool) -> None:
        """Note where a step led."""
        self._times_s.append(found.time_s)
        self._accepted.append(accepted)
        self._rounds.append(self.topologies)
        if self._progress:
            self._progress(len(self._times_s), self._steps, self._kept[0].time_s)

    def result(self) -> Searched:
        """Return all of it."""
        history = History(tuple(self._times_s), tuple(self._accepted), tuple(self._rounds))
        return Searched(tuple(self._kept), history, self._evaluations)
