"""Sender skew over a rail fabric: hot NICs that a scheme may relieve or not (RailS, VI-D)."""

import _checkout  # first: runs this file under the checkout's Python

from scenarios._rails.rail_study import rail_study
from testbed.study.command import run
from testbed.study.options import (
    Exponent,
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
from traffic.workloads.synthetic import SKEW_ZIPF, sender_skew


def rails_sender_skew(
    servers: Servers = 8,
    rails: Rails = 4,
    spines: Spines = None,
    rate: Rate = 100.0,
    fabric: OwnFabric = None,
    exponent: Exponent = SKEW_ZIPF,
    schemes: Schemes = "ecmp,plb,minrtt,reps,pxn,rails,optimal",
    seeds: Seeds = 3,
) -> Study:
    """Sender skew over a rail fabric: who relieves the NIC beside a hot GPU.

    A few servers, and a few GPUs in each, send most of the bytes, evenly to all (RailS, section
    VI-D). ECMP and PLB leave a hot GPU's bytes on its one NIC; the others spread them over the
    server's. Expect RailS, REPS and MinRTT near the lower bound, with NICs that send alike, and
    ECMP and PLB at twice that, with a normalised load MSE of 0.15 (0: even, 1: all on one NIC).

    All numbers are at real scale; the machine emulates them slower and smaller (see run.json).
    """
    wired = fabric_of(fabric, servers, rails, spines, rate)
    points = sender_skew_points(wired, listed(schemes), seed_range(seeds), exponent)
    title = f"Sender-skewed all-to-all over a {wired.name} fabric"
    return rail_study("rails_sender_skew", title, wired, points)


def sender_skew_points(
    fabric: Fabric, schemes: list[str], seeds: range, exponent: float = SKEW_ZIPF
) -> list[PointOf]:
    """Return the scenario's points."""
    return [
        (single(sender_skew(fabric, exponent=exponent, seed=seed)), scheme, seed)
        for seed in seeds
        for scheme in schemes
    ]


if __name__ == "__main__":
    run(rails_sender_skew)
