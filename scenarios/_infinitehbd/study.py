"""InfiniteHBD's fault study (section 6.2) as tables: waste on a trace and under a fault model, jobs, table 7.

The cluster is the paper's: 2,880 GPUs, 720 nodes of 4 from 360 servers of 8. Everything on the
trace is drawn anew per seed: which servers, in which order, which halves each fault holds.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scenarios._infinitehbd.hbd import (
    ARCHITECTURES,
    Gpus,
    States,
    expected_waste,
    infinitehbd_waste,
    waste_bound,
)
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

SERVERS, NODES, NODE_GPUS = 360, 720, 4
GPUS = NODES * NODE_GPUS
TP_GPUS = (8, 16, 32, 64)
MAIN_TP = 32
"""The TP size whose numbers the paper prints."""
BOUND = "big switch"
"""The architecture that no other beats: what it wastes is the remainder."""
FITTED: Reading = "joint"
"""The reading of the trace that was chosen because it comes closest to the paper."""
WHOLE = "8-GPU nodes"
"""The reading in which the servers themselves are the nodes; NVL-36 cannot be made of them."""
JOB_SHARES = (80, 85, 90, 95)
"""Sizes of the jobs that wait for repairs [% of all GPUs]; the paper's are lost."""
LARGEST_FAULTY = 0.15
"""Of the fault model, as a share of the nodes."""
MODEL_SEEDS = 100
CDF_SHARES = np.linspace(0, 1, 201)
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
    """What the paper prints."""
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
class Study:
    """What came of a study, as tables; ratios are shares of all GPUs, 0..1."""

    trace: FaultTrace
    """The servers' faults."""
    seeds: int
    """How many seeds drew from it."""
    summary: pd.DataFrame
    """A row per reading, architecture, TP size and seed: waste, jobs, waiting."""
    curves: pd.DataFrame
    """Points of curves: ``kind``, architecture, TP size, ``x``, ``waste`` and the band around it."""
    table_7: Sequence[Cell]
    """Bound, exact value and simulation per node size and K."""


def fault_study(trace: FaultTrace, seeds: range, model_seeds: int = MODEL_SEEDS) -> Study:
    """Return the whole study on a trace of servers of 8 GPUs."""
    drawn = [_halves_drawn(trace, seed, FITTED) for seed in seeds]
    rows = [row for each in drawn for row in _rows(trace, each, TP_GPUS)]
    for seed in seeds:
        for reading in READINGS:
            if reading != FITTED:
                rows += _rows(trace, _halves_drawn(trace, seed, reading), (MAIN_TP,))
        rows += _rows(trace, _servers_drawn(trace, seed), (MAIN_TP,))
    curves = [*_over_time(drawn[0]), *_distributions(drawn), *_over_faults(model_seeds)]
    return Study(trace, len(seeds), pd.DataFrame(rows), pd.concat(curves, ignore_index=True), table_7())


def table_7(seed: int = 0) -> list[Cell]:
    """Return table 7: the paper's bound, the exact value for a long line, and lines simulated."""
    cells = []
    rng = np.random.default_rng(seed)
    for node_gpus, (probability, printed) in TABLE_7.items():
        lines = rng.random((SIMULATED_LINES, SIMULATED_NODES), dtype=np.float32) < probability
        for hops, digits in zip((2, 3, 4), printed, strict=True):
            bound = waste_bound(probability, node_gpus, MAIN_TP, hops)
            exact = expected_waste(probability, node_gpus, MAIN_TP, hops)
            simulated = _simulated(lines, node_gpus, hops) if hops < 4 else math.nan
            cells.append(Cell(node_gpus, hops, digits, bound, exact, simulated))
    return cells


@dataclass(frozen=True, eq=False)
class _Drawn:
    """What a seed draws from a trace."""

    seed: int
    reading: str
    node_gpus: int
    """GPUs per node."""
    lengths: Days
    """How long each state lasts."""
    states: States
    """Which nodes are faulty."""
    fixed_lengths: Days
    fixed_states: States
    """The same with the mean repair time for every fault."""


def _halves_drawn(trace: FaultTrace, seed: int, reading: Reading) -> _Drawn:
    nodes = half_nodes(trace, SERVERS, np.random.default_rng(seed), reading)
    return _drawn(trace, nodes, seed, reading, NODE_GPUS)


