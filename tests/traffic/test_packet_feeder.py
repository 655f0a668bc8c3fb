"""The feeder of packets: all bytes go out, each packet when its NIC can send it, and again if it is lost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.examples import examples
from tests.traffic.cases import Work, admitted_by, work_of, works
from topologies.fabric import Nic
from topologies.leaf_spine import leaf_spine_fabric
from traffic.congestion.control import SourceEnds
from traffic.messages import Chunks
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.plb import Plb
from traffic.spraying.policy import (
    Lanes,
    LaneSet,
    LaneState,
    Message,
    QueuePair,
    ReactivePolicy,
    between_nics,
    entropies_between,
)
from traffic.spraying.registry import policy_named
from traffic.spraying.reps import Reps
from traffic.transports.feeder import LaneUse
from traffic.transports.packet_feeder import NEW, Burst, NicGroup, PacketFeeder, group_between
from traffic.transports.round_trips import Crossing
from traffic.transports.transport import NicRate

PACKET = 1000
RATE_BPS = 8e6
"""A packet takes a millisecond."""
FABRIC = leaf_spine_fabric(4, 2, 2, nics=2)
NAMED = ["reps", "spray", "plb", "minrtt"]


@dataclass
class Wire:
    """A carrier under the test's hands: what was put on it arrives, or is lost, when the test says so."""

    full: set[Nic] = field(default_factory=set)
    """The NICs that have no room."""
    window: int = 1 << 40
    """What may be under way between two NICs [bytes]."""
    flying: list[Burst] = field(default_factory=list)
    put_sizes: list[tuple[int, int]] = field(default_factory=list)
    """The real and emulated bytes of what was put on it, in order."""
    nic_of: dict[int, Nic] = field(default_factory=dict)

    def room(self, nic: Nic) -> bool:
        return nic not in self.full

    def allows(self, group: NicGroup) -> bool:
        return True

    def takes(self, number: int, group: NicGroup, size: int) -> bool:
        return self.under_way(number) < self.window and self.room(self.nic_of[number])

    turn_is_over = False

    def put(self, _feeder: PacketFeeder, burst: Burst) -> None:
        self.flying.append(burst)
        self.put_sizes.append((burst.real, burst.size))

    def under_way(self, number: int) -> int:
        """Return what was put between two NICs and neither arrived nor was lost [bytes]."""
        return sum(burst.size for burst in self.flying if burst.number == number)

    def names(self) -> list[int]:
        """Return the messages of what is under way, in order."""
        return [burst.name for burst in self.flying]

    def land(
        self,
        feeder: PacketFeeder,
        now: float,
        size: int = 1 << 40,
        which: int = 0,
        *,
        is_marked: bool = False,
        heard_s: float = 0.0,
    ) -> bool:
        """Have bytes arrive of something under way; return whether its message has arrived whole.

        They are acknowledged some time later, and their round trip is from when they were bound.
        """
        burst = self._off(which, size)
        size, at = min(size, burst.size), now + heard_s
        is_whole = feeder.landed(burst, size)
        feeder.acknowledged(burst, size, at - burst.bound_s, is_marked, at)
        return is_whole

    def lose(
        self, feeder: PacketFeeder, now: float, size: int = 1 << 40, which: int = 0, order: int = 0
    ) -> Burst:
        """Lose bytes of something under way, which were so many-th packet of their message."""
        burst = self._off(which, size)
        feeder.lost(burst, min(size, burst.size), order, now)
        return burst

    def _off(self, which: int, size: int) -> Burst:
        return self.flying[which] if size < self.flying[which].size else self.flying.pop(which)


def rate_bps(_nic: Nic) -> float:
    """Return the rate of every NIC."""
    return RATE_BPS


def unhindered(pair: QueuePair) -> Crossing:
    """Return a path on which no link is slower than a NIC."""
    return Crossing(pair.source, RATE_BPS, RATE_BPS)


