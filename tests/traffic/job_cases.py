"""Jobs drawn at random, of every kind of node and pattern."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.node_all_to_all import ExchangeRound, RingAllToAll
from traffic.collectives.pattern import Pattern
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Operation, Ring
from traffic.demand import Demand
from traffic.job import Collective, Compute, Job, Node

OPERATIONS: tuple[Operation, ...] = ("all-reduce", "reduce-scatter", "all-gather")


@st.composite
def patterns(draw: st.DrawFn, gpus: int, largest: int = 1000) -> Pattern:
    """Draw a pattern between some of two or more GPUs, of messages up to about ``largest`` bytes."""
    kind = draw(st.sampled_from(["all-to-all", "ring", "ring all-to-all", "exchange", "point to point"]))
    if kind == "point to point":
        return PointToPoint(tuple(draw(st.lists(_messages(gpus, largest), max_size=4))))
    members = draw(st.permutations(range(gpus)))[: draw(st.integers(2, gpus))]
    if kind == "ring":
        rings = draw(st.lists(st.permutations(members), min_size=1, max_size=2))
        size = draw(st.integers(len(rings) * len(members), len(rings) * len(members) * largest))
        return Ring(tuple(map(tuple, rings)), size, draw(st.sampled_from(OPERATIONS)))
    if kind == "ring all-to-all":
        hops = tuple(zip(members, members[1:] + members[:1], strict=True))
        back = ((tuple((b, a) for a, b in reversed(hops)),),) if draw(st.booleans()) else ()
        return RingAllToAll((hops,), 2 * draw(st.integers(1, largest)), *back)
    if kind == "exchange":
        nodes = 1 << draw(st.integers(1, len(members).bit_length() - 1))
        w = 1 << draw(st.integers(0, nodes.bit_length() - 2))
        hops = tuple((members[node], members[node ^ w]) for node in range(nodes))
        return ExchangeRound(
            (hops,), tuple((gpu,) for gpu in members[:nodes]), w, draw(st.integers(1, largest))
        )
    cells = draw(st.lists(st.integers(0, largest), min_size=len(members) ** 2, max_size=len(members) ** 2))
    matrix = np.array(cells).reshape(len(members), len(members))
    return AllToAll(Demand(draw(st.sampled_from(["tokens", "results"])), matrix), tuple(members))


@st.composite
def _messages(draw: st.DrawFn, gpus: int, largest: int) -> tuple[int, int, int]:
    source, destination = draw(st.permutations(range(gpus)))[:2]
    return source, destination, draw(st.integers(1, largest))


@st.composite
def jobs(draw: st.DrawFn, gpus: int = 4, name: str = "drawn", largest: int = 1000) -> Job:
    """Draw a job of up to six nodes, each of which waits for some of those before it."""
    nodes: list[Node] = []
    for number in range(draw(st.integers(1, 6))):
        after = draw(st.lists(st.sampled_from([node.name for node in nodes]), unique=True)) if nodes else []
        nodes.append(draw(_nodes(gpus, f"node {number}", tuple(after), largest)))
    order = draw(st.permutations(nodes))
    return Job(name, gpus, tuple(order), draw(st.sampled_from(["", "synthetic"])))


@st.composite
def starting_jobs(draw: st.DrawFn, gpus: int = 4) -> Job:
    """Draw a job some nodes of which start at times of their own."""
    job, starts_s = draw(jobs(gpus)), st.sampled_from([0.0, 0.0, 0.25, 1.0, 7.5])
    return replace(job, nodes=tuple(replace(node, at_s=draw(starts_s)) for node in job.nodes))


@st.composite
def _nodes(draw: st.DrawFn, gpus: int, name: str, after: tuple[str, ...], largest: int) -> Node:
    if draw(st.booleans()):
        return Collective(name, draw(patterns(gpus, largest)), after)
    members = draw(st.lists(st.integers(0, gpus - 1), unique=True))
    seconds = st.floats(0.0, 10.0)
    own = draw(st.lists(seconds, min_size=len(members), max_size=len(members))) if draw(st.booleans()) else []
    return Compute(name, tuple(members), draw(seconds), after, tuple(own))
