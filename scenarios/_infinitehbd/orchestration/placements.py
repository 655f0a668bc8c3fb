"""Requests to InfiniteHBD's orchestration: a cluster, its faulty nodes and a job, in three placements.

The ranks of each are numbered as they come along its groups, or the best way.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from controller.schedulers.infinitehbd import (
    DOMAIN_NODES,
    GPUS_PER_NODE,
    TOR_NODES,
    CpGroup,
    FatTree,
    best_cp_groups,
    cp_groups,
    orchestrate,
    shuffled_cp_groups,
    unconstrained,
    whole_tp_groups,
)
from topologies.errors import ScenarioError

OPTIMISED, UNCONSTRAINED, SHUFFLED = "optimised", "unconstrained", "shuffled"
PLACEMENTS = (OPTIMISED, UNCONSTRAINED, SHUFFLED)
LEAST, BEST, RANKED = "least", "best", "ranked"
LEAST_TEXT = (
    "Least (X_mate), not attainable: no numbering of ranks is below it, and in general none is as low."
)
BEST_TEXT = "Best (X_best): of all pairs of TP groups and orders of ranks."
RANKED_TEXT = "Ranked (X_rank): ranks as they are along each group."
NOT_BEST_TEXT = "X_best is known for two nodes under a ToR only: with more, its CP groups are a hypergraph's."

MOST_NODES = 1 << 17
"""A million GPUs in nodes of 8."""


@dataclass(frozen=True)
class OrchestratedCluster:
    """A cluster whose jobs are orchestrated; the default is fitted to the paper, which states none."""

    nodes: int = 1024
    """n."""
    tor_nodes: int = TOR_NODES
    """p."""
    domain_nodes: int = DOMAIN_NODES
    """d."""
    node_gpus: int = GPUS_PER_NODE
    """R."""
    tp_gpus: int = 32
    """t."""
    hops: int = 3
    """K."""

    @property
    def gpus(self) -> int:
        """How many GPUs it has."""
        return self.nodes * self.node_gpus

    @property
    def tree(self) -> FatTree:
        """Its ToRs and domains; DemandError where they do not fill it."""
        return FatTree(self.nodes, self.tor_nodes, self.domain_nodes)

    @property
    def is_fitted(self) -> bool:
        """True if it is the one that is fitted to the paper."""
        return self == OrchestratedCluster()


@dataclass(frozen=True)
class JobRequest:
    """A cluster, what of it is faulty, and a job."""

    cluster: OrchestratedCluster
    faulty: AbstractSet[int]
    job_percent: float
    """Of all GPUs, faulty ones included, that the job asks for."""

    @property
    def group_nodes(self) -> int:
        """m, nodes of a TP group."""
        return self.cluster.tp_gpus // self.cluster.node_gpus

    @property
    def tp_groups(self) -> int:
        """How many TP groups the job takes: whole CP groups."""
        gpus = int(percent_of(self.job_percent, self.cluster.gpus))
        return whole_tp_groups(self.cluster.tree, gpus, self.cluster.tp_gpus)


def percent_of(percent: float, whole: int) -> Fraction:
    """Return a percentage of a number, exactly as its decimal digits say.

    In floating point 0.29 of 100 is less than 29, and a job can be a TP group short.

    Examples
    --------
    >>> int(percent_of(29, 100)), int(0.29 * 100)
    (29, 28)
    """
    return Fraction(str(percent)) * whole / 100


def drawn_faults(nodes: int, faulty: int, seed: int) -> frozenset[int]:
    """Return faulty nodes, drawn uniformly without replacement; ScenarioError for a negative seed."""
    if seed < 0:
        raise ScenarioError(f"seed {seed}", "give seeds from 0")
    if nodes > MOST_NODES:
        raise ScenarioError(f"{nodes:,} nodes", f"take {MOST_NODES:,} at most")
    return frozenset(np.random.default_rng(seed).choice(nodes, faulty, replace=False).tolist())


def placed(request: JobRequest, seed: int) -> dict[str, Sequence[CpGroup]]:
    """Return a job placed in each of ``PLACEMENTS``.

    Parameters
    ----------
    request
        The cluster and the job.
    seed
        Shuffles.

    Raises
    ------
    ScenarioError
        If the job does not fit between the faults, or is less than a CP group, or ToRs have one node each.
    """
    cluster, groups = request.cluster, request.tp_groups
    tree, gpus = cluster.tree, cluster.node_gpus
    if not 2 <= cluster.hops <= gpus:
        raise ScenarioError(
            f"K = {cluster.hops} on nodes of {gpus} GPUs", "take 2 up to as many bundles as a node has GPUs"
        )
    if tree.tor_nodes < 2:
        raise ScenarioError("under a ToR of one node nothing stays", "give two nodes or more under a ToR")
    optimised = orchestrate(
        tree,
        request.faulty,
        hops=cluster.hops,
        gpus_per_node=gpus,
        tp_gpus=cluster.tp_gpus,
        job_gpus=max(groups, 1) * cluster.tp_gpus,
    )
    if optimised is None or not groups:
        raise ScenarioError(
            f"a job of {groups} TP groups does not fit around {len(request.faulty)} of {tree.nodes} nodes",
            "take fewer faults, a larger cluster, or another share",
        )
    free = unconstrained(tree, request.faulty, cluster.hops, request.group_nodes)
    return {
        OPTIMISED: cp_groups(tree, optimised, groups),
        UNCONSTRAINED: cp_groups(tree, free, groups),
        SHUFFLED: shuffled_cp_groups(tree, free, groups, np.random.default_rng(seed)),
    }


def numbered(tree: FatTree, job: Sequence[CpGroup]) -> Mapping[str, Sequence[CpGroup]]:
    """Return a job's CP groups by how ranks are numbered; without the best where that is not known."""
    best = {BEST: best_cp_groups(tree, job)} if tree.tor_nodes == 2 else {}
    return {**best, RANKED: job}
