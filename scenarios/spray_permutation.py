"""Permutations and incasts over a fat-tree, flow by flow and packet by packet (REPS; Ultra Ethernet)."""

import _checkout  # first: runs this file under the checkout's Python

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scenarios._rails.claims_spray import spray_claims
from testbed.experiment.experiment import Experiment
from testbed.report.claims import Claim
from testbed.study.options import check_effect
from testbed.study.output import say
from testbed.study.study_options import run_file
from topologies.errors import ScenarioError, TraceError
from topologies.fabric import Fabric
from traffic.demand import Demand
from traffic.job import Job
from traffic.readers.htsim import StartUnit, read_htsim
from traffic.readers.text import MAX_GPUS
from traffic.steps import demands_of, single
from traffic.workloads.datasets import NO_TRACE, dataset_path
from traffic.workloads.placement import placed

PatternName = Literal["permutation", "incast"]
DATA_SETS: dict[PatternName, str] = {
    "permutation": "htsim/perm_16n_16c_2MB.cm",
    "incast": "htsim/incast.cm",
}
"""htsim's connections of each pattern."""
DATA_SET_SERVERS = 16
"""Between how many servers they are."""
FLOW_BYTES = 2_000_000
"""Of each flow, there and where connections are made up [bytes]."""


def flows(
    fabric: Fabric,
    seed: int,
    *,
    pattern: PatternName | None = None,
    connections: str | None = None,
    start_unit: StartUnit | None = None,
) -> Job:
    """Return connections between servers of one NIC each.

    Parameters
    ----------
    fabric, seed
        The servers, and what draws a permutation.
    pattern
        permutation, by default: every server sends to one; incast: all others send to the last.
    connections
        A connection matrix of htsim (.cm) to replay instead; none for made-up connections. By default
        htsim's own of 16 servers, or made up.
    start_unit
        The unit of that file's starts, us or ps; needed where its connections start at different times.
    """
    if connections not in (None, NO_TRACE):
        check_effect("the connections are a file's", {"the pattern": pattern})
        return _placed(Path(connections), fabric, start_unit)
    check_effect("all connections start together", {"the unit of starts": start_unit})
    pattern = pattern or "permutation"
    if fabric.gpus > MAX_GPUS:
        raise ScenarioError(f"flows between {fabric.gpus} servers", f"give at most {MAX_GPUS}")
    has_set = connections is None and fabric.gpus == DATA_SET_SERVERS
    found = _data_set(pattern) if has_set else None
    return made_up(pattern, fabric.gpus, seed) if found is None else _placed(found, fabric)


def permutation_claims(table: pd.DataFrame, points: Sequence[Experiment]) -> list[Claim]:
    """Return what a summary says of permutations; nothing of other connections."""
    jobs = dict.fromkeys(point.job for point in points)
    return [claim for job in jobs if is_permutation(job) for claim in spray_claims(table, job.name)]


def made_up(pattern: PatternName, servers: int, seed: int) -> Job:
    """Return connections of 2 MB between so many servers: a permutation is drawn by the seed."""
    matrix = np.zeros((servers, servers), dtype=np.int64)
    if pattern == "incast":
        matrix[:-1, -1] = FLOW_BYTES
        note = "synthetic: all others send 2 MB to the last server"
    else:
        matrix[np.arange(servers), derangement(servers, np.random.default_rng(seed))] = FLOW_BYTES
        note = "synthetic: every server sends 2 MB to another, drawn by the seed"
    return single(Demand(f"synthetic {pattern}", matrix, note))


def derangement(size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a random order of 0 .. size - 1 that leaves none in its place; every such one is as likely.

    Parameters
    ----------
    size
        At least 2.
    rng
        What it is drawn from, 2.7 times on average.
    """
    while True:
        drawn = rng.permutation(size)
        if (drawn != np.arange(size)).all():
            return drawn


def is_permutation(job: Job) -> bool:
    """Return whether every server sends to one at most and receives from one at most, in each step."""
    ends = [np.count_nonzero(demand.matrix, axis=axis) for demand in demands_of(job) for axis in (0, 1)]
    return bool(ends) and all((each <= 1).all() for each in ends)


def _data_set(pattern: PatternName) -> Path | None:
    """Return htsim's file of a pattern, where it is found."""
    try:
        return dataset_path(DATA_SETS[pattern], None)
    except TraceError as error:
        _say_once(f"{error}; going on with a synthetic {pattern}")
        return None


@cache
def _say_once(sentence: str) -> None:
    """Say what would be said for every seed."""
    say(sentence)


@cache
def _placed(path: Path, fabric: Fabric, start_unit: StartUnit | None = None) -> Job:
    return placed(read_htsim(path, start_unit=start_unit), fabric)


if __name__ == "__main__":
    run_file(__file__)
