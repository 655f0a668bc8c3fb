"""The fluid model: queue pairs as fluids at max-min fair rates, from event to event until all is delivered.

What it keeps: every link's rate, every queue pair's way, the fair share that TCP approaches when
its round trips are alike. Bytes appear at the receiver when they have crossed the links' delays; what
links lose is sent again at once. What it leaves out: headers, slow start, and that TCP lowers its window
after a loss: with more packets on a path than TCP's response function allows at its loss (1.2 / sqrt(loss):
M. Mathis et al., "The macroscopic behavior of the TCP congestion avoidance algorithm", CCR 1997; RFC 9438,
section 4.3), a long transfer takes longer. An event is a queue pair that ends (or the last of a
pool's bytes); between events all rates are constant, so nothing is stepped through time.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from topologies.errors import FabricError, ScenarioError
from topologies.fabric import Port
from traffic.fluid_network import CurveLog
from traffic.maxmin import max_min_rates
from traffic.messages import Chunks
from traffic.path_effects import PathEffects
from traffic.spraying.policy import Assignment, QueuePair
from traffic.transfers import Curve, Path, Transfers, spans_of_flows

SAME_TIME = 1e-9
"""Ends closer than this part of the time to them are one event: symmetric queue pairs end together."""


def fluid_transfers(
    *,
    rate_bps: Mapping[Port, float],
    queue_pairs: tuple[QueuePair, ...],
    paths: tuple[Path, ...],
    chunks: Chunks,
    assignment: Assignment,
    cap_bps: NDArray[np.float64] | None = None,
    weights: NDArray[np.float64] | None = None,
    effects: PathEffects | None = None,
) -> Transfers:
    """Return when each chunk is delivered if all queue pairs start at 0 and share links max-min fairly.

    Parameters
    ----------
    rate_bps
        Rate of each port that sends [bit/s].
    queue_pairs, paths
        The queue pairs, and the way of each.
    chunks, assignment
        The work, and which queue pair (by its index in ``queue_pairs``) carries what, in which order.
    cap_bps
        What each queue pair is paced to [bit/s]; by default nothing.
    weights
        The weight of each queue pair where it shares a link; by default all alike. In proportion
        to the bytes of each, all queue pairs end together, at the load of the busiest port.
    effects
        The delay and loss of each way; by default there are none.

    Raises
    ------
    FabricError
        If a way is empty or crosses a port that has no rate.
    ScenarioError
        If ways, caps or weights are not one per queue pair, or one is not positive.
    """
    crossings, rates = crossings_of(paths, rate_bps)
    for what, values in (("way", paths), ("cap", cap_bps), ("weight", weights)):
        _check_one_each(what, values, len(queue_pairs))
    owed = np.bincount(assignment.chunk_qp, chunks.bytes, len(queue_pairs)).astype(float)
    alone = np.arange(len(queue_pairs))
    curves = fluid_curves(
        crossings,
        rates,
        pool=alone,
        pool_bytes=owed,
        cap_bps=cap_bps,
        weights=weights,
        delivered=None if effects is None else effects.delivered,
    )
    delay_s = None if effects is None else effects.delay_s
    times = fluid_times(chunks.bytes, assignment.chunk_qp, assignment.order, curves, delay_s)
    return Transfers(queue_pairs, paths, assignment.chunk_qp, *times)


def fluid_times(
    chunk_bytes: NDArray[np.int64],
    chunk_flow: NDArray[np.int64],
    order: NDArray[np.int64],
    curves: Sequence[Curve],
    delay_s: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return when each chunk was sent and delivered by the flow that carries it [s], shapes (chunks,).

    Parameters
    ----------
    chunk_bytes, chunk_flow, order
        As in `spans_of_flows`.
    curves
        The bytes of each flow that got through over time, as they are sent.
    delay_s
        How much later each flow's bytes are delivered, shape (flows,) [s]; by default at once.

    Notes
    -----
    A flow's rate is constant between two points of its curve, so interpolation is exact. A chunk is
    sent when the chunk before it has been.
    """
    sent_s, delivered_s = np.zeros(len(chunk_bytes)), np.zeros(len(chunk_bytes))
    spans = spans_of_flows(chunk_bytes, chunk_flow, order, len(curves))
    later_s = np.zeros(len(curves)) if delay_s is None else delay_s
    for (chunks, begins, ends), (times, counts), later in zip(spans, curves, later_s, strict=True):
        sent_s[chunks] = np.interp(begins, counts, times)
        delivered_s[chunks] = np.interp(ends, counts, times) + later
    return sent_s, delivered_s