def feeder_of(
    policy: ReactivePolicy,
    work: Work,
    volume: float = 1.0,
    time: float = 1.0,
    *,
    rate: NicRate = rate_bps,
    began_at: float = 0.0,
    packet: int = PACKET,
    first: int = 0,
) -> tuple[PacketFeeder, Wire]:
    """Return a feeder that calls NIC pairs and messages by numbers of their own, and its wire."""
    choice = replace(admitted_by(policy, work), first=first)
    among = [between_nics(lanes) for lanes in choice.lanes]
    number = {pair: 10 + index for index, pair in enumerate(dict.fromkeys(p for each in among for p in each))}
    feeder = PacketFeeder(
        choice,
        (work.chunks.bytes * volume).astype(np.int64),
        rate,
        numbers=[tuple(number[pair] for pair in each) for each in among],
        names=range(1000, 1000 + len(work.crossing)),
        began_at=began_at,
        real_s=lambda at: (at - began_at) / time,
        packet=packet,
        volume=volume,
        time=time,
    )
    return feeder, Wire(nic_of={which: pair.source for pair, which in number.items()})


def matrix_of(sizes: dict[tuple[int, int], int]) -> NDArray[np.int64]:
    """Return a demand of the fabric: the bytes between some of its GPUs, two of which a server has."""
    matrix = np.zeros((FABRIC.gpus, FABRIC.gpus), dtype=np.int64)
    for ends, size in sizes.items():
        matrix[ends] = size
    return matrix


def demand(sizes: dict[tuple[int, int], int], chunk_bytes: int = PACKET) -> Work:
    """Return messages of so many packets between GPUs."""
    packets = {ends: size * PACKET for ends, size in sizes.items()}
    return work_of(FABRIC, matrix_of(packets), chunk_bytes=chunk_bytes)


