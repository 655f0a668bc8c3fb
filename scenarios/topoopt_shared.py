"""TopoOpt on a cluster that jobs share: iteration times over load, and shards that flip (section 5.6)."""

import _checkout  # first: runs this file under the checkout's Python

from collections.abc import Iterable
from functools import partial
from inspect import signature
from typing import Annotated

import typer

from scenarios._topoopt.shared.points import (
    MIXES,
    OF_EXCHANGE,
    PATHS,
    SHARD,
    SharedCluster,
    calls_of,
    points_of,
)
from scenarios._topoopt.shared.report import cost_sentence, shared_report
from scenarios._topoopt.shared.shards import shards_experiment, shards_findings
from testbed.study.command import run_computed
from testbed.study.computed import ComputedStudy
from testbed.study.options import check_effect, nic_bps, seed_range, whole_numbers
from testbed.study.study import Study, no_claims
from topologies.errors import ScenarioError

MOST_SERVERS = 1024
NIC_BPS = 20e6
"""Rate of a NIC of the emulated cluster at most [bit/s]: it has 48 links."""

Servers = Annotated[int, typer.Option(help=f"Servers of the cluster; a job has {SHARD}.")]
JobCounts = Annotated[
    str, typer.Option(help="Numbers of jobs, comma-separated; 5 to 27 are 20 to 100 % load.")
]
Seeds = Annotated[int, typer.Option(help="How many seeds; each draws models, servers and hashed paths.")]
Mix = Annotated[
    str,
    typer.Option(
        help="How models are drawn: text (40 % DLRM, 30 % BERT, 20 % CANDLE, 10 % VGG16), or notebook (35,"
        " 42, 20 and 2 %, as the published notebook draws them)."
    ),
]
Paths = Annotated[
    str,
    typer.Option(
        help="Which flows draw a path on fat-trees: those of each exchange (exchange; the paper's artifact"
        " draws for each step of a ring), or one for all between two servers of a job (job; as NCCL has it)."
    ),
]
FatTreeRate = Annotated[
    float,
    typer.Option(
        help="Rate of a NIC of the fat-tree of similar cost [Gbit/s], which the paper does not state;"
        " 200 is d B / 4."
    ),
]
Emulate = Annotated[
    bool,
    typer.Option(
        "--emulate",
        help="Run a small cluster in two shards with real packets instead: three AllReduces, of which the"
        " third takes over the servers of the first. The other options above are not for it.",
    ),
]


def topoopt_shared(
    servers: Servers = SharedCluster.servers,
    job_counts: JobCounts = "5,10,15,20,27",
    seeds: Seeds = 2,
    mix: Mix = "text",
    paths: Paths = OF_EXCHANGE,
    fat_tree_rate: FatTreeRate = SharedCluster.fat_tree_bps / 1e9,
    emulate: Emulate = False,
) -> ComputedStudy | Study:
    """Iteration times of jobs that share a cluster of 432 servers: TopoOpt, ideal switch, two fat-trees.

    Jobs of 16 servers train DLRM, BERT, CANDLE and VGG16 (Figure 16). TopoOpt gives each a shard: circuits
    of its own, which no other job uses. There, and on an ideal switch, a job takes as long as alone. On
    fat-trees each job has servers drawn at random; all jobs run together in the fluid model, each flow on
    one path that a hash draws (--paths). The mean and the 99th percentile of iteration times count.

    Expect TopoOpt to be like the ideal switch and the fat-tree of similar cost behind at any load, as its
    NICs have a quarter of the rate. With load flows of several jobs meet on links of both fat-trees.

    With --emulate a third job waits for its 1x2 switches only, as its circuits are set while others run.
    """
    if emulate:
        options = signature(topoopt_shared).parameters
        given = servers, job_counts, seeds, mix, paths, fat_tree_rate
        changed = {
            f"--{name.replace('_', '-')}": None if value == options[name].default else value
            for name, value in zip(options, given, strict=False)
        }
        check_effect("--emulate runs a small cluster of its own", changed)
        return Study(
            "topoopt_shared",
            "TopoOpt: a cluster in two shards",
            [shards_experiment()],
            no_claims,
            "nodes",
            findings=shards_findings,
            most_nic_bps=NIC_BPS,
        )
    cluster = SharedCluster(
        servers=_servers(servers),
        fat_tree_bps=nic_bps(fat_tree_rate, "--fat-tree-rate"),
        mix=_chosen("mix", mix, MIXES),
        paths=_chosen("paths", paths, PATHS),
    )
    numbers = sorted(whole_numbers(job_counts, "--job-counts", most=cluster.most_jobs))
    points = points_of(numbers, seed_range(seeds))
    return ComputedStudy(
        "topoopt_shared",
        "TopoOpt: a cluster that jobs share",
        calls_of(cluster, points),
        partial(shared_report, cluster, points, cost_sentence(cluster)),
    )


def _servers(servers: int) -> int:
    if not SHARD <= servers <= MOST_SERVERS:
        raise ScenarioError(f"a cluster of {servers} servers", f"give {SHARD} to {MOST_SERVERS}")
    return servers


def _chosen(option: str, word: str, choices: Iterable[str]) -> str:
    if word not in choices:
        raise ScenarioError(f"unknown word {word!r} of --{option}", f"choose from {', '.join(choices)}")
    return word


if __name__ == "__main__":
    run_computed(topoopt_shared)
