"""InfiniteHBD's fault study (section 6.2) as tables: waste on a trace and under a fault model, jobs, table 7.

The paper's cluster has 2,880 GPUs, 720 nodes of 4 from 360 servers of 8. Everything on the trace is
drawn anew per seed: which servers, in which order, which halves each fault holds.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import chain

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from controller.schedulers.infinitehbd_waste import (
    ARCHITECTURES,
    Gpus,
    States,
    expected_waste,
    infinitehbd_waste,
    waste_bound,
)
from scenarios._infinitehbd.faults.cluster import LEAST_NODES, MAIN_TP, TracedCluster
from testbed.study.call_json import Row
from testbed.study.computed import Call, Found
from traffic.fault_trace import (
    READINGS,
    Days,
    FaultTrace,
    Reading,
    drawn_servers,
    half_nodes,
    timeline,
    uniform_faults,
    weighted_quantile,
)

Numbers = NDArray[np.float64]
BOUND = "big switch"
"""The architecture that no other beats: what it wastes is the remainder."""
FITTED: Reading = "joint"
"""The reading of the trace that was chosen because it comes closest to the paper."""
WHOLE = "whole servers"
"""The reading in which the servers themselves are the nodes."""
JOB_SHARES = (80, 85, 90, 95)
"""Sizes of the jobs that wait for repairs [% of all GPUs]; the paper's are lost."""
LARGEST_FAULTY = 15
"""Of the fault model [% of the nodes]."""
MODEL_SEEDS = 100
CDF_SHARES = np.linspace(0, 1, 201)
PAPERS_TRACE = 400, 348.0, 584
"""Servers, days and faults by which a trace is known to be the paper's."""
TABLE_7 = {
    4: (0.0367, ("7.54 %", "0.28 %", "1.02e-04")),
    8: (0.0722, ("25.02 %", "1.81 %", "0.13 %")),
}
"""By GPUs per node: the probability of a faulty node, and what is printed for K = 2, 3, 4. The printed
digits need the probability as the paper rounds it; 1 - (1 - 0.0093)^8 = 7.2 % is that of the trace's p99."""
SIMULATED_NODES, SIMULATED_LINES = 2_000_000, 8
"""Nodes of a long line, and how many such lines."""


@dataclass(frozen=True)
class Cell:
    """A cell of table 7, for TP-32: the waste ratio that cuts cause."""

    node_gpus: int
    """R."""
    hops: int
    """K."""
    printed: str
    """Text that the paper prints."""
    bound: float
    """Its upper bound."""
    exact: float
    """The expectation for a long line."""
    simulated: float
    """Of long lines with random faults; NaN for K = 4, where cuts are too rare to be simulated."""

    @property
    def digits(self) -> str:
        """The bound, written as the paper does."""
        return f"{100 * self.bound:.2f} %" if self.printed.endswith("%") else f"{self.bound:.2e}"


@dataclass(frozen=True, eq=False)
class FaultStudy:
    """Results of a study, as tables; ratios are shares of all GPUs, 0..1."""

    trace: FaultTrace
    """The servers' faults."""
    cluster: TracedCluster
    """The cluster that is made of the servers."""
    seeds: int
    """How many seeds drew from the trace."""
    summary: pd.DataFrame
    """A row per reading, architecture, TP size and seed: waste, jobs, waiting."""
    curves: pd.DataFrame
    """Points of curves: ``kind``, architecture, TP size, ``x``, ``waste`` and the band around it."""
    table_7: Sequence[Cell]
    """Bound, exact value and simulation per node size and K."""

    @property
    def reading(self) -> str:
        """How the trace is read where a table has one reading."""
        return FITTED if self.cluster.halved else WHOLE

    @property
    def of_the_papers_trace(self) -> bool:
        """Whether the trace is the paper's, by its size."""
        trace = self.trace
        return not trace.synthetic and (trace.nodes, trace.window_days, len(trace.node)) == PAPERS_TRACE


@dataclass(frozen=True, eq=False)
class SeedFound:
    """Results of a seed's draw from a trace."""

    rows: Sequence[Row]
    """Of the summary."""
    lengths: list[float]
    """How long each state lasts, in the reading that a table has if it has one [days]."""
    wasted: dict[int, dict[str, list[int]]]
    """GPUs that no group uses in each of these states, by TP size and architecture."""


@dataclass(frozen=True)
class Curve:
    """The points of a curve of an architecture, as columns of a table."""

    kind: str
    """The meaning of x."""
    architecture: str
    tp_gpus: int
    x: list[float]
    waste: list[float]
    """Share of all GPUs."""
    low: list[float]
    high: list[float]
    """The band around it."""


Wasted = Mapping[tuple[str, int], Gpus]
"""GPUs that no group uses in each state, by architecture and TP size."""