class Scripted(MinRtt):
    """A scheme that takes lanes in a given order, then the first, and notes all that it is shown."""

    name = "scripted"

    def __init__(
        self, lanes: Sequence[int] = (), *, nics: int = 1, entropies: int = 1, per_packet: bool = True
    ) -> None:
        super().__init__()
        self.script, self.per_packet, self._nics, self._count = list(lanes), per_packet, nics, entropies
        self.heard: list[tuple[str, int, int, float]] = []
        """Acknowledgements and losses: message, lane and time."""
        self.states: list[tuple[float, list[int], list[float], list[bool]]] = []
        """The time, and backlogs, round trips and room of all lanes."""
        self.round_trips: list[tuple[float, bool]] = []

    def admit(self, *, message: Message) -> Lanes:
        """Return lanes from NICs of the source server, with more entropies from the second one on."""
        server, nic = FABRIC.gpu_servers[message.source], FABRIC.pinned_nic(message.destination)
        return tuple(
            LaneSet((Nic(server, index),), (nic,), range((1 + index) * self._count))
            for index in range(self._nics)
        )

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Return the next lane of the script."""
        seen = states[:]
        self.states.append(
            (now, [s.backlog_bytes for s in seen], [s.rtt_s for s in seen], [s.room for s in seen])
        )
        return self.script.pop(0) if self.script else 0

    def acknowledged(self, *, message: int, lane: int, rtt_s: float, marked: bool, now: float) -> None:
        """Note it."""
        self.heard.append(("acknowledged", message, lane, now))
        self.round_trips.append((rtt_s, marked))

    def lost(self, *, message: int, lane: int, now: float) -> None:
        """Note it."""
        self.heard.append(("lost", message, lane, now))


class PerChunk(MinRtt):
    """MinRTT that is asked for each chunk."""

    per_packet = False


def choosing(name: str) -> ReactivePolicy:
    """Return a policy over datagrams."""
    policy = PerChunk(8) if name == "per chunk" else policy_named(name, 64)
    assert isinstance(policy, ReactivePolicy)
    return policy


# What goes out


@pytest.mark.parametrize("name", [*NAMED, "per chunk"])
@settings(max_examples=examples(8, 40))
@given(work=works(largest=50), seed=st.integers(0, 1 << 16), loses=st.sampled_from([0.0, 0.3]))
def test_every_byte_arrives_once_where_it_may_whatever_is_lost(
    name: str, work: Work, seed: int, loses: float
) -> None:
    policy, rng, now = choosing(name), np.random.default_rng(seed), 0.0
    lanes = admitted_by(choosing(name), work).lanes
    feeder, wire = feeder_of(policy, work, PACKET // 4)
    arrived = list[int]()
    while not feeder.done:
        now += 0.01
        feeder.turn(wire, now)
        assert wire.flying or now < 100, "nothing is under way, and bytes wait"
        for _ in range(min(3, len(wire.flying))):
            which, size = int(rng.integers(len(wire.flying))), int(rng.integers(1, 2 * PACKET))
            name_of = wire.flying[which].name
            if rng.random() < loses:
                wire.lose(feeder, now, size, which)
            elif wire.land(feeder, now, size, which):
                arrived.append(name_of)
    assert sorted(arrived) == list(range(1000, 1000 + len(work.crossing)))
    assert not wire.flying
    for message, size in enumerate(work.crossing.bytes.tolist()):
        by = feeder.carried(1000 + message)
        assert sum(by.values()) == size == feeder.real_bytes(1000 + message)
        may = zip(between_nics(lanes[message]), entropies_between(lanes[message]), strict=True)
        assert {(feeder.pairs[number], entropy) for number, entropy in by} <= {
            (pair, entropy) for pair, entropies in may for entropy in entropies
        }


@given(real=st.integers(0, 100), size=st.integers(1, 100), seed=st.integers(0, 1 << 16))
def test_the_real_bytes_of_a_burst_are_taken_off_it_once(real: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    group, use = group_between(SourceEnds((Nic(0, 0),), Nic(1, 0), 0)), LaneUse(0, 0)
    burst, taken = Burst(0, 0, 0, 0, group, use, 0, real, size, 0.0, NEW), list[int]()
    while burst.size:
        taken.append(burst.take(int(rng.integers(1, burst.size, endpoint=True))))
    assert min(taken) >= 0
    assert (sum(taken), burst.real) == (real, 0)


@pytest.mark.parametrize(
    ("per_packet", "chunk", "pieces"),
    [
        (True, 2500, [1000] * 5),
        (False, 2500, [2500, 2500]),
        (False, 400, [1000] * 5),
        (False, 4000, [4000, 1000]),
    ],
)
def test_a_decision_covers_a_packet_or_a_chunk_that_is_larger(
    per_packet: bool, chunk: int, pieces: list[int]
) -> None:
    feeder, wire = feeder_of(Scripted(per_packet=per_packet), demand({(0, 4): 5}, chunk))
    feeder.turn(wire, 0.0)
    assert [(burst.real, burst.size) for burst in wire.flying] == [(size, size) for size in pieces]


def test_lanes_are_numbered_as_they_were_admitted() -> None:
    policy = Scripted(range(9), nics=2, entropies=3)
    feeder, wire = feeder_of(policy, demand({(0, 4): 9}))
    feeder.turn(wire, 0.0)
    went = [(str(feeder.pairs[each.number]), each.entropy, each.lane) for each in wire.flying]
    near, far = ([(f"0.{nic}>2.0#*", entropy) for entropy in range(3 + 3 * nic)] for nic in range(2))
    assert went == [(*each, lane) for lane, each in enumerate(near + far)]


# Turns


def test_messages_take_turns_at_a_nic_and_it_is_given_what_it_has_room_for() -> None:
    feeder, wire = feeder_of(Scripted(), demand({(0, 4): 4, (1, 4): 2, (0, 6): 3}))
    wire.full = set(wire.nic_of.values())
    feeder.turn(wire, 0.0)
    assert not wire.flying
    wire.full.remove(Nic(0, 0))
    feeder.turn(wire, 0.001)
    assert wire.names() == [1000, 1002, 1001, 1000, 1002, 1001, 1000, 1001, 1000]


def test_each_server_begins_with_the_one_behind_it() -> None:
    sizes = {(2 * near, 2 * far): 1 for near in range(4) for far in range(4) if near != far}
    feeder, wire = feeder_of(Scripted(), demand(sizes))
    feeder.turn(wire, 0.0)
    ends = [feeder.pairs[burst.number] for burst in wire.flying]
    turns = {
        near: [each.destination.server for each in ends if each.source.server == near] for near in range(4)
    }
    assert turns == {0: [1, 2, 3], 1: [2, 3, 0], 2: [3, 0, 1], 3: [0, 1, 2]}


def test_what_may_send_nothing_waits_until_more_is_granted_or_time_has_passed() -> None:
    policy = Scripted()
    feeder, wire = feeder_of(policy, demand({(0, 4): 5}))
    wire.window = 2 * PACKET
    feeder.turn(wire, 0.0)
    assert (len(wire.flying), len(policy.states)) == (2, 2)
    wire.window = 3 * PACKET
    feeder.turn(wire, 0.0001)
    assert len(wire.flying) == 2, "it was told of nothing"
    (group,) = feeder.groups
    feeder.opened(group)
    feeder.turn(wire, 0.0002)
    assert len(wire.flying) == 3
    wire.window = 4 * PACKET
    feeder.turn(wire, 1.0)
    assert (len(wire.flying), len(policy.states)) == (4, 4)


def test_what_waits_is_counted_for_the_group_that_grants_it() -> None:
    sizes = {(0, 4): 5, (1, 4): 3, (0, 6): 2, (2, 4): 1}
    feeder, wire = feeder_of(Scripted(), demand(sizes))
    wire.full = set(wire.nic_of.values()) - {Nic(0, 0)}

    def unbound() -> dict[tuple[int, str], int]:
        return {
            (group.ends.sources[0].server, str(group.ends.destination)): feeder.unbound(group)
            for group in feeder.groups
        }

    waits = {(0, "2.0"): 8 * PACKET, (0, "3.0"): 2 * PACKET, (1, "2.0"): PACKET}
    assert unbound() == waits
    wire.window = 2 * PACKET
    feeder.turn(wire, 0.0)
    assert unbound() == {(0, "2.0"): 6 * PACKET, (0, "3.0"): 0, (1, "2.0"): PACKET}
    wire.lose(feeder, 0.001)
    assert unbound()[0, "2.0"] + unbound()[0, "3.0"] == 7 * PACKET


def test_what_one_nic_alone_may_send_has_grants_of_its_own() -> None:
    """Others of its server then do not wait for its path: PLB took 1.40 times its prediction, and 1.19 so."""
    work = demand({(0, 4): 1, (1, 4): 1})
    assert len(feeder_of(Plb(paths=64, entropies=64), work)[0].groups) == 2
    (group,) = feeder_of(Reps(per_nic=64, entropies=64), work)[0].groups
    assert group.ends == ((Nic(0, 0), Nic(0, 1)), Nic(2, 0), 0)


# What policies see


def test_a_policy_hears_of_each_packet_or_of_each_chunk_when_it_is_over() -> None:
    for per_packet, acknowledged in ((True, [0.1, 0.2, 0.3, 0.4, 0.5]), (False, [0.3, 0.5])):
        policy = Scripted(per_packet=per_packet)
        feeder, wire = feeder_of(policy, demand({(0, 4): 5}, 3 * PACKET), first=40)
        feeder.turn(wire, 0.0)
        for packet in range(1, 6):
            assert wire.land(feeder, packet / 10, PACKET) is (packet == 5)
        assert policy.heard == [("acknowledged", 40, 0, now) for now in acknowledged]
        assert feeder.done


def test_of_a_chunk_that_lost_packets_a_policy_hears_when_the_others_have_arrived() -> None:
    policy = Scripted([0, 1], entropies=2, per_packet=False)
    feeder, wire = feeder_of(policy, demand({(0, 4): 3}, 3 * PACKET), first=7)
    feeder.turn(wire, 0.0)
    wire.lose(feeder, 0.1, PACKET)
    feeder.turn(wire, 0.2)
    assert [(each.lane, each.size) for each in wire.flying] == [(0, 2 * PACKET), (1, PACKET)]
    wire.land(feeder, 0.3, 2 * PACKET)
    assert wire.land(feeder, 0.4, PACKET)
    assert policy.heard == [("lost", 7, 0, 0.1), ("acknowledged", 7, 0, 0.3), ("acknowledged", 7, 1, 0.4)]


def test_what_is_lost_goes_first_on_a_lane_that_is_chosen_anew_and_keeps_its_place() -> None:
    policy = Scripted([0, 0, 2, 1], entropies=3)
    feeder, wire = feeder_of(policy, demand({(0, 4): 4}))
    wire.window = 2 * PACKET
    feeder.turn(wire, 0.0)
    assert [(each.order, each.lane) for each in wire.flying] == [(NEW, 0), (NEW, 0)]
    wire.lose(feeder, 1.0, order=17)
    wire.land(feeder, 1.0)
    feeder.turn(wire, 2.0)
    assert [(each.order, each.lane) for each in wire.flying] == [(17, 2), (NEW, 1)]
    assert policy.heard == [("lost", 0, 0, 1.0), ("acknowledged", 0, 0, 1.0)]


def test_what_is_lost_may_leave_by_any_nic_that_has_room() -> None:
    for full, lane in ((Nic(0, 0), 1), (Nic(0, 1), 0)):
        feeder, wire = feeder_of(Scripted([0, lane], nics=2), demand({(0, 4): 1}))
        feeder.turn(wire, 0.0)
        wire.lose(feeder, 0.1)
        wire.full = {full}
        feeder.turn(wire, 0.2)
        assert [burst.lane for burst in wire.flying] == [lane]


def test_a_policy_that_cannot_hear_of_losses_need_not() -> None:
    feeder, wire = feeder_of(PerChunk(), demand({(0, 4): 1}))
    feeder.turn(wire, 0.0)
    wire.lose(feeder, 0.1)
    feeder.turn(wire, 1.0)
    assert wire.land(feeder, 1.1)


def test_a_message_that_lost_many_packets_has_one_turn_as_others_have() -> None:
    feeder, wire = feeder_of(Scripted(), demand({(0, 4): 40, (1, 4): 40}))
    wire.window = 20 * PACKET
    feeder.turn(wire, 0.0)
    assert wire.names() == [1000, 1001] * 10
    wire.window = 0  # both wait
    for turn in range(10):
        wire.lose(feeder, 1e-6 * turn, which=wire.names().index(1000))
        feeder.turn(wire, 1e-6 * turn)
    assert wire.names() == [1001] * 10
    wire.window = 30 * PACKET
    feeder.turn(wire, 10.0)
    assert Counter(wire.names()[10:]) == {1000: 10, 1001: 10}


def test_states_are_of_what_each_lane_has_on_its_way_and_of_its_last_round_trips() -> None:
    policy = Scripted([0, 0, 1, 0], nics=2)
    feeder, wire = feeder_of(policy, demand({(0, 4): 4}))
    feeder.turn(wire, 0.0)
    wire.land(feeder, 0.25)
    wire.lose(feeder, 0.25, which=1)
    wire.full = {Nic(0, 1)}
    feeder.turn(wire, 1.0)
    assert policy.states == [
        (0.0, [0, 0, 0], [0.0] * 3, [True] * 3),
        (0.0, [PACKET, 0, 0], [0.0] * 3, [True] * 3),
        (0.0, [2 * PACKET, 0, 0], [0.0] * 3, [True] * 3),
        (0.0, [2 * PACKET, PACKET, 0], [0.0] * 3, [True] * 3),
        (1.0, [2 * PACKET, 0, 0], [0.25, 0.0, 0.0], [True, False, False]),
    ]


@pytest.mark.parametrize(("rate", "volume"), [(0.01, 1.0), (0.5, 0.25), (0.001, 1 / 8)])
def test_a_policy_sees_real_scale_whatever_that_of_the_emulation_is(rate: float, volume: float) -> None:
    def seen(rate: float, volume: float) -> tuple[object, ...]:
        policy, time, bps = Scripted(), volume / rate, RATE_BPS * rate
        feeder, wire = feeder_of(
            policy,
            demand({(0, 4): 40, (1, 4): 10}),
            volume,
            time,
            rate=lambda _: bps,
            began_at=100.0,
            packet=int(PACKET * volume),
        )
        wire.window = int(6 * PACKET * volume)
        for step in range(50):
            at = 100.0 + 0.05 * step * time
            for _ in range(min(3, len(wire.flying))):
                wire.land(feeder, at)
            feeder.opened(next(iter(feeder.groups)))
            feeder.turn(wire, at)
        assert feeder.done
        assert max(backlogs[0] for _, backlogs, *_ in policy.states) == 5 * PACKET
        return policy.states, policy.heard, policy.round_trips

    for here, there in zip(seen(rate, volume), seen(1.0, 1.0), strict=True):
        assert np.array(flat(here)) == pytest.approx(np.array(flat(there)))


def flat(rows: object) -> list[float]:
    """Return the numbers of nested rows, in order."""
    if isinstance(rows, list | tuple):
        return [number for row in rows for number in flat(row)]
    return [] if isinstance(rows, str) else [float(rows)]  # type: ignore[arg-type]  # a number


def test_the_smoothed_round_trip_follows_the_packets() -> None:
    policy = Scripted()
    feeder, wire = feeder_of(policy, demand({(0, 4): 60}))
    wire.window = PACKET
    for step in range(60):
        feeder.turn(wire, float(step))
        wire.land(feeder, step + (0.25 if step < 30 else 0.5))
    smoothed_s = [rtt_s[0] for _, _, rtt_s, _ in policy.states]
    assert smoothed_s[:2] == [0.0, 0.25]
    assert smoothed_s[30] == pytest.approx(0.25)
    assert smoothed_s[31] == pytest.approx(0.25 + 0.25 / 8)
    assert smoothed_s[-1] == pytest.approx(0.5, abs=0.01)


def test_a_policy_hears_what_was_marked_of_a_chunk_if_a_packet_of_it_was() -> None:
    for per_packet, heard in (
        (True, [(0.2, False), (0.25, True), (0.3, False)]),
        (False, [(0.3, True)]),
    ):
        policy = Scripted(per_packet=per_packet)
        feeder, wire = feeder_of(policy, demand({(0, 4): 3}, 3 * PACKET))
        feeder.turn(wire, 0.0)
        for packet, is_marked in enumerate((False, True, False)):
            wire.land(feeder, 0.1 + packet / 20, PACKET, is_marked=is_marked, heard_s=0.1)
        assert flat(policy.round_trips) == pytest.approx(flat(heard))


def test_a_lane_has_its_backlog_until_it_is_acknowledged() -> None:
    policy = Scripted()
    feeder, wire = feeder_of(policy, demand({(0, 4): 3}))
    wire.window = PACKET
    feeder.turn(wire, 0.0)
    (burst,) = wire.flying
    wire.flying.clear()
    feeder.landed(burst, PACKET)
    feeder.turn(wire, 1.0)
    feeder.acknowledged(burst, PACKET, 1.5, False, 1.5)
    wire.land(feeder, 2.0)
    feeder.turn(wire, 3.0)
    assert [backlogs for _, backlogs, *_ in policy.states] == [[0], [PACKET], [0]]


# What is taken back


def test_what_is_forgotten_goes_no_more_and_the_rest_does() -> None:
    policy = Scripted()
    feeder, wire = feeder_of(policy, demand({(0, 4): 5, (1, 4): 4}))
    wire.window = 4 * PACKET
    feeder.turn(wire, 0.0)
    assert wire.names() == [1000, 1001, 1000, 1001]
    wire.land(feeder, 0.5)
    recalled = [wire.flying.pop(1)]
    feeder.forget([1000])
    for burst in recalled:
        feeder.dropped(burst, burst.size)
    assert [feeder.lacks(name) for name in (1000, 1001)] == [False, True]
    assert [feeder.unbound(group) for group in feeder.groups] == [2 * PACKET]
    feeder.turn(wire, 1.0)
    assert policy.states[-2][1] == [2 * PACKET], "what was taken back is on no lane"
    assert [wire.land(feeder, 2.0) for _ in range(4)] == [False] * 3 + [True]
    assert (feeder.done, wire.flying) == (True, [])
    feeder.forget([1000, 1001])
    assert feeder.done
    assert feeder.carried(1000) == {(10, 0): PACKET}
    assert feeder.carried(1001) == {(10, 0): 4 * PACKET}


class ToEither(Scripted):
    """One whose lanes end at both NICs of the destination's server, which grant by themselves."""

    def admit(self, *, message: Message) -> Lanes:
        """Return a lane to each."""
        near, far = FABRIC.gpu_servers[message.source], FABRIC.gpu_servers[message.destination]
        return (LaneSet((Nic(near, 0),), (Nic(far, 0), Nic(far, 1))),)


