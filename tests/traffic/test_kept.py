"""What a scheme keeps for a run: entropies, what policies have learnt; and what it does not."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from tests.traffic.cases import work_of
from topologies.events import View
from topologies.fabric import Nic
from topologies.rail import rail_fabric
from traffic.messages import Chunks, Messages
from traffic.scheme import Choice, Placement, Sprayed
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.plb import Plb
from traffic.spraying.policy import Lanes, LaneState, Message, QueuePair, each_of
from traffic.spraying.rails import Rails
from traffic.spraying.registry import POLICIES, policy_named
from traffic.spraying.reps import Reps

FABRIC = rail_fabric(4, 2, 4)
CHUNK = 1000


def messages(*rows: tuple[int, int, int]) -> Messages:
    source, destination, size = np.array(rows, dtype=np.int64).T
    return Messages(source, destination, size)


def view(communicator: int = 0, failed: Sequence[Nic] = ()) -> View:
    ports = FABRIC.both_ends(FABRIC.nic_port(nic) for nic in failed)
    return View(0.0, FABRIC, {}, ports, communicator)


def sprayed(name: str, seed: int = 0) -> Sprayed:
    return Sprayed(partial(policy_named, name), seed, CHUNK)


def drawn(seed: int) -> Messages:
    """Return messages between half of all pairs of GPUs that servers have between them, in any order."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(1, 5 * CHUNK, (8, 8))
    matrix[rng.random((8, 8)) < 0.5] = 0
    crossing = work_of(FABRIC, matrix).crossing
    order = rng.permutation(len(crossing))
    return Messages(crossing.source[order], crossing.destination[order], crossing.bytes[order])


def pairs(placed: object) -> set[QueuePair]:
    assert isinstance(placed, Placement | Choice)
    if isinstance(placed, Placement):
        return set(placed.queue_pairs)
    return {pair for among in placed.lanes for pair in each_of(among)}


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_collectives_after_the_first_use_the_connections_that_there_are(name: str) -> None:
    """A connection per pair of NICs, or a few: what no collective used before is all that is new."""
    scheme, seen = sprayed(name), set[QueuePair]()
    for seed in range(30):
        seen |= pairs(scheme.place(view(), drawn(seed)))
    ends = {(pair.source, pair.destination) for pair in seen}
    per_pair = {"plb": 4, "reps": 2, "spray": 8}.get(name, 1)
    assert len(seen) <= per_pair * len(ends)


def test_a_connection_keeps_its_entropy_whatever_else_a_collective_sends() -> None:
    scheme, one, other = sprayed("ecmp"), (0, 3, CHUNK), (2, 5, CHUNK)
    (alone,) = pairs(scheme.place(view(), messages(one)))
    assert alone in pairs(scheme.place(view(), messages(other, one)))
    twice = pairs(scheme.place(view(), messages(one, one)))
    assert len(twice - {alone}) == 1
    assert pairs(scheme.place(view(), messages(one, one))) == twice


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_what_a_communicator_draws_does_not_depend_on_others(name: str) -> None:
    alone, beside = sprayed(name, 3), sprayed(name, 3)
    for seed in range(3):
        beside.place(view(1), drawn(seed + 10))
        one, other = (scheme.place(view(), drawn(seed)) for scheme in (alone, beside))
        assert pairs(one) == pairs(other)


def test_a_run_begins_as_every_run_of_its_seed_and_with_other_entropies_for_each_communicator() -> None:
    first, again, another = (pairs(sprayed("ecmp", seed).place(view(), drawn(0))) for seed in (0, 0, 1))
    assert first == again != another
    assert pairs(sprayed("ecmp").place(view(1), drawn(0))) != first


def test_connections_are_drawn_anew_around_what_has_failed() -> None:
    scheme = sprayed("ecmp")
    before = pairs(scheme.place(view(), drawn(0)))
    failed = pairs(scheme.place(view(failed=[Nic(0, 0)]), drawn(0)))
    assert all(Nic(0, 0) not in (pair.source, pair.destination) for pair in failed)
    assert pairs(scheme.place(view(), drawn(0))) == before


class Learning(MinRtt):
    """A user's own scheme that decides as it goes: it knows what is under way, and counts what it chose."""

    name = "learning"

    def __init__(self) -> None:
        self.under_way: dict[int, Message] = {}
        self.chosen = 0

    def admit(self, *, message: Message) -> Lanes:
        assert message.number not in self.under_way
        self.under_way[message.number] = message
        return super().admit(message=message)

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        assert message in self.under_way
        self.chosen += 1
        return 0

    def withdraw(self, *, message: int) -> None:
        del self.under_way[message]


def test_a_users_own_scheme_goes_on_where_it_was_and_is_new_in_each_run() -> None:
    for _ in range(2):
        scheme = sprayed("tests.traffic.cases:Turning")
        rails = [
            pairs(scheme.place(view(number), messages((0, 2, CHUNK)))).pop().source.nic
            for number in (0, 0, 1, 0)
        ]
        assert rails == [0, 1, 0, 0]


