"""How fast a job can be at best: a bound for each node, and one for the whole."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import reduce
from graphlib import TopologicalSorter
from itertools import accumulate
from operator import add

import numpy as np

from topologies.fabric import Fabric, Port
from traffic.bounds import NOTHING_LENT, ServerLoads, lower_bound_s, message_loads, sum_bound_s, sum_loads
from traffic.collectives.pattern import Pattern, end_to_end
from traffic.collectives.ring import Ring
from traffic.job import Compute, Job
from traffic.messages import Messages


def node_bounds_s(
    job: Job,
    fabric: Fabric,
    lent_bytes: Mapping[Port, float] = NOTHING_LENT,
    gone: Collection[int] = (),
    *,
    forwarded: bool = False,
) -> dict[str, float]:
    """Return how long each node takes at least, by its name [s].

    A compute takes as long as its slowest GPU. A collective takes no less than all that it owes from end
    to end at once (`traffic.bounds.lower_bound_s`), whatever waits for what, and a ring no less than any sum
    of its bytes between its members (`sum_bound_s`); one that stays inside servers has the bound 0.

    Parameters
    ----------
    job, fabric
        What runs, and where.
    lent_bytes
        What ports may have lent each collective.
    gone
        GPUs from and to which nothing counts.
    forwarded
        Whether bytes count each time that a GPU passes them on: the time is then the least that the job's
        own patterns take, and no bound of what they owe.
    """
    known: dict[Pattern, float] = {}
    bounds: dict[str, float] = {}
    for node in job.nodes:
        if isinstance(node, Compute):
            bounds[node.name] = max(map(node.on_gpu_s, node.gpus), default=0.0)
            continue
        if node.pattern not in known:  # repeated nodes have equal patterns
            bound_s = _moves_bound_s if forwarded else _owed_bound_s
            known[node.pattern] = bound_s(node.pattern, fabric, lent_bytes, gone)
        bounds[node.name] = known[node.pattern]
    return bounds


def together_bound_s(
    job: Job,
    fabric: Fabric,
    lent_bytes: Mapping[Port, float] = NOTHING_LENT,
    gone: Collection[int] = (),
) -> float:
    """Return when all bytes of a job have arrived at the earliest, whatever goes beside what [s].

    All that leaves or enters a server in all collectives passes its NICs; of those that start at a time or
    later, after that time. GPUs of several servers that stand for each other are left out. Parameters are
    those of `node_bounds_s`.
    """
    known = {pattern: _loads(pattern, fabric, gone) for pattern in {node.pattern for node in job.collectives}}
    starting = defaultdict[float, list[ServerLoads]](list)
    for node in job.collectives:
        starting[node.at_s].append(known[node.pattern])
    starts_s = sorted(starting, reverse=True)
    loads = accumulate((reduce(add, starting[at_s]) for at_s in starts_s), add)
    counts = accumulate(len(starting[at_s]) for at_s in starts_s)
    return max(
        (
            at_s + each.bound_s(fabric, lent_bytes, count)
            for at_s, each, count in zip(starts_s, loads, counts, strict=True)
        ),
        default=0.0,
    )


def _loads(pattern: Pattern, fabric: Fabric, gone: Collection[int]) -> ServerLoads:
    if type(pattern) is Ring:
        return sum_loads(pattern, fabric, gone)
    owed = end_to_end(pattern)
    nobody = Messages(*np.zeros((3, 0), dtype=np.int64))
    return message_loads(nobody if owed.nodes else _between(owed.messages, gone), fabric)


def _owed_bound_s(
    pattern: Pattern, fabric: Fabric, lent_bytes: Mapping[Port, float], gone: Collection[int]
) -> float:
    if type(pattern) is Ring:  # what is derived from it may be no sum
        return sum_bound_s(pattern, fabric, lent_bytes, gone)
    owed = end_to_end(pattern)
    return lower_bound_s(_between(owed.messages, gone), fabric, lent_bytes, owed.nodes)


def _moves_bound_s(
    pattern: Pattern, fabric: Fabric, lent_bytes: Mapping[Port, float], gone: Collection[int]
) -> float:
    return lower_bound_s(_between(pattern.lower(coupled=True).moves, gone), fabric, lent_bytes)


def _between(messages: Messages, gone: Collection[int]) -> Messages:
    """Return the messages that are neither from nor to GPUs that are gone."""
    if not gone:
        return messages
    ends = np.stack([messages.source, messages.destination])
    return messages.select(np.logical_not(np.isin(ends, list(gone)).any(axis=0)))


def communication_bound_s(job: Job, bounds_s: Mapping[str, float]) -> float:
    """Return how long bytes of a job are under way at least: its collectives' longest path [s].

    Waits for nodes' own starts do not count.

    Parameters
    ----------
    job, bounds_s
        As of `job_bound_s`.
    """
    sends_s = {**bounds_s, **{node.name: 0.0 for node in job.nodes if isinstance(node, Compute)}}
    return max(_ends_s(job, sends_s, {}))


def job_bound_s(job: Job, bounds_s: Mapping[str, float]) -> float:
    """Return how long a job takes at least [s]: its longest path, or all computes of its busiest GPU.

    Parameters
    ----------
    job
        A job.
    bounds_s
        How long each of its nodes takes at least: `node_bounds_s`.
    """
    busy_s: defaultdict[int, float] = defaultdict(float)
    for node in job.nodes:
        if isinstance(node, Compute):
            for gpu in node.gpus:
                busy_s[gpu] += node.on_gpu_s(gpu)
    starts_s = {node.name: node.at_s for node in job.nodes}
    return max([*_ends_s(job, bounds_s, starts_s), *busy_s.values()])


def _ends_s(job: Job, takes_s: Mapping[str, float], starts_s: Mapping[str, float]) -> Collection[float]:
    """Return when each node ends if each takes so long, and starts when it may [s]."""
    after = {node.name: node.after for node in job.nodes}
    ends_s: dict[str, float] = {}
    for name in TopologicalSorter(after).static_order():
        ends_s[name] = takes_s[name] + max([starts_s.get(name, 0.0), *map(ends_s.__getitem__, after[name])])
    return ends_s.values()
