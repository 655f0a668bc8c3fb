"""Receiver credits: what a NIC may grant, to whom, and what it knows; and that all bytes come through."""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.examples import examples
from tests.traffic.source_cases import arrive, lane_of, send
from topologies.fabric import Nic
from traffic.congestion.credit import (
    FIRST_PACKETS,
    LEAST_PACKETS,
    QUEUE_PACKETS,
    SAVED_PACKETS,
    Has,
    Receiver,
)
from traffic.spraying.policy import QueuePair
from traffic.transports.datagram_lane import Crossed
from traffic.transports.registry import algorithm_named
from traffic.transports.sources import Sources
from traffic.transports.transport import HEADER_BYTES, LEAST_PACKET_S

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


def receiver_of(packets_s: float, sources: int) -> Receiver:
    """Return a NIC that takes so many packets a second, and has some sources."""
    receiver = Receiver(packets_s * (PACKET + HEADER_BYTES), PACKET)
    for number in range(sources):
        receiver.expect(number)
    return receiver


def granted_now(receiver: Receiver, now_s: float) -> dict[int, int]:
    """Return the sources that are granted more now, and what each may have sent of all it ever sends."""
    return {source: grant.granted_bytes for source, grant in receiver.grants(now_s)}


@dataclass(frozen=True, eq=False)
class Turn:
    """What a receiver knew at one time, and had granted before and after; arrays of shape (sources,)."""

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
        """Return what each source may have been granted and not delivered, before a packet more."""
        waiting = max(int(np.count_nonzero(self.before < self.announced)), 1)
        share = max(QUEUE_PACKETS * max(1.0, LEAST_PACKET_S * packets_s) / waiting, LEAST_PACKETS)
        return np.asarray((share + self.round_trip_s * packets_s) * PACKET)


def turns(seed: int, packets_s: float, *, longest: float = 3, takes_back: float = 0) -> list[Turn]:
    """Return a random history of a receiver: bytes are announced, some taken back, and some arrive.

    It is asked after up to so many times what it takes to save up the most.
    """
    rng = np.random.default_rng(seed)
    sources = int(rng.integers(1, 6))
    receiver, now_s = receiver_of(packets_s, sources), 100.0
    announced, arrived, granted = np.zeros((3, sources), dtype=np.int64)
    round_trip_s = rng.choice([0.0, 0.01, 0.1], sources)
    history = []
    for _ in range(60):
        now_s += rng.uniform(0, longest * saved_s(packets_s))
        for number in np.flatnonzero(rng.random(sources) < 0.2).tolist():
            back = rng.random() < takes_back
            announced[number] = granted[number] if back else announced[number] + rng.integers(1, 50_000)
            sent = int(granted[number])
            receiver.on_announced(number, Has(int(announced[number]), sent, float(round_trip_s[number])))
        gone = ((granted - arrived) * rng.choice([0, 0.5, 1], sources)).astype(np.int64)
        for number, size in enumerate(gone.tolist()):
            receiver.on_arrived(number, size)
        arrived += gone
        before = granted.copy()
        for number, size in granted_now(receiver, now_s).items():
            granted[number] = size
        assert [receiver.granted_bytes(number) for number in range(sources)] == granted.tolist()
        history.append(Turn(now_s, announced.copy(), arrived.copy(), before, granted.copy(), round_trip_s))
    return history


@settings(max_examples=examples(15, 50))
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


@given(seed=SEEDS, packets_s=PACKETS_S)
def test_nothing_is_granted_that_was_not_announced_and_no_grant_is_taken_back(
    seed: int, packets_s: float
) -> None:
    for turn in turns(seed, packets_s):
        assert (turn.after <= turn.announced).all()
        assert (turn.after >= turn.before).all()


@given(seed=SEEDS, packets_s=PACKETS_S)
def test_what_a_source_was_granted_and_did_not_deliver_is_limited(seed: int, packets_s: float) -> None:
    for turn in turns(seed, packets_s):
        more = turn.after > turn.before
        outstanding = turn.after - turn.arrived
        assert (outstanding < turn.most_bytes(packets_s) + PACKET)[more].all()


