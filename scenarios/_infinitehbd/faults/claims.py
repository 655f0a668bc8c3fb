"""Claims of InfiniteHBD's paper about faults, ruled by results of `scenarios._infinitehbd.faults.study`.

A claim is ruled where all readings of the trace, and all else that the paper leaves open, give the same
(`scenarios._infinitehbd.faults.statement`). Choices that were made because the paper's numbers then come out
are *fitted to the paper*, and confirm nothing. An architecture that cannot hold one group of a TP size is
left out there. What follows from the paper's own inputs is arithmetic.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from scenarios._infinitehbd.faults.cluster import MAIN_TP, PAPERS_TP, TracedCluster
from scenarios._infinitehbd.faults.costs import K2, K3, aggregate_costs, cheaper_below, lead, table_6_claims
from scenarios._infinitehbd.faults.statement import Statement, Values, of_trace, ruled
from scenarios._infinitehbd.faults.study import FITTED, JOB_SHARES, WHOLE, Cell, FaultStudy
from scenarios._infinitehbd.percentages import PERCENT, POINTS, around_percent
from testbed.report.claims import LESS, TIMES, Claim, Range, arithmetic, around
from topologies.cost import as_printed
from traffic.fault_trace import (
    HALF_FAULTY,
    HALF_IF_SERVER,
    READINGS,
    SERVER_FAULTY,
    timeline,
    weighted_quantile,
)

WASTE, MODEL = "InfiniteHBD, 1 and 6.2 (trace)", "InfiniteHBD, 6.2 (fault model)"
JOBS, TRACE, BOUND = "InfiniteHBD, 6.2 (jobs)", "InfiniteHBD, appendix A", "InfiniteHBD, appendix C"
COST = "InfiniteHBD, 6.5 (aggregate cost)"
LEADING = (K2, K3, "NVL-576")
NVL = ("NVL-36", "NVL-72")
BLOCKS = "TPUv4 blocks"
OTHERS = ("TPUv4 mod", BLOCKS, "SiP-Ring")
JOB_SIZES = {
    "never pauses": "job_never_pauses_gpus",
    "runs 99 % of the time": "job_99_gpus",
    "mean": "usable_mean_gpus",
}
"""Meanings that the largest job can have, and the column of each."""
ALMOST = 0.1
"""How near two waste ratios are that count as almost the same [points]."""
LONGER = (0.01, math.inf)
"""By how much a job waits longer that waits clearly longer [points]."""
TO_FAULTY = 7
"""Up to which share of faulty nodes K = 3 is held to be near zero [%]."""
BLOCKS_FITTED = "the blocks are fitted to the paper"
COST_FITTED = "the price of a GPU and equal bandwidth are fitted to the paper"

Measure = Callable[[pd.DataFrame], float]


def fault_claims(study: FaultStudy) -> list[Claim]:
    """Return every claim of the paper about faults and costs, with what was measured."""
    found = [of_trace(study, each) for each in (*_waste(), *_jobs())]
    found += [_of_its_own_file(of_trace(study, each)) for each in _trace()]
    found += [ruled(study, each) for each in (*_model(), *_cost())]
    found += [*_appendix_a(), _table_7(study.table_7), *table_6_claims()]
    return sorted(found, key=lambda claim: claim.source)


def _waste() -> list[Statement]:
    """Return the sentences about waste on the trace."""

    def of(name: str) -> Measure:
        return lambda table: 100 * _mean_waste(table, name)

    def over_k3(name: str) -> Measure:
        return lambda table: _mean_waste(table, name) / _mean_waste(table, K3)

    def at_main(
        text: str, expected: Range, measure: Measure, pattern: str = PERCENT, fitted: str = ""
    ) -> Statement:
        values, note = (
            partial(_by_reading, measure=measure),
            partial(_spread, measure=measure, pattern=pattern),
        )
        return Statement(f"TP-32: {text}", WASTE, expected, values, pattern, note=note, fitted=fitted)

    return [
        at_main("K=3 wastes 0.53 %", around_percent(0.53), of(K3)),
        at_main("NVL-72 wastes 10.04 %", around_percent(10.04), of("NVL-72")),
        at_main("20x below NVL-72 with K=3", around(20), over_k3("NVL-72"), TIMES),
        at_main(
            "K=2 almost as K=3", (-math.inf, ALMOST),
            lambda table: 100 * (_mean_waste(table, K2) - _mean_waste(table, K3)), POINTS,
        ),
        at_main("TPUv4 wastes 7.56 % (blocks)", around_percent(7.56), of(BLOCKS), fitted=BLOCKS_FITTED),
        at_main("TPUv4 wastes 7.56 % (mod)", around_percent(7.56), of("TPUv4 mod")),
        at_main("14x below TPUv4 (blocks) with K=3", around(14), over_k3(BLOCKS), TIMES, BLOCKS_FITTED),
        *(
            Statement(
                f"{name} wastes about 11 % for TP >= 16", WASTE, around_percent(11),
                partial(_farthest_from_11, name=name), tp_gpus=PAPERS_TP[1:],
                note=partial(_not_held, name=name),
            )
            for name in NVL
        ),
    ]  # fmt: skip


def _by_reading(study: FaultStudy, measure: Measure) -> Values:
    """Return a measure at TP-32 in each reading of the trace."""
    return {reading: [measure(_rows(study, reading, MAIN_TP))] for reading in READINGS}


def _spread(study: FaultStudy, measure: Measure, pattern: str) -> str:
    over_seeds = _rows(study, FITTED, MAIN_TP).groupby("seed").apply(measure).std()
    return "" if math.isnan(over_seeds) else f"±{pattern.format(over_seeds)} over seeds"


def _farthest_from_11(study: FaultStudy, name: str) -> Values:
    """Return the waste of an NVL at the TP size where it is farthest from 11 %, in each reading."""
    sizes = [size for size in PAPERS_TP[1:] if name in study.cluster.holding(size)]
    wasted = {
        reading: [100 * _mean_waste(_rows(study, reading, size), name) for size in sizes]
        for reading in READINGS
    }
    return {reading: [max(each, key=lambda value: abs(value - 11))] for reading, each in wasted.items()}


def _not_held(study: FaultStudy, name: str) -> str:
    """Return the TP sizes of which an architecture cannot hold a group, as far as any."""
    sizes = [size for size in PAPERS_TP if name not in study.cluster.holding(size)]
    return ", ".join(f"no TP-{size} group fits into {name}" for size in sizes)


def _jobs() -> list[Statement]:
    """Return the sentences about jobs: orders, for the paper's levels are lost."""

    def order(
        text: str, expected: Range, measure: Callable[[pd.DataFrame, TracedCluster], float]
    ) -> Statement:
        values = partial(_by_job, measure=measure)
        return Statement(text, JOBS, expected, values, TIMES, tp_gpus=PAPERS_TP)

    def waits(sizes: tuple[int, int], worst: Sequence[str], said: str) -> Statement:
        text = f"{', '.join(f'TP-{size}' for size in sizes)}: jobs wait longest on {said}"
        values = partial(_margins, sizes=sizes, worst=worst)
        return Statement(text, JOBS, LONGER, values, POINTS, sizes)

    return [
        order("K=2, K=3 and NVL-576 support the largest jobs", (1.0, math.inf), _least_lead),
        order("SiP-Ring's largest job shrinks with the TP size", LESS, _shrinking),
        waits((8, 16), NVL, "NVL-36 and NVL-72"),
        waits((32, 64), OTHERS, "SiP-Ring and TPUv4"),
    ]


