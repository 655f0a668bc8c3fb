"""InfiniteHBD's fault study: healthy GPUs that HBD architectures waste around faulty nodes (section 6.2)."""

import _checkout  # first: runs this file under the checkout's Python

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from scenarios._infinitehbd.faults.cluster import TracedCluster
from scenarios._infinitehbd.faults.report import fault_report
from scenarios._infinitehbd.faults.study import calls_of, study_of
from testbed.study.command import run_computed
from testbed.study.computed import ComputedStudy
from testbed.study.options import check_effect, seed_range, whole_numbers
from topologies.errors import ScenarioError, TraceError
from traffic.fault_trace import FaultTrace, stand_in_trace
from traffic.readers.infinitehbd import SERVERS, read_fault_trace
from traffic.workloads.datasets import FAULT_TRACE, NO_TRACE, dataset_path

Trace = Annotated[
    Path | None,
    typer.Option(
        help="A fault trace of servers; by default InfiniteHBD's, where it is found; none for the synthetic"
        " stand-in."
    ),
]
TraceServers = Annotated[
    int | None,
    typer.Option(
        help="Servers that a trace of yours is of, those that never failed included. [default: 400]"
    ),
]
Servers = Annotated[
    int, typer.Option(help="How many of the trace's servers the cluster has, drawn by seeds.")
]
ServerGpus = Annotated[int, typer.Option(help="GPUs of a server.")]
NodeGpus = Annotated[int, typer.Option(help="GPUs of a node: those of a server, or half of them.")]
TpSizes = Annotated[str, typer.Option("--tp", help="TP sizes in GPUs, comma-separated.")]
Seeds = Annotated[
    int, typer.Option(help="How many seeds; each draws which servers, in which order, and which halves fail.")
]

MOST_TRACE_SERVERS = 10_000


def infinitehbd_faults(
    trace: Trace = None,
    trace_servers: TraceServers = None,
    servers: Servers = 360,
    server_gpus: ServerGpus = 8,
    node_gpus: NodeGpus = 4,
    tp: TpSizes = "8,16,32,64",
    seeds: Seeds = 20,
) -> ComputedStudy:
    """Faulty nodes in 2,880 GPUs: what InfiniteHBD, NVL, TPUv4 and SiP-Ring waste, and which jobs run.

    No network: states of faulty nodes from InfiniteHBD's trace of 348 days, and from a fault model, are
    counted exactly for TP-8 to TP-64 (InfiniteHBD, section 6.2 and appendices A, C and E). Expect InfiniteHBD
    with K=3 at 0.5 % for TP-32, nearly all of it the remainder that one big switch has too; NVL-72
    at 10 %; TPUv4 at 5 to 8 %, by how the paper is read. How the trace is read, and TPUv4's blocks, are
    fitted to the paper, and labelled so. Without the trace a synthetic stand-in of the same statistics
    is studied, and named so everywhere. What interconnects cost and draw is printed (table 6), and what they
    cost together with idle and faulty GPUs by faulty nodes (figure 17d), at a price of a GPU that is fitted
    to the paper. With another cluster the paper's numbers are not compared; architectures that it
    cannot form are left out, and named.
    """
    drawn = seed_range(seeds)
    cluster = TracedCluster(servers, server_gpus, node_gpus, tuple(sorted(whole_numbers(tp, "--tp"))))
    faults = fault_trace(trace, trace_servers)
    if servers > faults.nodes:
        raise ScenarioError(f"{servers} servers of a trace with {faults.nodes}", "take no more than it has")
    return ComputedStudy(
        "infinitehbd_faults",
        "InfiniteHBD: healthy GPUs wasted around faulty nodes",
        calls_of(faults, drawn, cluster),
        lambda found: fault_report(study_of(faults, drawn, cluster, found)),
    )


def fault_trace(trace: Path | None, servers: int | None = None) -> FaultTrace:
    """Return the user's trace, else InfiniteHBD's where it is found, else the synthetic stand-in."""
    if trace == Path(NO_TRACE):
        check_effect("the trace is a synthetic stand-in", {"--trace-servers": servers})
        return stand_in_trace(np.random.default_rng(0))
    if servers is not None and trace is None:
        raise ScenarioError(f"--trace-servers {servers} without a trace", "name yours with --trace")
    if servers is not None and not 1 <= servers <= MOST_TRACE_SERVERS:
        raise ScenarioError(f"a trace of {servers} servers", f"give 1 to {MOST_TRACE_SERVERS:,}")
    try:
        faults = read_fault_trace(dataset_path(FAULT_TRACE, trace), SERVERS if servers is None else servers)
    except TraceError as error:
        if trace is not None:
            raise
        typer.echo(f"{error}; going on with a synthetic stand-in", err=True)
        return stand_in_trace(np.random.default_rng(0))
    if not len(faults.node):
        raise ScenarioError(f"{faults.name} has no fault", "give a trace with some")
    return faults


if __name__ == "__main__":
    run_computed(infinitehbd_faults)
