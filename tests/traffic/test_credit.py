"""Receiver credits: what a NIC may grant, to whom, and what it knows; and that all bytes come through."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.examples import examples
from topologies.fabric import Nic
from traffic.spraying.policy import QueuePair
from traffic.transports.credit import (
    FIRST_PACKETS,
    LEAST_PACKETS,
    QUEUE_PACKETS,
    SAVED_PACKETS,
    Credit,
    Receiver,
)
from traffic.transports.transport import HEADER_BYTES, LEAST_PACKET_S, UNLIMITED_BYTES, Offered

PACKET = 1000
PERIOD_S = 0.004
SEEDS = st.integers(0, 1 << 16)
PACKETS_S = st.sampled_from([20.0, 500.0, 10_000.0])
"""From a packet in twelve turns to forty in one."""


def saved_packets(packets_s: float) -> float:
    """Return what a NIC grants at once at most."""
    return SAVED_PACKETS * max(1.0, LEAST_PACKET_S * packets_s)


def saved_s(packets_s: float) -> float:
    """Return in which time it could grant that [s]."""
    return saved_packets(packets_s) / packets_s


def receiver_of(packets_s: float, queue_pairs: int) -> Receiver:
    """Return a NIC that takes so many packets a second, at which some queue pairs end."""
    receiver = Receiver(packets_s * (PACKET + HEADER_BYTES), PACKET)
    for number in range(queue_pairs):
        receiver.expect(number)
    return receiver


@dataclass(frozen=True, eq=False)
class Turn:
    """What a receiver knew at one time, and had granted before and after; arrays of shape (queue pairs,)."""

    at_s: float
    announced: NDArray[np.int64]
    arrived: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    round_trip_s: NDArray[np.float64]

    @property
    def granted_bytes(self) -> int:
        """What was granted now."""
        return int((self.after - self.before).sum())

    def most_bytes(self, packets_s: float) -> NDArray[np.float64]:
        """Return what each queue pair may have been granted and not delivered, before a packet more."""
        waiting = max(int(np.count_nonzero(self.before < self.announced)), 1)
        share = max(QUEUE_PACKETS * max(1.0, LEAST_PACKET_S * packets_s) / waiting, LEAST_PACKETS)
        return np.asarray((share + self.round_trip_s * packets_s) * PACKET)


def turns(seed: int, packets_s: float, *, longest: float = 3, takes_back: float = 0) -> list[Turn]:
    """Return a random history of a receiver: bytes are announced, some taken back, and some arrive.

    It is asked after up to so many times what it takes to save up the most.
    """
    rng = np.random.default_rng(seed)
    queue_pairs = int(rng.integers(1, 6))
    receiver, now_s = receiver_of(packets_s, queue_pairs), 100.0
    announced, arrived, granted = np.zeros((3, queue_pairs), dtype=np.int64)
    round_trip_s = rng.choice([0.0, 0.01, 0.1], queue_pairs)
    history = []
    for _ in range(60):
        now_s += rng.uniform(0, longest * saved_s(packets_s))
        for number in np.flatnonzero(rng.random(queue_pairs) < 0.2).tolist():
            back = rng.random() < takes_back
            announced[number] = granted[number] if back else announced[number] + rng.integers(1, 50_000)
            receiver.announced(number, int(announced[number]), float(round_trip_s[number]))
        arrived += ((granted - arrived) * rng.choice([0, 0.5, 1], queue_pairs)).astype(np.int64)
        before = granted.copy()
        for number, size in receiver.grants(arrived, now_s):
            granted[number] = size
        history.append(Turn(now_s, announced.copy(), arrived.copy(), before, granted.copy(), round_trip_s))
    return history


@settings(deadline=None, max_examples=examples(15, 50))
@given(seed=SEEDS, packets_s=PACKETS_S)
def test_no_interval_has_more_grants_than_its_nic_takes_and_what_was_saved(
    seed: int, packets_s: float
) -> None:
    history = turns(seed, packets_s)
    for first in range(len(history)):
        granted = 0
        for turn in history[first:]:
            granted += turn.granted_bytes
            most = (turn.at_s - history[first].at_s) * packets_s + saved_packets(packets_s)
            assert granted <= (most + 1) * PACKET


@settings(deadline=None)
@given(seed=SEEDS, packets_s=PACKETS_S)
def test_nothing_is_granted_that_was_not_announced_and_no_grant_is_taken_back(
    seed: int, packets_s: float
) -> None:
    for turn in turns(seed, packets_s):
        assert (turn.after <= turn.announced).all()
        assert (turn.after >= turn.before).all()


@settings(deadline=None)
@given(seed=SEEDS, packets_s=PACKETS_S)
def test_what_a_queue_pair_was_granted_and_did_not_deliver_is_limited(seed: int, packets_s: float) -> None:
    for turn in turns(seed, packets_s):
        more = turn.after > turn.before
        outstanding = turn.after - turn.arrived
        assert (outstanding < turn.most_bytes(packets_s) + PACKET)[more].all()


@settings(deadline=None)
@given(seed=SEEDS, packets_s=PACKETS_S)
def test_time_is_used_unless_all_that_wait_are_at_their_limits(seed: int, packets_s: float) -> None:
    history = turns(seed, packets_s, longest=1, takes_back=0.3)
    for last, turn in pairwise(history):
        waits = (turn.after < turn.announced) & (turn.after - turn.arrived < turn.most_bytes(packets_s))
        if waits.any():
            packets = sum(-(-(turn.after - turn.before) // PACKET))
            waited_s = turn.at_s - last.at_s if (last.after < last.announced).any() else 0.0
            assert packets > waited_s * packets_s - 1 - 1e-6


@settings(deadline=None)
@given(packets_s=PACKETS_S, queue_pairs=st.integers(2, 8), late=st.integers(0, 3))
def test_equal_demands_are_granted_within_one_packet_of_each_other(
    packets_s: float, queue_pairs: int, late: int
) -> None:
    receiver, granted = receiver_of(packets_s, queue_pairs), np.zeros(queue_pairs, dtype=np.int64)
    for number in range(queue_pairs):
        receiver.announced(number, 200 * PACKET, 0.0)
    past = [granted] * (late + 1)  # what arrived is what was granted some turns ago
    for turn in range(200):
        for number, size in receiver.grants(past[-1 - late], turn * PERIOD_S):
            granted[number] = size
        past.append(granted.copy())
        assert granted.max() - granted.min() <= PACKET


@settings(deadline=None, max_examples=examples(15, 50))
@given(packets_s=PACKETS_S, sizes=st.lists(st.integers(1, 300_000), min_size=1, max_size=6))
def test_nothing_starves_and_a_small_demand_need_not_wait_for_large_ones(
    packets_s: float, sizes: list[int]
) -> None:
    receiver, granted = receiver_of(packets_s, len(sizes)), np.zeros(len(sizes), dtype=np.int64)
    for number, size in enumerate(sizes):
        receiver.announced(number, size, 0.0)
    whole = [-(-size // PACKET) for size in sizes]
    done_s: dict[int, float] = {}
    now_s, spare_s = 0.0, max(saved_s(packets_s), 5 * PERIOD_S)
    while len(done_s) < len(sizes):
        now_s += PERIOD_S
        assert now_s < sum(whole) / packets_s + (2 + len(sizes)) * spare_s, "it takes longer than all of it"
        for number, size in receiver.grants(granted, now_s):
            granted[number] = size
            if size == sizes[number]:
                done_s[number] = now_s
    for number, at_s in done_s.items():
        ahead = sum(min(each, whole[number]) for each in whole)
        assert at_s <= ahead / packets_s + (2 + len(sizes)) * spare_s, "as if all asked for as much"


@given(packets_s=PACKETS_S, idle_s=st.floats(0.0, 1000.0))
def test_a_nic_that_idled_starts_with_fewer_at_once_than_it_saves_while_it_is_asked(
    packets_s: float, idle_s: float
) -> None:
    receiver = receiver_of(packets_s, 1)
    receiver.announced(0, PACKET, 0.0)
    now_s, arrived = 0.0, np.zeros(1, dtype=np.int64)
    while not receiver.grants(arrived, now_s):
        now_s += PERIOD_S
    receiver.grants(np.array([PACKET]), now_s + PERIOD_S)
    receiver.announced(0, 1000 * PACKET, 0.0)
    granted = dict(receiver.grants(np.array([PACKET]), now_s + PERIOD_S + idle_s)).get(0, PACKET) - PACKET
    first = FIRST_PACKETS * saved_packets(packets_s) / SAVED_PACKETS
    saved = min(idle_s * packets_s, first)
    assert (saved - 1) * PACKET <= granted <= (saved + 1) * PACKET
    late_s = now_s + PERIOD_S + idle_s + 3 * saved_s(packets_s)
    delivered = np.array([PACKET + granted])
    more = dict(receiver.grants(delivered, late_s))[0] - int(delivered[0])
    assert (saved_packets(packets_s) - 1) * PACKET <= more <= (saved_packets(packets_s) + 1) * PACKET


# Senders and receivers

NIC_BPS = 8.0 * 500 * (PACKET + HEADER_BYTES)
"""500 packets a second."""


def nic_rate_bps(_nic: Nic) -> float:
    """Return the rate of every NIC."""
    return NIC_BPS


def offered(
    now_s: float,
    left: NDArray[np.int64],
    arrived: NDArray[np.int64],
    *,
    round_trip_s: NDArray[np.float64] | float = 0.0,
    waiting: NDArray[np.int64] | None = None,
    sent: NDArray[np.int64] | None = None,
    group: NDArray[np.int64] | None = None,
) -> Offered:
    """Return what an engine offers; by default nothing chooses."""
    size = len(left)
    return Offered(
        left.copy(),
        np.zeros(size, dtype=np.int64) if waiting is None else waiting,
        arrived.copy(),
        (arrived if sent is None else sent).copy(),
        np.ones(size),
        np.arange(size) if group is None else group,
        np.broadcast_to(round_trip_s, size),
        np.zeros(size, dtype=np.bool_),
        now_s,
        False,
    )


def credit_of(queue_pairs: Sequence[QueuePair]) -> Credit:
    """Return credits for some queue pairs."""
    credit = Credit(nic_rate_bps, PACKET)
    credit.know(queue_pairs)
    return credit


ALL_PAIRS = tuple(
    QueuePair(Nic(a, nic), Nic(b, nic), entropy)
    for a, b, nic, entropy in product(range(4), range(4), range(2), range(2))
    if a != b
)
"""Four servers of two NICs, two queue pairs between each two on a rail."""
AT_ONE = np.array([pair.destination == Nic(2, 1) for pair in ALL_PAIRS])
GROUPS = np.arange(len(ALL_PAIRS)) // 2 * 2
"""Those between the same two NICs are next to each other."""


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Offered], list[Offered]]:
    """Draw what two engines offer: alike at queue pairs to one NIC, and unlike at all others."""
    rng = np.random.default_rng(draw(SEEDS))
    size, grouped = len(ALL_PAIRS), draw(st.booleans())
    delayed = draw(st.booleans())
    both = []
    posted, arrived, trips = np.zeros((2, size)), np.zeros((2, size)), np.zeros((2, size))
    trips[:] = rng.uniform(0, 0.05, size) * delayed
    trips[1, ~AT_ONE] = rng.uniform(0, 0.05, size)[~AT_ONE]
    for step in range(25):
        more, some = rng.integers(0, 20_000, (2, size)) * (rng.random((2, size)) < 0.3), rng.random((2, size))
        wait = rng.integers(0, 50_000, (2, size)) * (rng.random((2, size)) < 0.5) * grouped
        for array in (more, some, wait):
            array[1, AT_ONE] = array[0, AT_ONE]
        posted += more
        arrived += np.floor((posted - arrived) * some)
        both.append(
            [
                offered(
                    step * PERIOD_S,
                    (posted - arrived)[run].astype(np.int64),
                    arrived[run].astype(np.int64),
                    round_trip_s=trips[run].copy(),
                    waiting=wait[run],
                    group=GROUPS if grouped else None,
                )
                for run in (0, 1)
            ]
        )
    return [one for one, _ in both], [other for _, other in both]


@settings(deadline=None, max_examples=examples(18, 60))
@given(both=histories())
def test_what_a_nic_grants_depends_on_nothing_that_other_nics_know(
    both: tuple[list[Offered], list[Offered]],
) -> None:
    one, other = credit_of(ALL_PAIRS), credit_of(ALL_PAIRS)
    unlike = False
    for here, there in zip(*both, strict=True):
        granted, elsewhere = one.limits(here).sent_bytes, other.limits(there).sent_bytes
        assert granted[AT_ONE].tolist() == elsewhere[AT_ONE].tolist()
        unlike |= granted[~AT_ONE].tolist() != elsewhere[~AT_ONE].tolist()
    assert unlike, "the histories do not differ, so this proves nothing"


def test_it_sets_neither_windows_nor_paces() -> None:
    limits = credit_of(ALL_PAIRS).limits(offered(0.0, *np.full((2, len(ALL_PAIRS)), 9)))
    assert (limits.window_bytes == UNLIMITED_BYTES).all()
    assert np.isinf(limits.pace_bytes_s).all()


@given(round_trip_s=st.floats(0.001, 1.0))
@settings(deadline=None, max_examples=examples(9, 30))
def test_announcements_and_grants_take_half_a_round_trip_each(round_trip_s: float) -> None:
    credit, posted_s = credit_of(ALL_PAIRS[:1]), 5.0
    left, none, step_s = np.array([10_000]), np.array([0]), round_trip_s / 20
    first_s = None
    for step in range(100):
        now_s = posted_s + step * step_s
        if credit.limits(offered(now_s, left, none, round_trip_s=round_trip_s)).sent_bytes[0] and not first_s:
            first_s = now_s
    assert first_s is not None
    waits_s = PACKET * 8 / NIC_BPS * 1.1  # until the receiver has the time of a packet
    assert round_trip_s <= first_s - posted_s + 1e-9
    assert first_s - posted_s <= round_trip_s + waits_s + 2 * step_s


@dataclass
class World:
    """Senders, receivers and what is on its way, without queues; turns of an engine."""

    credit: Credit
    queue_pairs: Sequence[QueuePair]
    round_trip_s: NDArray[np.float64]
    now_s: float = 0.0

    def __post_init__(self) -> None:
        """Start with nothing."""
        self.posted, self.sent, self.arrived = np.zeros((3, len(self.queue_pairs)), dtype=np.int64)
        self.held = np.zeros(len(self.queue_pairs), dtype=np.bool_)
        self._flying: list[tuple[float, NDArray[np.int64]]] = []

    def turn(self) -> None:
        """Let what has landed arrive, and what was granted go."""
        self.now_s += PERIOD_S
        while self._flying and self._flying[0][0] <= self.now_s:
            self.arrived += self._flying.pop(0)[1]
        left = np.where(self.held, 0, self.posted - self.arrived)
        if not left.any():
            return
        limits = self.credit.limits(
            offered(self.now_s, left, self.arrived, round_trip_s=self.round_trip_s, sent=self.sent)
        )
        may = np.where(self.held, self.sent, np.minimum(self.posted, limits.sent_bytes))
        going = np.maximum(may - self.sent, 0)
        self.sent += going
        if going.any():
            self._flying.append((self.now_s + self.round_trip_s.max() / 2, going))


@settings(deadline=None, max_examples=examples(18, 60))
@given(seed=SEEDS, round_trip_s=st.sampled_from([0.0, 0.003, 0.05]), holds=st.booleans())
def test_all_that_is_posted_is_granted_in_the_time_that_nics_need(
    seed: int, round_trip_s: float, holds: bool
) -> None:
    rng, pairs = np.random.default_rng(seed), ALL_PAIRS[:12]
    world = World(credit_of(pairs), pairs, np.full(len(pairs), round_trip_s))
    for _ in range(50):
        world.posted += rng.integers(0, 10_000, len(pairs)) * (rng.random(len(pairs)) < 0.1)
        if holds:
            world.held ^= rng.random(len(pairs)) < 0.1
        world.turn()
    world.held[:] = False
    began_s, busiest = world.now_s, max(owed(world))
    while (world.arrived < world.posted).any():
        world.turn()
        needed_s = 1.2 * busiest * 8 / NIC_BPS + 6 * round_trip_s
        assert world.now_s - began_s < needed_s + len(pairs) * 0.01 + 2 * saved_s(500)
    assert (world.sent == world.posted).all()
    assert world.credit.granted_bytes.tolist() == world.sent.tolist(), "each byte was granted once"


def owed(world: World) -> Iterator[int]:
    """Return what each NIC has to receive."""
    left = world.posted - world.arrived
    for nic in {pair.destination for pair in world.queue_pairs}:
        yield sum(
            int(each) for pair, each in zip(world.queue_pairs, left, strict=True) if pair.destination == nic
        )


@pytest.mark.parametrize("round_trip_s", [0.0, 0.02])
def test_an_incast_never_has_more_on_its_way_than_the_queue_of_its_nic(round_trip_s: float) -> None:
    pairs = [QueuePair(Nic(sender, 0), Nic(9, 0)) for sender in range(8)]
    world = World(credit_of(pairs), pairs, np.full(8, round_trip_s))
    world.posted += 500 * PACKET
    most = QUEUE_PACKETS + 8 * round_trip_s * 500 + 8
    while (world.arrived < world.posted).any():
        world.turn()
        assert (world.sent - world.arrived).sum() <= most * PACKET


def test_grants_that_were_on_their_way_to_a_queue_pair_that_was_held_are_void() -> None:
    pairs, round_trip_s = ALL_PAIRS[:2], 0.04
    world = World(credit_of(pairs), pairs, np.full(2, round_trip_s))
    world.posted += 1000 * PACKET
    while world.now_s < 0.75 * round_trip_s:
        world.turn()
    assert not world.sent.any()
    world.held[0] = True
    for _ in range(50):
        world.turn()
    world.held[0], resumed_s = False, world.now_s
    while not world.sent[0]:
        world.turn()
    assert world.now_s - resumed_s >= round_trip_s


def test_what_was_taken_back_is_granted_to_nobody() -> None:
    pairs = [QueuePair(Nic(sender, 0), Nic(9, 0)) for sender in range(2)]
    world = World(credit_of(pairs), pairs, np.zeros(2))
    world.posted += 100 * PACKET
    for _ in range(10):
        world.turn()
    world.posted[0] = world.arrived[0] = world.sent[0]
    sent, began_s = int(world.sent[1]), world.now_s
    while world.sent[1] < world.posted[1]:
        world.turn()
    alone_s = (world.posted[1] - sent) / PACKET / 500
    assert world.now_s - began_s == pytest.approx(alone_s, abs=2 * PERIOD_S)


# Groups: queue pairs of one server and NIC among which bytes choose

PAIR_OF_PATHS = [QueuePair(Nic(0, 0), Nic(1, 0), entropy) for entropy in range(2)]


@given(split=st.integers(0, 5))
def test_a_group_announces_together_and_each_member_may_spend_what_it_was_granted(split: int) -> None:
    credit, group = credit_of(PAIR_OF_PATHS), np.zeros(2, dtype=np.int64)
    nothing, waiting = np.zeros(2, dtype=np.int64), np.full(2, 50 * PACKET)
    credit.limits(offered(0.98, nothing, nothing, waiting=waiting, group=group))
    first = credit.limits(offered(1.0, nothing, nothing, waiting=waiting, group=group))
    assert first.sent_bytes[0] == first.sent_bytes[1] > 5 * PACKET
    granted = int(first.sent_bytes[0])
    spent = np.array([split, 5 - split]) * PACKET
    then = credit.limits(offered(1.0, spent, nothing, waiting=waiting - 5 * PACKET, group=group))
    assert (then.sent_bytes - spent).tolist() == [granted - 5 * PACKET] * 2, "what is above is shared"


def test_a_group_has_one_turn_beside_a_queue_pair_of_its_own() -> None:
    pairs = [*PAIR_OF_PATHS, QueuePair(Nic(2, 0), Nic(1, 0))]
    credit, nothing = credit_of(pairs), np.zeros(3, dtype=np.int64)
    waiting, left = np.array([90, 90, 0]) * PACKET, np.array([0, 0, 90]) * PACKET
    limits = credit.limits(offered(1.0, left, nothing, waiting=waiting, group=np.array([0, 0, 2])))
    assert abs(limits.sent_bytes[0] - limits.sent_bytes[2]) <= PACKET
    assert limits.sent_bytes[0] > 0


@pytest.mark.parametrize("asked_between", [False, True])
def test_queue_pairs_that_leave_a_group_are_granted_anew(asked_between: bool) -> None:
    credit, together = credit_of(PAIR_OF_PATHS), np.zeros(2, dtype=np.int64)
    nothing, arrived = np.zeros(2, dtype=np.int64), np.array([30, 20]) * PACKET
    waiting = np.full(2, 50 * PACKET)
    credit.limits(offered(1.0, nothing, nothing, waiting=waiting, group=together))
    credit.limits(offered(2.0, nothing, arrived, group=together))
    if asked_between:
        credit.limits(offered(2.5, nothing, arrived))
    alone = credit.limits(offered(3.0, np.full(2, 30 * PACKET), arrived)).sent_bytes - arrived
    at_once = (SAVED_PACKETS + 1) * PACKET
    assert 0 < alone.sum() <= at_once, "the one counts as its own what the other carried"
    again = (
        credit.limits(offered(4.0, nothing, arrived, waiting=waiting, group=together)).sent_bytes - arrived
    )
    assert again[0] == again[1]
    assert 0 < again[0] <= 2 * at_once


def test_what_is_sent_without_a_grant_does_not_count_as_granted() -> None:
    credit, group = credit_of(PAIR_OF_PATHS), np.zeros(2, dtype=np.int64)
    sent, chunk, size, now_s = np.zeros(2, dtype=np.int64), 3 * PACKET // 2, 300 * PACKET, 1.0
    while sent.sum() < size:  # a chunk of one and a half packets goes wherever there is room for a byte
        waiting = np.full(2, size - sent.sum())
        limits = credit.limits(offered(now_s, sent * 0, sent, waiting=waiting, sent=sent, group=group))
        for member in np.flatnonzero(limits.sent_bytes > sent)[:1]:
            sent[member] += min(chunk, size - sent.sum())
        now_s += PACKET / (NIC_BPS / 8)
    assert size / credit.granted_bytes.sum() == pytest.approx(1.5, abs=0.02)


@pytest.mark.parametrize("used", [0, 3, 8])
def test_what_was_taken_back_unused_was_not_granted_and_what_was_sent_before_was(used: int) -> None:
    credit, nothing = credit_of(ALL_PAIRS[:1]), np.zeros(1, dtype=np.int64)
    credit.limits(offered(0.98, np.array([100 * PACKET]), nothing))
    limits = credit.limits(offered(1.0, np.array([100 * PACKET]), nothing))
    assert limits.sent_bytes[0] >= 8 * PACKET
    sent = np.array([used * PACKET])
    credit.limits(offered(1.0, nothing, nothing, sent=sent))  # it is held, and what it sent is under way
    assert credit.granted_bytes.tolist() == [used * PACKET]
    for now_s in (1.01, 1.03, 1.05, 1.07):
        credit.limits(offered(now_s, np.array([(9 - used) * PACKET]), sent, sent=sent))
    assert credit.granted_bytes.tolist() == [9 * PACKET]


def test_queue_pairs_that_join_keep_what_they_were_granted_and_have_sent() -> None:
    credit, nothing = credit_of(PAIR_OF_PATHS), np.zeros(2, dtype=np.int64)
    left = np.array([30, 20]) * PACKET
    credit.limits(offered(0.98, left, nothing))
    limits = credit.limits(offered(1.0, left, nothing))
    sent = np.minimum(limits.sent_bytes, 4 * PACKET)
    waiting, group = np.full(2, 50 * PACKET) - sent.sum(), np.zeros(2, dtype=np.int64)
    credit.limits(offered(1.0, sent, nothing, waiting=waiting, sent=sent, group=group))
    assert credit.granted_bytes.sum() <= sent.sum() + (SAVED_PACKETS + 1) * PACKET
    assert credit.granted_bytes.sum() >= sent.sum()
