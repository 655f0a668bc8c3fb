"""Reactive policies: what holds for every one of them, and each one's own rule."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from math import inf
from typing import overload

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.docs.pages import file_of
from tests.examples import examples
from tests.traffic.cases import Work, admitted_by, carried, work_of, works
from topologies.errors import ScenarioError
from topologies.fabric import Nic
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.plb import Plb
from traffic.spraying.policy import (
    ENTROPIES,
    HearsLosses,
    LaneSet,
    LaneState,
    Message,
    QueuePair,
    ReactivePolicy,
    between_nics,
    each_of,
    entropies_between,
)
from traffic.spraying.registry import POLICIES, policy_named
from traffic.spraying.rehearsal import rehearse
from traffic.spraying.reps import Reps
from traffic.spraying.spray import Spray
from traffic.spraying.subflows import Subflows

REACTIVE = [name for name in POLICIES if isinstance(policy_named(name), ReactivePolicy)]
OF_NIC = 64
"""How many entropies a NIC has over datagrams."""


def reactive(name: str, entropies: int | None = None) -> ReactivePolicy:
    policy = policy_named(name, entropies)
    assert isinstance(policy, ReactivePolicy)
    return policy


def idle(count: int) -> list[LaneState]:
    return [LaneState(0, 0.0, True) for _ in range(count)]


def lanes_of(policy: ReactivePolicy, work: Work) -> int:
    """Return how many lanes a policy lets a work's first message use."""
    return sum(map(len, admitted_by(policy, work).lanes[0]))


def one_message(rails: int, destination: int) -> Work:
    """Return two servers and one message, from GPU 0 to a GPU of server 1."""
    fabric = rail_fabric(2, rails, rate_bps=80.0)
    matrix = np.zeros((fabric.gpus, fabric.gpus), dtype=np.int64)
    matrix[0, rails + destination] = 1000
    return work_of(fabric, matrix)


def one_nic_each() -> Work:
    """Return two servers of one NIC, four spines between them, and one message of many chunks."""
    fabric = leaf_spine_fabric(2, 2, 4, rate_bps=80.0)
    return work_of(fabric, np.array([[0, 2000], [0, 0]]))


@pytest.mark.parametrize("entropies", [None, OF_NIC])
@pytest.mark.parametrize("name", REACTIVE)
@settings(max_examples=examples(8, 25))
@given(work=works(largest=50), seed=st.integers(0, 100))
def test_every_chunk_is_carried_where_it_may_be(
    name: str, entropies: int | None, work: Work, seed: int
) -> None:
    servers, pairs = work.fabric.gpu_servers, carried(work, reactive(name, entropies), seed)
    for message, pair in zip(work.chunks.message.tolist(), pairs, strict=True):
        assert pair.source.server == servers[work.crossing.source[message]]
        assert pair.destination == work.fabric.pinned_nic(int(work.crossing.destination[message]))


@given(work=works())
def test_plb_keeps_to_its_gpus_nic_and_the_others_use_all(work: Work) -> None:
    for policy, everywhere in ((Plb(), False), (MinRtt(), True), (Reps(), True), (Spray(), True)):
        lanes = admitted_by(policy, work).lanes
        for source, among in zip(work.crossing.source.tolist(), lanes, strict=True):
            assert len(set(each_of(among))) == len(each_of(among))
            nic = work.fabric.pinned_nic(source)
            all_nics = set(range(work.fabric.servers[nic.server].nics))
            used = {lane.source.nic for lane in each_of(among)}
            assert used == (all_nics if everywhere else {nic.nic})


def test_where_one_switch_joins_two_nics_one_entropy_is_enough() -> None:
    fabric, rng = rail_fabric(2, 2), np.random.default_rng(0)
    subflows = Subflows(fabric, rng, 5)
    assert len(subflows.between(Nic(0, 1), Nic(1, 1))) == 1
    across = subflows.between(Nic(0, 1), Nic(1, 0))
    assert len(set(across.entropies)) == len(across) == 5


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=3))
def test_queue_pairs_between_nics_and_their_entropies_are_all_lanes(
    counts: list[tuple[int, int, int]],
) -> None:
    lanes = [
        LaneSet(
            tuple(Nic(0, nic) for nic in range(near)), tuple(Nic(1, nic) for nic in range(far)), range(each)
        )
        for near, far, each in counts
    ]
    sprayed = zip(between_nics(lanes), entropies_between(lanes), strict=True)
    assert each_of(lanes) == [replace(pair, entropy=value) for pair, own in sprayed for value in own]
    assert list(map(len, lanes)) == [near * far * each for near, far, each in counts]