def test_what_may_end_at_several_nics_waits_for_each_of_them() -> None:
    feeder, wire = feeder_of(ToEither([0, 1, 1]), demand({(0, 4): 3}))
    groups = [group_between(SourceEnds((Nic(0, 0),), Nic(2, nic), 0)) for nic in range(2)]
    assert list(feeder.groups) == groups
    assert [feeder.unbound(group) for group in groups] == [3 * PACKET] * 2
    feeder.turn(wire, 0.0)
    assert [feeder.unbound(group) for group in groups] == [0, 0]
    others = [feeder.other_groups(burst) for burst in wire.flying]
    assert others == [[groups[1]], [groups[0]], [groups[0]]]


def test_without_work_nothing_waits() -> None:
    feeder, wire = feeder_of(Scripted(), demand({}))
    feeder.turn(wire, 0.0)
    assert feeder.done
    assert not wire.flying


@dataclass(frozen=True)
class Unpoliced:
    """Messages that take the first lane that has room."""

    lanes: tuple[Lanes, ...]
    chunks: Chunks
    policy = None
    first = 0


def test_without_a_policy_a_nic_takes_what_goes_by_it_and_none_waits_until_others_are_full() -> None:
    near, far = (Nic(0, 0), Nic(0, 1)), (Nic(1, 0), Nic(1, 1))
    lanes = tuple(LaneSet((a,), (b,)) for a, b in zip(near, far, strict=True))
    sizes = np.array([10 * PACKET])
    feeder = PacketFeeder(
        Unpoliced((lanes,), Chunks(np.zeros(1, dtype=np.int64), sizes)),
        sizes,
        lambda _nic: RATE_BPS,
        numbers=[(0, 1)],
        names=[7],
        began_at=0.0,
        real_s=lambda at: at,
        packet=PACKET,
    )
    wire = OnePass(nic_of=dict(enumerate(near)))
    assert feeder.turn(wire, 0.0), "there is room for more"
    assert [burst.number for burst in wire.flying] == [0, 1]
    wire.full = {near[0]}
    feeder.turn(wire, 0.0)
    assert [burst.number for burst in wire.flying] == [0, 1, 1]


class OnePass(Wire):
    """One whose turns end once each NIC was given a packet."""

    _asked = 0

    @property
    def turn_is_over(self) -> bool:  # type: ignore[override]  # of each turn
        self._asked += 1
        return self._asked % 2 == 0
