"""Permutations and incasts over a fat-tree, flow by flow and packet by packet (REPS; Ultra Ethernet)."""

import _checkout  # first: runs this file under the checkout's Python

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer
from numpy.typing import NDArray

from scenarios._rails.claims_spray import spray_claims
from testbed.study.command import run
from testbed.study.options import NicRate, OwnFabric, Schemes, Seeds, listed, nic_bps, own_alone, seed_range
from testbed.study.study import Study, no_claims
from topologies.errors import ScenarioError, TraceError
from topologies.fabric import Fabric
from topologies.fat_tree import fat_tree_fabric
from traffic.demand import Demand
from traffic.job import Job
from traffic.readers.htsim import read_htsim
from traffic.readers.text import MAX_GPUS
from traffic.steps import demands_of, single
from traffic.transports.registry import CREDIT
from traffic.workloads.datasets import dataset_path
from traffic.workloads.placement import placed

PatternName = Literal["permutation", "incast"]
DATA_SETS: dict[PatternName, str] = {
    "permutation": "htsim/perm_16n_16c_2MB.cm",
    "incast": "htsim/incast.cm",
}
"""htsim's connections of each pattern."""
DATA_SET_SERVERS = 16
"""Between how many servers they are."""
PORTS, RATE_GBPS = 4, 100.0
"""Of a switch, and of a NIC, by default."""
FLOW_BYTES = 2_000_000
"""Of each flow, there and where connections are made up [bytes]."""

Ports = Annotated[
    int, typer.Option("--k", help="Ports of every switch, even; there are k³/4 servers of one NIC each.")
]
Pattern = Annotated[
    PatternName,
    typer.Option(help="permutation: every server sends to one; incast: all others send to the last."),
]
Trace = Annotated[
    Path | None,
    typer.Option(
        help="A connection matrix of htsim (.cm) to replay instead. By default htsim's own of 16 servers, or"
        " made up."
    ),
]


def spray_permutation(
    k: Ports = PORTS,
    pattern: Pattern = "permutation",
    trace: Trace = None,
    rate: NicRate = RATE_GBPS,
    fabric: OwnFabric = None,
    schemes: Schemes = "ecmp,plb,minrtt,reps,spray",
    seeds: Seeds = 3,
) -> Study:
    """A permutation over a fat-tree: what it costs to keep a flow on one path, and what spraying saves.

    Every server sends 2 MB to another one and receives as much, as in htsim's perm_16n_16c_2MB.cm, so a
    fabric that does not block could carry all at the NICs' rate. ECMP, PLB and MinRTT have a path for each
    flow; flows that meet on a link share it. Spraying sends each packet by another entropy, whatever
    comes back, and REPS uses entropies again whose packets met no queue (docs/spraying.md).

    Expect spraying and REPS within 1.2 of the lower bound, and the others at two or three times the bound,
    as two or three flows meet. PLB leaves a busy path after 12 congested round trips, and a flow of 2 MB
    has fewer. With --pattern incast one NIC receives all, and no scheme can help.

    All numbers are at real scale; the machine emulates them slower and smaller (see run.json).
    """
    if fabric is None:
        wired, over = _fat_tree(k, rate), f"a fat-tree of {k}-port switches"
    else:
        wired = own_alone(fabric, "--k and --rate", (k, rate) != (PORTS, RATE_GBPS))
        over = f"a {wired.name} fabric"
    replayed = _replayed(trace, pattern, wired)
    jobs = {seed: replayed or made_up(pattern, wired.gpus, seed) for seed in seed_range(seeds)}
    points = [(job, scheme, seed) for seed, job in jobs.items() for scheme in listed(schemes)]
    workload = jobs[0].name
    title = f"Flows of {workload} over {over}"
    is_claimed = fabric is None and is_permutation(jobs[0])
    claims = partial(spray_claims, workload=workload) if is_claimed else no_claims
    return replace(Study.of("spray_permutation", title, wired, points), claims=claims)


def _fat_tree(k: int, rate_gbps: float) -> Fabric:
    if (servers := k**3 // 4) > MAX_GPUS:
        raise ScenarioError(f"flows between {servers} servers", f"give a --k of at most {MAX_GPUS} servers")
    return fat_tree_fabric(k, rate_bps=nic_bps(rate_gbps))


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
    return all((each <= 1).all() for each in ends)


def _replayed(trace: Path | None, pattern: PatternName, fabric: Fabric) -> Job | None:
    """Return the user's connections, else the data set where it is found and is for as many servers."""
    if trace is None and fabric.gpus != DATA_SET_SERVERS:
        return None
    try:
        path = dataset_path(DATA_SETS[pattern], trace)
    except TraceError as error:
        if trace is not None:
            raise
        typer.echo(f"{error}; going on with a synthetic {pattern}", err=True)
        return None
    return placed(read_htsim(path), fabric)


if __name__ == "__main__":
    run(spray_permutation, transports_by_default=CREDIT)