@given(among=st.integers(1, ENTROPIES), share=st.floats(0, 1))
def test_entropies_are_different_ones_of_those_that_there_are(among: int, share: float) -> None:
    count = max(1, round(share * among))
    subflows = Subflows(rail_fabric(2, 2), np.random.default_rng(0), count, among)
    drawn = subflows.between(Nic(0, 1), Nic(1, 0)).entropies
    assert len(set(drawn)) == count
    assert set(drawn) <= set(range(among))
    if count == among:
        assert drawn == range(among)


@pytest.mark.parametrize(
    ("name", "entropies", "lanes", "in_flight"),
    [
        ("reps", None, 2, 16),
        ("reps", OF_NIC, 64, None),
        ("reps:16", None, 16, 16),
        ("reps:16", OF_NIC, 16, None),
        ("spray", None, 8, None),
        ("spray", OF_NIC, 64, None),
        ("spray:5", OF_NIC, 5, None),
        ("plb", None, 4, None),
        ("plb", OF_NIC, 64, None),
        ("plb:3", OF_NIC, 3, None),
        ("minrtt", None, 1, None),
        ("minrtt", OF_NIC, 1, None),
        ("minrtt:8", None, 8, None),
        ("minrtt:8", OF_NIC, 8, None),
    ],
)
def test_a_name_and_what_a_nic_has_say_how_many_entropies(
    name: str, entropies: int | None, lanes: int, in_flight: int | None
) -> None:
    policy = reactive(name, entropies)
    (among,) = admitted_by(policy, one_nic_each()).lanes
    assert [len(each) for each in among] == [lanes]
    drawn = {lane.entropy for lane in each_of(among)}
    assert len(drawn) == lanes
    assert max(drawn) < (entropies or ENTROPIES)
    assert (policy.name, getattr(policy, "in_flight", None)) == (name, in_flight)
    assert getattr(policy, "per_packet", False)


@pytest.mark.parametrize("name", ["reps", "spray", "plb", "minrtt"])
def test_no_more_entropies_are_asked_for_than_a_nic_has(name: str) -> None:
    with pytest.raises(ScenarioError, match=f"'{name}:65' asks for '65' entropies; give .* from 1 to 64"):
        policy_named(f"{name}:65", OF_NIC)
    assert policy_named(f"{name}:65").name == policy_named("pxn:65", OF_NIC).name.replace("pxn", name)


class Looked(Sequence[LaneState]):
    """The states of so many lanes, in which it is counted how many are looked at."""

    def __init__(self, lanes: int, *, room: bool) -> None:
        self.lanes, self.room, self.looks = lanes, room, 0

    def __len__(self) -> int:
        return self.lanes

    @overload
    def __getitem__(self, lane: int) -> LaneState: ...
    @overload
    def __getitem__(self, lane: slice) -> list[LaneState]: ...
    def __getitem__(self, lane: int | slice) -> LaneState | list[LaneState]:
        assert isinstance(lane, int)
        assert 0 <= lane < self.lanes
        self.looks += 1
        return LaneState(0, 0.0, self.room)


@pytest.mark.parametrize("name", ["reps", "spray", "plb"])
@pytest.mark.parametrize("room", [True, False])
def test_over_datagrams_few_lanes_are_looked_at_for_each_packet(name: str, room: bool) -> None:
    nics, policy = 8, reactive(name, OF_NIC)
    states = Looked(lanes_of(policy, one_message(nics, 0)), room=room)
    for turn in range(200):
        states.looks = 0
        lane = policy.choose(message=0, states=states, now=float(turn))
        assert (lane is not None) == room
        assert states.looks <= (2 if room else 20)
        if lane is not None and turn % 2:
            policy.acknowledged(message=0, lane=lane, rtt_s=1.0, marked=bool(turn % 3), now=float(turn))


