"""InfiniteHBD's orchestration by cluster size, job and faults (figures 17a to 17c): what leaves its ToR."""

import _checkout  # first: runs this file under the checkout's Python

from typing import Annotated

import typer

from scenarios._infinitehbd.orchestration.placements import OrchestratedCluster
from scenarios._infinitehbd.orchestration.report import orchestration_report
from scenarios._infinitehbd.orchestration.study import calls_of, study_of
from testbed.report.page import counted
from testbed.study.command import run_computed
from testbed.study.computed import ComputedStudy
from testbed.study.options import seed_range
from topologies.errors import ScenarioError

Nodes = Annotated[int, typer.Option(help="Nodes of the cluster, or of the K-hop ring.")]
NodeGpus = Annotated[int, typer.Option(help="R, GPUs of a node; over circuits it has as many bundles.")]
TorNodes = Annotated[int, typer.Option(help="Nodes under a ToR; 2 is fitted to the paper.")]
DomainNodes = Annotated[int, typer.Option(help="Nodes of a domain of the aggregation layer.")]
Tp = Annotated[int, typer.Option(help="GPUs of a TP group, whole nodes.")]
Hops = Annotated[int, typer.Option(help="K, how far a bundle reaches along the line of nodes.")]
Seeds = Annotated[int, typer.Option(help="How many seeds; each draws the faulty nodes, and shuffles.")]
FITTED = OrchestratedCluster()


def infinitehbd_orchestration(
    nodes: Nodes = FITTED.nodes,
    tor_nodes: TorNodes = FITTED.tor_nodes,
    domain_nodes: DomainNodes = FITTED.domain_nodes,
    node_gpus: NodeGpus = FITTED.node_gpus,
    tp: Tp = FITTED.tp_gpus,
    hops: Hops = FITTED.hops,
    seeds: Seeds = 20,
) -> ComputedStudy:
    """Jobs around faulty nodes: how much of their traffic leaves its ToR, orchestrated or not.

    No network: groups are placed by InfiniteHBD's orchestration, without its constraints, and shuffled, and
    what crosses ToRs is counted by cluster size, job and faulty nodes (InfiniteHBD, section 6.4, figures 17a
    to 17c). The paper defines neither its setting nor what it counts. The cluster here is fitted to it, and
    so is the least share, which no pairs of groups and no ranks attain in general; expect that to be 1.5 to
    2 % for a job of 90 % at 5 % of faulty nodes, beside 7 to 8 % for the best pairs and ranks, and 20 % for
    ranks as they are.
    """
    drawn = seed_range(seeds)
    cluster = checked(OrchestratedCluster(nodes, tor_nodes, domain_nodes, node_gpus, tp, hops))
    return ComputedStudy(
        "infinitehbd_orchestration",
        "InfiniteHBD: cross-ToR traffic by cluster size, job and faults",
        calls_of(cluster, drawn),
        lambda found: orchestration_report(study_of(cluster, drawn, found)),
    )


def checked(cluster: OrchestratedCluster) -> OrchestratedCluster:
    """Return a cluster; ScenarioError or DemandError if figure 17a cannot have half of it in domains."""
    domains = cluster.tree.domains
    if domains % 2:
        raise ScenarioError(
            f"{counted(domains, 'domain')}, of which figure 17a needs half too",
            "give nodes in an even number of domains",
        )
    return cluster


if __name__ == "__main__":
    run_computed(infinitehbd_orchestration)
