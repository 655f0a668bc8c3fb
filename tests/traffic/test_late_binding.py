"""The feeder of reactive policies: all chunks go out, each when its NIC can send it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.traffic.cases import Work, admitted_by, work_of, works
from topologies.fabric import Nic
from topologies.rail import rail_fabric
from traffic.scheme import Choice
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.plb import Plb
from traffic.spraying.policy import LaneState, QueuePair, ReactivePolicy, each_of
from traffic.spraying.reps import Reps
from traffic.transports.late_binding import DEPTH_PACKETS, ReactiveFeeder
from traffic.transports.round_trips import Crossing
from traffic.transports.transport import PACKET_BYTES, NicRate

RATE_BPS = 8e6
POLICIES = [MinRtt, Plb, Reps]


@dataclass
class Wire:
    """A carrier under the test's hands: what was put on it arrives when the test says so."""

    lanes: list[tuple[int, ...]]
    """What each message may use."""
    totals: dict[int, list[int]] = field(default_factory=dict)
    waiting: dict[int, list[int]] = field(default_factory=dict)
    """For each queue pair the messages of what is under way."""
    done: list[int] = field(default_factory=list)
    window: int = 1 << 40
    """What a queue pair may have under way."""

    def takes(self, number: int) -> bool:
        return self.owed(number) < self.window

    def put(self, number: int, size: int, message: int) -> None:
        self.totals.setdefault(number, [0, 0])[0] += size
        self.waiting.setdefault(number, []).append(message)

    def posted(self, number: int) -> int:
        return self.totals.get(number, [0, 0])[0]

    def counted(self, number: int) -> int:
        return self.totals.get(number, [0, 0])[1]

    def owed(self, number: int) -> int:
        """Return what was put on a queue pair and did not arrive."""
        return self.posted(number) - self.counted(number)

    def arrive(self, feeder: ReactiveFeeder, number: int, now: float) -> None:
        """Have all of a queue pair's bytes arrive."""
        self.totals[number][1] = self.totals[number][0]
        self.done += feeder.arrived(self, number, self.waiting.pop(number, ()), now)


def rate_bps(_nic: Nic) -> float:
    """Return the rate of every NIC."""
    return RATE_BPS


def feeder_of(
    policy: ReactivePolicy, work: Work, scale: int = 1, rate: NicRate = rate_bps
) -> tuple[ReactiveFeeder, Wire]:
    """Return a feeder that calls queue pairs and messages by numbers of their own, and its wire."""
    choice = admitted_by(policy, work)
    lanes = numbered(choice)
    feeder = ReactiveFeeder(
        choice,
        work.chunks.bytes * scale,
        rate,
        numbers=lanes,
        names=range(1000, 1000 + len(work.crossing)),
        began_at=0.0,
        real_s=lambda at: at,
        packet=PACKET_BYTES,
        crossing=unhindered,
    )
    return feeder, Wire(lanes)


def unhindered(pair: QueuePair) -> Crossing:
    """Return a path on which no link is slower than a NIC."""
    return Crossing(pair.source, RATE_BPS, RATE_BPS)


def numbered(choice: Choice) -> list[tuple[int, ...]]:
    """Return the numbers of the lanes that each message may use."""
    pairs = list(dict.fromkeys(pair for among in choice.lanes for pair in each_of(among)))
    number = {pair: 10 + index for index, pair in enumerate(pairs)}
    return [tuple(number[pair] for pair in each_of(among)) for among in choice.lanes]


def one_pair(packets: int) -> Work:
    """Return two servers of two rails, and a message from GPU 0 to GPU 2."""
    fabric = rail_fabric(2, 2, rate_bps=RATE_BPS)
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[0, 2] = packets
    return work_of(fabric, matrix, chunk_bytes=1)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=examples(8, 25))
@given(work=works(largest=50), seed=st.integers(0, 9))
def test_every_chunk_is_posted_once_where_it_may_be(
    policy: type[ReactivePolicy], work: Work, seed: int
) -> None:
    scale = PACKET_BYTES // 8
    feeder, wire = feeder_of(policy(), work, scale)
    rng, now = np.random.default_rng(seed), 1.0
    feeder.turn(wire, now)
    while not feeder.done:
        now += 0.01
        busy = [number for number in wire.totals if wire.owed(number)]
        assert busy or now < 100, "nothing is on its way, and chunks wait"
        if busy:
            wire.arrive(feeder, int(rng.choice(busy)), now)
        feeder.turn(wire, now)
    assert sorted(wire.done) == list(range(1000, 1000 + len(work.crossing)))
    carried = dict.fromkeys(wire.totals, 0)
    for message, size in enumerate(work.crossing.bytes.tolist()):
        parts = feeder.carried(1000 + message)
        assert sum(parts.values()) == size
        assert set(parts) <= {(number, None) for number in wire.lanes[message]}
        for (number, _), part in parts.items():
            carried[number] += part * scale
    assert {number: wire.counted(number) for number in carried} == carried


def test_a_nic_is_given_what_it_can_send_soon_and_no_more() -> None:
    feeder, wire = feeder_of(Plb(), one_pair(100), scale=PACKET_BYTES)
    feeder.turn(wire, 0.0)
    (qp,) = wire.totals
    assert wire.posted(qp) == DEPTH_PACKETS * PACKET_BYTES
    tick_s = 1.01 * feeder.tick_s
    wire.arrive(feeder, qp, tick_s)
    feeder.turn(wire, tick_s)  # all arrived, but by its rate the NIC has not sent the first yet: one more
    assert wire.owed(qp) == PACKET_BYTES
    feeder.turn(wire, 1.5 * tick_s)
    assert wire.owed(qp) == PACKET_BYTES
    feeder.turn(wire, 1.0)
    assert wire.owed(qp) == (1 + DEPTH_PACKETS) * PACKET_BYTES


