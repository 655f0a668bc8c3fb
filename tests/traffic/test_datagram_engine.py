"""The engine of datagrams under receiver credits on loopback, by way of a relay, and a clock of the test."""

import re
import socket
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from fcntl import ioctl
from itertools import count, cycle
from math import inf
from termios import FIONREAD
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.examples import examples
from tests.tools import CHECKOUT
from tests.traffic.cases import Work, admitted_by, work_of
from tests.traffic.relay import (
    PACKET,
    PACKET_S,
    RATE_BPS,
    Fate,
    Net,
    Passed,
    Seen,
    WallClock,
    net,
    passes,
    taken_back,
    udp,
)
from topologies.errors import NetworkError, StuckError
from topologies.fabric import Nic
from topologies.leaf_spine import leaf_spine_fabric
from traffic.congestion.control import SourceEnds
from traffic.congestion.credit import FIRST_PACKETS
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.policy import (
    SPRAYED,
    Lanes,
    LaneSet,
    LaneState,
    Message,
    QueuePair,
    ReactivePolicy,
    between_nics,
    each_of,
)
from traffic.spraying.registry import policy_named
from traffic.transports import datagram_engine, registry
from traffic.transports.datagram_engine import LOSSY_PACKETS, LOST_PACKETS
from traffic.transports.datagram_lane import Crossed, DatagramLane, Parcel, Piece, Source
from traffic.transports.datagram_sockets import HEADER, PROBE, RECEIVE_BUFFER_BYTES
from traffic.transports.feeder import LaneUse
from traffic.transports.loop import PacketCounts
from traffic.transports.nic_sender import DEPTH_PACKETS, NicSender
from traffic.transports.order import MessageOrder
from traffic.transports.packet_feeder import NEW, Burst, PacketFeeder, group_between
from traffic.transports.reordering import Reordering
from traffic.transports.transport import LEAST_PACKET_S

SEEDS = st.integers(0, 1 << 16)
ONE, OTHER = QueuePair(Nic(1, 0), Nic(0, 0), 1), QueuePair(Nic(2, 1), Nic(0, 1), 2)
PAIRS = [
    QueuePair(Nic(near, nic), Nic(far, 1 - nic), entropy)
    for near, far, nic, entropy in ((0, 1, 0, 0), (0, 1, 0, 9), (1, 0, 1, 63), (2, 0, 1, 4), (2, 1, 0, 5))
]


def every(count: int) -> Fate:
    """Return the fate that each so many-th packet is lost."""
    turn = cycle(range(count))
    return lambda seen: passes(seen) if next(turn) < count - 1 else []


def first_times() -> Fate:
    """Return the fate that each packet is lost the first time."""
    known = set[tuple[int, int, int]]()

    def fate(seen: Seen) -> Passed:
        which = seen.lane, seen.message, seen.order
        is_new = which not in known
        known.add(which)
        return [] if is_new else passes(seen)

    return fate


def twice(seen: Seen) -> Passed:
    """Have a packet come twice."""
    return [(0.0, seen), (2 * PACKET_S, seen)]


def at_random(seed: int) -> Fate:
    """Return the fate that packets are lost, doubled or late, at random."""
    rng = np.random.default_rng(seed)

    def fate(seen: Seen) -> Passed:
        delays_s = rng.choice([0.0, 0.0, 0.0, 3 * PACKET_S, 2 * LOST_PACKETS * PACKET_S], 2)
        return [(delay_s, seen) for delay_s in delays_s[: rng.choice([0, 1, 1, 1, 2])]]

    return fate


FATES: dict[str, Callable[[int], Fate]] = {
    "all pass": lambda _: passes,
    "each 7th is lost": lambda _: every(7),
    "all are lost at first": lambda _: first_times(),
    "all come twice": lambda _: twice,
    "at random": at_random,
}
LOSE = ["each 7th is lost", "all are lost at first"]
"""Those that lose packets, and do nothing else."""


