"""Cross-ToR traffic of orchestrated jobs by cluster, job and faults (figures 17a to 17c), counted exactly.

Faulty nodes are drawn uniformly, so many of them. Each job is placed in three ways, and of each placement
three shares are counted (`scenarios._infinitehbd.orchestration.placements`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from controller.schedulers.infinitehbd import least_crossing_share, rank_crossing_share
from scenarios._infinitehbd.orchestration.placements import (
    BEST,
    LEAST,
    RANKED,
    JobRequest,
    OrchestratedCluster,
    drawn_faults,
    numbered,
    percent_of,
    placed,
)
from testbed.study.call_json import Row
from testbed.study.computed import Call, Found

MEASURES = (LEAST, BEST, RANKED)
HALVES = (1, 2, 4, 8)
"""Sizes of figure 17a, over half the cluster of the two others."""
JOBS = (50, 60, 70, 80, 85, 90)
"""Of figure 17b [% of all GPUs]."""
FAULTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
"""Of figure 17c [% of the nodes]."""
JOB, FAULTY = 90, 5
"""Of figure 17a, which does not state them: those of its number, 1.72 % [%]."""
MAIN_JOB = 85
"""Of figure 17c [%]."""
FIGURES = {"17a": "gpus", "17b": "job", "17c": "faulty"}
"""The figures, and the column of the table that each is over."""


@dataclass(frozen=True)
class FigurePoint:
    """A cluster with so many faulty nodes and a job of a size."""

    cluster: OrchestratedCluster
    job: int
    """[% of all GPUs]."""
    faulty: int
    """[% of the nodes]."""

    def request(self, seed: int) -> JobRequest:
        """Return it with faulty nodes that a seed draws."""
        nodes = self.cluster.tree.nodes
        faulty = drawn_faults(nodes, round(percent_of(self.faulty, nodes)), seed)
        return JobRequest(self.cluster, faulty, self.job)


@dataclass(frozen=True, eq=False)
class OrchestrationStudy:
    """Counted shares of three figures."""

    cluster: OrchestratedCluster
    """Of figures 17b and 17c."""
    seeds: int
    table: pd.DataFrame
    """A row per figure, point, placement and seed; shares are 0..1, NaN where they are not known."""


def calls_of(cluster: OrchestratedCluster, seeds: Sequence[int]) -> list[Call]:
    """Return the points of three figures, each for each seed."""
    return [Call(counted_rows, each) for each in _drawn(cluster, seeds)]


def study_of(cluster: OrchestratedCluster, seeds: Sequence[int], found: Found) -> OrchestrationStudy:
    """Return the three figures of a cluster, from what came of `calls_of` it."""
    counted = dict(zip(_drawn(cluster, seeds), found, strict=True))
    rows = [
        {"figure": figure, **row}
        for figure, points in figure_points(cluster).items()
        for point in points
        for seed in seeds
        for row in counted[point, seed]
    ]
    return OrchestrationStudy(cluster, len(seeds), pd.DataFrame(rows))


def _drawn(cluster: OrchestratedCluster, seeds: Sequence[int]) -> list[tuple[FigurePoint, int]]:
    points = dict.fromkeys(point for points in figure_points(cluster).values() for point in points)
    return [(point, seed) for seed in seeds for point in points]


def figure_points(cluster: OrchestratedCluster) -> dict[str, list[FigurePoint]]:
    """Return the points of each figure, in order."""
    sizes = [replace(cluster, nodes=cluster.nodes * halves // 2) for halves in HALVES]
    return {
        "17a": [FigurePoint(size, JOB, FAULTY) for size in sizes],
        "17b": [FigurePoint(cluster, job, FAULTY) for job in JOBS],
        "17c": [FigurePoint(cluster, MAIN_JOB, faulty) for faulty in FAULTS],
    }


def counted_rows(point: FigurePoint, seed: int) -> list[Row]:
    """Return a row per placement of a point with a seed; ScenarioError if its job does not fit in."""
    request = point.request(seed)
    tree = request.cluster.tree
    rows: list[Row] = []
    for placement, job in placed(request, seed).items():
        shares = {name: rank_crossing_share(tree, groups) for name, groups in numbered(tree, job).items()}
        measures = {BEST: math.nan} | shares | {LEAST: least_crossing_share(tree, job)}
        rows.append(
            {
                "gpus": point.cluster.gpus,
                "job": point.job,
                "faulty": point.faulty,
                "placement": placement,
                "seed": seed,
                "verdict": "model",
                **{name: measures[name] for name in MEASURES},
            }
        )
    return rows
