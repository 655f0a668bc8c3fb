"""The feeder of reactive policies: all chunks go out, each when its NIC can send it."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.traffic.cases import Work, permitted_by, work_of, works
from topologies.rail import rail_fabric
from traffic.late_binding import DEPTH_PACKETS, MOST_WINDOW, PACKET_BYTES, ReactiveFeeder
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.plb import Plb
from traffic.spraying.policy import Permitted, ReactivePolicy
from traffic.spraying.reps import Reps

RATE_BPS = 8e6
POLICIES = [MinRtt, Plb, Reps]


@dataclass
class Wire:
    """A carrier under the test's hands: what was posted arrives when the test says so."""

    permitted: Permitted
    backlog: dict[int, int] = field(default_factory=dict)
    totals: dict[int, list[int]] = field(default_factory=dict)

    def post(self, qp: int, size: int) -> None:
        self.totals.setdefault(qp, [0, 0])[0] += size

    def posted(self, qp: int) -> int:
        return self.totals.get(qp, [0, 0])[0]

    def counted(self, qp: int) -> int:
        return self.totals.get(qp, [0, 0])[1]

    def rtt_s(self, qp: int) -> float:
        return 0.01

    def under_way(self, qp: int) -> int:
        """Return what was posted on a queue pair and did not arrive."""
        return self.posted(qp) - self.counted(qp)

    def arrive(self, feeder: ReactiveFeeder, qp: int, now: float) -> None:
        """Have all of a queue pair's bytes arrive."""
        self.totals[qp][1] = self.totals[qp][0]
        feeder.arrived(self, qp, now)


def feeder_of(
    policy: ReactivePolicy, work: Work, scale: int = 1, round_trip_s: float = 0.0
) -> tuple[ReactiveFeeder, Wire]:
    permitted = permitted_by(policy, work)
    sizes = work.chunks.bytes * scale
    feeder = ReactiveFeeder(policy, permitted, work.chunks, sizes, lambda _: RATE_BPS, round_trip_s)
    return feeder, Wire(permitted)


def one_pair(packets: int) -> Work:
    """Return two servers of two rails, and a message from GPU 0 to GPU 2."""
    fabric = rail_fabric(2, 2, rate_bps=RATE_BPS)
    matrix = np.zeros((4, 4), dtype=np.int64)
    matrix[0, 2] = packets
    return work_of(fabric, matrix, chunk_bytes=1)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25)
@given(work=works(largest=50), seed=st.integers(0, 9))
def test_every_chunk_is_posted_once_where_it_may_be(
    policy: type[ReactivePolicy], work: Work, seed: int
) -> None:
    feeder, wire = feeder_of(policy(), work, scale=PACKET_BYTES // 8)
    rng, now = np.random.default_rng(seed), 0.0
    feeder.start(wire)
    while feeder.waiting or any(wire.under_way(qp) for qp in wire.totals):
        now += 0.01
        busy = [qp for qp in wire.totals if wire.under_way(qp)]
        assert busy or now < 100, "nothing is on its way, and chunks wait"
        if busy:
            wire.arrive(feeder, int(rng.choice(busy)), now)
        feeder.turn(wire, now)
    assert sorted(feeder.order.tolist()) == list(range(len(work.chunks)))
    for message, qp in zip(work.chunks.message.tolist(), feeder.chunk_qp.tolist(), strict=True):
        assert qp in wire.permitted.of_message[message]
    carried = np.bincount(feeder.chunk_qp, work.chunks.bytes, len(wire.permitted.queue_pairs))
    assert [wire.counted(qp) for qp in range(len(carried))] == (carried * (PACKET_BYTES // 8)).tolist()


def test_a_nic_is_given_what_it_can_send_soon_and_no_more() -> None:
    feeder, wire = feeder_of(Plb(), one_pair(100), scale=PACKET_BYTES)
    feeder.start(wire)
    (qp,) = wire.totals
    assert wire.posted(qp) == DEPTH_PACKETS * PACKET_BYTES
    wire.arrive(feeder, qp, 0.001)
    feeder.turn(wire, 0.001)  # all arrived, but by its rate the NIC has not sent the second yet: one more
    assert wire.under_way(qp) == PACKET_BYTES
    feeder.turn(wire, 0.002)
    assert wire.under_way(qp) == PACKET_BYTES
    feeder.turn(wire, 1.0)
    assert wire.under_way(qp) == (1 + DEPTH_PACKETS) * PACKET_BYTES


@pytest.mark.parametrize("crossing", [0, 7])
def test_a_queue_pair_whose_bytes_do_not_arrive_gets_a_window_of_them(crossing: int) -> None:
    round_trip_s = crossing * PACKET_BYTES * 8 / RATE_BPS
    feeder, wire = feeder_of(Plb(paths=1), one_pair(100), PACKET_BYTES, round_trip_s * 0.999)
    feeder.start(wire)
    for step in range(1, 200):
        feeder.turn(wire, 0.1 * step)
    (qp,) = wire.totals
    assert wire.under_way(qp) == (MOST_WINDOW + crossing) * PACKET_BYTES


def test_chunks_of_one_packet_go_the_same_way() -> None:
    feeder, wire = feeder_of(MinRtt(), one_pair(40), scale=PACKET_BYTES // 4)
    feeder.start(wire)
    now = 0.0
    while feeder.waiting:
        now += 0.01
        for qp in list(wire.totals):
            wire.arrive(feeder, qp, now)
        feeder.turn(wire, now)
    assert all(len(set(packet)) == 1 for packet in feeder.chunk_qp.reshape(-1, 4))
    assert len(set(feeder.chunk_qp.tolist())) == 2


def test_without_work_nothing_waits() -> None:
    feeder, wire = feeder_of(MinRtt(), one_pair(0))
    feeder.start(wire)
    assert not feeder.waiting
    assert feeder.order.tolist() == []