def _by_job(study: FaultStudy, measure: Callable[[pd.DataFrame, TracedCluster], float]) -> Values:
    """Return a measure of the largest jobs, by what the largest job means."""
    means = study.summary.groupby(["reading", "tp_gpus", "architecture"])[list(JOB_SIZES.values())].mean()
    return {
        said: [measure(means.loc[reading][column].unstack(), study.cluster) for reading in READINGS]
        for said, column in JOB_SIZES.items()
    }


def _least_lead(jobs: pd.DataFrame, cluster: TracedCluster) -> float:
    """Return the least leading architecture over the largest other, at the TP size where that is least."""
    leads = []
    for size in PAPERS_TP:
        others = list(_held((*NVL, *OTHERS), cluster, size))
        leading, other = (jobs.loc[[size], list(names)].to_numpy() for names in (LEADING, others))
        leads.append(float(leading.min() / other.max()))
    return min(leads)


def _shrinking(jobs: pd.DataFrame, _cluster: TracedCluster) -> float:
    """Return SiP-Ring's largest job at the largest TP size over that at the smallest.

    Where a larger TP size does not shrink it, that step counts instead.
    """
    sip = jobs.loc[list(PAPERS_TP), "SiP-Ring"].to_numpy()
    step = float((sip[1:] / sip[:-1]).max())
    return step if step >= 1 else float(sip[-1] / sip[0])