def test_collectives_that_are_under_way_at_once_have_one_policy_and_messages_of_their_own() -> None:
    made: list[Learning] = []

    def make() -> Learning:
        made.append(Learning())
        return made[-1]

    scheme = Sprayed(make, 0, CHUNK)
    first = scheme.place(view(), messages((0, 2, CHUNK), (1, 4, CHUNK)))
    second = scheme.place(view(), messages((6, 0, CHUNK)))
    other = scheme.place(view(1), messages((6, 0, CHUNK)))
    assert isinstance(first, Choice)
    assert isinstance(second, Choice)
    assert isinstance(other, Choice)
    assert first.policy is second.policy is not other.policy
    assert (first.first, second.first, other.first) == (0, 2, 0)
    rehearsed = [policy for policy in made if policy not in (first.policy, other.policy)]
    assert [(len(policy.under_way), policy.chosen > 0) for policy in rehearsed] == [(0, True)]
    assert {number: each[1:3] for number, each in made[0].under_way.items()} == {
        0: (0, 2),
        1: (1, 4),
        2: (6, 0),
    }


@pytest.mark.parametrize("turns", [1, 2])
def test_reps_recycles_what_was_good_in_the_collective_before(turns: int) -> None:
    policy = Reps()
    policy.open(fabric=FABRIC, rng=np.random.default_rng(0))
    for number in range(turns):
        lanes = policy.admit(message=Message(number, 0, 3, CHUNK))
        states = [LaneState(0, 0.0, True) for _ in each_of(lanes)]
        lane = policy.choose(message=number, states=states, now=float(number))
        assert lane is not None
        policy.acknowledged(message=number, lane=lane, rtt_s=0.1, marked=False, now=number + 0.1)
        policy.withdraw(message=number)
        assert policy.counts["recycled"] == (number, number + 1)


def test_reps_counts_what_is_withdrawn_as_in_flight_no_more() -> None:
    policy = Reps(in_flight=4)
    policy.open(fabric=FABRIC, rng=np.random.default_rng(0))
    for number in range(2):
        lanes = policy.admit(message=Message(number, 0, 3, CHUNK))
    states = [LaneState(0, 0.0, True) for _ in each_of(lanes)]
    chosen = [policy.choose(message=number, states=states, now=0.0) for number in (0, 1, 0, 0, 1)]
    assert [each is None for each in chosen] == [False] * 4 + [True]
    policy.withdraw(message=0)
    assert [policy.choose(message=1, states=states, now=0.0) is None for _ in range(4)] == [False] * 3 + [
        True
    ]


def test_plb_begins_on_the_path_that_it_moved_to() -> None:
    policy = Plb(rounds=1)
    policy.open(fabric=FABRIC, rng=np.random.default_rng(0))
    states = [LaneState(0, 0.0, True) for _ in range(4)]
    policy.admit(message=Message(0, 0, 3, CHUNK))
    policy.admit(message=Message(1, 0, 3, CHUNK))
    before = policy.choose(message=0, states=states, now=0.0)
    assert before is not None
    for now in (0.1, 0.3):
        policy.acknowledged(message=0, lane=before, rtt_s=0.1, marked=True, now=now)
    moved = policy.choose(message=0, states=states, now=0.4)
    assert moved != before
    policy.withdraw(message=0)
    policy.admit(message=Message(2, 0, 3, CHUNK))
    assert policy.choose(message=2, states=states, now=0.0) == moved


def test_rails_goes_on_from_what_its_nics_have_yet_to_deliver() -> None:
    left = {Nic(0, 0): 2 * CHUNK}
    busy = View(0.0, FABRIC, {}, frozenset(), 0, lambda nic: left.get(nic, 0))
    rng, policy, work = np.random.default_rng(0), Rails(), messages((0, 2, 4 * CHUNK))
    chunks = Chunks(np.zeros(4, dtype=np.int64), np.full(4, CHUNK))
    policy.goes_on_from(busy.backlog_bytes)
    for goes_on in (True, False):  # the paper's reset
        found = policy.assign(fabric=FABRIC, messages=work, chunks=chunks, rng=rng)
        by = Counter(found.queue_pairs[qp].source.nic for qp in found.chunk_qp)
        assert by == ({0: 1, 1: 3} if goes_on else {0: 2, 1: 2})


def test_around_a_failed_nic_rails_hears_of_the_nics_that_it_has() -> None:
    """NIC 1 of server 0 is number 0 of those that are left, and its backlog is still its own."""
    fabric = rail_fabric(3, 3)
    failed = fabric.both_ends([fabric.nic_port(Nic(0, 0))])
    left = {Nic(0, 1): 2 * CHUNK}
    busy = View(0.0, fabric, {}, failed, 0, lambda nic: left.get(nic, 0))
    placed = sprayed("rails").place(busy, messages((0, 3, 2 * CHUNK)))
    assert {pair.source for pair in pairs(placed)} == {Nic(0, 2)}
