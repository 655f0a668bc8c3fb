"""A job of your own over a rail fabric: when each of its nodes starts and ends (docs/jobs.md)."""

import _checkout  # first: runs this file under the checkout's Python

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from scenarios._harness import main
from scenarios._job_report import JobResults, node_sheet, prediction
from scenarios._options import Debug, ModelOnly, Out, Rails, Rate, Servers, Spines
from scenarios._output import print_results, sheet_table
from testbed.backend import Backend
from testbed.fluid_backend import FluidBackend
from testbed.run import Run
from testbed.runner import Run as JobRun
from testbed.runner import Runner
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.jitter import jittered
from traffic.job import Job
from traffic.job_file import read_job
from traffic.scheme import Sprayed
from traffic.spraying.policy import ProactivePolicy
from traffic.spraying.registry import policy_named

JobFile = Annotated[Path, typer.Option("--job", help="The job, a JSON file as docs/jobs.md describes.")]
Scheme = Annotated[
    str,
    typer.Option(
        help="Spraying scheme: ecmp, plb, minrtt, reps, rails, optimal, or your own as module:function."
    ),
]
Jitter = Annotated[
    float,
    typer.Option(help="Spread of compute times: sigma of a lognormal factor of mean 1 per node and GPU."),
]
Seed = Annotated[int, typer.Option(help="Of the jitter, and of what the scheme draws.")]


def job(
    job_file: JobFile,
    servers: Servers = 8,
    rails: Rails = 4,
    spines: Spines = None,
    rate: Rate = 100.0,
    scheme: Scheme = "ecmp",
    jitter: Jitter = 0.0,
    seed: Seed = 0,
    model_only: ModelOnly = False,
    out: Out = None,
    debug: Debug = False,
) -> None:
    """Compute and collectives of a training step, as a graph: when each node starts and ends, and why.

    The job runs on the first GPUs of a rail fabric under a spraying scheme. The table has each node
    beside the least time that it could take; expect nodes that share NICs to take longer than alone,
    and computes of several GPUs to wait for the slowest once they have jitter.

    Jobs are only predicted yet, so --model-only must be given.
    """
    if not model_only:
        raise ScenarioError("jobs are only predicted yet", "add --model-only")
    fabric = rail_fabric(servers, rails, spines, rate_bps=rate * 1e9)
    planned = jittered(read_job(job_file), seed, jitter)
    run = Run(
        "job",
        f"Job {planned.name} over a rail fabric",
        ["python", *sys.argv],
        datetime.now(),
        settings={
            "job": {"file": str(job_file), "name": planned.name, "nodes": len(planned.nodes)},
            "fabric": {"servers": servers, "rails": rails, "spines": spines, "rate_gbps": rate},
            "scheme": scheme,
            "jitter": jitter,
            "seed": seed,
        },
    )
    with JobResults(run, out=out) as results, Console(stderr=True).status("predict"):
        found = prediction(planned, fabric, predicted(fabric, planned, scheme, seed))
        results.add(found, seed)
    print_results([sheet_table(node_sheet(found))], results.path)


def predicted(fabric: Fabric, planned: Job, scheme: str, seed: int) -> JobRun:
    """Return what fluids make of a job."""
    by_bytes = isinstance(policy_named(scheme), ProactivePolicy)
    return run_over(FluidBackend(fabric, {}, by_bytes=by_bytes), fabric, planned, scheme, seed)


def run_over(backend: Backend, fabric: Fabric, planned: Job, scheme: str, seed: int) -> JobRun:
    """Return what comes of a job under a scheme over any backend."""
    return Runner(fabric, planned, backend, Sprayed(lambda: policy_named(scheme), seed)).run()


if __name__ == "__main__":
    main(job)
