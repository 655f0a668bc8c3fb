"""The end of each message of a schedule by its slots alone, against which predictions are held."""

from collections.abc import Sequence
from itertools import chain, pairwise, repeat

import numpy as np
from numpy.typing import NDArray

from controller.circuits.circuits import Circuits
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import plan_of

Lit = tuple[float, float, int]
"""From when to when a circuit is lit, and on which OCS."""


def ends_s(experiment: Experiment, delays_s: Sequence[Sequence[float]] = ()) -> NDArray[np.float64]:
    """Return when each message ends, row by row: circuit by circuit, without a network of fluids [s]."""
    lit, line_s = _lit(experiment, delays_s), plan_of(experiment.rule).line_s
    return np.array(
        [
            _end_s(float(line_s[source, destination]), lit[source, destination])
            for source, destination in np.argwhere(line_s > 0).tolist()
        ]
    )


def _lit(experiment: Experiment, delays_s: Sequence[Sequence[float]]) -> dict[tuple[int, int], list[Lit]]:
    """Return when which circuit is lit, by its pair of servers."""
    lit: dict[tuple[int, int], list[Lit]] = {}
    plan = plan_of(experiment.rule)
    for ocs, slots in enumerate(plan.schedule.switches):
        now, before = 0.0, Circuits(len(experiment.fabric.servers))
        known_s = delays_s[ocs] if delays_s else ()
        for slot, delay_s in zip(slots, chain(known_s, repeat(plan.delay_s)), strict=False):
            after = Circuits.of_permutation(slot.permutation)
            kept = {*before.pairs} & {*after.pairs} if plan.setup.partial else set()
            new = {*after.pairs} - kept
            lit_s = now + delay_s if new else now
            for start_s, pairs in ((now, kept), (lit_s, new)):
                for pair in pairs:
                    lit.setdefault(pair, []).append((start_s, lit_s + slot.weight, ocs))
            now, before = lit_s + slot.weight, after
    return lit


def _end_s(owed_s: float, lit: list[Lit]) -> float:
    """Return when the last byte of a message goes; several circuits of one pair share it."""
    end_s, left_s = max(end for _, end, _ in lit), owed_s
    for now, then in pairwise(sorted({moment for start, end, _ in lit for moment in (start, end)})):
        ocses = [ocs for start, end, ocs in lit if start <= now and then <= end]
        each_s = min(then - now, left_s / len(ocses)) if ocses else 0.0
        left_s -= each_s * len(ocses)
        if left_s <= 1e-12 * owed_s:
            return now + each_s
    return end_s
