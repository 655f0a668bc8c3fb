"""Datagrams: what is owed is cut up without loss, and counted once."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.fabric import Nic
from traffic.packets import MOST_MTU
from traffic.transports.datagrams import (
    HEADER,
    OVERHEAD_BYTES,
    UDP_HEADER_BYTES,
    Datagrams,
    header_share,
    payload_bytes,
)

MAX_PAYLOAD_BYTES = MOST_MTU - UDP_HEADER_BYTES
HERE, THERE = (Nic(0, 1), Nic(1, 0)), (Nic(0, 0), Nic(1, 1))


@given(st.integers(1, 100_000), st.integers(HEADER.size, MAX_PAYLOAD_BYTES), st.randoms())
def test_whatever_the_order_all_bytes_arrive_once(size: int, payload: int, rng: random.Random) -> None:
    message = Datagrams(0, size, payload)
    numbers = list(message.todo)
    rng.shuffle(numbers)
    fresh = [message.arrived(number, rng.choice([HERE, THERE])) for number in (*numbers, *numbers)]
    assert sum(fresh) == size
    assert not any(fresh[len(numbers) :])
    assert (message.missing_bytes, sum(message.by_ends.values())) == (0, size)


@given(st.integers(1, 100_000), st.integers(HEADER.size, MAX_PAYLOAD_BYTES), st.randoms(), st.data())
def test_a_message_that_is_cut_keeps_what_arrived_and_counts_nothing_later(
    size: int, payload: int, rng: random.Random, data: st.DataObject
) -> None:
    message = Datagrams(0, size, payload)
    numbers = list(message.todo)
    rng.shuffle(numbers)
    early = data.draw(st.integers(0, len(numbers)))
    arrived = sum(message.arrived(number, HERE) for number in numbers[:early])
    message.cut()
    assert not any(message.arrived(number, THERE) for number in numbers)
    assert (message.size, message.missing_bytes, len(message.todo)) == (arrived, 0, 0)
    assert message.by_ends == ({HERE: arrived} if arrived else {})


@given(st.integers(1, 100_000), st.integers(HEADER.size, MAX_PAYLOAD_BYTES))
def test_no_datagram_is_larger_than_the_payload_or_too_small_for_its_header(size: int, payload: int) -> None:
    message = Datagrams(0, size, payload)
    sizes = [message.bytes_of(number) for number in message.todo]
    assert all(HEADER.size <= each <= payload for each in sizes)
    assert size <= sum(sizes) < size + HEADER.size


@pytest.mark.parametrize("rate_bps", [1e5, 20e6, 20e6 + 1234, 1e9])
def test_headers_are_counted_for_the_datagrams_that_are_sent(rate_bps: float) -> None:
    assert header_share(rate_bps) == 1 + OVERHEAD_BYTES / payload_bytes(rate_bps)
    assert payload_bytes(20e6) == int(20e6 / 8 * 0.002 - OVERHEAD_BYTES)
