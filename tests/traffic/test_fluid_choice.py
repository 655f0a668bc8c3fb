"""The fluid limits of reactive schemes: turns by hand, and a settled state that nobody leaves."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.traffic.cases import Work, admitted_by, rail_paths, rates, works
from topologies.fabric import Path, Port
from traffic.fluid.choice import parcels_in_turns, settled
from traffic.spraying.plb import Plb
from traffic.spraying.policy import each_of


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50)), min_size=1, max_size=12))
def test_messages_of_a_pool_end_when_all_have_had_as_much(owed: list[tuple[int, int]]) -> None:
    pool, size = np.array(owed).T
    message, parcel = parcels_in_turns(pool, size.astype(float))
    assert sorted(message.tolist()) == list(range(len(owed)))
    gone = dict.fromkeys(pool.tolist(), 0.0)
    for number, left in zip(message.tolist(), parcel.tolist(), strict=True):
        gone[owed[number][0]] += left
        ends = sum(min(other, owed[number][1]) for of, other in owed if of == owed[number][0])
        assert gone[owed[number][0]] == ends


def test_messages_settle_apart_where_there_is_space() -> None:
    paths = {lane: (Port(name, 0),) for lane, name in enumerate("abab")}
    chosen = settled([(0, 1), (2, 3)], paths, {Port(n, 0): 8.0 for n in "ab"})
    assert {paths[lane] for lane in chosen} == {(Port("a", 0),), (Port("b", 0),)}


def shares(work: Work, paths: dict[int, Path], chosen: list[int], message: int, lane: int) -> float:
    """Return the least share of a message if it were on a lane, and all others where they are."""
    others = [port for m, c in enumerate(chosen) if m != message for port in paths[c]]
    return min(rates(work.fabric)[port] / (others.count(port) + 1) for port in paths[lane])


@given(work=works())
def test_nobody_gains_by_leaving_where_all_have_settled(work: Work) -> None:
    admitted = admitted_by(Plb(), work).lanes
    queue_pairs = tuple(dict.fromkeys(pair for among in admitted for pair in each_of(among)))
    lanes = [[queue_pairs.index(pair) for pair in each_of(among)] for among in admitted]
    paths = dict(enumerate(rail_paths(work.fabric, queue_pairs, np.random.default_rng(0))))
    chosen = settled(lanes, paths, rates(work.fabric))
    for message in range(min(8, len(work.crossing))):
        here = shares(work, paths, chosen, message, chosen[message])
        for lane in lanes[message]:
            assert shares(work, paths, chosen, message, lane) <= here * (1 + 1e-6)