@pytest.mark.parametrize("tells", [True, False])
def test_a_nic_is_given_what_it_can_send_at_the_rate_that_it_has_now(tells: bool) -> None:
    rates, packets = [RATE_BPS], 1000
    feeder, wire = feeder_of(Plb(), one_pair(packets), PACKET_BYTES, lambda _: rates[0])
    whole_tick_s = feeder.tick_s
    feeder.turn(wire, 0.0)
    (qp,) = wire.totals
    now = 0.0
    for share in (1.0, 0.5, 1.0):
        rates[0] = share * RATE_BPS
        if tells:
            feeder.rates_changed()
        known = share if tells else 1.0
        assert feeder.tick_s == pytest.approx(whole_tick_s / known)
        before = wire.posted(qp)
        for _ in range(400):
            now += whole_tick_s / 4
            feeder.turn(wire, now)
        sent = 400 * whole_tick_s / 4 * known * RATE_BPS / 8
        assert wire.posted(qp) - before == pytest.approx(sent, abs=2 * PACKET_BYTES)


def test_a_queue_pair_gets_what_it_takes_and_more_once_it_opens() -> None:
    feeder, wire = feeder_of(Plb(paths=1), one_pair(100), PACKET_BYTES)
    wire.window = 4 * PACKET_BYTES
    for step in range(200):
        feeder.turn(wire, 0.1 * step)
    (qp,) = wire.totals
    assert wire.owed(qp) == 4 * PACKET_BYTES
    wire.window = 5 * PACKET_BYTES
    feeder.opened(qp)
    feeder.turn(wire, 20.001)
    assert wire.owed(qp) == 5 * PACKET_BYTES


def test_chunks_of_one_packet_go_the_same_way() -> None:
    feeder, wire = feeder_of(MinRtt(), one_pair(40), scale=PACKET_BYTES // 4)
    feeder.turn(wire, 0.0)
    now = 0.0
    while not feeder.done:
        now += 0.01
        for number in list(wire.totals):
            assert wire.owed(number) % PACKET_BYTES == 0
            wire.arrive(feeder, number, now)
        feeder.turn(wire, now)
    assert len(feeder.carried(1000)) == 2
    assert set(np.array(list(feeder.carried(1000).values())) % 4) == {0}


class Onlooker(MinRtt):
    """MinRTT that notes all it is shown."""

    def __init__(self) -> None:
        """See nothing yet."""
        super().__init__()
        self.seen: list[tuple[float, ...]] = []

    def choose(self, *, message: int, states: Sequence[LaneState], now: float) -> int | None:
        """Note the time and the states."""
        qps = range(len(states))
        self.seen.append((now, *(states[qp].backlog_bytes for qp in qps), *(states[qp].rtt_s for qp in qps)))
        return super().choose(message=message, states=states, now=now)

    def acknowledged(self, *, message: int, lane: int, rtt_s: float, marked: bool, now: float) -> None:
        """Note the time and the round trip."""
        self.seen.append((now, rtt_s, marked))


@pytest.mark.parametrize(("rate", "volume"), [(0.01, 1.0), (0.5, 0.25), (0.001, 1 / 16)])
def test_a_policy_sees_real_scale_whatever_that_of_the_emulation_is(rate: float, volume: float) -> None:
    def seen(rate: float, volume: float) -> list[tuple[float, ...]]:
        work, policy = one_pair(40), Onlooker()
        choice, time = admitted_by(policy, work), volume / rate
        size = PACKET_BYTES * 16
        feeder = ReactiveFeeder(
            replace(choice, chunks=replace(work.chunks, bytes=work.chunks.bytes * size)),
            (work.chunks.bytes * size * volume).astype(np.int64),
            lambda _: RATE_BPS * rate,
            numbers=numbered(choice),
            names=[7],
            began_at=100.0,
            real_s=lambda at: (at - 100.0) / time,
            packet=int(PACKET_BYTES * volume),
            crossing=lambda pair: Crossing(pair.source, RATE_BPS * rate, RATE_BPS * rate),
            volume=volume,
            time=time,
        )
        wire = Wire(numbered(choice))
        for step in range(200):
            at = 100.0 + 0.05 * step * time
            for number in [number for number in wire.totals if wire.owed(number)]:
                wire.arrive(feeder, number, at)
            feeder.turn(wire, at)
        assert feeder.done
        return policy.seen

    expected, found = seen(1.0, 1.0), seen(rate, volume)
    assert len(found) == len(expected) > 40
    for here, there in zip(found, expected, strict=True):
        assert here == pytest.approx(there)
    assert any(max(each) > PACKET_BYTES for each in found), "no backlog was seen"


def test_the_smoothed_round_trip_follows_the_chunks() -> None:
    policy = Onlooker()
    feeder, wire = feeder_of(policy, one_pair(100), PACKET_BYTES)
    now = 0.0
    for _ in range(30):
        feeder.turn(wire, now)
        for number in [number for number in wire.totals if wire.owed(number)]:
            wire.arrive(feeder, number, now + 0.25)
        now += 1.0
    assert policy.seen[0][-2:] == (0.0, 0.0), "nothing was measured"
    assert policy.seen[-1][1] == pytest.approx(0.25)
    choices = [each for each in policy.seen if len(each) == 1 + 2 * len(wire.lanes[0])]
    assert choices[-1][-2:] == pytest.approx((0.25, 0.25), abs=0.01)


def test_without_work_nothing_waits() -> None:
    feeder, wire = feeder_of(MinRtt(), one_pair(0))
    feeder.turn(wire, 0.0)
    assert feeder.done
    assert not wire.totals