def crossings_of(
    paths: Sequence[Path], rate_bps: Mapping[Port, float]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return paths as rows of link numbers, and the rate of each link, as `max_min_rates` takes them.

    Raises
    ------
    FabricError
        If a path is empty or crosses a port that has no rate.
    """
    number: dict[Port, int] = {}
    crossings = np.full((len(paths), max(map(len, paths), default=0)), -1, dtype=np.int64)
    for row, path in enumerate(paths):
        if not path:
            raise FabricError(f"queue pair {row} has no way through the fabric")
        crossings[row, : len(path)] = [number.setdefault(port, len(number)) for port in path]
    for port in number:
        if not rate_bps.get(port, 0.0) > 0:
            raise FabricError(f"a queue pair's way crosses {port}, which has no rate")
    return crossings, np.array([rate_bps[port] for port in number], dtype=float)


def fluid_curves(
    crossings: NDArray[np.int64],
    rate_bps: NDArray[np.float64],
    *,
    pool: NDArray[np.int64],
    pool_bytes: NDArray[np.float64],
    cap_bps: NDArray[np.float64] | None = None,
    weights: NDArray[np.float64] | None = None,
    part_of: NDArray[np.int64] | None = None,
    delivered: NDArray[np.float64] | None = None,
) -> list[Curve]:
    """Return how many bytes of each flow got through over time; straight between the points.

    Parameters
    ----------
    crossings, rate_bps, cap_bps, weights
        As in `max_min_rates`.
    pool
        From which pool each flow takes its bytes, shape (flows,). The flows of a pool stop when
        it is empty; a queue pair with chunks of its own is the only flow of its pool.
    pool_bytes
        What each pool holds at the start [bytes].
    part_of
        Which queue pair each flow is a part of, shape (flows,): those of one that still flow share
        its weight evenly. By default each flow is a whole one.
    delivered
        Which part of what each flow sends gets through, shape (flows,); by default all.
    """
    weight = np.ones(len(pool)) if weights is None else weights
    whole = np.arange(len(pool)) if part_of is None else part_of
    through = np.ones(len(pool)) if delivered is None else delivered
    left = pool_bytes * 8.0
    rates, counts, now = np.zeros(len(pool)), np.zeros(len(pool)), 0.0
    log = CurveLog(len(pool))
    flows = np.flatnonzero(left[pool] > 0)
    while len(flows):
        fair = max_min_rates(
            crossings[flows],
            rate_bps,
            weights=weight[flows] / np.bincount(whole[flows])[whole[flows]],
            cap_bps=None if cap_bps is None else cap_bps[flows],
        )
        log.add(now, flows[np.abs(fair - rates[flows]) > SAME_TIME * fair], counts)
        rates[flows] = fair
        good = fair * through[flows]
        drain = np.bincount(pool[flows], good, len(left))
        lasts = np.divide(left, drain, out=np.full(len(left), np.inf), where=left > 0)
        until = float(lasts.min())
        now += until
        counts[flows] += good * (until / 8.0)
        left = np.where(lasts > until + SAME_TIME * now, left - drain * until, 0.0)
        ended = left[pool[flows]] == 0
        log.add(now, flows[ended], counts)
        flows = flows[~ended]
    return log.curves()


def _check_one_each(what: str, values: Sequence[object] | NDArray[np.float64] | None, count: int) -> None:
    if values is None:
        return
    if len(values) != count:
        raise ScenarioError(f"{len(values)} {what}s for {count} queue pairs", f"give one {what} each")
    if isinstance(values, np.ndarray) and not (values > 0).all():
        raise ScenarioError(f"a {what} of {values.min():g} for a queue pair", f"give each a positive {what}")
