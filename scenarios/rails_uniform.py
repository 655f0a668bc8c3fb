"""Uniform all-to-all over a rail fabric under all schemes (RailS, section VI-B)."""

import _checkout  # first: runs this file under the checkout's Python

from scenarios._harness import Options, PointOf, Scenario, carry_out, main
from scenarios._options import (
    Cli,
    Debug,
    EmulatedRate,
    ModelOnly,
    NoSandbox,
    Out,
    Rails,
    Rate,
    Schemes,
    Seeds,
    Servers,
    Spines,
    listed,
    seed_range,
)
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.collective import single
from traffic.workloads import uniform


def rails_uniform(
    servers: Servers = 8,
    rails: Rails = 4,
    spines: Spines = None,
    rate: Rate = 100.0,
    schemes: Schemes = "ecmp,plb,minrtt,reps,rails,optimal",
    seeds: Seeds = 3,
    emulated_rate: EmulatedRate = None,
    model_only: ModelOnly = False,
    cli: Cli = False,
    no_sandbox: NoSandbox = False,
    out: Out = None,
    debug: Debug = False,
) -> None:
    """Uniform all-to-all over a rail fabric: what it costs to let the fabric hash.

    Every GPU owes every other the same (RailS, section VI-B), so nothing but the scheme makes a
    NIC or a link busier than another. Expect RailS, REPS and MinRTT near the lower bound, ECMP
    behind them by the collisions of its hash on the spines, and PLB between.

    All numbers are at real scale; the machine emulates them slower and smaller (see run.json).
    """
    fabric = rail_fabric(servers, rails, spines, rate_bps=rate * 1e9)
    points = uniform_points(fabric, listed(schemes), seed_range(seeds))
    scenario = Scenario("rails_uniform", "Uniform all-to-all over a rail fabric", fabric, points)
    rate_bps = emulated_rate * 1e6 if emulated_rate is not None else None
    carry_out(scenario, Options(rate_bps, model_only, cli, not no_sandbox, out))


def uniform_points(fabric: Fabric, schemes: list[str], seeds: range) -> list[PointOf]:
    """Return the scenario's points."""
    demand = single(uniform(fabric.gpus))
    return [(demand, scheme, seed) for seed in seeds for scheme in schemes]


if __name__ == "__main__":
    main(rails_uniform)