def _margins(study: FaultStudy, sizes: Sequence[int], worst: Sequence[str]) -> Values:
    """Return by how much jobs wait longer on the worst architectures than on any other, by size [points].

    It is the least of some TP sizes, in each reading; where no job waits nothing is said.
    """
    means = study.summary.groupby(["reading", "tp_gpus", "architecture"]).mean(numeric_only=True)
    found: dict[str, list[float]] = {}
    for share in JOB_SHARES:
        for reading in READINGS:
            waits = means[f"waiting_{share}"].loc[reading]
            margins = [_margin(100 * waits.loc[size], study.cluster, size, worst) for size in sizes]
            if said := [margin for margin in margins if not math.isnan(margin)]:
                found.setdefault(f"jobs of {share} %", []).append(min(said))
    return found


def _margin(waits: "pd.Series[float]", cluster: TracedCluster, size: int, worst: Sequence[str]) -> float:
    held = waits[list(cluster.holding(size))]
    if held.max() == 0:
        return math.nan
    return float(
        held[list(_held(worst, cluster, size))].min() - held.drop(list(worst), errors="ignore").max()
    )


def _held(names: Sequence[str], cluster: TracedCluster, tp_gpus: int) -> tuple[str, ...]:
    """Return the architectures that hold a group of a size."""
    return tuple(name for name in names if name in cluster.holding(tp_gpus))


def _trace() -> list[Statement]:
    """Return the sentences about the trace; the paper does not say which 360 of its servers it takes."""
    return [
        Statement(
            "servers of 8 GPUs: 2.33 % are faulty on average", TRACE, around_percent(2.33),
            lambda study: _of_servers(study, "faulty_mean", np.average),
        ),
        Statement(
            "servers of 8 GPUs: 7.22 % are faulty, p99", TRACE, around_percent(7.22),
            lambda study: _of_servers(study, "faulty_p99", partial(weighted_quantile, share=0.99)),
        ),
        Statement(
            "nodes of 4 GPUs: 1.17 % are faulty on average", TRACE, around_percent(1.17),
            partial(_by_reading, measure=lambda table: 100 * float(table["faulty_mean"].mean())),
        ),
    ]  # fmt: skip


def _of_its_own_file(claim: Claim) -> Claim:
    """Return a claim that is a statistic of the paper's own trace: arithmetic, if it comes out."""
    return replace(claim, verdict="arithmetic") if claim.verdict == "holds" else claim


def _of_servers(study: FaultStudy, column: str, statistic: Callable[..., float]) -> Values:
    """Return a statistic of the share of faulty servers [%], of all and of those that seeds draw."""
    lengths, states = timeline(study.trace)
    drawn = study.summary.loc[study.summary["reading"] == WHOLE, column].mean()
    return {
        f"all {study.trace.nodes}": [100 * float(statistic(states.mean(axis=1), weights=lengths))],
        f"{study.cluster.servers} drawn": [100 * float(drawn)],
    }


