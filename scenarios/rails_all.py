"""All that RailS was evaluated on, in one run and one report (RailS, section VI)."""

import _checkout  # first: runs this file under the checkout's Python

from collections.abc import Sequence

from scenarios._rails.rail_study import rail_study
from scenarios.rails_mixtral import mixtral_points
from scenarios.rails_receiver_skew import receiver_skew_points
from scenarios.rails_sender_skew import sender_skew_points
from scenarios.rails_sparse import SPARSITIES, Gatings, gatings, sparse_points
from scenarios.rails_uniform import uniform_points
from testbed.study.command import run
from testbed.study.options import Rails, Rate, Schemes, Seeds, Servers, Spines, listed, seed_range, shares
from testbed.study.study import PointOf, Study
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.workloads.synthetic import GATINGS, Gating


def rails_all(
    servers: Servers = 8,
    rails: Rails = 4,
    spines: Spines = None,
    rate: Rate = 100.0,
    gating: Gatings = "token,gpu",
    schemes: Schemes = "ecmp,plb,minrtt,reps,pxn,rails,optimal",
    seeds: Seeds = 1,
) -> Study:
    """The whole evaluation of RailS: five families of workloads under all schemes, in one report.

    Uniform, sparse, sender skew, receiver skew, and Mixtral 8x7B dense and sparse in four phases
    (RailS, section VI), each as the scenario of its name runs it, with what the paper claims of
    it. One seed of everything stays under 25 minutes; more seeds take as many times longer.

    All numbers are at real scale; the machine emulates them slower and smaller (see run.json).
    """
    fabric = rail_fabric(servers, rails, spines, rate_bps=rate * 1e9)
    points = all_points(fabric, listed(schemes), seed_range(seeds), gatings(gating))
    return rail_study("rails_all", "RailS, the whole evaluation", fabric, points)


def all_points(
    fabric: Fabric, schemes: list[str], seeds: range, gatings: Sequence[Gating] = GATINGS
) -> list[PointOf]:
    """Return the points of all families, one after the other."""
    each = [(share, gating) for gating in gatings for share in shares(SPARSITIES)]
    return [
        *uniform_points(fabric, schemes, seeds),
        *sparse_points(fabric, schemes, seeds, each),
        *sender_skew_points(fabric, schemes, seeds),
        *receiver_skew_points(fabric, schemes, seeds),
        *mixtral_points(fabric, schemes, seeds, "dense"),
        *mixtral_points(fabric, schemes, seeds, "sparse"),
    ]


if __name__ == "__main__":
    run(rails_all)
