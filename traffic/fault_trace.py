"""Faults of a cluster's servers over time: a trace, its states, and its nodes of half a server.

A `FaultTrace` is a list of faults; a fault holds its node in [start, end). The state of the cluster
is constant between two events, so `timeline` gives each state with its length, and means and
percentiles over time are exact: no sampling step is needed.

InfiniteHBD's study needs nodes of 4 GPUs, and its trace is of servers with 8. Faults of GPUs are
taken as independent, 1 - (1-p)^8 = 2.33 %, which makes a node of 4 faulty in 1 - (1-p)^4 = 1.17 % of the
time. `half_nodes` draws which half each fault holds, in three readings:

* *joint*: the posterior of that model. A faulty server has both halves faulty with
  P4^2 / P8 = 0.59 %, one otherwise, and never none. The share of faulty nodes is the paper's.
* *independent*: each half with the printed 50.21 % on its own.
* *iid*: as *independent*, and the nodes are then put in random order.

References
----------
InfiniteHBD, section 6.2 and appendix A. The paper says "linearly maps" and no more: the readings are
ours, and *joint* was chosen because with it the waste ratios come closest to the printed ones.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from topologies.errors import TraceError

Days = NDArray[np.float64]
Reading = Literal["joint", "independent", "iid"]
READINGS: tuple[Reading, ...] = get_args(Reading)

SERVER_FAULTY = 0.0233
"""Mean share of faulty servers of 8 GPUs that the paper prints (P8)."""
HALF_FAULTY = 1 - (1 - SERVER_FAULTY) ** 0.5
"""Share of faulty nodes of 4 GPUs that follows (P4), 1.17 %."""
HALF_IF_SERVER = 0.0117 / SERVER_FAULTY
"""Printed probability that a node of 4 is faulty if its server is: 50.21 %, from rounded shares."""
BOTH_IF_SERVER = HALF_FAULTY**2 / SERVER_FAULTY
"""Probability that both are."""

STAND_IN_SERVERS, STAND_IN_DAYS = 400, 348.0
STAND_IN_STARTS = (30, 30, 150, 150, 30, 30, 30, 30, 30, 30, 22, 22)
"""Mean number of faults that start in each twelfth of the window."""
STAND_IN_SHAPE = 0.93
"""Of the gamma distribution of how often a server fails."""
STAND_IN_REPAIR = 0.85, 2.08, 131.0
"""Median [days], sigma and longest [days] of the log-normal repair times."""


@dataclass(frozen=True, eq=False)
class FaultTrace:
    """Faults of a cluster's nodes; row f of the arrays is fault f."""

    name: str
    """What it is called in tables: the file, or that it is synthetic."""
    nodes: int
    """How many nodes there are, those that never fail included."""
    window_days: float
    """The study looks at [0, window)."""
    node: NDArray[np.int64]
    """Which node, counted from 0."""
    start_days: Days
    """When a fault starts."""
    end_days: Days
    """When it is repaired; not before its start, and it may be beyond the window."""
    synthetic: bool = False
    """Whether it was generated, not measured."""

    def __post_init__(self) -> None:
        """Refuse impossible faults with a TraceError."""
        if not len(self.node) == len(self.start_days) == len(self.end_days):
            raise TraceError(f"{self.name}: faults without a node, a start or an end", "give all three")
        if len(self.node) and not 0 <= self.node.min() <= self.node.max() < self.nodes:
            raise TraceError(f"{self.name}: a fault of a node beyond {self.nodes} nodes")
        if (self.end_days < self.start_days).any():
            raise TraceError(f"{self.name}: a fault that ends before it starts")

    @property
    def mean_repair_days(self) -> float:
        """The mean time from the start of a fault to its end."""
        return float((self.end_days - self.start_days).mean()) if len(self.node) else 0.0

    def with_repair(self, repair_days: float) -> "FaultTrace":
        """Return the trace with the same time of repair for every fault."""
        return replace(self, end_days=self.start_days + repair_days)


def timeline(trace: FaultTrace) -> tuple[Days, NDArray[np.bool_]]:
    """Return the states of a window: how long each lasts, and which nodes are faulty.

    Returns
    -------
    tuple
        Lengths [days] that sum to the window, and states x nodes.
    """
    inside = (trace.start_days < trace.window_days) & (trace.end_days >= 0)
    node = trace.node[inside]
    starts = trace.start_days[inside].clip(min=0)
    ends = trace.end_days[inside].clip(max=trace.window_days)
    edges = np.unique(np.concatenate([[0.0, trace.window_days], starts, ends]))
    changes = np.zeros((len(edges), trace.nodes), dtype=np.int32)
    np.add.at(changes, (np.searchsorted(edges, starts), node), 1)
    np.add.at(changes, (np.searchsorted(edges, ends), node), -1)
    # A node may have a fault inside another; it is faulty until the last of them ends.
    return np.diff(edges), changes[:-1].cumsum(axis=0) > 0