def some_parcels(seed: int, lanes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return random parcels of six messages: queue pair, size and message of each."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 12))
    sizes = rng.choice([1, PACKET - 1, PACKET, PACKET + 1, 7 * PACKET // 2, 30 * PACKET], rows)
    numbers, messages = rng.choice(lanes, rows), rng.integers(0, 6, rows)
    return list(zip(numbers.tolist(), sizes.tolist(), messages.tolist(), strict=True))


def granted_and_sent(of: Net) -> int:
    """Return what was sent in all, once it is clear that just that was granted [bytes]."""
    sources = of.engine.sources
    granted = {source: sources.granted_bytes(source) or 0 for source in sources}
    assert all(source.sent <= size for source, size in granted.items()), "more was sent than was granted"
    return sum(source.sent for source in sources)


def check_counts(of: Net) -> None:
    """Check that packets, and their bytes, are those that the relay saw."""
    counts = of.engine.packets
    assert counts.sent == len(of.relay.seen)
    assert counts.arrived + counts.late == len(of.relay.passed)
    assert granted_and_sent(of) == sum(seen.size for seen in of.relay.seen)


# Bytes arrive


@pytest.mark.parametrize("fate", FATES)
@settings(max_examples=examples(4, 25))
@given(seed=SEEDS)
def test_each_message_arrives_once_and_whole(fate: str, seed: int) -> None:
    with net(FATES[fate](seed)) as servers:
        numbers = servers.lanes(*PAIRS)
        expected, arrived, size = Counter[tuple[int, int]](), [], 0
        for post in range(3):
            parcels = some_parcels(seed + post, numbers)
            servers.post(*parcels)
            expected.update({(message, number) for number, _, message in parcels})
            size += sum(each for _, each, _ in parcels)
            arrived += [each for _ in range(10) for each in servers.step()]
        arrived += servers.finish()
        assert servers.times(arrived) == expected
        assert servers.engine.health.payload_bytes == size
        assert [servers.engine.owed(number) for number in numbers] == [0] * len(numbers)
        assert taken_back(servers.engine.packets) == 0
        check_counts(servers)


@pytest.mark.parametrize("fate", LOSE)
@settings(max_examples=examples(4, 25))
@given(seed=SEEDS)
def test_what_is_lost_is_granted_anew_and_sent_again(fate: str, seed: int) -> None:
    with net(FATES[fate](seed)) as servers:
        parcels = some_parcels(seed, servers.lanes(*PAIRS))
        servers.post(*parcels)
        servers.finish()
        seen, passed, size = servers.relay.seen, servers.relay.passed, sum(each for _, each, _ in parcels)
        assert servers.engine.packets == PacketCounts(len(seen), len(passed), len(seen) - len(passed), 0)
        assert servers.engine.health.retransmits == len(seen) - len(passed)
        assert sum(each.size for each in passed) == size
        assert granted_and_sent(servers) == size + sum(each.size for each in set(seen) - set(passed))


def test_what_comes_twice_counts_once() -> None:
    with net(twice) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, 20 * PACKET, 7))
        assert [each.message for each in servers.finish()] == [7]
        assert servers.engine.packets == PacketCounts(sent=20, arrived=20, anew=0, late=20)
        assert granted_and_sent(servers) == servers.engine.health.payload_bytes == 20 * PACKET


@pytest.mark.parametrize("packets", [1, 30])
def test_a_packet_that_counted_as_lost_and_arrives_counts_once(packets: int) -> None:
    late_s = 2 * LOST_PACKETS * PACKET_S

    def first_is_late(seen: Seen) -> Passed:
        return passes(seen) if seen.number else [(late_s, seen)]

    with net(first_is_late) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, packets * PACKET, 7))
        (arrival,) = servers.run(lambda: servers.engine.quiet)
        assert arrival.at < 1000.0 + late_s
        assert servers.engine.packets == PacketCounts(sent=packets + 1, arrived=packets, anew=1, late=0)
        assert not servers.finish()
        assert servers.engine.packets == PacketCounts(sent=packets + 1, arrived=packets, anew=1, late=1)
        assert granted_and_sent(servers) == (packets + 1) * PACKET
        assert servers.engine.health.payload_bytes == packets * PACKET


@pytest.mark.parametrize(("lossy", "packets"), [(False, LOST_PACKETS), (True, LOSSY_PACKETS)])
@pytest.mark.parametrize("round_trip_s", [0.0, 0.1])
def test_a_lone_packet_is_missing_after_a_round_trip_and_so_many_packets_time(
    lossy: bool, packets: int, round_trip_s: float
) -> None:
    with net(first_times()) as servers:
        (number,) = servers.lanes(ONE, lossy=lossy, round_trip_s=round_trip_s)
        servers.post((number, PACKET, 7))
        (arrival,) = servers.finish()
    granted_s = round_trip_s  # each time
    missing_s = packets * PACKET_S + round_trip_s
    expected_s = 2 * granted_s + missing_s + round_trip_s / 2
    assert arrival.at - 1000.0 == pytest.approx(expected_s, abs=6 * PACKET_S)


