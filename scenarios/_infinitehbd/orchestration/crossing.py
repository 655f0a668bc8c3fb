"""Orchestrated jobs' CP traffic on an emulated DCN with oversubscribed ToRs, where crossing costs time.

A node of the cluster is a server with one NIC under its ToR; what TP groups exchange inside the HBD is
not sent. One spine joins the ToRs: there is no choice of paths, and no hash in what a job takes.
"""

from dataclasses import dataclass

import numpy as np

from controller.schedulers.infinitehbd import (
    FatTree,
    least_crossing_share,
    rank_crossing_share,
    rank_pairs,
)
from scenarios._infinitehbd.orchestration.placements import (
    BEST,
    SHUFFLED,
    JobRequest,
    OrchestratedCluster,
    drawn_faults,
    numbered,
    placed,
)
from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.leaf_spine import leaf_spine_fabric
from traffic.bounds import busiest_server_s, server_matrix
from traffic.collectives.point_to_point import PointToPoint
from traffic.job import Collective, Job
from traffic.metrics import nic_sent_bytes, uplink_bytes

NIC_BPS = 400e9
"""Of the DCN, as in the paper's section 6.3 [bit/s]."""
MESSAGE_BYTES = 100_000_000
"""Bytes that a node owes its peer; all shares are the same for any size."""


@dataclass(frozen=True)
class CpTraffic:
    """A job's CP traffic, the share of it that leaves its ToR, and what it takes at least."""

    experiment: Experiment
    request: JobRequest
    oversubscription: float
    """Of the ToRs."""
    numbering: str
    """``BEST`` or ``RANKED``: how the job's ranks are numbered."""
    placement: str
    least: float
    """The share that no numbering is below, 0..1."""
    share: float
    """The share of this numbering, counted by ranks, 0..1."""
    nic_s: float
    """Bytes over the rate of the busiest NIC [s]: what the job takes if nothing crosses."""
    busiest_s: float
    """The same of the busiest link, those between ToRs and spine included [s]."""


def crossings_around_faults(
    nodes: int,
    tor_nodes: int,
    domain_nodes: int,
    node_gpus: int,
    tp: int,
    hops: int,
    faulty: int,
    job_percent: list[float],
    oversubscription: float,
    seed: int,
) -> list[CpTraffic]:
    """Return the `crossings` of jobs of several sizes around nodes that are faulty.

    Parameters
    ----------
    nodes
        Nodes of the cluster.
    tor_nodes
        Nodes under a ToR; 2 is fitted to the paper.
    domain_nodes
        Nodes of a domain of the aggregation layer.
    node_gpus
        R, GPUs of a node.
    tp
        GPUs of a TP group, whole nodes.
    hops
        K, how far a bundle reaches along the line of nodes.
    faulty
        Faulty nodes, drawn uniformly.
    job_percent
        Sizes of the job [% of all GPUs, faulty ones too].
    oversubscription
        What the NICs under a ToR can send, over what its uplinks carry; with 1 crossing costs nothing.
    seed
        Draws the faulty nodes, and shuffles.
    """
    if not 0 <= faulty < nodes:
        raise ScenarioError(f"{faulty} faulty nodes of {nodes}", "leave some that work")
    if oversubscription < 1:
        raise ScenarioError(f"an oversubscription of {oversubscription:g}", "give 1 or more")
    if strange := [percent for percent in job_percent if not 0 < percent <= 100]:
        raise ScenarioError(f"a job of {strange[0]:g} % of the GPUs", "give shares above 0, and at most 100")
    cluster = OrchestratedCluster(nodes, tor_nodes, domain_nodes, node_gpus, tp, hops)
    gone = drawn_faults(nodes, faulty, seed)
    requests = [JobRequest(cluster, gone, percent) for percent in job_percent]
    return [each for request in requests for each in crossings(request, oversubscription, seed)]


def crossings(request: JobRequest, oversubscription: float, seed: int) -> list[CpTraffic]:
    """Return a job's traffic with either numbering, placed in three ways.

    The groups of a shuffled job are those of an unconstrained one: only as they are ranked do they differ.

    Parameters
    ----------
    request
        The cluster and the job.
    oversubscription
        Of the ToRs, as of `dcn`.
    seed
        Shuffles, and is that of the switches' hash.

    Raises
    ------
    ScenarioError
        If the job does not fit between the faults.
    """
    tree = request.cluster.tree
    fabric = dcn(tree, oversubscription)
    nodes, gone = request.tp_groups * request.group_nodes, len(request.faulty)
    note = f"{nodes} of {tree.nodes} nodes send, {gone} are faulty"
    found = []
    for placement, groups in placed(request, seed).items():
        for numbering, ranks in numbered(tree, groups).items():
            if (numbering, placement) == (BEST, SHUFFLED):
                continue
            sent = PointToPoint(tuple((a, b, MESSAGE_BYTES) for a, b in rank_pairs(ranks)))
            name = f"{numbering}, {request.job_percent:g} %"
            job = Job(name, fabric.gpus, (Collective("CP", sent),), note)
            experiment = Experiment(fabric, job, "ecmp", seed=seed, label=placement)
            shares = least_crossing_share(tree, ranks), rank_crossing_share(tree, ranks)
            times_s = _busiest_s(tree, oversubscription, sent, fabric)
            found.append(
                CpTraffic(experiment, request, oversubscription, numbering, placement, *shares, *times_s)
            )
    return found


def dcn(tree: FatTree, oversubscription: float) -> Fabric:
    """Return a leaf for each ToR under one spine, and a server for each node.

    Parameters
    ----------
    tree
        The nodes and their ToRs.
    oversubscription
        What the NICs under a ToR can send, over what its uplink carries.
    """
    uplink_bps = tree.tor_nodes * NIC_BPS / oversubscription
    leaves = tree.nodes // tree.tor_nodes
    return leaf_spine_fabric(tree.nodes, leaves, 1, rate_bps=NIC_BPS, uplink_bps=uplink_bps)


def wire_share(run: Run, fabric: Fabric) -> float:
    """Return the share of what NICs put on the wire that ToRs' uplinks did too, by the ports' counters.

    Both have headers, acknowledgements and what was sent again.
    """
    wire = run.tables.wire
    sent = {run.tables.ports[port]: size for port, size in zip(wire["port"], wire["bytes"], strict=True)}
    return float(uplink_bytes(sent, fabric).sum().sum() / nic_sent_bytes(sent, fabric).sum())


def _busiest_s(
    tree: FatTree, oversubscription: float, sent: PointToPoint, fabric: Fabric
) -> tuple[float, float]:
    """Return the times of the busiest NIC and of the busiest link [s]."""
    moves, tors = sent.lower().moves, tree.nodes // tree.tor_nodes
    nic_s = busiest_server_s(moves, fabric)
    between = (
        server_matrix(moves, fabric).reshape(tors, tree.tor_nodes, tors, tree.tor_nodes).sum(axis=(1, 3))
    )
    np.fill_diagonal(between, 0)
    uplink_bytes = max(between.sum(axis=0).max(), between.sum(axis=1).max())
    return nic_s, max(nic_s, 8 * uplink_bytes * oversubscription / (tree.tor_nodes * NIC_BPS))
