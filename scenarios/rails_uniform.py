"""Uniform all-to-all over a rail fabric under all schemes (RailS, section VI-B)."""

import _checkout  # first: runs this file under the checkout's Python

from scenarios._rails.rail_study import rail_study
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
from testbed.study.study import PointOf, Study
from topologies.fabric import Fabric
from traffic.steps import single
from traffic.workloads.synthetic import uniform


def rails_uniform(
    servers: Servers = 8,
    rails: Rails = 4,
    spines: Spines = None,
    rate: Rate = 100.0,
    fabric: OwnFabric = None,
    schemes: Schemes = "ecmp,plb,minrtt,reps,pxn,rails,optimal",
    seeds: Seeds = 3,
) -> Study:
    """Uniform all-to-all over a rail fabric: what it costs to let the fabric hash.

    Every GPU owes every other the same (RailS, section VI-B), so nothing but the scheme makes a
    NIC or a link busier than another. Expect RailS, REPS and MinRTT near the lower bound, ECMP
    behind them, because its hash puts several messages on one link to a spine, and PLB between.

    All numbers are at real scale; the machine emulates them slower and smaller (see run.json).
    """
    wired = fabric_of(fabric, servers, rails, spines, rate)
    points = uniform_points(wired, listed(schemes), seed_range(seeds))
    return rail_study("rails_uniform", f"Uniform all-to-all over a {wired.name} fabric", wired, points)


def uniform_points(fabric: Fabric, schemes: list[str], seeds: range) -> list[PointOf]:
    """Return the scenario's points."""
    demand = single(uniform(fabric.gpus))
    return [(demand, scheme, seed) for seed in seeds for scheme in schemes]


if __name__ == "__main__":
    run(rails_uniform)