@pytest.mark.interpreted
def test_what_arrives_after_its_delay_is_returned_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine waited for half a second when the last packet had come, before it said so."""
    with net() as servers:
        (number,) = servers.lanes(ONE, round_trip_s=0.1)
        servers.post((number, PACKET, 7))
        servers.run(lambda: servers.relay.passed != [])
        assert not servers.step()
        servers.clock.now += 0.1
        waits = list[float]()
        monkeypatch.setattr(servers.engine.loop, "serve", lambda wait_s, counts: waits.append(wait_s))
        arrived = servers.engine.serve(10.0)
    assert [arrival.message for arrival in arrived] == [7]
    assert waits == [0.0]


def test_what_waits_in_a_socket_while_the_engine_is_away_is_not_missing() -> None:
    with net() as servers:
        numbers = servers.lanes(*(QueuePair(Nic(1, nic), Nic(0, nic)) for nic in range(4)))
        servers.post(*((number, 50 * PACKET, number) for number in numbers))
        for _ in range(30):
            servers.clock.now += PACKET_S
            servers.engine.serve(0.0)
        servers.relay.turn()
        assert servers.engine.packets == PacketCounts(sent=100), "all that was granted waits"
        servers.clock.now += 10 * LOST_PACKETS * PACKET_S
        servers.finish()
        assert servers.engine.packets == PacketCounts(sent=200, arrived=200, anew=0, late=0)


@pytest.mark.parametrize("lost", [[2, 3, 4, 8, 9], list(range(10))])
def test_what_is_lost_together_is_sent_again_in_order(lost: list[int]) -> None:
    first = first_times()
    with net(lambda seen: first(seen) if seen.order in lost else passes(seen)) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, 10 * PACKET, 0))
        servers.finish()
        orders = [seen.order for seen in servers.relay.seen]
    again = [order for at, order in enumerate(orders) if order in orders[:at]]
    assert (sorted(set(orders)), again) == (list(range(10)), lost)


def test_what_is_sent_again_in_parts_keeps_its_place() -> None:
    half = PACKET // 2
    with net(lambda seen: [] if seen.number in (0, 1) else passes(seen)) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, half, 5))
        servers.run(lambda: servers.engine.packets.sent == 1)
        servers.post((number, 2 * PACKET, 0))
        servers.finish()
        sent = [(seen.message, seen.order, seen.size) for seen in servers.relay.seen]
        again = [(5, 0, PACKET), (0, 2, half)]  # with half of what was lost, the rest of which has no place
        assert sent == [(5, 0, half), (0, 0, PACKET), (0, 1, PACKET), *again]
        assert servers.engine.order == Reordering({0: 3, 1: 1}, held_bytes=PACKET)


def test_parcels_of_a_queue_pair_share_packets() -> None:
    with net() as servers:
        (number,) = servers.lanes(ONE)
        servers.post(*((number, PACKET // 5, message) for message in (3, 1, 3, 2, 9, 4)))
        assert [each.message for each in servers.finish()] == [1, 2, 3, 4, 9]
        assert [each.size for each in servers.relay.seen] == [PACKET, PACKET // 5]


@pytest.mark.interpreted
def test_bursts_have_packets_of_their_own() -> None:
    group = group_between(SourceEnds((ONE.source,), ONE.destination, 0))
    burst = Burst(0, 0, 0, 0, group, LaneUse(0, 5), 5, 900, 900, 0.0, NEW)
    lane = DatagramLane(0, ONE, nic=cast(NicSender, None), addresses=[], crossed=Crossed(1.0))
    source = Source(0, ONE.destination, lane)
    order = MessageOrder()
    plain, chosen = Parcel(1, 900, source, order), Parcel(2, 900, source, order, burst)
    for parcels, cut in (
        ([plain, plain, plain], [[900, 100], [800, 200], [700]]),
        ([chosen, chosen], [[900], [900]]),
        ([plain, chosen, plain], [[900], [900], [900]]),
    ):
        lane.unsent.extend(Piece(parcel, 900) for parcel in parcels)
        assert [[piece.size for piece in lane.cut(PACKET)] for _ in cut] == cut
        assert not lane.unsent


def test_a_packet_goes_to_the_entropy_of_its_queue_pair() -> None:
    with net() as servers:
        numbers = servers.lanes(*PAIRS)
        servers.post(*((number, 2 * PACKET, 0) for number in numbers))
        servers.finish()
        assert {(each.lane, each.entropy) for each in servers.relay.seen} == {
            (number, pair.entropy) for number, pair in zip(numbers, PAIRS, strict=True)
        }


# Rates


def test_senders_to_one_nic_share_what_it_receives_and_it_is_busy() -> None:
    with net() as servers:
        numbers = servers.lanes(*(QueuePair(Nic(sender, 0), Nic(0, 0)) for sender in (1, 2, 3)))
        servers.post(*((number, 100 * PACKET, number) for number in numbers))
        while not servers.engine.quiet:
            servers.step()
            owed = [servers.engine.owed(number) for number in numbers]
            assert max(owed) - min(owed) <= 2 * PACKET
        assert servers.clock.now - 1000.0 == pytest.approx(300 * PACKET_S, rel=0.03)


def test_nics_begin_with_different_senders() -> None:
    with net() as servers:
        ends = [(near, far) for near in range(4) for far in range(4) if near != far]
        numbers = servers.lanes(*(QueuePair(Nic(near, 0), Nic(far, 0)) for near, far in ends))
        servers.post(*((number, 20 * PACKET, 0) for number in numbers))
        servers.finish()
        senders = [
            [ends[seen.lane][0] for seen in servers.relay.seen if seen.server == to] for to in range(4)
        ]
    assert Counter(sender for to in senders for sender in to[:FIRST_PACKETS]) == dict.fromkeys(range(4), 2)


def test_a_nic_receives_at_the_rate_that_it_has_now() -> None:
    shares = {Nic(0, 0): 1.0}
    with net(rate_bps=lambda nic: RATE_BPS * shares.get(nic, 1.0)) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, 1000 * PACKET, 0))
        for share in (1.0, 0.25, 1.0):
            shares[Nic(0, 0)] = share
            servers.engine.rates_changed()
            before = servers.engine.owed(number)
            servers.go_on(200 * PACKET_S)
            arrived = before - servers.engine.owed(number)
            assert arrived == pytest.approx(200 * share * PACKET, abs=3 * PACKET)


def test_a_nic_takes_what_it_can_send_soon_and_more_when_it_has_sent() -> None:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with _Connected(near) as endpoint, far:
        endpoint.setblocking(False)
        turns = count()
        sender = NicSender(endpoint, RATE_BPS / 16, PACKET)
        for times_faster in (1, 1, 4):
            sender.send_at(times_faster * PACKET / LEAST_PACKET_S)
            packets = 0
            while sender.room(DEPTH_PACKETS, next(turns)):
                assert sender.send(bytes(PACKET), ("", 0))
                packets += 1
            assert packets == times_faster * DEPTH_PACKETS
            turn = next(turns)
            for _ in range(packets):
                assert not sender.room(DEPTH_PACKETS, turn), "it was looked at before it sent"
                assert sender.room(DEPTH_PACKETS + 1, turn)
                assert len(far.recv(2 * PACKET)) == PACKET
            assert sender.room(DEPTH_PACKETS, next(turns))
        while sender.send(bytes(PACKET), ("", 0)):
            pass
        assert not sender.room(DEPTH_PACKETS, next(turns)), "the kernel took no more"
        far.close()
        assert sender.send(bytes(PACKET), ("", 0)), "nobody is there: it is lost"


class _Connected(socket.socket):
    """A socket whose packets go to its peer, whatever their address."""

    def __init__(self, of: socket.socket) -> None:
        super().__init__(of.family, of.type, fileno=of.detach())

    def sendto(self, data: bytes, _to: object) -> int:  # type: ignore[override]  # of one form only
        """Send to the peer."""
        return self.send(data)


# What is taken back


@settings(max_examples=examples(15, 100))
@given(seed=SEEDS, fate=st.sampled_from(list(FATES)), round_trip_s=st.sampled_from([0.0, 0.02]))
def test_what_is_not_taken_back_is_delivered(seed: int, fate: str, round_trip_s: float) -> None:
    rng = np.random.default_rng(seed)
    with net(FATES[fate](seed)) as servers:
        engine = servers.engine
        numbers = servers.lanes(*PAIRS, round_trip_s=round_trip_s)
        posted, back = dict[int, int](), Counter[int]()
        ended, held = Counter[int](), set[int]()
        for message in range(40):
            number = int(rng.choice(numbers))
            act = rng.choice(["post", "post", "post", "withdraw", "retract", "hold", "resume"])
            if act == "post":
                posted[message] = int(rng.choice([1, PACKET, 20 * PACKET]))
                servers.post((number, posted[message], message))
            elif act == "withdraw":
                for each, size in engine.withdraw(number):
                    back[each] += size
                    ended[each] += 1
                assert (engine.owed(number), engine.drained(number)) == (0, True)
            elif act == "retract":
                before = engine.left(number)
                for each, size, is_whole in engine.retract(number):
                    back[each] += size
                    ended.update([each] * is_whole)
                    assert engine.left(number).get(each, 0) == before[each] - size
            else:
                (engine.hold if act == "hold" else engine.resume)([number])
                (held.add if act == "hold" else held.discard)(number)
            for sender in servers.senders.values():
                sender.is_full = rng.random() < 0.3
            for _ in range(rng.integers(0, 30)):  # now and then two of these come at once
                ended.update(each.message for each in servers.step())
            assert {each for n in numbers for each in engine.carried(n)} == posted.keys() - ended.keys()
        for sender in servers.senders.values():
            sender.is_full = False
        engine.resume(numbers)
        ended.update(each.message for each in servers.finish())
        assert ended == Counter(posted.keys()), "each has arrived, or all that was left of it was taken back"
        assert engine.health.payload_bytes + back.total() == sum(posted.values())
        check_counts(servers)


def test_a_queue_pair_that_is_held_sends_nothing_more_until_it_is_resumed() -> None:
    with net() as servers:
        one, other = servers.lanes(ONE, OTHER)
        servers.post((one, 50 * PACKET, 0), (other, 50 * PACKET, 1))
        servers.run(lambda: servers.engine.owed(one) < 30 * PACKET)
        assert servers.engine.waiting is None
        servers.engine.hold([one])
        stands = servers.engine.owed(one)
        servers.run(lambda: not servers.engine.owed(other))
        assert servers.engine.owed(one) == stands
        assert servers.engine.drained(one)
        assert servers.engine.waiting == ONE
        servers.engine.resume([one])
        assert servers.engine.waiting is None
        assert [each.message for each in servers.finish()] == [0]


@pytest.mark.parametrize("round_trip_s", [0.0, 0.02])
def test_what_stands_for_no_time_keeps_its_grants(round_trip_s: float) -> None:
    with net() as servers:
        (number,) = servers.lanes(ONE, round_trip_s=round_trip_s)
        servers.post((number, 100 * PACKET, 0))
        arrived = []
        for _ in range(5):
            servers.senders[ONE.source].is_full = True  # so that it has grants that it did not use
            arrived += servers.go_on(20 * PACKET_S)
            servers.engine.hold([number])
            servers.engine.resume([number])
            servers.senders[ONE.source].is_full = False
            arrived += servers.go_on(5 * PACKET_S)
        assert [each.message for each in arrived + servers.finish()] == [0]
        assert [seen.order for seen in servers.relay.seen] == list(range(100))
        check_counts(servers)


def test_queue_pairs_are_open_until_a_time_and_those_that_are_held_are_resumed() -> None:
    with net() as servers:
        lanes = servers.lanes(ONE, OTHER)
        servers.post((lanes[0], 50 * PACKET, 0), (lanes[1], 50 * PACKET, 1))
        servers.engine.hold(lanes)
        servers.engine.open(iter(lanes), servers.clock.now + 20 * PACKET_S)
        servers.go_on(40 * PACKET_S)
        assert all(0 < servers.engine.owed(number) < 50 * PACKET for number in lanes)
        servers.engine.open(lanes, inf)
        assert {each.message for each in servers.finish()} == {0, 1}


@pytest.mark.parametrize("round_trip_s", [0.0, 0.02])
def test_what_is_lost_by_the_callers_word_is_granted_and_sent_again_and_counts_once(
    round_trip_s: float,
) -> None:
    are_lost = True
    with net(lambda seen: [] if are_lost else passes(seen)) as servers:
        (number,) = servers.lanes(ONE, round_trip_s=round_trip_s)
        servers.post((number, 100 * PACKET, 0))
        arrived = []
        for turn in range(20):
            are_lost = turn < 10
            arrived += servers.go_on(10 * PACKET_S)
            servers.engine.lose([number])
        assert [each.message for each in arrived + servers.finish()] == [0]
        assert servers.engine.counted(number) == 100 * PACKET
        assert servers.engine.moved(number).lost > 0
        check_counts(servers)


@pytest.mark.parametrize("round_trip_s", [0.0, 0.02])
def test_what_is_retracted_and_posted_again_at_once_keeps_its_grants(round_trip_s: float) -> None:
    with net() as servers:
        (number,) = servers.lanes(ONE, round_trip_s=round_trip_s)
        servers.post((number, 200 * PACKET, 0))
        arrived = []
        for message in range(1, 6):
            servers.senders[ONE.source].is_full = True
            arrived += servers.go_on(20 * PACKET_S)
            ((_, size, is_whole),) = servers.engine.retract(number)
            assert is_whole
            servers.post((number, size + message, message))
            servers.senders[ONE.source].is_full = False
            arrived += servers.go_on(5 * PACKET_S)
        assert [each.message for each in arrived + servers.finish()] == [5]
        assert servers.engine.health.payload_bytes == 200 * PACKET + 15
        check_counts(servers)


def test_what_a_withdrawn_queue_pair_had_on_its_way_counts_no_more() -> None:
    with net(lambda seen: [(10 * PACKET_S, seen)]) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, 30 * PACKET, 0))
        servers.run(lambda: servers.engine.packets.arrived >= 5)
        on_the_way = taken_back(servers.engine.packets)
        arrived = servers.engine.packets.arrived
        assert servers.engine.withdraw(number) == [(0, (30 - arrived) * PACKET)]
        assert servers.engine.quiet
        assert not servers.finish()
        sent = arrived + on_the_way
        assert servers.engine.packets == PacketCounts(sent, arrived, anew=0, late=on_the_way)
        (again,) = servers.lanes(ONE)
        servers.post((again, 10 * PACKET, 1))
        assert [each.message for each in servers.finish()] == [1]


@pytest.mark.parametrize("takes_back", ["withdraw", "retract"])
def test_what_is_taken_back_of_a_message_leaves_no_gap_in_its_order(takes_back: str) -> None:
    def fate(seen: Seen) -> Passed:
        return [] if seen.lane == 0 and seen.number in range(3, 20) else passes(seen)

    with net(fate) as servers:
        one, other = servers.lanes(ONE, OTHER)
        servers.post((one, 50 * PACKET, 0), (other, 100 * PACKET, 0))
        servers.run(lambda: servers.engine.packets.anew == 17)
        before = servers.engine.order.held_bytes
        servers.engine.hold([one])
        servers.step()
        getattr(servers.engine, takes_back)(one)
        servers.finish()
        assert 0 < before == servers.engine.order.held_bytes


# Others' packets, and errors


def test_packets_of_others_change_nothing_and_take_no_room() -> None:
    with net() as servers, udp("127.0.0.1") as stranger:
        (number,) = servers.lanes(ONE)
        servers.post((number, 30 * PACKET, 7))
        servers.run(lambda: servers.engine.packets.sent > 5)
        token, *_ = HEADER.unpack_from(servers.relay.seen[0].data)
        receiver = servers.relay.receiver(0)
        foreign = [
            HEADER.pack(token ^ bit, number, which, 7, 0) + bytes(PACKET)
            for bit in (1, 1 << 32, 1 << 63)
            for which in (0, 1, 29, PROBE)
        ]
        short = [b"", b"\0", HEADER.pack(token, number, 0, 7, 0)[:7], bytes(64)]
        for each in (foreign + short) * (2 * RECEIVE_BUFFER_BYTES // (12 * PACKET)):
            stranger.sendto(each, receiver.getsockname())
        assert waiting_bytes(receiver) == 0
        assert [each.message for each in servers.finish()] == [7]
        assert servers.engine.packets == PacketCounts(sent=30, arrived=30, anew=0, late=0)


def waiting_bytes(receiver: socket.socket) -> int:
    """Return the size of the packet that a socket hands out next, 0 if there is none."""
    (size,) = struct.unpack("i", ioctl(receiver.fileno(), FIONREAD, bytes(4)))
    return int(size)


def test_packets_of_this_run_that_say_nonsense_change_nothing() -> None:
    with net() as servers, udp("127.0.0.1") as stranger:
        (number,) = servers.lanes(ONE)
        servers.post((number, 30 * PACKET, 7))
        servers.run(lambda: servers.engine.packets.sent > 5)
        token, *_ = HEADER.unpack_from(servers.relay.seen[0].data)
        nonsense = [HEADER.pack(token, lane, 1 << 20, 7, 0) for lane in (number, number + 1, PROBE)]
        for each in (*nonsense, HEADER.pack(token, number, 0, 7, 0)[:-1]):
            stranger.sendto(each, servers.relay.receiver(0).getsockname())
        assert [each.message for each in servers.finish()] == [7]
        assert servers.engine.packets == PacketCounts(sent=30, arrived=30, anew=0, late=1)


def test_a_queue_pair_that_makes_no_progress_is_named() -> None:
    def only_one(seen: Seen) -> Passed:
        return passes(seen) if seen.lane == 0 else []

    with net(only_one, stuck_s=1.0) as servers:
        one, other = servers.lanes(ONE, OTHER)
        servers.post((one, 3 * PACKET, 0), (other, 2 * PACKET, 1))
        with pytest.raises(StuckError) as caught:
            servers.finish()
    assert caught.value.sentence == (
        f"queue pair {OTHER} made no progress for 1 s (0 of 2,000 bytes arrived; 1 are stuck)"
    )


def test_a_queue_pair_whose_only_packet_is_yet_to_count_as_lost_is_not_stuck() -> None:
    with net(first_times(), control="nscc", stuck_s=2.0) as servers:
        (number,) = servers.lanes(ONE, round_trip_s=2.5)
        servers.post((number, PACKET, 7))
        (arrival,) = servers.finish()
    assert arrival.at - 1000.0 == pytest.approx(2.5 + LOST_PACKETS * PACKET_S + 1.25, abs=6 * PACKET_S)


def test_what_is_held_is_not_stuck() -> None:
    with net(stuck_s=1.0) as servers:
        (number,) = servers.lanes(ONE)
        servers.engine.hold([number])
        servers.post((number, PACKET, 0))
        assert not servers.go_on(5.0)
        servers.engine.resume([number])
        assert [each.message for each in servers.finish()] == [0]


def test_what_may_wait_for_light_is_not_stuck_and_begins_anew_when_it_is_there() -> None:
    waits = [True]
    with net(lambda _seen: [], stuck_s=1.0, excused=lambda: waits[0]) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, PACKET, 0))
        assert not servers.go_on(5.0)
        waits[0] = False
        servers.engine.excuse()
        assert not servers.go_on(0.9)
        with pytest.raises(StuckError, match="0 of 1,000 bytes arrived"):
            servers.go_on(2.0)


def test_queue_pairs_are_connected_once_a_probe_of_each_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagram_engine, "PROBE_S", 0.01)
    lost = cycle([True, True, False])
    with net(lambda seen: [] if next(lost) else passes(seen), clock=WallClock()) as servers:
        numbers = servers.lanes(*PAIRS)
        servers.relay.join(servers.engine)
        servers.engine.connect(numbers)
        assert (servers.relay.seen, servers.engine.packets) == ([], PacketCounts())


def test_a_queue_pair_none_of_whose_probes_arrive_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagram_engine, "PROBES_S", 0.1)
    with net(lambda seen: passes(seen) if seen.lane == 0 else [], clock=WallClock()) as servers:
        numbers = servers.lanes(ONE, OTHER)
        servers.relay.join(servers.engine)
        with pytest.raises(NetworkError) as caught:
            servers.engine.connect(numbers)
    assert caught.value.sentence == (
        f"no packet of queue pair {OTHER} arrived within 0.1 s (1 of 2 had none)"
    )


def test_a_network_that_dies_ends_the_run() -> None:
    def check() -> None:
        raise NetworkError("the controller ended during the run")

    with net(lambda _seen: [], check=check) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, PACKET, 0))
        with pytest.raises(NetworkError, match="the controller ended"):
            servers.finish()


# Packets that choose

FABRIC = leaf_spine_fabric(4, 2, 2, nics=2)
NAMED = ["reps", "spray", "plb", "minrtt", "minrtt:8"]


class PerChunk(MinRtt):
    """A user's own that chooses for each chunk, at random among NICs of both servers, which have room."""

    name = "per chunk"
    per_packet = False

    def admit(self, *, message: Message) -> Lanes:
        """Return eight entropies between all NICs of both servers."""
        sides = [
            tuple(Nic(FABRIC.gpu_servers[gpu], nic) for nic in range(2))
            for gpu in (message.source, message.destination)
        ]
        return (LaneSet(sides[0], sides[1], range(8)),)

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Return the lane with room that has least to deliver."""
        room = [lane for lane, state in enumerate(states) if state.room]
        return min(room, key=lambda lane: states[lane].backlog_bytes) if room else None


class OfNumpy(PerChunk):
    """A user's own that looks lanes up by numpy, keeps copies of states, and returns something."""

    name = "of numpy"

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Return the lane with room that has least to deliver."""
        for lane in np.argsort([state.backlog_bytes for state in states]):
            if deepcopy(states[lane]).room:
                return lane  # type: ignore[no-any-return]
        return None

    def acknowledged(self, *, message: int, lane: int, rtt_s: float, marked: bool, now: float) -> None:
        """Return something."""
        return now  # type: ignore[return-value]


class NeverChooses(MinRtt):
    """A reactive scheme that waits for ever."""

    name = "never"

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Wait."""


