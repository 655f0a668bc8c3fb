"""The fluid limits of reactive schemes: pools by hand, a settled state that nobody leaves, the bound."""

import numpy as np
import pytest
from hypothesis import given
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


def test_messages_that_share_a_queue_pair_share_a_pool() -> None:
    transfers = sprayed_transfers(
        rate_bps={Port("a", 0): 8.0, Port("b", 0): 8.0, Port("c", 0): 8.0},
        permitted=Permitted(qps("a", "b", "c"), ((0, 1), (1,), (2,))),
        paths=tuple((Port(name, 0),) for name in "abc"),
        chunks=Chunks(np.array([0, 0, 1, 2]), np.array([1, 1, 2, 2])),
    )
    assert transfers.delivered_s.max() == pytest.approx(2.0)


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
