"""Spectra's figures 6 to 10 at the paper's scale, on paper: the makespan of every scheduler, nothing sent.

What does not depend on a parameter is computed once: Spectra's, Spectra+'s and LESS' decompositions
are shared by all delays, Eclipse's by all numbers of switches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from controller.schedulers.bounds import makespan_lower_bound
from controller.schedulers.eclipse import eclipse_slots
from controller.schedulers.less import balanced_split
from controller.schedulers.schedule import Schedule, frozen_schedule
from controller.schedulers.spectra import decompose, equalize, schedule
from controller.schedulers.spectra_plus import lighter, spread
from testbed.study.computed import Call
from traffic.workloads.ocs_workloads import NOISE, benchmark, gpt, moe

Matrix = NDArray[np.float64]
SWITCHES = (1, 2, 4, 8)
"""Of the paper's figures."""
EVERY_NUMBER = tuple(range(1, 9))
"""Numbers of switches on the benchmark: near the bound at the paper's four says little of those between."""
DELAYS = (0.001, 0.01, 0.02, 0.03, 0.04)
"""Reconfiguration delays [line time]."""
FLOWS = (4, 8, 16, 32, 64)
"""Flows per port, for figure 10."""
FLOWS_DELAY = 0.01
PLUS_SWITCHES = 4
"""The number of switches at which spectra+ always runs; elsewhere seldom: it takes 0.2 to 0.5 s."""
LARGE_NOISE = 0.01
COLUMNS = ["workload", "noise", "flows", "seed", "switches", "delay", "scheme", "makespan", "bound"]
PlanRow = tuple[str, float, int | None, int, int, float, str, float, float]
"""A row of `COLUMNS`."""


@dataclass(frozen=True)
class SweptWorkload:
    """A workload as the figures show it."""

    workload: str
    noise: float
    """Of the nonzeros [line rate]."""
    flows: int | None = None
    """Flows per port, of the benchmark; a quarter of them are large."""
    delays: Sequence[float] = DELAYS
    switches: Sequence[int] = SWITCHES
    plus: Sequence[int] = (PLUS_SWITCHES,)
    """Numbers of switches at which spectra+ is run too."""

    def demand(self, seed: int) -> Matrix:
        """Return its matrix."""
        if self.flows is None:
            return (gpt if self.workload == "gpt" else moe)(seed, noise=self.noise)
        large = self.flows // 4
        return benchmark(seed, large_flows=large, small_flows=self.flows - large, noise=self.noise)


def cases() -> list[SweptWorkload]:
    """Return all that the figures need."""
    few = (PLUS_SWITCHES,)
    return [
        SweptWorkload("gpt", NOISE),
        SweptWorkload("gpt", LARGE_NOISE, switches=few, plus=()),
        SweptWorkload("moe", 0.0),
        SweptWorkload("moe", NOISE, switches=few, plus=()),
        SweptWorkload("moe", LARGE_NOISE, switches=few, plus=()),
        SweptWorkload("benchmark", NOISE, 16, switches=EVERY_NUMBER, plus=(PLUS_SWITCHES, 8)),
        *(
            SweptWorkload("benchmark", NOISE, flows, (FLOWS_DELAY,), few, ())
            for flows in FLOWS
            if flows != 16
        ),
    ]


def points(seeds: int) -> list[Call]:
    """Return the plans of each case with each seed, as calls of `rows_of`: the longest first.

    Parameters
    ----------
    seeds
        How many random matrices of each workload; the paper has 50.
    """
    work = [(case, seed) for case in cases() for seed in range(seeds)]
    return [Call(rows_of, each) for each in sorted(work, key=lambda each: -(each[0].flows or 0))]


def rows_of(case: SweptWorkload, seed: int) -> list[PlanRow]:
    """Return a row per number of switches, delay and scheme, as `COLUMNS` names them."""
    demand = case.demand(seed)
    key = (case.workload, case.noise, case.flows, seed)
    return [
        (*key, switches, delay, scheme, plan.makespan, makespan_lower_bound(demand, switches, delay))
        for switches, delay, scheme, plan in _plans(case, demand)
    ]


def _plans(case: SweptWorkload, demand: Matrix) -> Iterator[tuple[int, float, str, Schedule]]:
    slots = decompose(demand)
    light = lighter(demand, slots) if case.plus else slots
    greedy = {delay: eclipse_slots(demand, delay) for delay in case.delays}
    for switches in case.switches:
        parts = [decompose(part) for part in balanced_split(demand, switches)]
        for delay in case.delays:
            level = schedule(slots, switches, delay)
            plans = {
                "spectra": equalize(level),
                "not_equalized": level,
                "eclipse": equalize(schedule(greedy[delay], switches, delay)),
                "less": frozen_schedule(parts, delay),
            }
            if switches in case.plus:
                plus = spread(demand, light, switches, delay)
                plans["spectra_plus"] = min(plans["spectra"], plus, key=lambda plan: plan.makespan)
            for scheme, plan in plans.items():
                yield switches, delay, scheme, plan


def ratios(table: pd.DataFrame, scheme: str, other: str) -> pd.Series:
    """Return the makespan of one scheme over another's, where both ran; ``bound`` is the lower bound."""
    keys = ["workload", "noise", "flows", "seed", "switches", "delay"]
    above = table[table["scheme"] == scheme].set_index(keys)["makespan"]
    if other == "bound":
        return above / table[table["scheme"] == scheme].set_index(keys)["bound"]
    return (above / table[table["scheme"] == other].set_index(keys)["makespan"]).dropna()
