"""InfiniteHBD's orchestration on an emulated DCN (section 6.4): what of a job's traffic leaves its ToRs."""

import _checkout  # first: runs this file under the checkout's Python

from typing import Annotated

import typer

from controller.schedulers.infinitehbd import FatTree
from scenarios._harness import Scenario, no_claims, run
from scenarios._infinitehbd.crossing import Setting, crossings, drawn_faults
from scenarios._infinitehbd.crossing_report import crossing_findings
from scenarios._options import shares
from topologies.errors import ScenarioError

Nodes = Annotated[int, typer.Option(help="Nodes of the cluster, each a server with one NIC on its ToR.")]
TorNodes = Annotated[int, typer.Option(help="Nodes under a ToR; 2 is fitted to the paper.")]
DomainNodes = Annotated[int, typer.Option(help="Nodes of a domain of the aggregation layer.")]
Gpus = Annotated[int, typer.Option(help="GPUs of a node.")]
Tp = Annotated[int, typer.Option(help="GPUs of a TP group, whole nodes.")]
Hops = Annotated[int, typer.Option(help="K, how far a bundle reaches along the line of nodes.")]
Faulty = Annotated[int, typer.Option(help="Faulty nodes, drawn uniformly.")]
Shares = Annotated[
    str, typer.Option("--job", help="Sizes of the job, comma-separated [% of all GPUs, faulty ones too].")
]
Seed = Annotated[int, typer.Option(help="Draws the faulty nodes, shuffles, and is of the switches' hash.")]


def infinitehbd_dcn(
    nodes: Nodes = 32,
    tor_nodes: TorNodes = 2,
    domain_nodes: DomainNodes = 16,
    gpus: Gpus = 8,
    tp: Tp = 16,
    hops: Hops = 3,
    faulty: Faulty = 3,
    job: Shares = "75,90",
    seed: Seed = 0,
) -> Scenario:
    """Cross-ToR traffic of a job around faulty nodes: placed by InfiniteHBD's orchestration, or without it.

    TP groups exchange inside the HBD; what is left goes over the DCN, here leaves and spines, and stays
    under a ToR where equal ranks of a job's groups do. X_mate is the share that leaves it however ranks are
    numbered, X_rank that between ranks as they are (InfiniteHBD, section 6.4, which defines neither).
    Expect what goes over the ToRs' uplinks to be what the orchestration counts: nothing where the
    constrained placement has room for the job, as much as without it where faults leave no choice.
    """
    if not 0 <= faulty < nodes:
        raise ScenarioError(f"{faulty} faulty nodes of {nodes}", "leave some that work")
    percents = shares(job)
    if not all(0 < percent <= 100 for percent in percents):
        raise ScenarioError(f"a job of {job} % of the GPUs", "give shares above 0, and at most 100")
    tree = FatTree(nodes, tor_nodes, domain_nodes)
    settings = [
        Setting(tree, drawn_faults(nodes, faulty, seed), hops, gpus, tp, percent / 100)
        for percent in dict.fromkeys(percents)
    ]
    points = [each for setting in settings for each in crossings(setting, seed)]
    return Scenario(
        "infinitehbd_dcn",
        "InfiniteHBD: cross-ToR traffic of orchestrated jobs",
        [point.experiment for point in points],
        no_claims,
        "nodes",
        findings=crossing_findings(points),
    )


if __name__ == "__main__":
    run(infinitehbd_dcn)
