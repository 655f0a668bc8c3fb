"""Jobs of your own over a rail fabric: when each of their nodes starts and ends (docs/jobs.md)."""

import _checkout  # first: runs this file under the checkout's Python

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from testbed.run.circuits_registry import CircuitsRule, OwnCircuits, circuits_named
from testbed.run.circuits_rule import bound, scheme_alone
from testbed.run.dilation import UNSCALED
from testbed.run.experiment import Experiment
from testbed.study.command import run
from testbed.study.options import (
    OwnFabric,
    Rails,
    Rate,
    Schemes,
    Seeds,
    Servers,
    Spines,
    fabric_of,
    listed,
    seed_range,
)
from testbed.study.study import Study, no_claims
from topologies.errors import ScenarioError
from topologies.fabric import Fabric
from topologies.own_routing import routing_named
from traffic.jitter import jittered
from traffic.job import Job
from traffic.job_file import read_job
from traffic.scheme_setup import SchemeSetup

DEFAULT_SCHEMES = "ecmp"
JobFiles = Annotated[
    str, typer.Option("--job", help="Jobs, comma-separated JSON files as docs/jobs.md describes.")
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


def job(
    job_files: JobFiles,
    servers: Servers = 8,
    rails: Rails = 4,
    spines: Spines = None,
    rate: Rate = 100.0,
    fabric: OwnFabric = None,
    schemes: Schemes = DEFAULT_SCHEMES,
    circuits: Circuits = None,
    routing: Routing = None,
    jitter: Jitter = 0.0,
    seeds: Seeds = 1,
) -> Study:
    """Compute and collectives of a training step, as a graph: when each node starts and ends, and why.

    The jobs run, one at a time, on the first GPUs of a rail fabric under a spraying scheme. The table has
    each node beside the least time that it could take; expect nodes that share NICs to take longer than
    alone, and computes of several GPUs to wait for the slowest once they have jitter.

    The whole is emulated, compute too: with real packets over a network that is booted for it, at a scale
    that makes it last some seconds, and beside its prediction. With --model-only it is predicted alone.

    With --circuits a rule lights the circuits of a fabric with OCSes, which carry all messages or, if the
    rule says so, what the scheme puts on them.
    """
    wired = fabric_of(fabric, servers, rails, spines, rate)
    rule = circuits_named(circuits) if circuits else None
    led = routing_named(routing) if routing else None
    drawn = [
        (jittered(planned, seed, jitter), seed) for planned in _read(job_files) for seed in seed_range(seeds)
    ]
    experiments = [
        Experiment(wired, planned, scheme, seed=seed, circuits=rule, routing=led)
        for planned, seed in drawn
        for scheme in _schemes(schemes, rule, wired, planned, seed)
    ]
    names = ", ".join(dict.fromkeys(planned.name for planned, _ in drawn))
    return Study("job", f"Job {names} over a {wired.name} fabric", experiments, no_claims, report="nodes")


def _read(job_files: str) -> list[Job]:
    """Return the jobs of a list of files; ScenarioError if two have one name, by which tables tell them."""
    jobs = [read_job(Path(file)) for file in listed(job_files)]
    names = [each.name for each in jobs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ScenarioError(f"two jobs of --job are named {twice[0]!r}", "name them apart")
    return jobs


def _schemes(
    schemes: str, rule: CircuitsRule | OwnCircuits | None, fabric: Fabric, planned: Job, seed: int
) -> Sequence[str | SchemeSetup]:
    """Return the schemes of a list; that of the circuits, where they carry all of the job."""
    alone = scheme_alone(bound(rule, fabric, planned, UNSCALED, seed, {}), fabric) if rule else None
    if alone is None:
        return listed(schemes)
    if schemes != DEFAULT_SCHEMES:
        raise ScenarioError(f"the circuits carry all, and leave nothing to {schemes}", "leave out --schemes")
    return [alone]


if __name__ == "__main__":
    run(job)