def _servers_drawn(trace: FaultTrace, seed: int) -> _Drawn:
    nodes = drawn_servers(trace, SERVERS, np.random.default_rng(seed))
    return _drawn(trace, nodes, seed, WHOLE, GPUS // SERVERS)


def _drawn(trace: FaultTrace, nodes: FaultTrace, seed: int, reading: str, node_gpus: int) -> _Drawn:
    fixed = nodes.with_repair(trace.mean_repair_days)
    return _Drawn(seed, reading, node_gpus, *timeline(nodes), *timeline(fixed))


def _rows(trace: FaultTrace, drawn: _Drawn, sizes: Sequence[int]) -> Iterator[dict[str, object]]:
    """Yield the summary's rows of a seed."""
    faulty = drawn.states.mean(axis=1)
    for tp_gpus in sizes:
        remainder = _mean(ARCHITECTURES[BOUND](drawn.states, drawn.node_gpus, tp_gpus), drawn.lengths)
        for name, waste in ARCHITECTURES.items():
            if drawn.reading == WHOLE and name == "NVL-36":
                continue  # 36 GPUs are no whole number of nodes
            wasted = waste(drawn.states, drawn.node_gpus, tp_gpus)
            usable = _usable(drawn.states, drawn.node_gpus, wasted)
            yield {
                "trace": trace.name,
                "reading": drawn.reading,
                "architecture": name,
                "tp_gpus": tp_gpus,
                "seed": drawn.seed,
                "verdict": "model",
                "faulty_mean": float(np.average(faulty, weights=drawn.lengths)),
                "faulty_p99": weighted_quantile(faulty, drawn.lengths, 0.99),
                "waste_mean": _mean(wasted, drawn.lengths),
                "waste_p99": weighted_quantile(wasted / GPUS, drawn.lengths, 0.99),
                "remainder_mean": remainder,
                "above_remainder_mean": _mean(wasted, drawn.lengths) - remainder,
                "job_never_pauses_gpus": int(usable.min()),
                "job_99_gpus": weighted_quantile(usable.astype(float), drawn.lengths, 0.01),
                "usable_mean_gpus": float(np.average(usable, weights=drawn.lengths)),
                **_waiting(drawn, name, tp_gpus),
            }


def _waiting(drawn: _Drawn, name: str, tp_gpus: int) -> dict[str, float]:
    """Return the share of the time in which a job waits for repairs, per job size."""
    wasted = ARCHITECTURES[name](drawn.fixed_states, drawn.node_gpus, tp_gpus)
    usable = _usable(drawn.fixed_states, drawn.node_gpus, wasted)
    jobs = {share: share * GPUS // 100 // tp_gpus * tp_gpus for share in JOB_SHARES}
    return {
        f"waiting_{share}": float(np.average(usable < job, weights=drawn.fixed_lengths))
        for share, job in jobs.items()
    }


def _usable(states: States, node_gpus: int, wasted: Gpus) -> Gpus:
    """Return the GPUs that groups use in each state."""
    usable: Gpus = GPUS - node_gpus * np.count_nonzero(states, axis=1) - wasted
    return usable


def _mean(wasted: Gpus, lengths: Days) -> float:
    return float(np.average(wasted / GPUS, weights=lengths))


def _over_time(drawn: _Drawn) -> Iterator[pd.DataFrame]:
    """Yield the waste of one seed over time; x is the day on which a state begins."""
    begins = np.concatenate([[0.0], np.cumsum(drawn.lengths)[:-1]])
    for name, waste in ARCHITECTURES.items():
        wasted = waste(drawn.states, NODE_GPUS, MAIN_TP) / GPUS
        yield _curve("time", name, MAIN_TP, begins, wasted)


def _distributions(drawn: Sequence[_Drawn]) -> Iterator[pd.DataFrame]:
    """Yield the distribution of the waste over the time of all seeds; x is the share of the time."""
    lengths = np.concatenate([each.lengths for each in drawn])
    states = np.concatenate([each.states for each in drawn])
    for tp_gpus in TP_GPUS:
        for name, waste in ARCHITECTURES.items():
            wasted = waste(states, NODE_GPUS, tp_gpus) / GPUS
            order = np.argsort(wasted, kind="stable")
            passed = np.cumsum(lengths[order])
            at = np.searchsorted(passed, CDF_SHARES * passed[-1] * (1 - 1e-12))
            yield _curve("share of time", name, tp_gpus, CDF_SHARES, wasted[order][at])


def _over_faults(seeds: int) -> Iterator[pd.DataFrame]:
    """Yield the waste under the fault model; x is the share of faulty nodes, the band all but 10 % a side."""
    counts = np.arange(round(LARGEST_FAULTY * NODES) + 1)
    states = np.stack([uniform_faults(NODES, counts, np.random.default_rng(seed)) for seed in range(seeds)])
    for tp_gpus in TP_GPUS:
        for name, waste in ARCHITECTURES.items():
            wasted = np.stack([waste(of_seed, NODE_GPUS, tp_gpus) for of_seed in states]) / GPUS
            low, high = np.quantile(wasted, [0.1, 0.9], axis=0)
            yield _curve("faulty nodes", name, tp_gpus, counts / NODES, wasted.mean(axis=0), low, high)


def _curve(
    kind: str,
    name: str,
    tp_gpus: int,
    x: NDArray[np.float64],
    waste: NDArray[np.float64],
    low: NDArray[np.float64] | None = None,
    high: NDArray[np.float64] | None = None,
) -> pd.DataFrame:
    band = {"low": waste if low is None else low, "high": waste if high is None else high}
    return pd.DataFrame(
        {"kind": kind, "architecture": name, "tp_gpus": tp_gpus, "x": x, "waste": waste} | band
    )


def _simulated(lines: States, node_gpus: int, hops: int) -> float:
    """Return the waste ratio of long lines."""
    # Line by line: the numbers of the components of all at once would need half a gigabyte.
    wasted = [infinitehbd_waste(line, node_gpus, MAIN_TP, hops=hops, closed=False) for line in lines]
    return float(sum(int(each) for each in wasted) / (lines.size * node_gpus))