def calls_of(
    trace: FaultTrace, seeds: Sequence[int], cluster: TracedCluster, model_seeds: int = MODEL_SEEDS
) -> list[Call]:
    """Return the calls that count for a cluster on a trace, which has as many servers at least."""
    return [
        *(Call(found_by_seed, (trace, cluster, seed)) for seed in seeds),
        *(Call(curves_over_faults, (cluster, tp_gpus, model_seeds)) for tp_gpus in cluster.tp_gpus),
        Call(table_7, ()),
    ]


def study_of(trace: FaultTrace, seeds: Sequence[int], cluster: TracedCluster, found: Found) -> FaultStudy:
    """Return the whole study, from what came of `calls_of` the same."""
    by_seed, (*over_faults, cells) = found[: len(seeds)], found[len(seeds) :]
    of_trace = (*_over_time(cluster, by_seed[0]), *_distributions(cluster, by_seed))
    curves = [pd.DataFrame(asdict(curve)) for curve in chain(of_trace, *over_faults)]
    summary = pd.DataFrame([row for each in by_seed for row in each.rows])
    return FaultStudy(trace, cluster, len(seeds), summary, pd.concat(curves, ignore_index=True), cells)


def found_by_seed(trace: FaultTrace, cluster: TracedCluster, seed: int) -> SeedFound:
    """Return a seed's states and their waste; TraceError if the trace has fewer servers than the cluster."""
    drawn = list(_all_drawn(trace, cluster, seed))
    wasted = [_wasted(each) for each in drawn]
    rows = [row for pair in zip(drawn, wasted, strict=True) for row in _rows(trace, *pair)]
    of_tables = {
        tp_gpus: {name: wasted[0][name, tp_gpus].tolist() for name in cluster.made(tp_gpus)}
        for tp_gpus in cluster.tp_gpus
    }
    return SeedFound(rows, drawn[0].lengths.tolist(), of_tables)


@cache
def table_7() -> tuple[Cell, ...]:
    """Return table 7: the paper's bound, the exact value for a long line, and lines simulated.

    It is the same for every study, and takes two seconds.
    """
    cells = []
    rng = np.random.default_rng(0)
    for node_gpus, (probability, printed) in TABLE_7.items():
        lines = rng.random((SIMULATED_LINES, SIMULATED_NODES), dtype=np.float32) < probability
        for hops, digits in zip((2, 3, 4), printed, strict=True):
            bound = waste_bound(probability, node_gpus, MAIN_TP, hops)
            exact = expected_waste(probability, node_gpus, MAIN_TP, hops)
            simulated = _simulated(lines, node_gpus, hops) if hops < 4 else math.nan
            cells.append(Cell(node_gpus, hops, digits, bound, exact, simulated))
    return tuple(cells)


@dataclass(frozen=True, eq=False)
class _Drawn:
    """States that a seed draws from a trace."""

    seed: int
    reading: str
    cluster: TracedCluster
    """The nodes' cluster; of whole servers, the one that has them as nodes."""
    lengths: Days
    """How long each state lasts."""
    states: States
    """Which nodes are faulty."""
    fixed_lengths: Days
    fixed_states: States
    """The same with the mean repair time for every fault."""


def _all_drawn(trace: FaultTrace, cluster: TracedCluster, seed: int) -> Iterator[_Drawn]:
    """Yield what a seed draws in every reading, that of the tables first; whole servers at one TP size."""
    for reading in READINGS if cluster.halved else ():
        halves = half_nodes(trace, cluster.servers, np.random.default_rng(seed), reading)
        yield _drawn(trace, halves, seed, reading, cluster)
    servers = drawn_servers(trace, cluster.servers, np.random.default_rng(seed))
    if not cluster.halved:
        yield _drawn(trace, servers, seed, WHOLE, cluster)
    elif cluster.main_tp % cluster.server_gpus == 0 and cluster.servers >= LEAST_NODES:
        whole = replace(cluster, node_gpus=cluster.server_gpus, tp_gpus=(cluster.main_tp,))
        yield _drawn(trace, servers, seed, WHOLE, whole)


def _drawn(trace: FaultTrace, nodes: FaultTrace, seed: int, reading: str, cluster: TracedCluster) -> _Drawn:
    fixed = nodes.with_repair(trace.mean_repair_days)
    return _Drawn(seed, reading, cluster, *timeline(nodes), *timeline(fixed))


def _wasted(drawn: _Drawn) -> Wasted:
    cluster = drawn.cluster
    return {
        (name, tp_gpus): ARCHITECTURES[name](drawn.states, cluster.node_gpus, tp_gpus)
        for tp_gpus in cluster.tp_gpus
        for name in cluster.made(tp_gpus)
    }