def _model() -> list[Statement]:
    """Return the sentences about the fault model, at TP-32."""
    return [
        Statement(
            f"TP-32: K=3 near zero to {TO_FAULTY} % of faulty nodes", MODEL, (-math.inf, ALMOST),
            lambda study: {"": [float(_above_remainder(study).max())]}, POINTS,
            note=lambda _study: "above the remainder, which the big switch has too",
        ),
        Statement(
            "TP-32: K=3 best at every fault ratio", MODEL, (-math.inf, 0.0),
            lambda study: {"": [float(_behind_the_best(study).max())]}, POINTS, note=_nearest,
        ),
    ]  # fmt: skip


def _above_remainder(study: FaultStudy) -> "pd.Series[float]":
    waste = _model_waste(study)
    return (waste[K3] - waste["big switch"]).iloc[: study.cluster.faulty_nodes(TO_FAULTY) + 1]


def _behind_the_best(study: FaultStudy) -> "pd.Series[float]":
    waste = _model_waste(study)
    return waste[K3] - waste[[*NVL, *OTHERS, "NVL-576"]].min(axis=1)


def _nearest(study: FaultStudy) -> str:
    behind = _behind_the_best(study)
    at = 100 * behind.index[int(behind.argmax())]
    return f"above the best other, which is nearest at {at:.1f} % of faulty nodes"


def _model_waste(study: FaultStudy) -> pd.DataFrame:
    """Return waste [%] at TP-32, a column per architecture, by the share of faulty nodes."""
    curves = study.curves
    here = curves[(curves["kind"] == "faulty nodes") & (curves["tp_gpus"] == MAIN_TP)]
    return 100 * here.pivot_table(index="x", columns="architecture", values="waste")


def _cost() -> list[Statement]:
    """Return the sentences about figure 17d; both went into the fit."""

    def ahead(study: FaultStudy) -> "pd.Series[float]":
        return lead(aggregate_costs(study.curves, study.cluster))

    def nearest(study: FaultStudy) -> str:
        over = ahead(study)
        at = 100 * over.index[int(over.argmin())]
        return f"the cheapest other over it is least at {at:.1f} % of faulty nodes"

    return [
        Statement(
            "InfiniteHBD costs the least at every fault ratio", COST, (1.0, math.inf),
            lambda study: {"": [float(ahead(study).min())]}, TIMES, note=nearest, fitted=COST_FITTED,
        ),
        Statement(
            "K=2 costs less than K=3 below 12.1 % of faulty nodes", COST, around_percent(12.1),
            lambda study: {"": [100 * cheaper_below(aggregate_costs(study.curves, study.cluster))]},
            fitted=COST_FITTED,
        ),
    ]  # fmt: skip


def _appendix_a() -> list[Claim]:
    """Return the claims that follow from the printed share of faulty servers."""
    half = float(as_printed(100 * HALF_FAULTY))
    if_server = float(as_printed(100 * HALF_IF_SERVER))
    return [
        arithmetic(
            "2.33 % of servers are 1.17 % of nodes of 4", TRACE, (1.17, 1.17), half,
            f"1 - (1 - {SERVER_FAULTY})^(1/2)", PERCENT,
        ),
        arithmetic(
            "a node of 4 is faulty with 50.21 % if its server is", TRACE, (50.21, 50.21), if_server,
            "from the rounded shares, 1.17 over 2.33", PERCENT,
        ),
    ]  # fmt: skip


def _table_7(cells: Sequence[Cell]) -> Claim:
    same = sum(cell.printed == cell.digits for cell in cells)
    loose = [cell.bound / cell.exact for cell in cells]
    reason = f"the exact values are {min(loose):.0f} to {max(loose):.0f} times below the bound"
    text = "table 7: the upper bound of the waste ratio, every digit"
    return arithmetic(text, BOUND, (len(cells),) * 2, same, reason, f"{{:.0f}} of {len(cells)}")


def _rows(study: FaultStudy, reading: str, tp_gpus: int) -> pd.DataFrame:
    summary = study.summary
    return summary[(summary["reading"] == reading) & (summary["tp_gpus"] == tp_gpus)]


def _mean_waste(table: pd.DataFrame, name: str) -> float:
    return float(table.loc[table["architecture"] == name, "waste_mean"].mean())