class Hearing(MinRtt):
    """A user's own policy that hears of losses."""

    name = "hearing"

    def __init__(self) -> None:
        self.in_flight: list[tuple[int, int]] = []
        self.losses = 0

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Choose as MinRTT does."""
        lane = super().choose(message=message, states=states, now=now)
        if lane is not None:
            self.in_flight.append((message, lane))
        return lane

    def acknowledged(self, *, message: int, lane: int, rtt_s: float, marked: bool, now: float) -> None:
        """Take off what was in flight."""
        self.in_flight.remove((message, lane))

    def lost(self, *, message: int, lane: int, now: float) -> None:
        """Take off what was in flight."""
        self.in_flight.remove((message, lane))
        self.losses += 1


class Deaf(MinRtt):
    """A user's own policy that calls something else a loss."""

    name = "deaf"

    def lost(self, message: int) -> None:
        """Do nothing."""


def test_a_users_own_policy_hears_of_losses_if_it_has_the_method() -> None:
    policy, work = Hearing(), work_of(rail_fabric(4, 2), np.full((8, 8), 24))
    rehearse(policy, work.fabric, work.crossing)
    assert policy.losses > 5
    assert not policy.in_flight
    own, other = policy_named(f"{__name__}:Hearing", OF_NIC), reactive("tests.traffic.test_spraying:Raising")
    assert isinstance(own, ReactivePolicy)
    assert isinstance(own, HearsLosses)
    assert getattr(own, "per_packet", False)
    assert not isinstance(other, HearsLosses)
    rehearse(own, work.fabric, work.crossing)
    with pytest.raises(ScenarioError, match="your scheme raised ValueError"):
        own.lost(message=0, lane=0, now=0.0)
    with pytest.raises(ScenarioError, match=r"Deaf.lost' does not take the arguments message, lane, now"):
        policy_named(f"{__name__}:Deaf")


def test_the_page_on_own_schemes_has_one_over_all_entropies_that_works() -> None:
    made: dict[str, object] = {}
    exec(file_of("docs/reference/extension_points.md", "own_random.py"), made)
    own = made["Random"]
    assert isinstance(own, type)
    policy, work = own(), one_nic_each()
    assert isinstance(policy, ReactivePolicy)
    assert len(set(carried(work, policy))) > 50
    rehearse(own(), work.fabric, work.crossing)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4, unique=True),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4, unique=True),
    st.integers(1, 100),
)
def test_a_set_of_lanes_is_the_list_that_it_stands_for(
    near: list[tuple[int, int]], far: list[tuple[int, int]], entropies: int
) -> None:
    sources, destinations = (tuple(Nic(*ends) for ends in side) for side in (near, far))
    lanes = LaneSet(sources, destinations, range(entropies))
    listed = [QueuePair(*each) for each in product(sources, destinations, range(entropies))]
    assert (list(lanes), len(lanes)) == (listed, len(listed))


@pytest.mark.parametrize("count", [0, 5000])
def test_entropies_that_there_are_not_are_refused(count: int) -> None:
    with pytest.raises(ScenarioError, match="between two NICs"):
        Subflows(rail_fabric(2, 2), np.random.default_rng(0), count)


def test_minrtt_takes_the_shortest_that_has_room() -> None:
    policy = MinRtt()
    admitted_by(policy, one_message(3, 0))
    states = [LaneState(0, 0.003, True), LaneState(0, 0.001, False), LaneState(9, 0.002, True)]
    assert policy.choose(message=0, states=states, now=0.0) == 2
    states[0].rtt_s = 0.0  # never measured: try it
    assert policy.choose(message=0, states=states, now=0.0) == 0
    for state in states:
        state.room = False
    assert policy.choose(message=0, states=states, now=0.0) is None


def test_minrtt_takes_the_emptiest_of_equals() -> None:
    policy = MinRtt()
    admitted_by(policy, one_message(3, 0))
    states = [LaneState(8, 0.0, True), LaneState(0, 0.0, True), LaneState(0, 0.0, True)]
    assert policy.choose(message=0, states=states, now=0.0) == 1


def test_minrtt_takes_the_shortest_of_all_subflows_of_a_nic() -> None:
    policy = MinRtt(8)
    states = idle(lanes_of(policy, one_message(2, 1)))
    assert len(states) == 8 + 1, "one switch joins the other NIC and the destination"
    for lane, state in enumerate(states):
        state.rtt_s = 0.001 * (1 + (lane - 5) ** 2)
    assert policy.choose(message=0, states=states, now=0.0) == 5


