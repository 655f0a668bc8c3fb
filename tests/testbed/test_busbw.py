"""The busbw of a summary against closed forms, for every pattern, and for schemes that relay or delegate."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.foreseen import Foreseen
from scenarios._infinitehbd.exchange.all_to_all import all_to_alls
from scenarios._topoopt.experiments import plan_for
from scenarios._topoopt.testbed.points import (
    DIRECT,
    RELAYED,
    Prototype,
    iteration_experiments,
    ring_experiments,
    trained_on,
)
from scenarios._topoopt.trace_rings import trace_scenario
from testbed.experiment.experiment import Experiment
from testbed.trust.outcome import summary_row
from tests.testbed.cases import outcome_of
from topologies.fabric import Fabric
from topologies.light import duplex
from topologies.patch_panel import patch_panel_fabric
from topologies.rail import rail_fabric
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.fan import Fan
from traffic.collectives.node_all_to_all import ExchangeRound, RingAllToAll
from traffic.collectives.pattern import Pattern
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Operation, Ring
from traffic.delegated import DelegatedSetup
from traffic.demand import Demand
from traffic.job import Collective, Job, chain
from traffic.rings_over import rings_over
from traffic.spraying.registry import POLICIES

MEGABYTE = 1_000_000
LINK = 12.5
"""A NIC's rate [1e9 bytes/s]."""
GPUS = 8
EVERY = tuple(range(GPUS))
FABRIC = rail_fabric(GPUS, 1)
"""Eight servers of one GPU and one NIC."""
NODES = tuple((gpu,) for gpu in EVERY)
HOPS = tuple(zip(EVERY, EVERY[1:] + EVERY[:1], strict=True))
BACK = tuple((b, a) for a, b in reversed(HOPS))
OPERATIONS: tuple[Operation, ...] = ("all-reduce", "reduce-scatter", "all-gather")
Case = tuple[str, Experiment, float]
"""A name, what runs, and the busbw of its closed form [1e9 bytes/s]."""


def even(gpus: int) -> AllToAll:
    """Return an all-to-all of equal parts, that of a GPU to itself among them."""
    return AllToAll(Demand("even", np.full((gpus, gpus), 8 * MEGABYTE)))


def over(fabric: Fabric, *patterns: Pattern, scheme: str = "rails", in_turn: bool = False) -> Experiment:
    """Return collectives over a fabric, all at once or one after the other."""
    nodes = tuple(Collective(f"{number}", pattern) for number, pattern in enumerate(patterns))
    job = chain("drawn", fabric.gpus, nodes) if in_turn else Job("drawn", fabric.gpus, nodes)
    return Experiment(fabric, job, scheme, chunk_bytes=1 << 20)


def cases() -> Iterator[Case]:
    for scheme in POLICIES:
        yield f"all-to-all, {scheme}", over(FABRIC, even(GPUS), scheme=scheme), LINK
    others = even(GPUS).demand.matrix * ~np.eye(GPUS, dtype=bool)
    yield "all-to-all, no diagonal", over(FABRIC, AllToAll(Demand("others", others))), LINK
    for operation in OPERATIONS:
        yield f"ring {operation}", over(FABRIC, Ring((EVERY,), 80 * MEGABYTE, operation)), LINK
        two = rail_fabric(4, 2)
        rings = rings_over(range(8), two, per_rail=True)
        yield f"two rings {operation}", over(two, Ring(rings, 80 * MEGABYTE, operation)), 2 * LINK
    for back in (False, True):
        yield f"fan, back {back}", over(FABRIC, Fan((2,), EVERY, 8 * MEGABYTE, back=back)), LINK
    yield "ring of sends", over(FABRIC, PointToPoint(tuple((*hop, MEGABYTE) for hop in HOPS))), LINK
    yield from disjoint()
    yield from between_nodes()
    yield from over_circuits()


