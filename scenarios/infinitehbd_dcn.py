"""InfiniteHBD's orchestration on an emulated DCN (section 6.4): what of a job's traffic leaves its ToRs."""

import _checkout  # first: runs this file under the checkout's Python

import math
from typing import Annotated

import typer

from controller.schedulers.infinitehbd import FatTree
from scenarios._infinitehbd.crossing import crossings
from scenarios._infinitehbd.crossing_report import crossing_findings
from scenarios._infinitehbd.options import DomainNodes, Hops, NodeGpus, Nodes, TorNodes, Tp
from scenarios._infinitehbd.setting import UNCONSTRAINED, Setting, drawn_faults
from testbed.study.command import run
from testbed.study.options import shares
from testbed.study.study import Study, no_claims
from topologies.errors import ScenarioError

NIC_BPS = 50e6
"""What NICs are shaped to at most, unless asked for [bit/s]. At 85 Mbit/s jobs that stay under ToRs keep
the engine busy to nine tenths, and two of six took 1.18 times what their NICs need; at 50 six took 1.01 to
1.02 times that."""
Faulty = Annotated[int, typer.Option(help="Faulty nodes, drawn uniformly.")]
Shares = Annotated[
    str, typer.Option(help="Sizes of the job, comma-separated [% of all GPUs, faulty ones too].")
]
Oversubscription = Annotated[
    float,
    typer.Option(
        help="What the NICs under a ToR can send, over what its uplinks carry; with 1 crossing costs nothing."
    ),
]
Seed = Annotated[int, typer.Option(help="Draws the faulty nodes, and shuffles.")]


def infinitehbd_dcn(
    nodes: Nodes = 32,
    tor_nodes: TorNodes = 2,
    domain_nodes: DomainNodes = 16,
    node_gpus: NodeGpus = 8,
    tp: Tp = 16,
    hops: Hops = 3,
    faulty: Faulty = 3,
    job_percent: Shares = "75,90",
    oversubscription: Oversubscription = 4.0,
    seed: Seed = 0,
) -> Study:
    """Cross-ToR traffic of a job around faulty nodes: placed by InfiniteHBD's orchestration, or without it.

    TP groups exchange inside the HBD; what is left goes over the DCN, here leaves under a spine, a server
    for each node, and stays under a ToR where equal ranks of a job's groups do (InfiniteHBD, section 6.4,
    which does not define what it counts). Ranks are numbered along the groups, or the best way. Expect
    uplinks' counters to have what is counted: nothing where the constrained placement has room for the job,
    which then takes what its NICs need. Elsewhere the last message takes up to the oversubscription times as
    long with any placement, since one full uplink is enough for that; the mean grows with what crosses.
    """
    if not 0 <= faulty < nodes:
        raise ScenarioError(f"{faulty} faulty nodes of {nodes}", "leave some that work")
    if not (1 <= oversubscription < math.inf):
        raise ScenarioError(f"an oversubscription of {oversubscription:g}", "give 1 or more")
    percents = shares(job_percent)
    if not all(0 < percent <= 100 for percent in percents):
        raise ScenarioError(f"a job of {job_percent} % of the GPUs", "give shares above 0, and at most 100")
    tree = FatTree(nodes, tor_nodes, domain_nodes)
    settings = [
        Setting(tree, drawn_faults(nodes, faulty, seed), hops, node_gpus, tp, percent)
        for percent in {f"{percent:g}": percent for percent in percents}.values()
    ]
    points = [each for setting in settings for each in crossings(setting, oversubscription, seed)]
    return Study(
        "infinitehbd_dcn",
        "InfiniteHBD: cross-ToR traffic of orchestrated jobs",
        [point.experiment for point in points],
        no_claims,
        findings=crossing_findings(points, oversubscription),
        baseline=UNCONSTRAINED,
        most_nic_bps=NIC_BPS,
    )


if __name__ == "__main__":
    run(infinitehbd_dcn)
