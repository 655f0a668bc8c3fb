"""Round trips of chunks under a clock of the test's: what takes no longer than it must is not marked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.fabric import Nic
from traffic.transports.round_trips import (
    ACKNOWLEDGED_BYTES,
    MARK_PACKETS,
    Crossing,
    RoundTrips,
    shares_of,
)
from traffic.transports.transport import LEAST_PACKET_S, PACKET_BYTES, packet_s

RATE_BPS = 8e6
PACKET_S = 8 * PACKET_BYTES / RATE_BPS
SENT_S = PACKET_S * (1 + ACKNOWLEDGED_BYTES / PACKET_BYTES)
THRESHOLD_S = MARK_PACKETS * packet_s(RATE_BPS)
A, B = Nic(0, 0), Nic(0, 1)


def test_a_chunk_is_marked_if_it_queued_beyond_the_threshold() -> None:
    for queued_s, marked in ((0.0, False), (0.99 * THRESHOLD_S, False), (1.01 * THRESHOLD_S, True)):
        trips = RoundTrips([Crossing(A, RATE_BPS, RATE_BPS, 0.5)])
        trips.handed_over(0, PACKET_BYTES, 7.0)
        rtt_s, is_marked = trips.arrived(0, 7.0 + SENT_S + 0.25 + queued_s)
        assert is_marked is marked
        assert rtt_s == pytest.approx(SENT_S + 0.5 + queued_s)


@given(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=30), st.floats(0.0, 0.1))
def test_waiting_at_the_own_nic_marks_nothing(queue_pairs: list[int], delay_s: float) -> None:
    trips = RoundTrips([Crossing(A, RATE_BPS, RATE_BPS, 2 * delay_s)] * 2)
    for qp in queue_pairs:
        trips.handed_over(qp, PACKET_BYTES, 0.0)
    for place, qp in enumerate(queue_pairs, start=1):
        assert not trips.arrived(qp, place * SENT_S + delay_s).marked


def test_nics_do_not_wait_for_each_other() -> None:
    trips = RoundTrips([Crossing(A, RATE_BPS, RATE_BPS), Crossing(B, RATE_BPS, RATE_BPS)])
    for _ in range(10):
        trips.handed_over(0, PACKET_BYTES, 0.0)
    trips.handed_over(1, PACKET_BYTES, 0.0)
    assert trips.arrived(1, 10 * SENT_S).marked


def test_a_slow_link_takes_its_time_and_what_waits_before_it_queues() -> None:
    trips = RoundTrips([Crossing(A, 4 * RATE_BPS, RATE_BPS)])
    for _ in range(16):
        trips.handed_over(0, PACKET_BYTES, 0.0)
    marked = [trips.arrived(0, place * SENT_S).marked for place in range(1, 17)]
    assert marked == sorted(marked)
    # Each waits for 3/4 of a packet longer than the one before, as the NIC sends four meanwhile.
    assert marked.count(False) == 1 + int(MARK_PACKETS / 0.75)


def test_fast_links_are_forgiven_a_late_loop() -> None:
    for late_s, marked in (
        (0.9 * MARK_PACKETS * LEAST_PACKET_S, False),
        (1.1 * MARK_PACKETS * LEAST_PACKET_S, True),
    ):
        trips = RoundTrips([Crossing(A, 1e12, 1e12)])
        trips.handed_over(0, PACKET_BYTES, 0.0)
        assert trips.arrived(0, late_s).marked is marked


def test_shares_are_of_all_that_were_counted() -> None:
    assert shares_of([]) == {}
    assert shares_of([{"marked": (1, 2)}, {"marked": (0, 6), "moved": (0, 3)}]) == {
        "marked": 0.125,
        "moved": 0.0,
    }
