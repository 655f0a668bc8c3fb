"""The fluid limits of reactive schemes: pools by hand, a settled state that nobody leaves, the bound."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.traffic.cases import Work, permitted_by, rates, ways, works
from topologies.errors import ScenarioError
from topologies.fabric import Nic, Port
from traffic.bounds import lower_bound_s
from traffic.fluid_reactive import settled, settled_transfers, sprayed_transfers
from traffic.messages import Chunks
from traffic.spraying.plb import Plb
from traffic.spraying.policy import Permitted, QueuePair, ReactivePolicy
from traffic.spraying.registry import policy_named
from traffic.transfers import Transfers


def qps(*names: str) -> tuple[QueuePair, ...]:
    return tuple(QueuePair(Nic(0, 0), Nic(1, 0), entropy) for entropy in range(len(names)))


def test_sprayed_messages_drain_their_paths_together() -> None:
    # One message of 8 chunks over a path of 8 and a path of 24 bit/s: 2 and 6 chunks, in 2 s.
    transfers = sprayed_transfers(
        rate_bps={Port("a", 0): 8.0, Port("b", 0): 24.0},
        permitted=Permitted(qps("a", "b"), ((0, 1),)),
        paths=((Port("a", 0),), (Port("b", 0),)),
        chunks=Chunks(np.zeros(8, dtype=np.int64), np.ones(8, dtype=np.int64)),
    )
    assert np.bincount(transfers.chunk_qp).tolist() == [2, 6]
    assert transfers.delivered_s.max() == pytest.approx(2.0)


def sprayed(of_message: tuple[tuple[int, ...], ...], sizes: list[int], paths: tuple[str, ...]) -> Transfers:
    """Spray one-byte chunks over queue pairs whose ways are one port each, of 1 byte per second."""
    return sprayed_transfers(
        rate_bps={Port(name, 0): 8.0 for name in paths},
        permitted=Permitted(qps(*paths), of_message),
        paths=tuple((Port(name, 0),) for name in paths),
        chunks=Chunks(np.repeat(np.arange(len(sizes)), sizes), np.ones(sum(sizes), dtype=np.int64)),
    )


def ends(transfers: Transfers, sizes: list[int]) -> list[float]:
    """Return when each message's last byte was delivered."""
    return [float(part.max()) for part in np.split(transfers.delivered_s, np.cumsum(sizes)[:-1])]


def test_messages_of_the_same_queue_pairs_share_a_pool() -> None:
    sizes = [2, 2, 2]
    assert ends(sprayed(((0, 1), (1, 0), (2,)), sizes, ("a", "b", "c")), sizes) == pytest.approx([2.0] * 3)


def test_a_queue_pair_serves_the_pools_that_may_use_it_evenly() -> None:
    # The first drains by a and half of b until 4 s; the second has then 6 left, all of b.
    sizes = [6, 8]
    transfers = sprayed(((0, 1), (1,)), sizes, ("a", "b"))
    assert ends(transfers, sizes) == pytest.approx([4.0, 10.0])
    assert np.bincount(transfers.chunk_qp).tolist() == [4, 10]


def test_a_queue_pair_of_many_pools_counts_as_one_on_a_link() -> None:
    # Two are on port a, half of it each. The first gives a quarter to each of two messages until 1.6 s,
    # when one of them ends by way of c, and then its half to the other until 2.8 s.
    sizes = [1, 2, 3]
    assert ends(sprayed(((0,), (0, 2), (1,)), sizes, ("a", "a", "c")), sizes) == pytest.approx(
        [2.8, 1.6, 4.4]
    )


@given(
    of_message=st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=6),
    ports=st.lists(st.sampled_from("xy"), min_size=4, max_size=4),
    data=st.data(),
)
def test_no_message_is_faster_than_its_own_queue_pairs(
    of_message: list[set[int]], ports: list[str], data: st.DataObject
) -> None:
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=len(of_message), max_size=len(of_message)))
    transfers = sprayed(tuple(tuple(qps) for qps in of_message), sizes, tuple(ports))
    message = np.repeat(np.arange(len(sizes)), sizes).tolist()
    assert all(qp in of_message[m] for m, qp in zip(message, transfers.chunk_qp.tolist(), strict=True))
    ways = [{ports[qp] for qp in qps} for qps in of_message]
    for end, alone in zip(ends(transfers, sizes), zip(sizes, ways, strict=True), strict=True):
        assert end >= alone[0] / len(alone[1]) * (1 - 1e-6)
    for only in ({"x"}, {"y"}, {"x", "y"}):
        owed = sum(size for size, way in zip(sizes, ways, strict=True) if way <= only)
        assert transfers.delivered_s.max() >= owed / len(only) * (1 - 1e-6)


def test_a_message_with_nowhere_to_go_is_refused() -> None:
    with pytest.raises(ScenarioError, match="chunks and no queue pair"):
        sprayed_transfers(
            rate_bps={Port("a", 0): 8.0},
            permitted=Permitted(qps("a"), ((0,), ())),
            paths=((Port("a", 0),),),
            chunks=Chunks(np.array([1]), np.array([1])),
        )


def test_messages_settle_apart_where_there_is_space() -> None:
    paths = tuple((Port(name, 0),) for name in "abab")
    chosen = settled(Permitted(qps(*"abab"), ((0, 1), (2, 3))), paths, {Port(n, 0): 8.0 for n in "ab"})
    assert {paths[qp] for qp in chosen.tolist()} == {(Port("a", 0),), (Port("b", 0),)}


def shares(work: Work, permitted: Permitted, chosen: NDArray[np.int64], message: int, qp: int) -> float:
    """Return the least share of a message if it were on a queue pair, and all others where they are."""
    paths = ways(work.fabric, permitted.queue_pairs, np.random.default_rng(0))
    others = [port for m, c in enumerate(chosen.tolist()) if m != message for port in paths[c]]
    return min(rates(work.fabric)[port] / (others.count(port) + 1) for port in paths[qp])


@given(work=works())
def test_nobody_gains_by_leaving_where_all_have_settled(work: Work) -> None:
    permitted = permitted_by(Plb(), work)
    paths = ways(work.fabric, permitted.queue_pairs, np.random.default_rng(0))
    chosen = settled(permitted, paths, rates(work.fabric))
    for message in range(min(8, len(work.crossing))):
        here = shares(work, permitted, chosen, message, int(chosen[message]))
        for qp in permitted.of_message[message]:
            assert shares(work, permitted, chosen, message, qp) <= here * (1 + 1e-6)


@pytest.mark.parametrize("name", ["plb", "reps", "minrtt"])
@given(work=works())
def test_fluid_limits_deliver_everything_no_earlier_than_possible(name: str, work: Work) -> None:
    policy = policy_named(name)
    assert isinstance(policy, ReactivePolicy)
    permitted = permitted_by(policy, work)
    limit = settled_transfers if name == "plb" else sprayed_transfers
    transfers = limit(
        rate_bps=rates(work.fabric),
        permitted=permitted,
        paths=ways(work.fabric, permitted.queue_pairs, np.random.default_rng(0)),
        chunks=work.chunks,
    )
    for message, qp in zip(work.chunks.message.tolist(), transfers.chunk_qp.tolist(), strict=True):
        assert qp in permitted.of_message[message]
    assert (transfers.sent_s <= transfers.delivered_s).all()
    bound = lower_bound_s(work.messages, work.fabric)
    assert transfers.delivered_s.max(initial=0.0) >= bound * (1 - 1e-6)