class Rounds:
    """PLB under rounds that are congested as the test asks."""

    def __init__(self) -> None:
        self.plb = Plb(paths=4, idle_rounds=3, rounds=6)
        self.states = idle(lanes_of(self.plb, one_message(2, 1)))
        self.now = 0.0
        self.qp = self.next(busy=False)
        self.round(congested=False)

    def next(self, *, busy: bool) -> int:
        """Return the queue pair of the next chunk."""
        for state in self.states:
            state.backlog_bytes = 8 * busy
        qp = self.plb.choose(message=0, states=self.states, now=self.now)
        assert qp is not None
        return qp

    def round(self, *, congested: bool, delayed: float = 1.0) -> None:
        """Acknowledge ten chunks, of which a share is delayed if congested, the last after a whole RTT."""
        for chunk in range(10):
            marked = congested and chunk < 10 * delayed
            late = 0.04 if chunk == 9 else 0.0005
            self.plb.acknowledged(message=0, lane=self.qp, rtt_s=0.03, marked=marked, now=self.now + late)
        self.now += 0.04


def test_plb_stays_where_it_is_not_congested() -> None:
    rounds = Rounds()
    for _ in range(20):
        rounds.round(congested=True, delayed=0.4)
        assert rounds.next(busy=False) == rounds.qp


def test_plb_moves_at_an_idle_gap_after_some_congested_rounds() -> None:
    rounds = Rounds()
    moved_after = 0
    while rounds.next(busy=False) == rounds.qp and moved_after < 20:
        rounds.round(congested=True, delayed=0.5)
        moved_after += 1
    assert moved_after == 3


def test_plb_moves_while_busy_only_after_more_congested_rounds() -> None:
    rounds = Rounds()
    moved_after = 0
    while rounds.next(busy=True) == rounds.qp and moved_after < 20:
        rounds.round(congested=True)
        moved_after += 1
    assert moved_after == 6


def test_plb_forgets_congestion_that_has_passed() -> None:
    rounds = Rounds()
    for _ in range(10):
        rounds.round(congested=True)
        rounds.round(congested=True)
        rounds.round(congested=False)
        assert rounds.next(busy=False) == rounds.qp


def test_plb_moves_as_counted_by_hand() -> None:
    """Of the ten acknowledgements of each round, all or none are marked.

    Congested rounds in a row: 1 2 0 1 2 3 4 (idle: moves) 1 2 3 4 5 6 (at once) 1 2 3 (idle).
    """
    rounds, lanes = Rounds(), list[int]()
    for congested, busy in [
        (True, False), (True, False), (False, False),
        (True, True), (True, True), (True, True), (True, False),
        (True, True), (True, True), (True, True), (True, True), (True, True), (True, True),
        (True, False), (True, False), (True, False),
    ]:  # fmt: skip
        rounds.round(congested=congested)
        rounds.qp = rounds.next(busy=busy)
        lanes.append(rounds.qp)
    first, second, third, fourth = lanes[0], lanes[6], lanes[12], lanes[15]
    assert lanes == [first] * 6 + [second] * 6 + [third] * 3 + [fourth]
    assert all(before != after for before, after in ((first, second), (second, third), (third, fourth)))
    # One chunk and one round that is not congested come before these.
    assert rounds.plb.counts == {"marked": (150, 170), "moved": (3, 17)}


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40))
def test_plb_moves_by_its_rule(rounds_of: list[tuple[bool, bool]]) -> None:
    rounds, row, moves = Rounds(), 0, 0
    for congested, busy in rounds_of:
        rounds.round(congested=congested)
        row = row + 1 if congested else 0
        moves_now = row >= 6 or (row >= 3 and not busy)
        before, rounds.qp = rounds.qp, rounds.next(busy=busy)
        assert (rounds.qp != before) == moves_now
        row, moves = 0 if moves_now else row, moves + moves_now
    assert rounds.plb.counts["moved"] == (moves, len(rounds_of) + 1)


@pytest.mark.parametrize("paths", [1, 2, 64])
def test_plb_moves_to_any_other_path(paths: int) -> None:
    plb = Plb(paths=paths, rounds=1, entropies=OF_NIC)
    states, seen, now = idle(lanes_of(plb, one_message(2, 1))), list[int](), 0.0
    for _ in range(20 * paths):
        lane = plb.choose(message=0, states=states, now=now)
        assert lane is not None
        seen.append(lane)
        for _ in range(2):
            plb.acknowledged(message=0, lane=lane, rtt_s=0.01, marked=True, now=now)
            now += 0.01
    assert set(seen) == set(range(paths))
    assert paths == 1 or all(one != other for one, other in pairwise(seen))
    assert plb.counts["moved"] == (0 if paths == 1 else len(seen) - 1, len(seen))