def choosing(name: str) -> ReactivePolicy:
    """Return a policy over datagrams."""
    own = {each.name: each for each in (PerChunk, OfNumpy)}
    policy = own[name]() if name in own else policy_named(name, 64)
    assert isinstance(policy, ReactivePolicy)
    return policy


def work_between(seed: int, least: int = 1) -> Work:
    """Return up to twelve random messages between the GPUs of four servers, of so many bytes at least."""
    rng = np.random.default_rng(seed)
    matrix = np.zeros((8, 8), dtype=np.int64)
    for _ in range(12):
        near, far = rng.choice(8, 2, replace=False)
        matrix[near, far] = rng.integers(least, 20 * PACKET)
    return work_of(FABRIC, matrix, chunk_bytes=5 * PACKET // 2)


class Fed:
    """A feeder of an engine behind a relay, and what it may use."""

    def __init__(
        self,
        of: Net,
        policy: ReactivePolicy,
        work: Work,
        *,
        first: int = 0,
        volume: float = 1.0,
        round_trip_s: float = 0.0,
    ) -> None:
        choice = admitted_by(policy, work)
        self._policy, self._first = policy, first
        self.sizes = dict(enumerate(work.crossing.bytes.tolist(), start=first))
        self.names = list(self.sizes)
        self._of, self._among = of, [between_nics(lanes) for lanes in choice.lanes]
        pairs = list(dict.fromkeys(pair for among in self._among for pair in among))
        number = dict(zip(pairs, of.lanes(*pairs, round_trip_s=round_trip_s), strict=True))
        self.may = {
            name: {(number[replace(lane, entropy=SPRAYED)], lane.entropy) for lane in each_of(lanes)}
            for name, lanes in zip(self.names, choice.lanes, strict=True)
        }
        self.feeder = PacketFeeder(
            choice,
            np.maximum((work.chunks.bytes * volume).astype(np.int64), 1),
            lambda _nic: RATE_BPS,
            numbers=[tuple(number[pair] for pair in among) for among in self._among],
            names=self.names,
            began_at=of.clock.now,
            real_s=lambda at: at - 1000.0,
            packet=PACKET,
            volume=volume,
        )
        of.engine.feed(self.feeder)

    def recall(self, names: Sequence[int]) -> None:
        """Take back messages that have not arrived."""
        if names:
            self._of.engine.recall(self.feeder, names)
        for name in names:
            self._policy.withdraw(message=name - self._first)

    def carried(self, name: int) -> int:
        """Return how many real bytes of a message arrived, once it is clear that they went where they may."""
        by = self.feeder.carried(name)
        assert by.keys() <= self.may[name]
        return sum(by.values())


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("name", [*NAMED, "per chunk", "of numpy"])
@settings(max_examples=examples(2, 10))
@given(seed=SEEDS, volume=st.sampled_from([1.0, 0.3]), round_trip_s=st.sampled_from([0.0, 0.02]))
def test_packets_that_choose_arrive_once_by_lanes_that_they_may_use(
    name: str, fate: str, seed: int, volume: float, round_trip_s: float
) -> None:
    with net(FATES[fate](seed)) as servers:
        work = work_between(seed)
        fed = Fed(servers, choosing(name), work, first=100, volume=volume, round_trip_s=round_trip_s)
        arrived = servers.finish()
        assert servers.times(arrived) == Counter((message, -1) for message in fed.names)
        assert {message: fed.carried(message) for message in fed.names} == fed.sizes
        assert {(each.lane, each.entropy) for each in servers.relay.seen} <= set().union(*fed.may.values())
        assert taken_back(servers.engine.packets) == 0
        check_counts(servers)


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("name", ["reps", "spray", "per chunk"])
@settings(max_examples=examples(2, 15))
@given(seed=SEEDS, round_trip_s=st.sampled_from([0.0, 0.02]))
def test_what_is_recalled_in_the_middle_counts_once_with_what_is_sent_of_it_later(
    name: str, fate: str, seed: int, round_trip_s: float
) -> None:
    rng = np.random.default_rng(seed)
    with net(FATES[fate](seed)) as servers:
        work = work_between(seed, 10 * PACKET)
        fed = Fed(servers, choosing(name), work, first=100, round_trip_s=round_trip_s)
        arrived = servers.go_on(float(rng.choice([4, 8, 30, 300])) * PACKET_S)
        lacking = list(filter(fed.feeder.lacks, fed.names))
        back = lacking[:: int(rng.integers(1, 3))]
        fed.recall(back)
        carried = {message: fed.carried(message) for message in back}
        arrived += servers.finish()
        stayed = [message for message in fed.names if message not in back]
        assert servers.times(arrived) == Counter((message, -1) for message in stayed)
        assert {message: fed.carried(message) for message in stayed} == {m: fed.sizes[m] for m in stayed}
        assert {message: fed.carried(message) for message in back} == carried, "it goes on counting"
        assert all(carried[message] < fed.sizes[message] for message in back)
        assert servers.engine.health.payload_bytes == sum(map(fed.carried, fed.names))
        check_counts(servers)


def test_nothing_more_is_granted_for_what_was_recalled() -> None:
    with net() as servers:
        sizes = {(0, 4): 200 * PACKET, (2, 4): 200 * PACKET}
        fed = Fed(servers, choosing("spray"), work_of(FABRIC, matrix_of(sizes), chunk_bytes=PACKET))
        servers.go_on(50 * PACKET_S)
        fed.recall([0])
        left, began_s = fed.sizes[1] - fed.carried(1), servers.clock.now
        assert [each.message for each in servers.finish()] == [1]
        assert servers.clock.now - began_s == pytest.approx(left / PACKET * PACKET_S, abs=3 * PACKET_S)


def test_what_was_recalled_on_its_way_makes_room_for_what_comes_then() -> None:
    with net(lambda seen: [(10 * PACKET_S, seen)]) as servers:
        work = work_of(FABRIC, matrix_of({(0, 4): 50 * PACKET}), chunk_bytes=PACKET)
        for first in range(10):
            fed = Fed(servers, choosing("spray"), work, first=first)
            servers.go_on(15 * PACKET_S)
            assert taken_back(servers.engine.packets) > 10 * first, "nothing is on its way"
            fed.recall([first])
            assert servers.engine.quiet
        fed = Fed(servers, choosing("spray"), work, first=10)
        assert [each.message for each in servers.finish()] == [10]
        assert fed.carried(10) == 50 * PACKET


class Onlooker(MinRtt):
    """MinRTT that notes the backlogs that it is shown, and what lanes owe then."""

    name = "onlooker"

    def __init__(self, owed: Callable[[], int]) -> None:
        super().__init__(8)
        self.seen: list[tuple[int, int]] = []
        self._owed = owed

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Note both."""
        self.seen.append((sum(state.backlog_bytes for state in states), self._owed()))
        return super().choose(message=message, states=states, now=now)


@pytest.mark.parametrize("fate", ["all pass", *LOSE])
def test_backlogs_are_what_lanes_owe_whatever_was_recalled(fate: str) -> None:
    with net(FATES[fate](0)) as servers:
        work = work_of(FABRIC, matrix_of({(0, 4): 60 * PACKET, (1, 4): 60 * PACKET}), chunk_bytes=PACKET)
        policy = Onlooker(lambda: sum(map(servers.engine.owed, range(2))))
        fed = Fed(servers, policy, work)
        servers.go_on(20 * PACKET_S)
        fed.recall([0])
        servers.finish()
        assert len(policy.seen) > 60
        assert [backlog for backlog, _ in policy.seen] == [owed for _, owed in policy.seen]
        assert max(owed for _, owed in policy.seen) > 0


def matrix_of(sizes: dict[tuple[int, int], int]) -> NDArray[np.int64]:
    """Return a demand of the fabric: the bytes between some of its GPUs."""
    matrix = np.zeros((FABRIC.gpus, FABRIC.gpus), dtype=np.int64)
    for ends, size in sizes.items():
        matrix[ends] = size
    return matrix


def test_what_a_server_sends_to_a_nic_is_granted_together() -> None:
    with net() as servers:
        sizes = {(0, 4): 30 * PACKET, (1, 4): 20 * PACKET, (2, 4): 10 * PACKET, (0, 5): 5 * PACKET}
        fed = Fed(servers, choosing("spray"), work_of(FABRIC, matrix_of(sizes), chunk_bytes=PACKET))
        servers.finish()
        rows = {source.lane.queue_pair: source.sent for source in servers.engine.sources}
    assert {(str(pair.source), str(pair.destination)): sent for pair, sent in rows.items()} == {
        ("0.0", "2.0"): 50 * PACKET,
        ("1.0", "2.0"): 10 * PACKET,
        ("0.0", "2.1"): 5 * PACKET,
    }
    assert all(pair.entropy == SPRAYED for pair in rows)
    assert sum(rows.values()) == sum(fed.sizes.values())


class SwapsPairs:
    """Lets each second packet pass the one before."""

    def __init__(self) -> None:
        self._before: Seen | None = None

    def __call__(self, seen: Seen) -> Passed:
        """Keep a packet, or pass two on."""
        before, self._before = self._before, None if self._before else seen
        return [(0.0, seen), (0.0, before)] if before else []


def test_packets_on_paths_of_their_own_may_overtake_each_other() -> None:
    with net(SwapsPairs()) as servers:
        work = work_of(FABRIC, matrix_of({(0, 4): 50 * PACKET}), chunk_bytes=PACKET)
        fed = Fed(servers, choosing("spray"), work)
        servers.finish()
        assert servers.engine.packets == PacketCounts(sent=50, arrived=50, anew=0, late=0)
        assert servers.engine.order == Reordering({0: 25, 1: 25}, held_bytes=PACKET)
        assert fed.carried(0) == 50 * PACKET


def test_a_packet_that_one_behind_it_overtakes_on_its_path_is_lost() -> None:
    kept = list[Seen]()

    def second_first(seen: Seen) -> Passed:
        if seen.number == 0:
            kept.append(seen)
            return []
        return [(0.0, seen), *((0.0, kept.pop()) for _ in kept[:])]

    with net(second_first) as servers:
        (number,) = servers.lanes(ONE)
        servers.post((number, 2 * PACKET, 0))
        servers.finish()
        assert servers.engine.packets == PacketCounts(sent=3, arrived=2, anew=1, late=1)
        assert servers.engine.order == Reordering({0: 1, 1: 1}, held_bytes=PACKET)


def test_a_scheme_that_never_chooses_is_an_error() -> None:
    with net(stuck_s=1.0) as servers:
        Fed(servers, NeverChooses(), work_between(0))
        with pytest.raises(StuckError, match="packets waited for 1 s while nothing was on its way"):
            servers.finish()


def test_what_chooses_reckons_with_the_rates_that_nics_have_now() -> None:
    shares = dict.fromkeys(FABRIC.nics, 1.0)
    with net(rate_bps=lambda nic: RATE_BPS * shares[nic]) as servers:
        work = work_of(FABRIC, matrix_of({(0, 4): 400 * PACKET}), chunk_bytes=PACKET)
        fed = Fed(servers, choosing("spray"), work)
        servers.go_on(100 * PACKET_S)
        whole = fed.carried(0)
        shares[Nic(2, 0)] = 0.25
        servers.engine.rates_changed()
        servers.go_on(100 * PACKET_S)
        assert whole == pytest.approx(100 * PACKET, abs=4 * PACKET)
        assert fed.carried(0) - whole == pytest.approx(25 * PACKET, abs=4 * PACKET)


def test_the_engine_names_no_congestion_control_and_no_medium() -> None:
    source = (CHECKOUT / "traffic/transports/datagram_engine.py").read_text()
    words = set(re.findall("[a-z]+", source.lower()))
    assert words.isdisjoint(
        [*registry.NAMED, "tcp", "circuit", "circuits", "ocs", "light", "lit", "dark", "nvlink"]
    )
