"""Reactive policies: what holds for every one of them, and each one's own rule."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.traffic.cases import Work, admitted_by, carried, work_of, works
from topologies.errors import ScenarioError
from topologies.fabric import Nic
from topologies.rail import rail_fabric
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.plb import Plb
from traffic.spraying.policy import LaneSet, LaneState, QueuePair, ReactivePolicy, each_of
from traffic.spraying.registry import POLICIES, policy_named
from traffic.spraying.reps import Reps
from traffic.spraying.subflows import Subflows

REACTIVE = [name for name in POLICIES if isinstance(policy_named(name), ReactivePolicy)]


def reactive(name: str) -> ReactivePolicy:
    policy = policy_named(name)
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


@pytest.mark.parametrize("name", REACTIVE)
@settings(max_examples=examples(8, 25))
@given(work=works(largest=50), seed=st.integers(0, 100))
def test_every_chunk_is_carried_where_it_may_be(name: str, work: Work, seed: int) -> None:
    servers = work.fabric.gpu_servers
    for message, pair in zip(work.chunks.message.tolist(), carried(work, reactive(name), seed), strict=True):
        assert pair.source.server == servers[work.crossing.source[message]]
        assert pair.destination == work.fabric.pinned_nic(int(work.crossing.destination[message]))


@given(work=works())
def test_plb_keeps_to_its_gpus_nic_and_the_others_use_all(work: Work) -> None:
    for policy, everywhere in ((Plb(), False), (MinRtt(), True), (Reps(), True)):
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
    assert list(lanes) == listed == lanes[:]
    assert (len(lanes), lanes[-1]) == (len(listed), listed[-1])
    with pytest.raises(IndexError):
        lanes[len(lanes)]


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


def test_plb_waits_for_room() -> None:
    rounds = Rounds()
    rounds.states[rounds.qp].room = False
    assert rounds.plb.choose(message=0, states=rounds.states, now=0.0) is None


class Spray:
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
    spray = Spray()
    first = spray.sent(5)
    for qp in sorted(first):
        spray.good(qp)
    assert spray.sent(5) == sorted(first)


def test_reps_draws_entropies_at_random_at_first() -> None:
    assert len(set(Spray().sent(16))) == Spray().lanes == 3


def test_reps_does_not_recycle_what_met_congestion() -> None:
    spray = Spray(per_nic=8, in_flight=1)
    good = spray.sent(1)[0]
    spray.good(good)
    assert spray.sent(1) == [good]
    spray.bad(good)
    drawn = []
    for _ in range(30):  # each met congestion too, so each next one is random
        drawn += spray.sent(1)
        spray.bad(drawn[-1])
    assert len(set(drawn)) > 4


def test_reps_keeps_at_most_its_window_in_flight() -> None:
    spray = Spray(in_flight=4)
    spray.good(spray.sent(4)[0])
    assert spray.next() is not None
    assert spray.next() is None


def test_reps_remembers_the_last_places_only() -> None:
    spray = Spray(cache=2, in_flight=3)
    sent = sorted(spray.sent(3))
    for qp in sent:
        spray.good(qp)
    assert spray.sent(2) == sent[1:]


def test_reps_passes_over_what_has_no_room() -> None:
    spray = Spray()
    for state in spray.states[1:]:
        state.room = False
    assert spray.sent(3) == [0, 0, 0]
    spray.states[0].room = False
    assert spray.next() is None


@pytest.mark.parametrize("scale", [1.0, 1e-4, 30.0])
def test_reps_freezes_on_what_works_when_an_entropy_falls_silent_and_explores_after(scale: float) -> None:
    spray = Spray(per_nic=8, explore=6)
    spray.rtt_s *= scale
    lost = spray.sent(1)[0]
    others = [qp for qp in spray.sent(10, 0.5 * scale) if qp != lost]
    good = others[0]
    for qp in others:
        (spray.bad if qp != good else spray.good)(qp, 0.6 * scale)
    frozen = []
    for step in range(5):  # from 1.1 s on `lost` has been silent for 100 round trips; frozen for 200
        now = (1.1 + 0.1 * step) * scale
        frozen += spray.sent(1, now)
        spray.good(frozen[-1], now)
    assert frozen == [good] * 5
    explored = []
    for step in range(6):
        explored += spray.sent(1, (3.2 + 0.01 * step) * scale)
        spray.good(explored[-1], (3.2 + 0.01 * step) * scale)
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
    spray = Spray(cache=3, in_flight=5)
    assert spray.reps.inert == {}
    sizes = []
    for _ in range(6):
        spray.good(spray.sent(1)[0])
        sizes.append([after - 1 for _, after in spray.reps.inert.values()])
    assert sizes == [[5, 3]] * 3 + [[5]] * 2 + [[]]
