"""What InfiniteHBD's paper claims of faults, beside what `scenarios._infinitehbd.study` gives.

How nodes of 4 GPUs are drawn from the trace, and TPUv4's fixed blocks, were chosen because the waste
ratios then come closest to the paper's: they are *fitted to the paper*. So a claim about one TP
size holds only if it does in every reading of the trace, and one about the blocks is never confirmed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from scenarios._infinitehbd.costs import K2, K3, aggregate_costs, cheaper_below, lead
from scenarios._infinitehbd.study import FITTED, JOB_SHARES, MAIN_TP, TP_GPUS, Cell, Study
from testbed.report.claims import LESS, TIMES, Claim, Range, around, ruling
from traffic.fault_trace import HALF_IF_SERVER, READINGS, timeline, weighted_quantile

PERCENT, POINTS = "{:.2f} %", "{:.2f} points"
WASTE, MODEL = "InfiniteHBD, 1 and 6.2 (trace)", "InfiniteHBD, 6.2 (fault model)"
JOBS, TRACE, BOUND = "InfiniteHBD, 6.2 (jobs)", "InfiniteHBD, appendix A", "InfiniteHBD, appendix C"
COST = "InfiniteHBD, 6.5 (aggregate cost)"
LEADING = (K2, K3, "NVL-576")
BEHIND = ("NVL-36", "NVL-72", "TPUv4 mod", "TPUv4 blocks", "SiP-Ring")
ALMOST = 0.1
"""How near two waste ratios are that count as almost the same [points]."""
TO_FAULTY = 0.07
"""Up to which share of faulty nodes K = 3 is held to be near zero."""
BLOCKS_FITTED = "the blocks are fitted to the paper"
COST_FITTED = "the price of a GPU and equal bandwidth are fitted to the paper"

Measure = Callable[[pd.DataFrame], float]


def fault_claims(study: Study) -> list[Claim]:
    """Return every claim of the paper about faults, with what was measured."""
    on_trace = [*_waste_claims(study.summary), *_job_claims(study.summary), *_trace_claims(study)]
    if study.trace.synthetic:
        why = "the trace is a synthetic stand-in"
        on_trace = [replace(claim, verdict="not comparable", reason=why) for claim in on_trace]
    found = [*on_trace, *_model_claims(study), *_cost_claims(study), _table_7(study.table_7)]
    return sorted(found, key=lambda claim: claim.source)


def _waste_claims(summary: pd.DataFrame) -> list[Claim]:
    """Return the claims about waste on the trace."""

    def of(name: str) -> Measure:
        return lambda table: 100 * _waste(table, name)

    def over_k3(name: str) -> Measure:
        return lambda table: _waste(table, name) / _waste(table, K3)

    claims = [
        _by_reading("TP-32: K=3 wastes 0.53 %", around_percent(0.53), summary, of(K3), PERCENT),
        _by_reading("TP-32: NVL-72 wastes 10.04 %", around_percent(10.04), summary, of("NVL-72"), PERCENT),
        _by_reading("TP-32: 20x below NVL-72 with K=3", around(20), summary, over_k3("NVL-72"), TIMES),
        _by_reading(
            "TP-32: K=2 almost as K=3", (-math.inf, ALMOST), summary,
            lambda table: 100 * (_waste(table, K2) - _waste(table, K3)), POINTS,
        ),
    ]  # fmt: skip
    for name, fitted in (("TPUv4 blocks", BLOCKS_FITTED), ("TPUv4 mod", "")):
        text = f"TP-32: TPUv4 wastes 7.56 % ({name.partition(' ')[2]})"
        claims.append(_by_reading(text, around_percent(7.56), summary, of(name), PERCENT, fitted))
    text = "TP-32: 14x below TPUv4 (blocks) with K=3"
    claims.append(_by_reading(text, around(14), summary, over_k3("TPUv4 blocks"), TIMES, BLOCKS_FITTED))
    return [*claims, *(_about_eleven(summary, name) for name in ("NVL-36", "NVL-72"))]


def around_percent(value: float) -> Range:
    """Return the range within 10 % of a printed percentage, which has no side of 1 to keep."""
    return 0.9 * value, 1.1 * value


def _by_reading(
    text: str, expected: Range, summary: pd.DataFrame, measure: Measure, pattern: str, fitted: str = ""
) -> Claim:
    """Return a claim about TP-32, measured in the fitted reading and ruled over all readings."""
    at_main = summary[summary["tp_gpus"] == MAIN_TP]
    values = {reading: measure(at_main[at_main["reading"] == reading]) for reading in READINGS}
    rulings = {ruling(value, expected) for value in values.values()}
    each = ", ".join(f"{reading} {pattern.format(value)}" for reading, value in values.items())
    spread = at_main[at_main["reading"] == FITTED].groupby("seed").apply(measure).std()
    reason = each if math.isnan(spread) else f"{each}; ±{spread:.2f} over seeds"
    if fitted or len(rulings) > 1:
        why = fitted or f"{FITTED} is fitted to the paper, and the readings differ"
        return Claim(text, WASTE, expected, values[FITTED], "not comparable", f"{why}: {reason}", pattern)
    return Claim(text, WASTE, expected, values[FITTED], rulings.pop(), reason, pattern)


def _about_eleven(summary: pd.DataFrame, name: str) -> Claim:
    """Return the claim that an NVL wastes about 11 % from TP-16 on, at the size that is farthest from it."""
    fitted = summary[summary["reading"] == FITTED]
    wasted = {tp: 100 * _waste(fitted[fitted["tp_gpus"] == tp], name) for tp in TP_GPUS if tp >= 16}
    measured, expected = max(wasted.values(), key=lambda value: abs(value - 11)), around_percent(11)
    each = ", ".join(f"TP-{tp} {value:.2f} %" for tp, value in wasted.items())
    unfit = [f"TP-{tp}" for tp in wasted if tp > int(name.partition("-")[2])]
    reason = f"{each}{''.join(f'; no {tp} group fits into {name}' for tp in unfit)}"
    text = f"{name} wastes about 11 % for TP >= 16"
    return Claim(text, WASTE, expected, measured, ruling(measured, expected), reason, PERCENT)


def _job_claims(summary: pd.DataFrame) -> list[Claim]:
    """Return the claims about jobs: the orders that the paper gives, without its levels."""
    fitted = summary[summary["reading"] == FITTED]
    jobs = fitted.groupby(["tp_gpus", "architecture"])["job_never_pauses_gpus"].mean().unstack()
    lead = jobs[list(LEADING)].min(axis=1) / jobs[list(BEHIND)].max(axis=1)
    sip = jobs["SiP-Ring"]
    each = ", ".join(f"TP-{tp} {value:.3f}" for tp, value in lead.items())
    falling = ", ".join(f"TP-{tp} {value:.0f}" for tp, value in sip.items())
    measured, decline = float(lead.min()), float(sip.iloc[-1] / sip.iloc[0])
    return [
        Claim(
            "K=2, K=3 and NVL-576 support the largest jobs", JOBS, (1.0, math.inf), measured,
            ruling(measured, (1.0, math.inf)), f"least of them over the largest other: {each}",
        ),
        Claim(
            "SiP-Ring's largest job shrinks with the TP size", JOBS, LESS, decline,
            ruling(decline, LESS) if sip.is_monotonic_decreasing else "does not hold", falling,
        ),
        _longest_waits("TP-8, TP-16: jobs wait longest on NVL-36 and NVL-72", fitted, (8, 16), BEHIND[:2]),
        _longest_waits("TP-32, TP-64: jobs wait longest on SiP-Ring and TPUv4", fitted, (32, 64), BEHIND[2:]),
    ]  # fmt: skip


def _longest_waits(text: str, fitted: pd.DataFrame, sizes: Sequence[int], worst: Sequence[str]) -> Claim:
    """Return a claim about an order: the share of TP and job sizes, of those where any job waits."""
    said = {}
    for size in sizes:
        of_size = fitted[fitted["tp_gpus"] == size].groupby("architecture")
        for share in JOB_SHARES:
            waits = of_size[f"waiting_{share}"].mean()
            if waits.max() > 0:
                said[f"TP-{size} at {share} %"] = waits[list(worst)].min() >= waits.drop(list(worst)).max()
    measured = float(np.mean(list(said.values()))) if said else math.nan
    expected = (1.0, math.inf)
    against = ", ".join(name for name, holds in said.items() if not holds)
    reason = f"of {len(said)} job sizes where any job waits" + (f", not {against}" if against else "")
    return Claim(text, JOBS, expected, measured, ruling(measured, expected), reason, "{:.0%}")


def _trace_claims(study: Study) -> list[Claim]:
    """Return the claims about the trace itself."""
    lengths, states = timeline(study.trace)
    servers = 100 * states.mean(axis=1)
    by_reading = study.summary.groupby("reading")["faulty_mean"].mean() * 100
    each = ", ".join(f"{reading} {by_reading[reading]:.2f} %" for reading in READINGS)
    found = [
        ("servers of 8 GPUs: 2.33 % are faulty on average", around_percent(2.33),
         float(np.average(servers, weights=lengths)), f"all {study.trace.nodes} servers"),
        ("servers of 8 GPUs: 7.22 % are faulty, p99", around_percent(7.22),
         weighted_quantile(servers, lengths, 0.99), f"all {study.trace.nodes} servers; the paper takes 360"),
        ("nodes of 4 GPUs: 1.17 % are faulty on average", around_percent(1.17),
         float(by_reading[FITTED]), each),
        ("a node of 4 is faulty with 50.21 % if its server is", (50.205, 50.215), 100 * HALF_IF_SERVER,
         "from the rounded shares, 1.17 over 2.33"),
    ]  # fmt: skip
    return [
        Claim(text, TRACE, expected, measured, ruling(measured, expected), reason, PERCENT)
        for text, expected, measured, reason in found
    ]


def _model_claims(study: Study) -> list[Claim]:
    """Return the claims about the fault model, at TP-32."""
    curves = study.curves
    here = curves[(curves["kind"] == "faulty nodes") & (curves["tp_gpus"] == MAIN_TP)]
    waste = 100 * here.pivot_table(index="x", columns="architecture", values="waste")
    near = float((waste[K3] - waste["big switch"])[waste.index <= TO_FAULTY].max())
    rivals = waste[[*BEHIND, "NVL-576"]].min(axis=1)
    ahead = float((waste[K3] - rivals).max())
    at = 100 * waste.index[int((waste[K3] - rivals).argmax())]
    where = f"above the best other, which is nearest at {at:.1f} % of faulty nodes"
    text = f"TP-32: K=3 near zero to {100 * TO_FAULTY:g} % of faulty nodes"
    return [
        Claim(
            text, MODEL, (-math.inf, ALMOST), near,
            ruling(near, (-math.inf, ALMOST)), "above the remainder, which the big switch has too", POINTS,
        ),
        Claim(
            "TP-32: K=3 best at every fault ratio", MODEL, (-math.inf, 0.0), ahead,
            ruling(ahead, (-math.inf, 0.0)), where, POINTS,
        ),
    ]  # fmt: skip


def _cost_claims(study: Study) -> list[Claim]:
    """Return what the paper says of its figure 17d; both sentences went into the fit."""
    costs = aggregate_costs(study.curves, MAIN_TP)
    ahead = lead(costs)
    at = 100 * costs.index[int(ahead.argmin())]
    nearest = f"{COST_FITTED}; the cheapest other over it is least at {at:.1f} % of faulty nodes"
    return [
        Claim(
            "InfiniteHBD costs the least at every fault ratio", COST, (1.0, math.inf), float(ahead.min()),
            "not comparable", nearest,
        ),
        Claim(
            "K=2 costs less than K=3 below 12.1 % of faulty nodes", COST, around_percent(12.1),
            100 * cheaper_below(costs), "not comparable", COST_FITTED, PERCENT,
        ),
    ]  # fmt: skip


def _table_7(cells: Sequence[Cell]) -> Claim:
    same = sum(cell.printed == cell.digits for cell in cells)
    loose = [cell.bound / cell.exact for cell in cells]
    reason = f"the exact values are {min(loose):.0f} to {max(loose):.0f} times below the bound"
    expected = (len(cells), len(cells))
    text = "table 7: the upper bound of the waste ratio, every printed digit"
    return Claim(text, BOUND, expected, same, ruling(same, expected), reason, f"{{:.0f}} of {len(cells)}")


def _waste(table: pd.DataFrame, name: str) -> float:
    return float(table.loc[table["architecture"] == name, "waste_mean"].mean())
