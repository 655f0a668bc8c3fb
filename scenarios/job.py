"""A job of your own over a rail fabric: when each of its nodes starts and ends (docs/jobs.md)."""

import _checkout  # first: runs this file under the checkout's Python

from pathlib import Path
from typing import Annotated

import typer

from testbed.run.circuits_registry import circuits_named
from testbed.run.circuits_rule import bound, scheme_alone
from testbed.run.dilation import UNSCALED
from testbed.run.experiment import Experiment
from testbed.study.command import run
from testbed.study.options import OwnFabric, Rails, Rate, Servers, Spines, fabric_of
from testbed.study.study import Study, no_claims
from topologies.errors import ScenarioError
from topologies.own_routing import routing_named
from traffic.jitter import jittered
from traffic.job_file import read_job

JobFile = Annotated[Path, typer.Option("--job", help="The job, a JSON file as docs/jobs.md describes.")]
Scheme = Annotated[
    str | None,
    typer.Option(
        help="Spraying scheme: ecmp (the default), plb, minrtt, reps, spray, pxn, rails, optimal, or your own"
        " as module:function."
    ),
]
Circuits = Annotated[
    str | None,
    typer.Option(
        metavar="RULE",
        help="Which circuits of the fabric's OCSes are lit when: a rule of your own as module:Class"
        " (docs/own_circuits.md).",
    ),
]
Routing = Annotated[
    str | None,
    typer.Option(
        metavar="ROUTING",
        help="By which NIC servers send on that forward between circuits: a routing of your own as"
        " module:Class (docs/own_routing.md); by default by the shortest path.",
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
    fabric: OwnFabric = None,
    scheme: Scheme = None,
    circuits: Circuits = None,
    routing: Routing = None,
    jitter: Jitter = 0.0,
    seed: Seed = 0,
) -> Study:
    """Compute and collectives of a training step, as a graph: when each node starts and ends, and why.

    The job runs on the first GPUs of a rail fabric under a spraying scheme. The table has each node
    beside the least time that it could take; expect nodes that share NICs to take longer than alone,
    and computes of several GPUs to wait for the slowest once they have jitter.

    The whole is emulated, compute too: with real packets over a network that is booted for it, at a scale
    that makes it last some seconds, and beside its prediction. With --model-only it is predicted alone.

    With --circuits a rule lights the circuits of a fabric with OCSes, which carry all messages or, if the
    rule says so, what the scheme puts on them.
    """
    wired = fabric_of(fabric, servers, rails, spines, rate)
    planned = jittered(read_job(job_file), seed, jitter)
    rule = circuits_named(circuits) if circuits else None
    led = routing_named(routing) if routing else None
    alone = scheme_alone(bound(rule, wired, planned, UNSCALED, seed, {}), wired) if rule else None
    if alone and scheme:
        raise ScenarioError(
            f"the circuits of {circuits} carry all, and leave nothing to {scheme}", "leave out --scheme"
        )
    experiment = Experiment(wired, planned, alone or scheme or "ecmp", seed=seed, circuits=rule, routing=led)
    title = f"Job {planned.name} over a {wired.name} fabric"
    return Study("job", title, [experiment], no_claims, report="nodes")


if __name__ == "__main__":
    run(job)