def test_plb_over_datagrams_ignores_what_its_path_before_still_carries() -> None:
    plb = Plb(paths=64, rounds=1, entropies=OF_NIC)
    states = idle(lanes_of(plb, one_message(2, 1)))
    first = plb.choose(message=0, states=states, now=0.0)
    assert first is not None
    for now in (0.01, 0.03):
        plb.acknowledged(message=0, lane=first, rtt_s=0.01, marked=True, now=now)
    second = plb.choose(message=0, states=states, now=0.03)
    for now in (0.04, 0.06, 0.08):
        plb.acknowledged(message=0, lane=first, rtt_s=0.01, marked=True, now=now)
    assert first != second == plb.choose(message=0, states=states, now=0.08)


def test_plb_waits_for_room() -> None:
    rounds = Rounds()
    rounds.states[rounds.qp].room = False
    assert rounds.plb.choose(message=0, states=rounds.states, now=0.0) is None


class Connection:
    """REPS over one connection, chunk by chunk; a round trip takes 0.01 s unless it is another's."""

    rtt_s = 0.01

    def __init__(self, **options: int) -> None:
        self.reps = Reps(silent_round_trips=100, freeze_round_trips=200, **options)
        self.lanes = lanes_of(self.reps, one_message(2, 1))
        self.states = idle(self.lanes)

    def next(self, now: float = 0.0) -> int | None:
        """Return the queue pair of the next chunk."""
        return self.reps.choose(message=0, states=self.states, now=now)

    def good(self, qp: int, now: float = 0.0) -> None:
        """Acknowledge a chunk without congestion."""
        self.reps.acknowledged(message=0, lane=qp, rtt_s=self.rtt_s, marked=False, now=now)

    def bad(self, qp: int, now: float = 0.0) -> None:
        """Acknowledge a chunk that met congestion."""
        self.reps.acknowledged(message=0, lane=qp, rtt_s=self.rtt_s, marked=True, now=now)

    def sent(self, count: int, now: float = 0.0) -> list[int]:
        """Send some chunks and return their queue pairs."""
        sent = [self.next(now) for _ in range(count)]
        assert None not in sent
        return [qp for qp in sent if qp is not None]


def test_reps_uses_good_entropies_again_in_the_order_of_their_acknowledgement() -> None:
    connection = Connection()
    first = connection.sent(5)
    for qp in sorted(first):
        connection.good(qp)
    assert connection.sent(5) == sorted(first)


def test_reps_draws_entropies_at_random_at_first() -> None:
    assert len(set(Connection().sent(16))) == Connection().lanes == 3


def test_reps_does_not_recycle_what_met_congestion() -> None:
    connection = Connection(per_nic=8, in_flight=1)
    good = connection.sent(1)[0]
    connection.good(good)
    assert connection.sent(1) == [good]
    connection.bad(good)
    drawn = []
    for _ in range(30):  # each met congestion too, so each next one is random
        drawn += connection.sent(1)
        connection.bad(drawn[-1])
    assert len(set(drawn)) > 4


def test_reps_keeps_at_most_its_window_in_flight() -> None:
    connection = Connection(in_flight=4)
    connection.good(connection.sent(4)[0])
    assert connection.next() is not None
    assert connection.next() is None


def test_reps_counts_nothing_of_a_message_that_has_arrived() -> None:
    connection = Connection(in_flight=4)
    connection.reps.admit(message=Message(1, 0, 3, 1000))
    for qp in connection.sent(4):
        connection.good(qp)
    connection.reps.withdraw(message=0)
    sent = [connection.reps.choose(message=1, states=connection.states, now=0.0) for _ in range(5)]
    assert sent.index(None) == 4


def test_reps_remembers_the_last_places_only() -> None:
    connection = Connection(cache=2, in_flight=3)
    sent = sorted(connection.sent(3))
    for qp in sent:
        connection.good(qp)
    assert connection.sent(2) == sent[1:]


def test_reps_uses_again_what_was_silent_and_answers() -> None:
    connection, (silent, other) = Connection(per_nic=1, in_flight=64), (0, 1)
    sent = connection.sent(16)
    assert sent.count(silent) > 1
    for _ in range(sent.count(other)):
        connection.good(other, 0.01)
    assert set(connection.sent(4, 2.0)) == {other}
    connection.good(silent, 2.1)
    assert set(connection.sent(8, 2.2)) == {silent, other}  # all places of the ring