def drawn_servers(trace: FaultTrace, servers: int, rng: np.random.Generator) -> FaultTrace:
    """Return the trace of so many servers of a cluster, drawn at random and in random order.

    Raises
    ------
    TraceError
        If the trace has fewer servers.
    """
    if not 1 <= servers <= trace.nodes:
        raise TraceError(
            f"{servers} servers of a trace with {trace.nodes}", "take as many as it has, or less"
        )
    place = np.full(trace.nodes, -1)
    place[rng.permutation(trace.nodes)[:servers]] = np.arange(servers)
    kept = place[trace.node] >= 0
    return replace(
        trace,
        nodes=servers,
        node=place[trace.node[kept]],
        start_days=trace.start_days[kept],
        end_days=trace.end_days[kept],
    )


def half_nodes(
    trace: FaultTrace, servers: int, rng: np.random.Generator, reading: Reading = "joint"
) -> FaultTrace:
    """Return the trace of a cluster of nodes of half a server.

    Parameters
    ----------
    trace
        Of servers.
    servers
        How many of them the cluster has: drawn at random, in random order. The server at place L
        becomes the nodes 2L and 2L + 1.
    rng
        Draws the servers, their order, and which halves every fault holds.
    reading
        How halves are drawn, as above.

    Raises
    ------
    TraceError
        If the trace has fewer servers, or there is no such reading.
    """
    if reading not in READINGS:
        raise TraceError(f"unknown reading {reading!r}", f"take one of {', '.join(READINGS)}")
    drawn = drawn_servers(trace, servers, rng)
    node, start, end = drawn.node, drawn.start_days, drawn.end_days
    halves = _halves(len(node), rng, reading)
    half = np.concatenate([2 * node[halves[:, side]] + side for side in (0, 1)])
    if reading == "iid":
        half = rng.permutation(2 * servers)[half]
    return replace(
        trace,
        nodes=2 * servers,
        node=half,
        start_days=np.concatenate([start[halves[:, side]] for side in (0, 1)]),
        end_days=np.concatenate([end[halves[:, side]] for side in (0, 1)]),
    )


def uniform_faults(nodes: int, counts: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a state of exactly so many faulty nodes for each count, uniformly drawn.

    The states are nested: the faulty nodes of a smaller count are faulty in a larger one, which makes
    curves over the count smooth.
    """
    return rng.permutation(nodes) < counts[:, None]


def stand_in_trace(rng: np.random.Generator) -> FaultTrace:
    """Return a synthetic trace with the statistics of InfiniteHBD's: about 583 faults of 400 servers.

    Notes
    -----
    Servers fail as often as a gamma distribution says; starts are Poisson, with five times as many in
    the third and fourth of twelve parts of the window; repair times are log-normal and cut.
    """
    starts_in = rng.poisson(STAND_IN_STARTS)
    faults = int(starts_in.sum())
    part_days = STAND_IN_DAYS / len(STAND_IN_STARTS)
    start = part_days * (np.repeat(np.arange(len(starts_in)), starts_in) + rng.random(faults))
    weights = rng.gamma(STAND_IN_SHAPE, size=STAND_IN_SERVERS)
    median, sigma, longest = STAND_IN_REPAIR
    repair = rng.lognormal(np.log(median), sigma, faults).clip(max=longest)
    node = rng.choice(STAND_IN_SERVERS, faults, p=weights / weights.sum())
    return FaultTrace(
        "synthetic stand-in", STAND_IN_SERVERS, STAND_IN_DAYS, node, start, start + repair, synthetic=True
    )


def weighted_quantile(values: NDArray[np.floating], weights: Days, share: float) -> float:
    """Return the least value that is not exceeded for a share of the time; weights are durations.

    Examples
    --------
    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 98.0, 1.0]), 0.99)
    2.0
    """
    # Slightly less, or rounding of the sum would select the next value.
    return float(np.quantile(values, share * (1 - 1e-12), weights=weights, method="inverted_cdf"))


def _halves(faults: int, rng: np.random.Generator, reading: Reading) -> NDArray[np.bool_]:
    """Return which halves each fault holds: faults x 2."""
    if reading != "joint":
        return rng.random((faults, 2)) < HALF_IF_SERVER
    first = rng.random(faults) < 0.5
    both = rng.random(faults) < BOTH_IF_SERVER
    return np.stack([first | both, ~first | both], axis=1)
