"""Chunk times from measured counts: nothing is interpolated between two of them."""

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.fabric import Nic, Port
from traffic.spraying.policy import QueuePair
from traffic.transfers import Curve, Transfers, curve_of, measured_transfers

PAIRS = (QueuePair(Nic(0, 0), Nic(1, 0)), QueuePair(Nic(0, 1), Nic(1, 1)))
PATHS = ((Port("h0", 0),), (Port("h0", 1),))


def curve(*points: tuple[float, int]) -> Curve:
    return curve_of([at for at, _ in points], [count for _, count in points], 0.0)


def measured(sizes: list[int], qp: list[int], sent: list[Curve], counted: list[Curve]) -> Transfers:
    """Return the transfers of chunks that were posted in the order of their index."""
    return measured_transfers(
        PAIRS, PATHS, np.array(sizes), np.array(qp), np.arange(len(sizes)), sent, counted
    )


def test_chunks_that_arrive_in_one_packet_are_delivered_at_one_time() -> None:
    one_packet = measured([10] * 10, [0] * 10, [curve((0.0, 100)), curve()], [curve((0.1, 100)), curve()])
    assert one_packet.delivered_s.tolist() == [0.1] * 10
    assert one_packet.sent_s.tolist() == [0.0] * 10


def test_chunk_is_sent_with_its_first_byte_and_delivered_with_its_last() -> None:
    # Chunks 0..3 and 3..8 on one queue pair, 0..4 on the other.
    transfers = measured(
        [3, 4, 5],
        [0, 1, 0],
        [curve((0.0, 3), (1.0, 4), (2.0, 8)), curve((0.5, 4))],
        [curve((3.0, 2), (4.0, 7), (5.0, 8)), curve((6.0, 4))],
    )
    assert transfers.sent_s.tolist() == [0.0, 0.5, 1.0]
    assert transfers.delivered_s.tolist() == [4.0, 6.0, 5.0]


def test_next_chunk_is_sent_before_the_one_ahead_of_it_is_delivered() -> None:
    transfers = measured([4, 4], [0, 0], [curve((0.0, 4), (0.2, 8)), curve()], [curve((1.0, 8)), curve()])
    assert transfers.sent_s.tolist() == [0.0, 0.2]
    assert transfers.delivered_s.tolist() == [1.0, 1.0]


def test_order_of_posting_is_the_order_of_the_byte_stream() -> None:
    sent, counted = curve((0.0, 3), (1.0, 4)), curve((2.0, 3), (3.0, 4))
    transfers = measured_transfers(
        PAIRS[:1], PATHS[:1], np.array([1, 3]), np.zeros(2, np.int64), np.array([1, 0]), [sent], [counted]
    )
    assert transfers.sent_s.tolist() == [1.0, 0.0]
    assert transfers.delivered_s.tolist() == [3.0, 2.0]


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=8)


@given(sizes=SIZES, steps=SIZES)
def test_chunk_times_are_those_of_the_first_counts_that_include_its_bytes(
    sizes: list[int], steps: list[int]
) -> None:
    total = sum(sizes)
    log = [(float(at), min(count, total)) for at, count in enumerate(accumulate([*steps, total]))]
    transfers = measured(sizes, [0] * len(sizes), [curve(*log), curve()], [curve(*log), curve()])
    for end, size, sent_s, delivered_s in zip(
        accumulate(sizes), sizes, transfers.sent_s, transfers.delivered_s, strict=True
    ):
        assert sent_s == min(at for at, count in log if count > end - size)
        assert delivered_s == min(at for at, count in log if count >= end)


def test_curve_counts_from_its_zero() -> None:
    times, counts = curve_of([10.0, 10.5], [2, 3], 10.0)
    assert times == pytest.approx([0.0, 0.0, 0.5])
    assert counts.tolist() == [0, 2, 3]