def test_reps_passes_over_what_has_no_room() -> None:
    connection = Connection()
    for state in connection.states[1:]:
        state.room = False
    assert connection.sent(3) == [0, 0, 0]
    connection.states[0].room = False
    assert connection.next() is None


@pytest.mark.parametrize("scale", [1.0, 1e-4, 30.0])
def test_reps_freezes_on_what_works_when_an_entropy_falls_silent_and_explores_after(scale: float) -> None:
    connection = Connection(per_nic=8, explore=6)
    connection.rtt_s *= scale
    lost = connection.sent(1)[0]
    others = [qp for qp in connection.sent(10, 0.5 * scale) if qp != lost]
    good = others[0]
    for qp in others:
        (connection.bad if qp != good else connection.good)(qp, 0.6 * scale)
    frozen = []
    for step in range(5):  # from 1.1 s on `lost` has been silent for 100 round trips; frozen for 200
        now = (1.1 + 0.1 * step) * scale
        frozen += connection.sent(1, now)
        connection.good(frozen[-1], now)
    assert frozen == [good] * 5
    explored = []
    for step in range(6):
        explored += connection.sent(1, (3.2 + 0.01 * step) * scale)
        connection.good(explored[-1], (3.2 + 0.01 * step) * scale)
    assert lost not in explored
    assert len(set(explored)) > 2


@pytest.mark.parametrize(("chunks", "inert"), [(4, {3, 6}), (7, {6}), (8, set())])
def test_plb_names_the_rounds_that_no_message_can_have(chunks: int, inert: set[int]) -> None:
    rounds = Rounds()
    for _ in range(chunks - 1):  # one was chosen already
        rounds.round(congested=False)
        rounds.next(busy=True)
    assert {after - 2 for _, after in rounds.plb.inert.values()} == inert


def test_reps_names_the_sizes_that_no_connection_fills() -> None:
    connection = Connection(cache=3, in_flight=5)
    assert connection.reps.inert == {}
    sizes = []
    for _ in range(6):
        connection.good(connection.sent(1)[0])
        sizes.append([after - 1 for _, after in connection.reps.inert.values()])
    assert sizes == [[5, 3]] * 3 + [[5]] * 2 + [[]]


class Packets(Connection):
    """REPS over the datagrams of one NIC, packet by packet; only losses freeze it, for 10 round trips."""

    def __init__(self, cache: int = 8, explore: int = 2) -> None:
        self.reps = Reps(
            per_nic=OF_NIC,
            cache=cache,
            in_flight=None,
            silent_round_trips=inf,
            freeze_round_trips=10,
            explore=explore,
            entropies=OF_NIC,
        )
        self.lanes = lanes_of(self.reps, one_nic_each())
        self.states = idle(self.lanes)

    def lost(self, qp: int, now: float = 0.0) -> None:
        """Lose a packet."""
        self.reps.lost(message=0, lane=qp, now=now)


def drawn() -> Iterator[int]:
    """Yield the lanes that REPS draws for a connection by one NIC: of two numbers each, the second."""
    for _, number in np.random.default_rng(0).spawn(1)[0].random((1000, 2)):
        yield int(OF_NIC * number)


def test_reps_recycles_as_counted_by_hand() -> None:
    """A ring of three places: each good entropy is used once more, what was marked is not."""
    packets, random = Packets(cache=3), drawn()
    a, b, c, d, e = (next(random) for _ in range(5))
    assert packets.sent(5) == [a, b, c, d, e]
    packets.good(a)
    packets.bad(b)
    packets.good(c)
    assert packets.sent(3) == [a, c, next(random)]
    packets.good(e)  # the ring is full: a and c were used, e is fresh
    packets.good(d)  # written over a
    packets.good(c)  # over c
    assert packets.sent(1) == [e]
    packets.good(a)  # over e
    packets.good(e)  # over d, which was not used again
    assert packets.sent(4) == [c, a, e, next(random)]
    assert packets.reps.counts == {"marked": (1, 8), "recycled": (6, 13)}


