"""Jobs and the patterns of their collectives: refusals, and what each pattern must deliver."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.traffic.job_cases import patterns
from topologies.errors import DemandError
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.pattern import Pattern
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Operation, Ring
from traffic.demand import Demand
from traffic.job import Collective, Compute, Job, chain
from traffic.ops import Ops

PAIR = PointToPoint(((0, 1, 5),))


@st.composite
def rings(draw: st.DrawFn, operation: Operation) -> Ring:
    """Draw one to three rings over two to six GPUs."""
    gpus = draw(st.integers(2, 6))
    orders = draw(st.lists(st.permutations(range(gpus)), min_size=1, max_size=3))
    least = gpus * len(orders)
    return Ring(tuple(map(tuple, orders)), draw(st.integers(least, 5 * least)), operation)


def ring_after(ring: Ring, held: NDArray[np.int64], adds: bool) -> NDArray[np.int64]:
    """Return what each GPU holds of each byte after a ring's exchange, step by step.

    ``held`` counts contributions, shape (GPUs, rings, chunks). A message carries what its sender holds
    of a chunk when it starts, and it starts only when all that it waits for has arrived.
    """
    ops, ranks = ring.lower(), len(ring.rings[0])
    waits: dict[int, set[int]] = {}
    for first, then in ops.after.tolist():
        waits.setdefault(then, set()).add(first)
    arrived: set[int] = set()
    steps = len(ops.moves) // (ranks * len(ring.rings))
    for step in range(steps):
        sent = []
        for number in range(step * len(ring.rings) * ranks, (step + 1) * len(ring.rings) * ranks):
            assert waits.get(number, set()) <= arrived
            which, rank = divmod(number % (len(ring.rings) * ranks), ranks)
            source, destination = ring.rings[which][rank], ring.rings[which][(rank + 1) % ranks]
            assert ops.moves.source[number] == source
            assert ops.moves.destination[number] == destination
            chunk = (rank - step + (0 if adds else 1)) % ranks
            sent.append((destination, which, chunk, held[source, which, chunk]))
            arrived.add(number)
        for destination, which, chunk, value in sent:
            held[destination, which, chunk] = value + (held[destination, which, chunk] if adds else 0)
    return held


@given(rings("reduce-scatter"))
def test_reduce_scatter_leaves_each_rank_the_sum_of_one_chunk(ring: Ring) -> None:
    ranks = len(ring.rings[0])
    held = ring_after(ring, np.ones((ranks, len(ring.rings), ranks), dtype=np.int64), adds=True)
    for which, order in enumerate(ring.rings):
        for rank, gpu in enumerate(order):
            assert held[gpu, which, (rank + 1) % ranks] == ranks


@given(rings("all-gather"))
def test_all_gather_takes_every_chunk_to_every_rank(ring: Ring) -> None:
    ranks = len(ring.rings[0])
    held = np.zeros((ranks, len(ring.rings), ranks), dtype=np.int64)
    for which, order in enumerate(ring.rings):
        for rank, gpu in enumerate(order):
            held[gpu, which, (rank + 1) % ranks] = 1
    assert (ring_after(ring, held, adds=False) == 1).all()


@given(rings("all-reduce"))
def test_all_reduce_sends_each_byte_over_all_links_but_one_twice(ring: Ring) -> None:
    ops, ranks = ring.lower(), len(ring.rings[0])
    assert ops.moves.bytes.sum() == 2 * (ranks - 1) * ring.bytes
    assert len(ops.moves) == 2 * (ranks - 1) * ranks * len(ring.rings)
    assert len(ops.after) == (2 * (ranks - 1) - 1) * ranks * len(ring.rings)
    receiver = ops.moves.destination[ops.after[:, 0]]
    assert (receiver == ops.moves.source[ops.after[:, 1]]).all()


def test_an_all_to_all_waits_for_nothing() -> None:
    ops = AllToAll(Demand("drawn", np.array([[9, 1], [2, 0]]))).lower()
    assert messages(ops) == [(0, 1, 1), (1, 0, 2)]
    assert len(ops.after) == 0


def test_two_gpus_may_exchange_several_messages() -> None:
    sent = ((0, 2, 5), (0, 2, 7), (2, 1, 1))
    assert messages(PointToPoint(sent).lower()) == list(sent)
    assert PointToPoint(sent).gpus == {0, 1, 2}


def test_an_all_to_all_may_be_between_any_gpus() -> None:
    demand = Demand("drawn", np.array([[9, 1], [2, 0]]))
    assert messages(AllToAll(demand, (5, 3)).lower()) == [(5, 3, 1), (3, 5, 2)]
    assert AllToAll(demand, (5, 3)).gpus == {3, 5}
    assert AllToAll(demand) == AllToAll(demand, (0, 1)) != AllToAll(demand, (1, 0))


@pytest.mark.parametrize("ranks", [(0,), (0, 0), (0, -1), tuple(range(20))])
def test_an_all_to_all_has_a_gpu_for_each_row(ranks: tuple[int, ...]) -> None:
    with pytest.raises(DemandError, match="demand 'drawn' is between 2 GPUs, and its ranks are"):
        AllToAll(Demand("drawn", np.ones((2, 2), dtype=np.int64)), ranks)


@given(patterns(6), st.permutations(range(10)))
def test_a_renumbered_pattern_sends_the_same_messages_between_other_gpus(
    pattern: Pattern, gpus: list[int]
) -> None:
    ops, other = pattern.lower(), pattern.renumbered(gpus).lower()
    renumbered = [(gpus[source], gpus[to], size) for source, to, size in messages(ops)]
    assert messages(other) == renumbered
    assert (other.after == ops.after).all()
    assert pattern.renumbered(gpus).gpus == {gpus[gpu] for gpu in pattern.gpus}
    assert pattern.renumbered(range(10)) == pattern


def messages(ops: Ops) -> list[tuple[int, int, int]]:
    """Return source, destination and size of each message."""
    found = ops.moves
    return list(zip(found.source.tolist(), found.destination.tolist(), found.bytes.tolist(), strict=True))


@pytest.mark.parametrize("ring", [(), ((0,),), ((0, 1, 0),), ((0, 1), (0, 2))])
def test_what_is_no_ring_is_refused(ring: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(DemandError, match="are not rings over the same GPUs"):
        Ring(ring, 100)


def test_a_ring_of_fewer_bytes_than_chunks_is_refused() -> None:
    with pytest.raises(DemandError, match="5 bytes make no 2 x 3 chunks"):
        Ring(((0, 1, 2), (2, 1, 0)), 5)


@pytest.mark.parametrize("message", [(0, 0, 5), (0, 1, 0), (-1, 1, 5)])
def test_what_is_no_message_is_refused(message: tuple[int, int, int]) -> None:
    with pytest.raises(DemandError, match="send at least a byte to another GPU"):
        PointToPoint((message,))


def test_a_chain_waits_node_by_node() -> None:
    job = chain("drawn", 2, (Collective("a", PAIR), Compute("b", (0, 1), 1.0), Collective("c", PAIR)))
    assert [node.after for node in job.nodes] == [(), ("a",), ("b",)]


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ((), "has no node"),
        ((Collective("a", PAIR), Collective("a", PAIR)), "2 nodes of job 'drawn' are named 'a'"),
        ((Collective("a", PAIR, ("b",)),), "'a' waits for 'b', which job 'drawn' has not"),
        ((Collective("a", PAIR, ("b",)), Collective("b", PAIR, ("a",))), "wait for each other"),
        ((Compute("a", (2,), 1.0),), "'a' uses GPU 2, and the job has 2 GPUs"),
        ((Compute("a", (0,), -1.0),), "'a' computes for -1 s"),
        ((Compute("a", (0,), float("nan")),), "'a' computes for nan s"),
        ((Compute("a", (0, 1), 1.0, durations_s=(1.0, -2.0)),), "'a' computes for -2 s"),
        ((Compute("a", (0, 1), 1.0, durations_s=(1.0,)),), "'a' has 1 durations for 2 GPUs"),
        ((Compute("a", (1, 1), 1.0),), "'a' computes on a GPU twice"),
        ((Compute("a", (1,), 1.0, at_s=-1.0),), "'a' starts -1 s after the job; give a time of 0 or later"),
        ((Collective("a", PAIR, at_s=float("nan")),), "'a' starts nan s after the job"),
        ((Collective("a", PAIR, at_s=float("inf")),), "'a' starts inf s after the job"),
    ],
)
def test_what_is_no_job_is_refused(nodes: tuple[Collective | Compute, ...], sentence: str) -> None:
    with pytest.raises(DemandError, match=sentence):
        Job("drawn", 2, nodes)


@pytest.mark.parametrize("where", ["name", "note", "node"])
def test_names_and_notes_are_texts(where: str) -> None:
    texts = {"name": "a", "note": "b", "node": "c"} | {where: "\ud800"}
    with pytest.raises(DemandError, match="is not a text in Unicode; give names and notes that are"):
        Job(texts["name"], 1, (Compute(texts["node"], (0,), 1.0),), texts["note"])