@given(seed=SEEDS, packets_s=PACKETS_S)
def test_time_is_used_unless_all_that_wait_are_at_their_limits(seed: int, packets_s: float) -> None:
    history = turns(seed, packets_s, longest=1, takes_back=0.3)
    for last, turn in pairwise(history):
        waits = (turn.after < turn.announced) & (turn.after - turn.arrived < turn.most_bytes(packets_s))
        if waits.any():
            packets = sum(-(-(turn.after - turn.before) // PACKET))
            waited_s = turn.at_s - last.at_s if (last.after < last.announced).any() else 0.0
            assert packets > waited_s * packets_s - 1 - 1e-6


@given(packets_s=PACKETS_S, sources=st.integers(2, 8), late=st.integers(0, 3))
def test_equal_demands_are_granted_within_one_packet_of_each_other(
    packets_s: float, sources: int, late: int
) -> None:
    receiver, granted = receiver_of(packets_s, sources), dict.fromkeys(range(sources), 0)
    for number in range(sources):
        receiver.on_announced(number, Has(200 * PACKET, 0, 0.0))
    gone = deque([dict.fromkeys(range(sources), 0)] * late)  # what is gone was granted some turns ago
    for turn in range(200):
        more = granted_now(receiver, turn * PERIOD_S)
        gone.append({number: size - granted[number] for number, size in more.items()})
        for number, size in gone.popleft().items():
            receiver.on_arrived(number, size)
        granted |= more
        assert max(granted.values()) - min(granted.values()) <= PACKET
    assert min(granted.values()) > 0


@settings(max_examples=examples(15, 50))
@given(packets_s=PACKETS_S, sizes=st.lists(st.integers(1, 300_000), min_size=1, max_size=6))
def test_nothing_starves_and_a_small_demand_need_not_wait_for_large_ones(
    packets_s: float, sizes: list[int]
) -> None:
    receiver, granted = receiver_of(packets_s, len(sizes)), dict.fromkeys(range(len(sizes)), 0)
    for number, size in enumerate(sizes):
        receiver.on_announced(number, Has(size, 0, 0.0))
    whole = [-(-size // PACKET) for size in sizes]
    done_s: dict[int, float] = {}
    now_s, spare_s = 0.0, max(saved_s(packets_s), 5 * PERIOD_S)
    while len(done_s) < len(sizes):
        now_s += PERIOD_S
        assert now_s < sum(whole) / packets_s + (2 + len(sizes)) * spare_s, "it takes longer than all of it"
        for number, size in granted_now(receiver, now_s).items():
            receiver.on_arrived(number, size - granted[number])
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
    receiver.on_announced(0, Has(PACKET, 0, 0.0))
    now_s = 0.0
    while not granted_now(receiver, now_s):
        now_s += PERIOD_S
    receiver.on_arrived(0, PACKET)
    assert not granted_now(receiver, now_s + PERIOD_S)
    receiver.on_announced(0, Has(1000 * PACKET, PACKET, 0.0))
    granted = granted_now(receiver, now_s + PERIOD_S + idle_s).get(0, PACKET) - PACKET
    first = FIRST_PACKETS * saved_packets(packets_s) / SAVED_PACKETS
    saved = min(idle_s * packets_s, first)
    assert (saved - 1) * PACKET <= granted <= (saved + 1) * PACKET
    receiver.on_arrived(0, granted)
    late_s = now_s + PERIOD_S + idle_s + 3 * saved_s(packets_s)
    more = granted_now(receiver, late_s)[0] - PACKET - granted
    assert (saved_packets(packets_s) - 1) * PACKET <= more <= (saved_packets(packets_s) + 1) * PACKET


# Sources and receivers

NIC_BPS = 8.0 * 500 * (PACKET + HEADER_BYTES)
"""500 packets a second."""


def nic_rate_bps(_nic: Nic) -> float:
    """Return the rate of every NIC."""
    return NIC_BPS


@dataclass(eq=False)
class World:
    """Sources, receivers and what is on its way, without queues; turns of an engine.

    Arrays are of shape (sources,).
    """

    destinations: Sequence[Nic]
    """Of each source."""
    round_trip_s: NDArray[np.float64]
    bps: float = NIC_BPS
    period_s: float = PERIOD_S
    now_s: float = 0.0
    loses: float = 0.0
    """The share of what is sent that is lost, and known to be when it would have arrived."""
    _flying: list[tuple[float, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start with nothing."""
        size, self._rng = len(self.destinations), np.random.default_rng(0)
        self.sources = Sources(algorithm_named("credit"), lambda _nic: self.bps, PACKET, seed=0)
        for number, nic in enumerate(self.destinations):
            lane = lane_of(QueuePair(Nic(100 + number, 0), nic), self._crossed(number))
            self.sources.add(lane)
        self.posted, self.sent, self.arrived, self.lost, self.credit = np.zeros((5, size), dtype=np.int64)
        self.held = np.zeros(size, dtype=np.bool_)

    @property
    def left(self) -> NDArray[np.int64]:
        """What each has to send."""
        return self.posted + self.lost - self.sent

    @property
    def given(self) -> list[int]:
        """What each was granted."""
        given = [self.sources.granted_bytes(source) for source in self.sources]
        assert None not in given
        return [each or 0 for each in given]

    def _crossed(self, number: int) -> Crossed:
        return Crossed(self.bps / 8, float(self.round_trip_s[number]) / 2)

    def turn(self, *, sends: bool = True) -> list[tuple[int, int]]:
        """Let what has landed arrive, and what was granted go; return what more each may send."""
        self.now_s += self.period_s
        while self._flying and self._flying[0][0] <= self.now_s:
            self._land(*heapq.heappop(self._flying)[1:])
        for source, left in zip(self.sources, self.left.tolist(), strict=True):
            source.lane.crossed, source.held = self._crossed(source.number), bool(self.held[source.number])
            self.sources.crosses(source)
            self.sources.want(source, left - source.wants)
        offers = np.where(self.held, 0, self.left)
        before = np.minimum(self.credit, offers)
        asked, _ = self.sources.turn(self.now_s)
        self.credit = np.array([source.allowed for source in self.sources])
        more = self.credit - before
        if sends:
            self.send(np.minimum(self.credit, offers))
        assert (self.sent + self.credit <= self.given).all(), "some may send more than was granted"
        return [(each.number, int(more[each.number])) for each in asked if more[each.number]]

    def send(self, going: NDArray[np.int64]) -> None:
        """Have some bytes leave."""
        self.sent += going
        self.credit -= going
        for source in self.sources:
            if size := int(going[source.number]):
                lands_s = self.now_s + float(self.round_trip_s[source.number]) / 2
                send(self.sources, source, size)
                heapq.heappush(self._flying, (lands_s, source.number, size))

    def _land(self, number: int, size: int) -> None:
        source = next(each for each in self.sources if each.number == number)
        arrive(source, size)
        (self.lost if self._rng.random() < self.loses else self.arrived)[number] += size

    def owed(self) -> int:
        """Return what the busiest NIC has to receive."""
        left = self.posted - self.arrived
        return max(
            sum(int(each) for of, each in zip(self.destinations, left, strict=True) if of == nic)
            for nic in set(self.destinations)
        )


NICS = [Nic(server, nic) for server in range(3) for nic in range(2) for _ in range(4)]
"""The destinations of four sources each."""
AT_ONE = np.array([nic == Nic(2, 1) for nic in NICS])


@settings(max_examples=examples(18, 60))
@given(seed=SEEDS)
def test_what_a_nic_grants_depends_on_nothing_that_other_nics_know(seed: int) -> None:
    rng = np.random.default_rng(seed)
    trips = rng.uniform(0, 0.05, (2, len(NICS)))
    trips[1, AT_ONE] = trips[0, AT_ONE]
    here, there = (World(NICS, each) for each in trips)
    unlike = False
    for _ in range(40):
        more, held = rng.integers(0, 20_000, (2, len(NICS))), rng.random((2, len(NICS))) < 0.1
        posts = rng.random((2, len(NICS))) < 0.3
        for each in (more, held, posts):
            each[1, AT_ONE] = each[0, AT_ONE]
        came = []
        for run, world in enumerate((here, there)):
            world.posted += (more * posts)[run]
            world.held = held[run]
            came.append(dict(world.turn()))
        granted, elsewhere = ([each.get(source.number, 0) for source in here.sources] for each in came)
        assert np.array(granted)[AT_ONE].tolist() == np.array(elsewhere)[AT_ONE].tolist()
        unlike |= granted != elsewhere
    assert unlike, "the histories do not differ, so this proves nothing"


@given(round_trip_s=st.floats(0.001, 1.0))
@settings(max_examples=examples(9, 30))
def test_announcements_and_grants_take_half_a_round_trip_each(round_trip_s: float) -> None:
    world = World([Nic(1, 0)], np.array([round_trip_s]), period_s=round_trip_s / 20, now_s=5.0)
    world.posted[:] = 10 * PACKET
    while not world.turn():
        posted_s = 5.0 + world.period_s
    waits_s = PACKET * 8 / NIC_BPS * 1.1  # until the receiver has the time of a packet
    assert round_trip_s <= world.now_s - posted_s + 1e-9
    assert world.now_s - posted_s <= round_trip_s + waits_s + 2 * world.period_s


@settings(max_examples=examples(18, 60))
@given(
    seed=SEEDS,
    round_trip_s=st.sampled_from([0.0, 0.003, 0.05]),
    holds=st.booleans(),
    loses=st.sampled_from([0.0, 0.1]),
)
def test_all_that_is_posted_is_granted_in_the_time_that_nics_need(
    seed: int, round_trip_s: float, holds: bool, loses: float
) -> None:
    rng, nics = np.random.default_rng(seed), NICS[:12]
    world = World(nics, np.full(len(nics), round_trip_s), loses=loses)
    for _ in range(50):
        world.posted += rng.integers(0, 10_000, len(nics)) * (rng.random(len(nics)) < 0.1)
        if holds:
            world.held ^= rng.random(len(nics)) < 0.1
        world.turn()
    world.held[:] = False
    began_s, busiest = world.now_s, world.owed()
    while (world.arrived < world.posted).any():
        world.turn()
        needed_s = 1.2 * busiest / (1 - 2 * loses) * 8 / NIC_BPS + (6 + 60 * loses) * round_trip_s
        assert world.now_s - began_s < needed_s + len(nics) * 0.01 + 2 * saved_s(500)
    assert world.sent.tolist() == (world.posted + world.lost).tolist()
    assert world.given == world.sent.tolist(), "each byte was granted once, and once more when it was lost"


@pytest.mark.parametrize("round_trip_s", [0.0, 0.02])
def test_an_incast_never_has_more_on_its_way_than_the_queue_of_its_nic(round_trip_s: float) -> None:
    world = World([Nic(9, 0)] * 8, np.full(8, round_trip_s))
    world.posted += 500 * PACKET
    most = QUEUE_PACKETS + 8 * round_trip_s * 500 + 8
    while (world.arrived < world.posted).any():
        world.turn()
        assert (world.sent - world.arrived).sum() <= most * PACKET


def test_sources_of_a_nic_take_turns_and_each_has_its_share_of_the_queue() -> None:
    world = World([Nic(9, 0)] * 5, np.zeros(5))
    world.posted += 100 * PACKET
    for _ in range(100):
        world.turn(sends=False)
    assert world.credit.tolist() == [QUEUE_PACKETS // 5 * PACKET] * 5
    world.posted[3:] = 0
    for _ in range(100):
        world.turn(sends=False)
    assert world.credit.tolist() == [(QUEUE_PACKETS // 3 + 1) * PACKET] * 3 + [0, 0]


def test_grants_that_were_on_their_way_to_a_source_that_was_held_are_void() -> None:
    round_trip_s = 0.04
    world = World(NICS[:2], np.full(2, round_trip_s))
    world.posted += 1000 * PACKET
    while world.now_s < 0.75 * round_trip_s:
        world.turn()
    assert not world.sent.any()
    world.held[0] = True
    for _ in range(50):
        world.turn()
    assert (world.given[0], world.given[1] > 0) == (0, True)
    world.held[0], resumed_s = False, world.now_s
    while not world.sent[0]:
        world.turn()
    assert world.now_s - resumed_s >= round_trip_s


@pytest.mark.parametrize("back", [1, 4, 9, 10])
def test_of_grants_on_their_way_only_what_was_taken_back_is_void(back: int) -> None:
    round_trip_s = 0.2
    world = World(NICS[:1], np.array([round_trip_s]))
    world.posted += 10 * PACKET
    while world.given != [10 * PACKET]:
        assert not world.turn()
    world.posted -= back * PACKET  # all was granted, and no grant has come
    for _ in range(100):
        world.turn()
    assert world.arrived.tolist() == world.given == [(10 - back) * PACKET]
    world.posted += 5 * PACKET
    for _ in range(100):
        world.turn()
    assert world.arrived.tolist() == world.given == [(15 - back) * PACKET]


@settings(max_examples=examples(25, 100))
@given(seed=SEEDS)
def test_whatever_is_taken_back_while_round_trips_change_all_that_is_left_is_granted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    world = World(NICS[:8], np.zeros(8))
    for _ in range(100):
        changes = rng.random(8) < 0.2
        world.posted += np.where(changes, rng.integers(0, 10 * PACKET, 8), 0)
        world.posted -= np.where(rng.random(8) < 0.2, (rng.random(8) * world.left).astype(np.int64), 0)
        world.round_trip_s = np.where(changes, rng.choice([0.0, 0.02, 0.2], 8), world.round_trip_s)
        world.held ^= rng.random(8) < 0.1
        world.turn(sends=rng.random() < 0.7)
    world.held[:] = False
    for _ in range(500):
        world.turn()
    assert world.arrived.tolist() == world.posted.tolist() == world.given


def test_what_was_taken_back_is_granted_to_nobody() -> None:
    world = World([Nic(9, 0)] * 2, np.zeros(2))
    world.posted += 100 * PACKET
    for _ in range(10):
        world.turn()
    world.posted[0] = world.sent[0]
    sent, began_s = int(world.sent[1]), world.now_s
    while world.sent[1] < world.posted[1]:
        world.turn()
    alone_s = (world.posted[1] - sent) / PACKET / 500
    assert world.now_s - began_s == pytest.approx(alone_s, abs=2 * PERIOD_S)


@pytest.mark.parametrize("used", [0, 3, 8])
def test_what_was_taken_back_unused_was_not_granted_and_what_was_sent_before_was(used: int) -> None:
    world = World(NICS[:1], np.zeros(1))
    world.posted += 100 * PACKET
    while world.credit[0] < 8 * PACKET:
        world.turn(sends=False)
    world.send(np.array([used * PACKET]))
    world.held[:] = True  # and what it sent is under way
    world.turn()
    assert world.given == [used * PACKET]
    world.held[:], world.posted[:] = False, 9 * PACKET
    for _ in range(20):
        world.turn()
    assert world.given == [9 * PACKET]


def test_what_is_gone_makes_room_for_as_much_and_no_more() -> None:
    receiver = receiver_of(500.0, 1)
    receiver.on_announced(0, Has(100 * PACKET, 0, 0.0))
    granted = list[int]()
    for turn, gone in enumerate((0, 0, 7, 20, 5, 0)):
        receiver.on_arrived(0, gone * PACKET)
        for part in range(10):
            granted_now(receiver, turn + part / 10)
        granted.append(receiver.granted_bytes(0) // PACKET)
    assert granted == [25, 25, 32, 52, 57, 57]


def granted_at(rate_bps: float) -> list[tuple[int, int]]:
    """Return what an incast of three is granted in each turn, of about half a packet's time."""
    of_a_packet_s = 8 * (PACKET + HEADER_BYTES) / rate_bps
    trips = np.array([0.0, 3.07, 9.13]) * of_a_packet_s
    world = World([Nic(9, 0)] * 3, trips, bps=rate_bps, period_s=of_a_packet_s * 0.4931)
    world.posted += np.array([200, 150, 90]) * PACKET
    return [each for _ in range(300) for each in [*world.turn(), (-1, 0)]]


@pytest.mark.parametrize("rate_bps", [8e3, 7e6])
def test_credits_are_the_same_at_every_rate(rate_bps: float) -> None:
    """At every rate at which a packet takes a millisecond or more."""
    here, there = granted_at(rate_bps), granted_at(24e4)
    assert here == there
    assert len({source for source, _ in there}) == 4