def test_reps_freezes_and_explores_as_counted_by_hand() -> None:
    packets, random = Packets(), drawn()
    a, b, c, d = (next(random) for _ in range(4))
    assert packets.sent(4) == [a, b, c, d]
    for good in (a, b, c):
        packets.good(good, now=0.01)
    assert packets.sent(1, now=0.02) == [a]
    packets.lost(d, now=0.03)  # frozen for ten round trips, until 0.13
    assert packets.sent(5, now=0.04) == [a, b, c, a, b]
    packets.good(b, now=0.05)  # the ring is a, b, c, b
    packets.lost(a, now=0.06)  # frozen already
    assert packets.sent(4, now=0.13) == [c, b, a, b]
    packets.good(c, now=0.14)  # it leaves the frozen mode, forgets the ring, and this is the first again
    packets.lost(b, now=0.14)  # while it explores, it does not freeze
    assert packets.sent(4, now=0.14) == [next(random), next(random), c, next(random)]
    packets.good(a, now=0.15)
    packets.good(b, now=0.15)
    packets.lost(a, now=0.15)  # frozen again, on c, a and b
    assert packets.sent(4, now=0.16) == [c, a, b, c]
    assert packets.sent(1, now=0.27) == [next(random)], "its time is over, though nothing came back"
    assert packets.reps.counts == {"marked": (0, 7), "recycled": (15, 23)}


def test_reps_has_what_comes_while_it_is_frozen_after_what_it_had() -> None:
    packets, random = Packets(), drawn()
    a, b, c = packets.sent(3)
    assert [a, b, c] == [next(random) for _ in range(3)]
    packets.good(a, now=0.01)
    packets.lost(c, now=0.01)
    assert packets.sent(2, now=0.02) == [a, a]
    packets.good(b, now=0.03)
    assert packets.sent(4, now=0.03) == [a, b, a, b]


@dataclass
class Published:
    """REPS as its paper's algorithm and the reference have it, for one connection."""

    places: int
    explore: int
    frozen_s: float
    ring: list[int] = field(default_factory=list)
    unused: list[int] = field(default_factory=list)
    """The last entropies of the ring that were not used again, at most as many as it has places."""
    added: int = 0
    frozen: int = 0
    until_s: float | None = None
    to_explore: int = 0
    recycled: int = 0

    def feedback(self, now: float, *, good: int | None = None, lost: bool = False) -> None:
        """Handle what came back, or did not."""
        if lost and self.until_s is None and not self.to_explore:
            self.until_s = now + self.frozen_s
        self.leave(now)
        if good is not None:
            if len(self.ring) < self.places:
                self.ring.append(good)
            else:
                self.ring[self.added % self.places] = good
            self.added += 1
            self.unused = [*self.unused, good][-self.places :]

    def leave(self, now: float) -> None:
        """Leave the frozen mode if it is time."""
        if self.until_s is not None and now > self.until_s:
            self.until_s, self.to_explore, self.added, self.frozen = None, self.explore, 0, 0
            self.ring, self.unused = [], []

    def next(self, now: float, random: Iterator[int]) -> int:
        """Return the entropy of the next packet."""
        self.leave(now)
        is_frozen = self.until_s is not None
        if self.to_explore or not (self.ring if is_frozen else self.unused):
            self.to_explore = max(0, self.to_explore - 1)
            return next(random)
        self.recycled += 1
        if is_frozen:
            place, self.frozen = self.frozen, (self.frozen + 1) % len(self.ring)
            return self.ring[place]
        return self.unused.pop(0)


@settings(max_examples=examples(50, 500))
@given(
    places=st.integers(1, 8),
    explore=st.integers(0, 5),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["send", "send", "send", "good", "good", "bad", "lost"]), st.integers(0, 9)
        ),
        max_size=200,
    ),
)
def test_reps_is_what_was_published(places: int, explore: int, steps: list[tuple[str, int]]) -> None:
    packets, random = Packets(cache=places, explore=explore), drawn()
    model = Published(places, explore, frozen_s=0.0)  # it is of round trips, and none was measured
    in_flight, sent, now = list[int](), 0, 0.0
    for step, number in steps:
        now += 0.002 * number
        if step == "send":
            in_flight += packets.sent(1, now)
            sent += 1
            assert in_flight[-1] == model.next(now, random)
        elif in_flight:
            lane = in_flight.pop(number % len(in_flight))
            {"good": packets.good, "bad": packets.bad, "lost": packets.lost}[step](lane, now)
            if step != "lost":
                model.frozen_s = 10 * packets.rtt_s
            model.feedback(now, good=lane if step == "good" else None, lost=step == "lost")
    assert packets.reps.counts["recycled"] == (model.recycled, sent)


def test_reps_has_no_window_of_its_own_over_datagrams() -> None:
    packets = Packets()
    packets.sent(1000)
    assert packets.reps.inert == {}
    few = Packets()
    few.sent(8)
    assert few.reps.inert == {"REPS' ring of 8 places": (8, 9)}


