"""Mixtral 8x7B over a rail fabric: all-to-alls and compute of an iteration, in four phases (RailS, VI-F)."""

import _checkout  # first: runs this file under the checkout's Python

from collections.abc import Iterable
from typing import Annotated

import typer

from scenarios._rails.rail_study import rail_study
from testbed.study.command import run
from testbed.study.options import Rails, Rate, Schemes, Seeds, Servers, Spines, listed, seed_range
from testbed.study.study import PointOf, Study
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.workloads.mixtral import PHASES, mixtral_replay


def rails_mixtral(
    servers: Servers = 8,
    rails: Rails = 4,
    spines: Spines = None,
    rate: Rate = 100.0,
    placements: Annotated[
        str, typer.Option(help="How an expert's data lie, comma-separated.")
    ] = "dense,sparse",
    phases: Annotated[str, typer.Option(help="Phases of training, comma-separated.")] = ",".join(PHASES),
    schemes: Schemes = "ecmp,plb,minrtt,reps,pxn,rails,optimal",
    seeds: Seeds = 3,
) -> Study:
    """Mixtral 8x7B over a rail fabric: what the scheme is worth to a training iteration.

    An expert per server; both all-to-alls of the forward and of the backward pass, with compute
    between them (RailS, section VI-F). *dense* spreads an expert's data over its server's GPUs,
    *sparse* gathers them on one. Expect RailS ahead by what ECMP's hash loses when dense, and by up
    to the number of a server's NICs when sparse. Compute is added to the times, not waited for.

    All numbers are at real scale; the machine emulates them slower and smaller (see run.json).
    """
    fabric = rail_fabric(servers, rails, spines, rate_bps=rate * 1e9)
    points = [
        point
        for placement in listed(placements)
        for point in mixtral_points(fabric, listed(schemes), seed_range(seeds), placement, listed(phases))
    ]
    return rail_study("rails_mixtral", "Mixtral 8x7B over a rail fabric", fabric, points)


def mixtral_points(
    fabric: Fabric, schemes: list[str], seeds: range, placement: str, phases: Iterable[str] = PHASES
) -> list[PointOf]:
    """Return the scenario's points of one placement."""
    return [
        (mixtral_replay(fabric, phase, placement, seed=seed), scheme, seed)
        for phase in phases
        for seed in seeds
        for scheme in schemes
    ]


if __name__ == "__main__":
    run(rails_mixtral)
