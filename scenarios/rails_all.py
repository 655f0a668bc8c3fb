"""All that RailS was evaluated on, in one run and one report (RailS, section VI)."""

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
from scenarios.rails_mixtral import mixtral_points
from scenarios.rails_receiver_skew import receiver_skew_points
from scenarios.rails_sender_skew import sender_skew_points
from scenarios.rails_uniform import uniform_points
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.collective import single
from traffic.workloads import sparse


def rails_all(
    servers: Servers = 8,
    rails: Rails = 4,
    spines: Spines = None,
    rate: Rate = 100.0,
    schemes: Schemes = "ecmp,plb,minrtt,reps,rails,optimal",
    seeds: Seeds = 1,
    emulated_rate: EmulatedRate = None,
    model_only: ModelOnly = False,
    cli: Cli = False,
    no_sandbox: NoSandbox = False,
    out: Out = None,
    debug: Debug = False,
) -> None:
    """The whole evaluation of RailS: five families of workloads under all schemes, in one report.

    Uniform, sparse, sender skew, receiver skew, and Mixtral 8x7B dense and sparse in four phases
    (RailS, section VI), as the scenarios of these names have them, with what the paper claims of
    each. One seed of everything stays under 25 minutes; more seeds take as many times longer.

    All numbers are at real scale; the machine emulates them slower and smaller (see run.json).
    """
    fabric = rail_fabric(servers, rails, spines, rate_bps=rate * 1e9)
    points = all_points(fabric, listed(schemes), seed_range(seeds))
    scenario = Scenario("rails_all", "RailS, the whole evaluation", fabric, points)
    rate_bps = emulated_rate * 1e6 if emulated_rate is not None else None
    carry_out(scenario, Options(rate_bps, model_only, cli, not no_sandbox, out))


def all_points(fabric: Fabric, schemes: list[str], seeds: range) -> list[PointOf]:
    """Return the points of all families, one after the other."""
    return [
        *uniform_points(fabric, schemes, seeds),
        *sparse_points(fabric, schemes, seeds),
        *sender_skew_points(fabric, schemes, seeds),
        *receiver_skew_points(fabric, schemes, seeds),
        *mixtral_points(fabric, schemes, seeds, "dense"),
        *mixtral_points(fabric, schemes, seeds, "sparse"),
    ]


def sparse_points(fabric: Fabric, schemes: list[str], seeds: range) -> list[PointOf]:
    """Return the sparse points of the paper: top 2 at its four sparsities."""
    return [
        (single(sparse(fabric.gpus, share, top_k=2, seed=seed)), scheme, seed)
        for share in (0.6, 0.4, 0.2, 0.0)
        for seed in seeds
        for scheme in schemes
    ]


if __name__ == "__main__":
    main(rails_all)