def test_a_packet_that_counted_as_lost_and_arrives_after_all_is_good() -> None:
    packets, random = Packets(explore=0), drawn()
    (lane,) = packets.sent(1)
    assert lane == next(random)
    packets.lost(lane, now=0.01)
    packets.good(lane, now=0.02)
    assert packets.sent(2, now=0.02) == [lane, next(random)]
    packets.reps.withdraw(message=0)


class TwoNics(Connection):
    """REPS over the datagrams of two NICs, of 64 and then 64 lanes."""

    def __init__(self) -> None:
        self.reps = Reps(per_nic=OF_NIC, in_flight=None, freeze_round_trips=10, entropies=OF_NIC)
        matrix = np.zeros((4, 4), dtype=np.int64)
        matrix[0, 2] = 8
        self.lanes = lanes_of(self.reps, work_of(leaf_spine_fabric(2, 2, 4, nics=2), matrix))
        self.states = idle(self.lanes)

    def have_room(self, *nics: int) -> None:
        """Let these have room and no other."""
        for lane, state in enumerate(self.states):
            state.room = lane // OF_NIC in nics


def test_reps_draws_random_entropies_of_random_nics_that_have_room() -> None:
    nics = TwoNics()
    drawn = nics.sent(1000)
    assert 400 < sum(lane < OF_NIC for lane in drawn) < 600
    assert len(set(drawn)) > 120
    nics.have_room(1)
    assert {lane // OF_NIC for lane in nics.sent(1000)} == {1}
    nics.have_room()
    assert nics.next() is None


def test_reps_draws_nics_evenly_however_many_entropies_each_has() -> None:
    """One switch joins NIC 0 of both servers, so there is one way from it and there are 64 from the other."""
    policy = reactive("reps", OF_NIC)
    states = idle(lanes_of(policy, one_message(2, 0)))
    assert len(states) == 1 + OF_NIC
    assert 400 < [policy.choose(message=0, states=states, now=0.0) for _ in range(1000)].count(0) < 600


def test_what_has_no_room_keeps_its_place_in_the_ring() -> None:
    nics = TwoNics()
    near = [lane for lane in nics.sent(50) if lane < OF_NIC][:2]
    nics.have_room(1)
    (far,) = nics.sent(1)
    for lane in (near[0], far, near[1]):
        nics.good(lane)
    assert nics.sent(1) == [far]
    assert nics.sent(1)[0] >= OF_NIC, "a random one"
    nics.have_room(0, 1)
    assert nics.sent(2) == near


def test_while_frozen_a_message_waits_for_the_nics_of_the_ring() -> None:
    nics = TwoNics()
    near, *_ = (lane for lane in nics.sent(50) if lane < OF_NIC)
    nics.good(near, now=0.01)
    nics.reps.lost(message=0, lane=OF_NIC, now=0.01)
    nics.have_room(1)
    assert nics.next(now=0.02) is None
    nics.have_room(0, 1)
    assert nics.sent(3, now=0.03) == [near] * 3
    nics.have_room(1)
    assert nics.sent(1, now=0.12)[0] >= OF_NIC, "the time of the freeze is over"


def test_reps_freezes_once_for_each_lane_that_falls_silent_and_avoids_it_until_it_is_heard_of() -> None:
    connection = Connection(per_nic=8, explore=0)
    silent = connection.sent(1)[0]
    good = next(lane for lane in connection.sent(10) if lane != silent)
    connection.good(good, now=0.5)
    assert connection.sent(2, now=1.1) == [good, good], "frozen on it, for two seconds"
    connection.good(good, now=1.2)
    connection.states = [LaneState(0, 0.0, lane in (silent, good)) for lane in range(connection.lanes)]
    for now in (3.2, 3.3, 3.4):
        connection.good(good, now=now)
        assert connection.sent(1, now=now) == [good]
    connection.states[good].room = False
    assert connection.next(now=3.4) is None
    connection.good(silent, now=3.5)
    assert connection.sent(1, now=3.5) == [silent]


def test_a_lane_that_owes_nothing_does_not_fall_silent() -> None:
    connection = Connection(per_nic=8)
    good = connection.sent(2)
    for lane in good:
        connection.good(lane, now=0.01)
    assert connection.sent(2, now=100.0) == good, "a failed one would be passed over"
