"""A job of your own over a rail fabric: when each of its nodes starts and ends (docs/jobs.md)."""

import _checkout  # first: runs this file under the checkout's Python

import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status

from scenarios._harness import enter_sandbox, main
from scenarios._job_report import JobResults, job_outcome, node_sheet
from scenarios._options import (
    DatapathOption,
    Debug,
    EmulatedRate,
    ModelOnly,
    Out,
    Rails,
    Rate,
    Servers,
    Spines,
)
from scenarios._output import print_results, sheet_table
from testbed.machine.datapath import check_datapath
from testbed.network.link_sample import worst_link_error
from testbed.network.network import Network
from testbed.network.readback import effective, port_settings, unmet
from testbed.report.run_json import Run
from testbed.run.calibrate import calibration, rate_factor
from testbed.run.job_trial import JobTrial, job_dilation, job_load_bps, predict_job, try_job
from testbed.run.runner import Run as JobRun
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.jitter import jittered
from traffic.job import Job
from traffic.job_bounds import job_bound_s, node_bounds_s
from traffic.job_file import read_job
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
    emulated_rate: EmulatedRate = None,
    datapath: DatapathOption = "netdev",
    out: Out = None,
    debug: Debug = False,
) -> None:
    """Compute and collectives of a training step, as a graph: when each node starts and ends, and why.

    The job runs on the first GPUs of a rail fabric under a spraying scheme. The table has each node
    beside the least time that it could take; expect nodes that share NICs to take longer than alone,
    and computes of several GPUs to wait for the slowest once they have jitter.

    The whole is emulated, compute too: with real packets over a network that is booted for it, at a scale
    that makes it last some seconds, and beside its prediction. With --model-only it is predicted alone.
    """
    fabric = rail_fabric(servers, rails, spines, rate_bps=rate * 1e9)
    planned = jittered(read_job(job_file), seed, jitter)
    policy_named(scheme)
    predicted = predict_job(planned, fabric, scheme, seed)
    if model_only:
        found = job_outcome(planned, fabric, JobTrial(predicted, predicted))
    run = Run(
        "job",
        f"Job {planned.name} over a rail fabric",
        ["python", *sys.argv],
        datetime.now(),
        datapath=datapath,
        settings={
            "job": {"file": str(job_file), "name": planned.name, "nodes": len(planned.nodes)},
            "fabric": {"servers": servers, "rails": rails, "spines": spines, "rate_gbps": rate},
            "scheme": scheme,
            "jitter": jitter,
            "seed": seed,
        },
    )
    if not model_only:
        enter_sandbox()
        check_datapath(datapath)
    with JobResults(run, out=out) as results, Console(stderr=True).status("predict") as status:
        if not model_only:
            trial = _emulated(planned, fabric, scheme, seed, predicted, emulated_rate, results, status)
            found = job_outcome(planned, fabric, trial)
        results.add(found, seed)
    print_results([sheet_table(node_sheet(found))], results.path)


def _emulated(
    job: Job,
    fabric: Fabric,
    scheme: str,
    seed: int,
    predicted: JobRun,
    emulated_rate: float | None,
    results: JobResults,
    status: Status,
) -> JobTrial:
    """Boot the fabric at a scale that this machine carries, and run the job over it."""
    machine = calibration(results.run.datapath)
    asked_bps = None if emulated_rate is None else emulated_rate * 1e6
    rate = rate_factor(fabric, job_load_bps(predicted, fabric), machine, asked_bps)
    dilation = job_dilation(job, fabric, predicted, rate)
    status.update(f"emulate: about {dilation.emulated_s(predicted.iteration_s):.0f} s")
    with Network(fabric, rate, results.run.datapath) as network:
        settings = port_settings(network)
        scale = {"rate": dilation.rate, "volume": dilation.volume, "time": dilation.time}
        results.describe(
            calibration=asdict(machine),
            settings={**results.run.settings, "dilation": scale, **effective(network, settings)},
        )
        return try_job(
            job,
            scheme,
            seed,
            network,
            dilation,
            link_error=worst_link_error(network, seed),
            broken=unmet(network, settings),
            bound_s=job_bound_s(job, node_bounds_s(job, fabric)),
        )


if __name__ == "__main__":
    main(job)