def _rows(trace: FaultTrace, drawn: _Drawn, all_wasted: Wasted) -> Iterator[Row]:
    """Yield the summary's rows of a seed."""
    cluster, faulty = drawn.cluster, drawn.states.mean(axis=1)
    for tp_gpus in cluster.tp_gpus:
        remainder = _mean(drawn, ARCHITECTURES[BOUND](drawn.states, cluster.node_gpus, tp_gpus))
        for name in cluster.made(tp_gpus):
            wasted = all_wasted[name, tp_gpus]
            usable = _usable(cluster, drawn.states, wasted)
            yield {
                "trace": trace.name,
                "reading": drawn.reading,
                "architecture": name,
                "tp_gpus": tp_gpus,
                "seed": drawn.seed,
                "verdict": "model",
                "faulty_mean": float(np.average(faulty, weights=drawn.lengths)),
                "faulty_p99": weighted_quantile(faulty, drawn.lengths, 0.99),
                "waste_mean": _mean(drawn, wasted),
                "waste_p99": weighted_quantile(wasted / cluster.gpus, drawn.lengths, 0.99),
                "remainder_mean": remainder,
                "above_remainder_mean": _mean(drawn, wasted) - remainder,
                "job_never_pauses_gpus": int(usable.min()),
                "job_99_gpus": weighted_quantile(usable.astype(float), drawn.lengths, 0.01),
                "usable_mean_gpus": float(np.average(usable, weights=drawn.lengths)),
                **_waiting(drawn, name, tp_gpus),
            }


def _waiting(drawn: _Drawn, name: str, tp_gpus: int) -> dict[str, float]:
    """Return the share of the time in which a job waits for repairs, per job size."""
    wasted = ARCHITECTURES[name](drawn.fixed_states, drawn.cluster.node_gpus, tp_gpus)
    usable = _usable(drawn.cluster, drawn.fixed_states, wasted)
    jobs = {share: drawn.cluster.job_gpus(share, tp_gpus) for share in JOB_SHARES}
    return {
        f"waiting_{share}": float(np.average(usable < job, weights=drawn.fixed_lengths))
        for share, job in jobs.items()
    }


def _usable(cluster: TracedCluster, states: States, wasted: Gpus) -> Gpus:
    """Return the GPUs that groups use in each state."""
    usable: Gpus = cluster.gpus - cluster.node_gpus * np.count_nonzero(states, axis=1) - wasted
    return usable


def _mean(drawn: _Drawn, wasted: Gpus) -> float:
    return float(np.average(wasted / drawn.cluster.gpus, weights=drawn.lengths))


def _over_time(cluster: TracedCluster, found: SeedFound) -> Iterator[Curve]:
    """Yield the waste of one seed over time; x is the day on which a state begins."""
    begins = np.concatenate([[0.0], np.cumsum(found.lengths)[:-1]])
    for name in cluster.made(cluster.main_tp):
        wasted = np.array(found.wasted[cluster.main_tp][name]) / cluster.gpus
        yield _curve("time", name, cluster.main_tp, begins, wasted)


def _distributions(cluster: TracedCluster, found: Sequence[SeedFound]) -> Iterator[Curve]:
    """Yield the distribution of the waste over the time of all seeds; x is the share of the time."""
    lengths = np.concatenate([each.lengths for each in found])
    for tp_gpus, name in (
        (tp_gpus, name) for tp_gpus, of_size in found[0].wasted.items() for name in of_size
    ):
        wasted = np.concatenate([each.wasted[tp_gpus][name] for each in found]) / cluster.gpus
        order = np.argsort(wasted, kind="stable")
        passed = np.cumsum(lengths[order])
        at = np.searchsorted(passed, CDF_SHARES * passed[-1] * (1 - 1e-12))
        yield _curve("share of time", name, tp_gpus, CDF_SHARES, wasted[order][at])


def curves_over_faults(cluster: TracedCluster, tp_gpus: int, seeds: int) -> list[Curve]:
    """Return waste under the fault model; x is the share of faulty nodes, the band all but 10 % a side."""
    nodes, node_gpus = cluster.nodes, cluster.node_gpus
    counts = np.arange(cluster.faulty_nodes(LARGEST_FAULTY) + 1)
    states = np.stack([uniform_faults(nodes, counts, np.random.default_rng(seed)) for seed in range(seeds)])
    curves = []
    for name in cluster.made(tp_gpus):
        waste = ARCHITECTURES[name]
        wasted = np.stack([waste(of_seed, node_gpus, tp_gpus) for of_seed in states]) / cluster.gpus
        band = np.quantile(wasted, [0.1, 0.9], axis=0)
        curves.append(_curve("faulty nodes", name, tp_gpus, counts / nodes, wasted.mean(axis=0), [*band]))
    return curves


def _curve(
    kind: str, name: str, tp_gpus: int, x: Numbers, waste: Numbers, band: Sequence[Numbers] | None = None
) -> Curve:
    low, high = (waste, waste) if band is None else band
    return Curve(kind, name, tp_gpus, x.tolist(), waste.tolist(), low.tolist(), high.tolist())


def _simulated(lines: States, node_gpus: int, hops: int) -> float:
    """Return the waste ratio of long lines."""
    # Line by line: the numbers of the components of all at once would need half a gigabyte.
    wasted = [infinitehbd_waste(line, node_gpus, MAIN_TP, hops=hops, closed=False) for line in lines]
    return float(sum(int(each) for each in wasted) / (lines.size * node_gpus))
