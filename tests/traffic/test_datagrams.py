"""Datagrams: what is owed is cut up without loss, and counted once."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traffic.datagrams import HEADER, MAX_PAYLOAD_BYTES, OVERHEAD_BYTES, Pair, header_share, pairs_of


@given(st.integers(1, 100_000), st.integers(HEADER.size, MAX_PAYLOAD_BYTES), st.randoms())
def test_whatever_the_order_all_bytes_arrive_once(size: int, payload: int, rng: random.Random) -> None:
    pair = Pair(0, 1, size, payload)
    numbers = list(pair.todo)
    rng.shuffle(numbers)
    fresh = [pair.arrived(number, 0, float(at)) for at, number in enumerate([*numbers, *numbers])]
    assert sum(fresh) == size
    assert not any(fresh[len(numbers) :])
    assert (pair.missing_bytes, pair.by_ocs, pair.end_s) == (0, {0: size}, len(numbers) - 1)


@given(st.integers(1, 100_000), st.integers(HEADER.size, MAX_PAYLOAD_BYTES))
def test_no_datagram_is_larger_than_the_payload_or_too_small_for_its_header(size: int, payload: int) -> None:
    pair = Pair(0, 1, size, payload)
    sizes = [pair.bytes_of(number) for number in pair.todo]
    assert all(HEADER.size <= each <= payload for each in sizes)
    assert size <= sum(sizes) < size + HEADER.size


def test_a_server_owes_itself_nothing() -> None:
    pairs = pairs_of(np.array([[7, 5], [0, 7]]), 20e6)
    assert list(pairs) == [(0, 1)]
    assert pairs[0, 1].payload == int(20e6 / 8 * 0.002 - OVERHEAD_BYTES)


@pytest.mark.parametrize("rate_bps", [1e5, 20e6, 20e6 + 1234, 1e9])
def test_headers_are_counted_for_the_datagrams_that_are_sent(rate_bps: float) -> None:
    payload = pairs_of(np.array([[0, 5], [0, 0]]), rate_bps)[0, 1].payload
    assert header_share(rate_bps) == 1 + OVERHEAD_BYTES / payload
