"""The fluid limits of reactive schemes: turns by hand, and a settled state that nobody leaves."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.traffic.cases import Work, permitted_by, rail_paths, rates, works
from topologies.fabric import Nic, Port
from traffic.fluid.choice import parcels_in_turns, settled
from traffic.spraying.plb import Plb
from traffic.spraying.policy import Permitted, QueuePair


def qps(*names: str) -> tuple[QueuePair, ...]:
    return tuple(QueuePair(Nic(0, 0), Nic(1, 0), entropy) for entropy in range(len(names)))


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
    paths = tuple((Port(name, 0),) for name in "abab")
    chosen = settled(Permitted(qps(*"abab"), ((0, 1), (2, 3))), paths, {Port(n, 0): 8.0 for n in "ab"})
    assert {paths[qp] for qp in chosen.tolist()} == {(Port("a", 0),), (Port("b", 0),)}


def shares(work: Work, permitted: Permitted, chosen: NDArray[np.int64], message: int, qp: int) -> float:
    """Return the least share of a message if it were on a queue pair, and all others where they are."""
    paths = rail_paths(work.fabric, permitted.queue_pairs, np.random.default_rng(0))
    others = [port for m, c in enumerate(chosen.tolist()) if m != message for port in paths[c]]
    return min(rates(work.fabric)[port] / (others.count(port) + 1) for port in paths[qp])


@given(work=works())
def test_nobody_gains_by_leaving_where_all_have_settled(work: Work) -> None:
    permitted = permitted_by(Plb(), work)
    paths = rail_paths(work.fabric, permitted.queue_pairs, np.random.default_rng(0))
    chosen = settled(permitted, paths, rates(work.fabric))
    for message in range(min(8, len(work.crossing))):
        here = shares(work, permitted, chosen, message, int(chosen[message]))
        for qp in permitted.of_message[message]:
            assert shares(work, permitted, chosen, message, qp) <= here * (1 + 1e-6)
