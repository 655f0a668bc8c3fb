"""The prediction: when a schedule's circuits, as planned, have carried which message.

Before each slot all circuits are dark for the delay or, where reconfigurations are partial, those that
change; where none is new the device does not move. Where delays vary, a slot comes as much later or
earlier as the delays before it on its OCS differ from their mean; it is lit as long as planned.

A fluid over the slots: each circuit carries its pair's bytes at a NIC's rate from the moment it is
lit until none are left; several circuits of one pair share them. Guard times, headers and what a
switch takes beside its device's delay are not in it: they are what the emulation costs.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise, repeat

import numpy as np
import pandas as pd

from controller.circuits import Circuits, transition
from testbed.ocs_plan import CircuitExperiment
from traffic.records import COLUMNS, Records

Lit = tuple[float, float, int]
"""From when to when a circuit is lit, and on which OCS."""


def predict_execution(experiment: CircuitExperiment, delays_s: Sequence[Sequence[float]] = ()) -> Records:
    """Return the records of a schedule that goes exactly as planned [real seconds and bytes].

    Parameters
    ----------
    experiment
        What is planned.
    delays_s
        How long each OCS was dark before each of its slots [real seconds]; the mean where that is not known.
    """
    lit = _lit(experiment, delays_s)
    rows = []
    for source, destination in np.argwhere(experiment.line_s > 0).tolist():
        owed_s = float(experiment.line_s[source, destination])
        start_s, end_s, carried_s = _carried(owed_s, lit[source, destination])
        size = int(experiment.demand.matrix[source, destination])
        path = path_over(experiment, (source, destination), size, carried_s)
        rows.append((0, source, destination, size, start_s, end_s, path))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def path_over(
    experiment: CircuitExperiment, pair: tuple[int, int], size: int, parts: Mapping[int, float]
) -> str:
    """Return the path of a message in `traffic.records`: a leg for its part over each OCS.

    Parameters
    ----------
    experiment
        Whose fabric it is.
    pair
        Source and destination server.
    size
        The message [bytes].
    parts
        What each OCS carried, in any unit.
    """
    total = sum(parts.values())
    shares = {ocs: round(size * part / total) for ocs, part in sorted(parts.items()) if part}
    shares[max(shares, key=lambda ocs: shares[ocs])] += size - sum(shares.values())
    source, destination = experiment.fabric.servers[pair[0]].name, pair[1]
    legs = (f"{n}@{source}:{ocs},{experiment.ocses[ocs]}:{destination}" for ocs, n in shares.items())
    return " ".join(legs)


def _lit(
    experiment: CircuitExperiment, delays_s: Sequence[Sequence[float]]
) -> dict[tuple[int, int], list[Lit]]:
    """Return when which circuit is lit, by its pair of servers."""
    lit: dict[tuple[int, int], list[Lit]] = {}
    for ocs, slots in enumerate(experiment.schedule.switches):
        now, before = 0.0, Circuits(len(experiment.fabric.servers))
        known_s = delays_s[ocs] if delays_s else ()
        for slot, delay_s in zip(slots, chain(known_s, repeat(experiment.delay_s)), strict=False):
            after = Circuits.of_permutation(slot.permutation)
            change = transition(before, after, experiment.partial)
            lit_s = now + delay_s if change.lit else now
            for start_s, pairs in ((now, change.kept), (lit_s, change.lit)):
                for pair in pairs:
                    lit.setdefault(pair, []).append((start_s, lit_s + slot.weight, ocs))
            now, before = lit_s + slot.weight, after
    return lit


def _carried(owed_s: float, lit: list[Lit]) -> tuple[float, float, dict[int, float]]:
    """Return when a message starts and ends, and how much of it goes over each OCS [s at a NIC's rate]."""
    parts: dict[int, float] = {}
    end_s, left_s = max(end for _, end, _ in lit), owed_s
    for now, then in pairwise(sorted({moment for start, end, _ in lit for moment in (start, end)})):
        ocses = [ocs for start, end, ocs in lit if start <= now and then <= end]
        each_s = min(then - now, left_s / len(ocses)) if ocses else 0.0
        for ocs in ocses:
            parts[ocs] = parts.get(ocs, 0.0) + each_s
        left_s -= each_s * len(ocses)
        if left_s <= 1e-12 * owed_s:
            end_s = now + each_s
            break
    return min(start for start, _, _ in lit), end_s, parts
