"""What a scheme keeps for a run: entropies, what policies have learnt; and what it does not."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from tests.traffic.cases import work_of
from topologies.events import View
from topologies.fabric import Fabric, Nic
from topologies.rail import rail_fabric
from traffic.messages import Chunks, Messages
from traffic.scheme import Choice, Placement, Sprayed
from traffic.spraying.plb import Plb
from traffic.spraying.policy import Permitted, QpState, QueuePair
from traffic.spraying.rails import Rails
from traffic.spraying.registry import POLICIES, policy_named
from traffic.spraying.reps import Reps
from traffic.spraying.subflows import subflows

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
    return set(placed.queue_pairs)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_collectives_after_the_first_use_the_connections_that_there_are(name: str) -> None:
    """A connection per pair of NICs, or a few: what no collective used before is all that is new."""
    scheme, seen = sprayed(name), set[QueuePair]()
    for seed in range(30):
        seen |= pairs(scheme.place(view(), drawn(seed)))
    ends = {(pair.source, pair.destination) for pair in seen}
    per_pair = {"plb": 4, "reps": 2}.get(name, 1)
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
        assert one.queue_pairs == other.queue_pairs


def test_a_run_begins_as_every_run_of_its_seed_and_with_other_entropies_for_each_communicator() -> None:
    first, again, another = (sprayed("ecmp", seed).place(view(), drawn(0)).queue_pairs for seed in (0, 0, 1))
    assert first == again != another
    assert sprayed("ecmp").place(view(1), drawn(0)).queue_pairs != first


def test_connections_are_drawn_anew_around_what_has_failed() -> None:
    scheme = sprayed("ecmp")
    before = pairs(scheme.place(view(), drawn(0)))
    failed = pairs(scheme.place(view(failed=[Nic(0, 0)]), drawn(0)))
    assert all(Nic(0, 0) not in (pair.source, pair.destination) for pair in failed)
    assert pairs(scheme.place(view(), drawn(0))) == before


class Learning:
    """A user's own scheme that decides as it goes: it counts its exchanges, and what it chose."""

    name = "learning"

    def __init__(self) -> None:
        self.chosen: dict[str, int] = {"in all": 0}
        self.exchanges = 0
        self.here = 0

    def permit(self, *, fabric: Fabric, messages: Messages, rng: np.random.Generator) -> Permitted:
        self.exchanges += 1
        self.permitted = subflows(fabric, messages, rng)
        return self.permitted

    def choose(self, *, message: int, states: Sequence[QpState], now: float) -> int | None:
        self.chosen["in all"] += 1
        self.here += 1
        return self.permitted.of_message[message][0]

    def acknowledged(self, *, message: int, qp: int, rtt_s: float, marked: bool, now: float) -> None:
        """Learn nothing."""


def test_a_users_own_scheme_goes_on_where_it_was_and_is_new_in_each_run() -> None:
    for _ in range(2):
        scheme = sprayed("tests.traffic.cases:Turning")
        rails = [
            pairs(scheme.place(view(number), messages((0, 2, CHUNK)))).pop().source.nic
            for number in (0, 0, 1, 0)
        ]
        assert rails == [0, 1, 0, 0]


def test_exchanges_that_are_under_way_at_once_tell_their_messages_apart_and_share_what_was_learnt() -> None:
    made: list[Learning] = []

    def make() -> Learning:
        made.append(Learning())
        return made[-1]

    scheme = Sprayed(make, 0, CHUNK)
    first = scheme.place(view(), messages((0, 2, CHUNK), (1, 4, CHUNK)))
    second = scheme.place(view(), messages((6, 0, CHUNK)))
    assert isinstance(first, Choice)
    assert isinstance(second, Choice)
    for choice, message in ((second, 0), (first, 1), (first, 0)):
        qp = choice.policy.choose(message=message, states=[], now=0.0)
        assert qp in choice.permitted.of_message[message]
    (policy,) = made
    assert (policy.exchanges, policy.chosen["in all"], policy.here) == (2, 3, 0)


def test_a_users_wrapped_scheme_is_copied_whole() -> None:
    scheme = sprayed(f"{__name__}:Learning")
    first = scheme.place(view(), messages((0, 2, CHUNK), (1, 4, CHUNK)))
    second = scheme.place(view(), messages((6, 0, CHUNK)))
    for choice, message in ((second, 0), (first, 1)):
        assert isinstance(choice, Choice)
        states = [QpState(0, 0.0, True) for _ in choice.queue_pairs]
        qp = choice.policy.choose(message=message, states=states, now=0.0)
        assert qp in choice.permitted.of_message[message]


def test_reps_recycles_what_was_good_in_the_collective_before() -> None:
    policy, rng = Reps(), np.random.default_rng(0)
    states = [QpState(0, 0.0, True) for _ in range(4)]
    for turn in range(2):
        policy.permit(fabric=FABRIC, messages=messages((0, 3, CHUNK)), rng=rng)
        qp = policy.choose(message=0, states=states, now=float(turn))
        assert qp is not None
        policy.acknowledged(message=0, qp=qp, rtt_s=0.1, marked=False, now=turn + 0.1)
        assert policy.counts["recycled"] == (turn, turn + 1)


def test_plb_begins_on_the_path_that_it_moved_to() -> None:
    policy, rng = Plb(rounds=1), np.random.default_rng(0)
    states = [QpState(0, 0.0, True) for _ in range(4)]
    across = messages((0, 3, CHUNK))
    policy.permit(fabric=FABRIC, messages=across, rng=rng)
    before = policy.choose(message=0, states=states, now=0.0)
    assert before is not None
    for now in (0.1, 0.3):
        policy.acknowledged(message=0, qp=before, rtt_s=0.1, marked=True, now=now)
    moved = policy.choose(message=0, states=states, now=0.4)
    assert moved != before
    policy.permit(fabric=FABRIC, messages=across, rng=rng)
    assert policy.choose(message=0, states=states, now=0.0) == moved


def test_rails_goes_on_from_what_its_nics_have_yet_to_deliver() -> None:
    left = {Nic(0, 0): 2 * CHUNK}
    busy = View(0.0, FABRIC, {}, frozenset(), 0, lambda nic: left.get(nic, 0))
    rng, policy, work = np.random.default_rng(0), Rails(), messages((0, 2, 4 * CHUNK))
    chunks = Chunks(np.zeros(4, dtype=np.int64), np.full(4, CHUNK))
    policy.goes_on_from(busy.backlog_bytes)
    policy.assign(fabric=FABRIC, messages=work, chunks=chunks, rng=rng)
    assert policy.load_state[0].tolist() == [3 * CHUNK, 3 * CHUNK]
    policy.assign(fabric=FABRIC, messages=work, chunks=chunks, rng=rng)  # the paper's reset
    assert policy.load_state[0].tolist() == [2 * CHUNK, 2 * CHUNK]


def test_around_a_failed_nic_rails_hears_of_the_nics_that_it_has() -> None:
    """NIC 1 of server 0 is number 0 of those that are left, and its backlog is still its own."""
    fabric = rail_fabric(3, 3)
    failed = fabric.both_ends([fabric.nic_port(Nic(0, 0))])
    left = {Nic(0, 1): 2 * CHUNK}
    busy = View(0.0, fabric, {}, failed, 0, lambda nic: left.get(nic, 0))
    placed = sprayed("rails").place(busy, messages((0, 3, 2 * CHUNK)))
    assert {pair.source for pair in pairs(placed)} == {Nic(0, 2)}
