"""Oblivious spraying: which entropies follow each other, and that nothing changes it but room."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.traffic.cases import Work, admitted_by, work_of
from topologies.fabric import Nic
from topologies.leaf_spine import leaf_spine_fabric
from topologies.rail import rail_fabric
from traffic.spraying.policy import LaneState, each_of
from traffic.spraying.spray import Spray


def to_the_next(nics: int, servers: int = 2) -> Work:
    """Return servers on leaves of their own, and a message from each to the first NIC of the next."""
    fabric = leaf_spine_fabric(servers, servers, 4, nics=nics)
    matrix = np.zeros((fabric.gpus, fabric.gpus), dtype=np.int64)
    for server in range(servers):
        matrix[server * nics, (server + 1) % servers * nics] = 8
    return work_of(fabric, matrix)


class Sprayed:
    """The lanes that follow each other, of a work's messages."""

    def __init__(self, work: Work, per_nic: int = 64, entropies: int | None = 64) -> None:
        self.spray, self.per_nic = Spray(per_nic, entropies=entropies), per_nic
        self.lanes = [each_of(among) for among in admitted_by(self.spray, work).lanes]
        self.states = [LaneState(0, 0.0, True) for _ in self.lanes[0]]

    def next(self, message: int = 0) -> int | None:
        """Return the lane of the next packet."""
        return self.spray.choose(message=message, states=self.states, now=0.0)

    def sent(self, count: int, message: int = 0) -> list[int]:
        """Return the lanes of so many packets."""
        sent = [self.next(message) for _ in range(count)]
        assert None not in sent
        return [lane for lane in sent if lane is not None]

    def have_room(self, *nics: int) -> None:
        """Let these NICs have room and no other."""
        for lane, state in enumerate(self.states):
            state.room = lane // self.per_nic in nics


def test_its_lanes_are_all_entropies_of_each_nic() -> None:
    matrix = np.zeros((6, 6), dtype=np.int64)
    matrix[0, 4] = 8
    (lanes,) = admitted_by(Spray(), work_of(rail_fabric(2, 3), matrix)).lanes
    assert [(each.sources, each.destinations) for each in lanes] == [
        ((Nic(0, nic),), (Nic(1, 1),)) for nic in range(3)
    ]
    assert [len(each) for each in lanes] == [64, 1, 64], "one switch joins the NICs of a rail"
    assert [each.entropies for each in lanes if len(each) > 1] == [range(64)] * 2


@settings(max_examples=examples(20, 100))
@given(nics=st.integers(1, 4), per_nic=st.integers(1, 64), cycles=st.integers(1, 4))
def test_each_cycle_has_each_entropy_once_and_nics_take_turns(nics: int, per_nic: int, cycles: int) -> None:
    sprayed = Sprayed(to_the_next(nics), per_nic)
    sent = sprayed.sent(nics * per_nic * cycles)
    assert [lane // per_nic for lane in sent] == [turn % nics for turn in range(len(sent))]
    for nic in range(nics):
        own = sent[nic::nics]
        for first in range(0, len(own), per_nic):
            assert sorted(own[first : first + per_nic]) == list(range(nic * per_nic, (nic + 1) * per_nic))


def test_each_cycle_has_an_order_of_its_own_and_so_has_each_nic_and_each_connection() -> None:
    sprayed = Sprayed(to_the_next(2, servers=3))
    orders = set[tuple[int, ...]]()
    for message in range(3):
        sent = sprayed.sent(2 * 64 * 4, message)
        for nic in range(2):
            own = [lane - 64 * nic for lane in sent[nic::2]]
            orders |= {tuple(own[first : first + 64]) for first in range(0, len(own), 64)}
    assert len(orders) == 3 * 2 * 4


def test_messages_of_one_connection_share_a_cycle_and_those_of_others_do_not() -> None:
    fabric = leaf_spine_fabric(2, 2, 4, gpus=2)
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[0, 2] = matrix[1, 3] = matrix[2, 0] = 8
    sprayed = Sprayed(work_of(fabric, matrix))
    shared = [sprayed.sent(1, message=turn % 2)[0] for turn in range(64)]
    assert sorted(shared) == list(range(64))
    other = sprayed.sent(40, message=2)
    sprayed.spray.withdraw(message=0)
    assert sorted(other + sprayed.sent(24, message=2)) == list(range(64))
    assert sorted(sprayed.sent(64, message=1)) == list(range(64))


@settings(max_examples=examples(20, 100))
@given(st.lists(st.sampled_from([(), (0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]), max_size=100))
def test_nics_without_room_are_passed_over_and_keep_their_entropies(rooms: list[tuple[int, ...]]) -> None:
    sprayed, turn = Sprayed(to_the_next(3), per_nic=4), 0
    seen: list[list[int]] = [[], [], []]
    for room in rooms:
        sprayed.have_room(*room)
        lane = sprayed.next()
        assert (lane is None) == (room == ())
        if lane is not None:
            nic = min(room, key=lambda each: (each - turn) % 3)
            seen[nic].append(lane - 4 * nic)
            turn = nic + 1
    for own in seen:
        whole = len(own) // 4 * 4
        assert all(sorted(own[first : first + 4]) == [0, 1, 2, 3] for first in range(0, whole, 4))
        assert len(set(own[whole:])) == len(own[whole:])


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=100, max_size=100))
def test_nothing_that_comes_back_changes_what_follows(acknowledged: list[tuple[bool, float]]) -> None:
    blind, sprayed = Sprayed(to_the_next(2)), Sprayed(to_the_next(2))
    for marked, rtt_s in acknowledged:
        (lane,) = sprayed.sent(1)
        assert [lane] == blind.sent(1)
        sprayed.states[lane] = LaneState(round(1e6 * rtt_s), rtt_s, True)
        sprayed.spray.acknowledged(message=0, lane=lane, rtt_s=rtt_s, marked=marked, now=0.0)


@given(room=st.lists(st.booleans(), min_size=8, max_size=8), turns=st.integers(0, 20))
def test_over_tcp_connections_without_room_are_passed_over(room: list[bool], turns: int) -> None:
    sprayed = Sprayed(to_the_next(1), 8, None)
    sprayed.sent(8 * turns)
    for state, has_room in zip(sprayed.states, room, strict=True):
        state.room = has_room
    lane = sprayed.next()  # a cycle begins here, so each lane is looked at once
    assert (lane is not None) == any(room)
    assert lane is None or room[lane]


@pytest.mark.parametrize("entropies", [64, None])
def test_a_seed_gives_one_order(entropies: int | None) -> None:
    one, other = (Sprayed(to_the_next(2), 8, entropies) for _ in range(2))
    assert one.lanes == other.lanes
    assert one.sent(100) == other.sent(100)
