"""Jobs drawn at random, of every kind of node and pattern."""

import numpy as np
from hypothesis import strategies as st

from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.exchange import Pattern
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Operation, Ring
from traffic.demand import Demand

OPERATIONS: tuple[Operation, ...] = ("all-reduce", "reduce-scatter", "all-gather")


@st.composite
def patterns(draw: st.DrawFn, gpus: int, largest: int = 1000) -> Pattern:
    """Draw a pattern between some of two or more GPUs, of messages up to about ``largest`` bytes."""
    kind = draw(st.sampled_from(["all-to-all", "ring", "point to point"]))
    if kind == "point to point":
        return PointToPoint(tuple(draw(st.lists(_messages(gpus, largest), max_size=4))))
    members = draw(st.permutations(range(gpus)))[: draw(st.integers(2, gpus))]
    if kind == "ring":
        rings = draw(st.lists(st.permutations(members), min_size=1, max_size=2))
        size = draw(st.integers(len(rings) * len(members), len(rings) * len(members) * largest))
        return Ring(tuple(map(tuple, rings)), size, draw(st.sampled_from(OPERATIONS)))
    cells = draw(st.lists(st.integers(0, largest), min_size=len(members) ** 2, max_size=len(members) ** 2))
    matrix = np.array(cells).reshape(len(members), len(members))
    return AllToAll(Demand(draw(st.sampled_from(["tokens", "results"])), matrix), tuple(members))


@st.composite
def _messages(draw: st.DrawFn, gpus: int, largest: int) -> tuple[int, int, int]:
    source, destination = draw(st.permutations(range(gpus)))[:2]
    return source, destination, draw(st.integers(1, largest))