def disjoint() -> Iterator[Case]:
    """Yield collectives at once on GPUs of their own: that they are several changes nothing."""
    for pairs in (1, 2, 4):
        ends = [(2 * pair, 2 * pair + 1) for pair in range(pairs)]
        sends = [PointToPoint(((a, b, 8 * MEGABYTE * (a + 1)),)) for a, b in ends]
        yield f"{pairs} pairs", over(FABRIC, *sends), LINK
        yield f"{pairs} rings", over(FABRIC, *(Ring((pair,), 8 * MEGABYTE) for pair in ends)), LINK
    halves = [tuple(range(first, first + 4)) for first in (0, 4)]
    demand = even(4).demand
    yield "two all-to-alls", over(FABRIC, *(AllToAll(demand, half) for half in halves)), LINK
    yield "in turn", over(FABRIC, AllToAll(demand, halves[0]), even(GPUS), in_turn=True), LINK
    shared = [Ring((ring,), 8 * MEGABYTE) for ring in (EVERY, EVERY[::2] + EVERY[1::2])]
    yield "two that share all links", over(FABRIC, *shared), LINK / 2


def between_nodes() -> Iterator[Case]:
    """Yield all-to-alls in which nodes pass on bytes: (p - 1) m over their closed forms."""
    p, m = GPUS, 8 * MEGABYTE
    for name, back, passed in (("one way", (), p * (p - 1) / 2), ("both ways", (BACK,), p * p / 4)):
        yield (
            f"ring all-to-all, {name}",
            over(FABRIC, RingAllToAll((HOPS,), m, back)),
            LINK * (p - 1) / passed,
        )
    rounds = [ExchangeRound((tuple((node, node ^ w) for node in EVERY),), NODES, w, m) for w in (4, 2, 1)]
    yield "binary exchange", over(FABRIC, *rounds, in_turn=True), LINK * (p - 1) / (3 * p / 2)
    for point in all_to_alls([2, 3], 4, [40.0], by_distance=True):
        lane_bytes = (point.nodes - 1) * point.node_bytes / 2  # a link between nodes has two lanes
        yield f"{point.nodes} nodes, {point.scheme}", point.experiment, lane_bytes / point.closed_form_s / 1e9


def over_circuits() -> Iterator[Case]:
    """Yield what is relayed and delegated."""
    prototype = Prototype()
    trained = trained_on(prototype, "resnet50")
    *_, panel = iteration_experiments(prototype, trained)
    rings = {each.job.name: each for each in ring_experiments(prototype, panel, plan_for(trained, 4))}
    yield DIRECT, rings[DIRECT], 4 * 25 / 8
    yield RELAYED, rings[RELAYED], 4 * 25 / 8 / 2  # each hop is two circuits
    square = patch_panel_fabric(4, nics=2, gpus=1)
    relayed = trace_scenario(over(square, even(4)).job, square, "relayed", [0]).experiments[0]
    yield "all-to-all over a ring of circuits", relayed, 2 * LINK * 3 / 4  # 4/3 hops of a byte
    for gpus in (1, 2):
        # Each server has a circuit to each other one, which carries gpus^2 parts of the even demand.
        mesh = patch_panel_fabric(4, nics=3, gpus=gpus)
        pairs = [(3 * a + b - (b > a), 3 * b + a - (a > b)) for b in range(4) for a in range(b)]
        lit = Foreseen((("panel0", duplex(pairs)),), (), ReconfigurationDelay("stays"), stays=True)
        sent = over(mesh, even(4 * gpus))
        delegated = replace(sent, scheme=DelegatedSetup(pipelined=True), circuits=lit)
        yield f"delegated, {gpus} GPUs a server", delegated, LINK * (4 * gpus - 1) / gpus**2


ALL = {name: (experiment, closed) for name, experiment, closed in cases()}


@pytest.mark.parametrize("name", ALL)
def test_busbw_is_that_of_the_closed_form(name: str) -> None:
    experiment, closed = ALL[name]
    assert summary_row(outcome_of(experiment))["busbw_gbytes_s"] == pytest.approx(closed, rel=0.01)
