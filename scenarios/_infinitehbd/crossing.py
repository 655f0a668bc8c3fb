"""Cross-ToR traffic of orchestrated jobs on an emulated DCN: bytes over ToR uplinks beside X_mate and X_rank.

A node of the cluster is a server with one NIC under its ToR; what TP groups exchange inside the HBD is
not sent. Each job sends the traffic that one of the two figures is the crossing share of.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from controller.schedulers.infinitehbd import (
    CpGroup,
    FatTree,
    cp_groups,
    mate_crossing_share,
    mate_pairs,
    orchestrate,
    rank_crossing_share,
    rank_pairs,
    shuffled_cp_groups,
    unconstrained,
    whole_tp_groups,
)
from testbed.run.experiment import Experiment
from testbed.run.run import Run
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.leaf_spine import leaf_spine_fabric
from traffic.collectives.point_to_point import PointToPoint
from traffic.job import Collective, Job
from traffic.metrics import link_bytes, uplink_bytes

MATES, RANKS = "X_mate", "X_rank"
OPTIMISED, UNCONSTRAINED, SHUFFLED = "optimised", "unconstrained", "shuffled"
NIC_BPS = 400e9
"""Of the DCN, as in the paper's section 6.3 [bit/s]."""
MESSAGE_BYTES = 100_000_000
"""What a node owes each of its peers [bytes]; all shares are the same for any size."""


@dataclass(frozen=True)
class Setting:
    """A cluster, what of it is faulty, and a job."""

    tree: FatTree
    faulty: AbstractSet[int]
    hops: int
    """K."""
    gpus_per_node: int
    """R."""
    tp_gpus: int
    """GPUs of a TP group."""
    share: float
    """Of all GPUs, faulty ones included, that the job asks for, 0..1."""

    @property
    def tp_groups(self) -> int:
        """How many TP groups the job takes: whole CP groups."""
        gpus = int(self.share * self.tree.nodes * self.gpus_per_node)
        return whole_tp_groups(self.tree, gpus, self.tp_gpus)


@dataclass(frozen=True)
class Crossing:
    """A job's traffic, and the share of it that leaves its ToR as the orchestration counts."""

    experiment: Experiment
    setting: Setting
    figure: str
    """``X_mate`` or ``X_rank``."""
    placement: str
    share: float


def crossings(setting: Setting, seed: int) -> list[Crossing]:
    """Return both kinds of traffic of a job, placed in three ways.

    Parameters
    ----------
    setting
        The cluster and the job.
    seed
        Shuffles, and is that of the switches' hash.

    Raises
    ------
    ScenarioError
        If the job does not fit between the faults.
    """
    tree, fabric = setting.tree, dcn(setting.tree)
    return [
        Crossing(_sending(fabric, setting, figure, placement, pairs, seed), setting, figure, placement, share)
        for placement, job in _placed(setting, seed).items()
        for figure, pairs, share in (
            (MATES, mate_pairs(tree, job), mate_crossing_share(tree, job)),
            (RANKS, rank_pairs(job), rank_crossing_share(tree, job)),
        )
    ]


def dcn(tree: FatTree) -> Fabric:
    """Return a non-blocking two-stage fabric with a server for each node, a leaf for each ToR."""
    return leaf_spine_fabric(tree.nodes, tree.nodes // tree.tor_nodes, rate_bps=NIC_BPS)


def crossed_share(run: Run, fabric: Fabric) -> float:
    """Return the share of a run's bytes that went over uplinks of ToRs, by the paths that they took."""
    up = float(uplink_bytes(link_bytes(run.tables), fabric).sum().sum())
    return up / float(run.records["bytes"].sum())


def drawn_faults(nodes: int, faulty: int, seed: int) -> frozenset[int]:
    """Return faulty nodes, drawn uniformly without replacement."""
    return frozenset(np.random.default_rng(seed).choice(nodes, faulty, replace=False).tolist())


def _placed(setting: Setting, seed: int) -> dict[str, Sequence[CpGroup]]:
    tree, groups = setting.tree, setting.tp_groups
    optimised = orchestrate(
        tree,
        setting.faulty,
        hops=setting.hops,
        gpus_per_node=setting.gpus_per_node,
        tp_gpus=setting.tp_gpus,
        job_gpus=max(groups, 1) * setting.tp_gpus,
    )
    if optimised is None or not groups:
        raise ScenarioError(
            f"a job of {groups} TP groups does not fit around {len(setting.faulty)} of {tree.nodes} nodes",
            "take fewer faults, or another share",
        )
    free = unconstrained(tree, setting.faulty, setting.hops, setting.tp_gpus // setting.gpus_per_node)
    return {
        OPTIMISED: cp_groups(tree, optimised, groups),
        UNCONSTRAINED: cp_groups(tree, free, groups),
        SHUFFLED: shuffled_cp_groups(tree, free, groups, np.random.default_rng(seed)),
    }


def _sending(
    fabric: Fabric,
    setting: Setting,
    figure: str,
    placement: str,
    pairs: Sequence[tuple[int, int]],
    seed: int,
) -> Experiment:
    sent = PointToPoint(tuple((a, b, MESSAGE_BYTES) for a, b in pairs))
    nodes = setting.tp_groups * setting.tp_gpus // setting.gpus_per_node
    name = f"{figure}, {setting.share:.0%} of the GPUs"
    note = f"{nodes} of {setting.tree.nodes} nodes send, {len(setting.faulty)} are faulty"
    job = Job(name, fabric.gpus, (Collective("CP", sent),), note)
    return Experiment(fabric, job, "ecmp", seed=seed, label=placement)
