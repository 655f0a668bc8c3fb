"""Propagation, marks, and the times at which packets leave: each against its definition, without sockets."""

import socket
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traffic.congestion.control import Red
from traffic.packets import burst_bytes, packet_bytes
from traffic.transports.datagram_lane import Packet, PacketPath, Source
from traffic.transports.marking import Marking
from traffic.transports.nic_sender import NicSender
from traffic.transports.propagation import Propagation, Received, Stage
from traffic.transports.transport import HEADER_BYTES

STAGES: tuple[Stage, ...] = "arrives", "acknowledged"
NO_PATH, NO_SOURCE = cast(PacketPath, None), cast(Source, None)


@pytest.mark.interpreted
@given(
    gaps_s=st.lists(st.floats(0.0, 0.02), min_size=1, max_size=20),
    delays_s=st.lists(st.sampled_from([0.0, 0.003, 0.05]), min_size=20, max_size=20),
    looks_s=st.lists(st.floats(0.0, 0.03), min_size=1, max_size=40),
)
def test_each_packet_reaches_each_stage_once_and_as_soon_as_somebody_looks(
    gaps_s: list[float], delays_s: list[float], looks_s: list[float]
) -> None:
    propagation, expected = Propagation(), dict[tuple[str, int], float]()
    received_s = np.cumsum(gaps_s).tolist()
    packets = [Packet(NO_PATH, number, NO_SOURCE, [], 1, 0.0) for number in range(len(received_s))]
    for packet, at_s, delay_s in zip(packets, received_s, delays_s, strict=False):
        for stage in STAGES:
            propagation.put(stage, Received(packet, [], at_s, delay_s))
        expected["arrives", packet.number] = at_s + delay_s
        expected["acknowledged", packet.number] = at_s + 2 * delay_s
    for now_s in (*np.cumsum(looks_s).tolist(), inf):
        to_arrive = [at_s for (stage, _), at_s in expected.items() if stage == "arrives"]
        assert propagation.arrives_s == min(to_arrive, default=inf)
        reached = [(stage, received.packet.number) for stage, received in propagation.due(now_s)]
        assert sorted(reached) == sorted(which for which, at_s in expected.items() if at_s <= now_s)
        for which in reached:
            del expected[which]


# Marks


@pytest.mark.parametrize(
    ("red", "lent_s", "least_s", "most_s"),
    [
        (Red(0.2, 0.8), 0.0, 0.004, 0.016),
        (Red(0.2, 0.8), 0.009, 0.009, 0.016),
        (Red(0.2, 0.8, least_packets=12), 0.009, 0.012, 0.016),
        (Red(0.2, 0.8), 0.018, 0.018, 0.018),
        (Red(0.0, 0.0, least_packets=8), 0.004, 0.008, 0.008),
    ],
)
def test_packets_are_marked_as_reds_curve_says_of_their_queue(
    red: Red, lent_s: float, least_s: float, most_s: float
) -> None:
    marking = Marking(red, np.random.default_rng(0))
    curve = marking.curve(base_s=0.02, packet_s=0.001, lent_s=lent_s)
    rng, bins, each = np.random.default_rng(1), np.linspace(0.0, 0.024, 25), 400
    for low_s, high_s in pairwise(bins.tolist()):
        queues_s = rng.uniform(low_s, high_s, each)
        seen = [marking.met(float(queue_s), curve) for queue_s in queues_s]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.nan_to_num((queues_s - least_s) / (most_s - least_s), posinf=1.0, neginf=0.0)
        expected = np.where(queues_s <= least_s, 0.0, np.where(queues_s >= most_s, 1.0, share))
        assert sum(seen) / each == pytest.approx(expected.mean(), abs=0.08)
        if high_s <= least_s:
            assert not any(seen)
        if low_s >= most_s:
            assert all(seen)
    assert len(marking.queues_s) == 24 * each


# When packets leave


def bucket(bytes_s: float, burst: float, packets: Sequence[tuple[float, int]]) -> Iterator[float]:
    """Yield when packets leave a token bucket that is full at first; time and size of each are given."""
    tokens, at_s = burst, packets[0][0]
    for now_s, size in packets:
        begins_s = max(now_s, at_s)
        tokens = min(burst, tokens + (begins_s - at_s) * bytes_s)
        waits_s = max(size - tokens, 0.0) / bytes_s
        tokens += waits_s * bytes_s - size
        at_s = begins_s + waits_s
        yield at_s


@given(
    seed=st.integers(0, 1 << 16),
    bytes_s=st.sampled_from([1e5, 3e6, 2e7]),
    mtu=st.sampled_from([1500, 3000, 9000]),
)
def test_packets_leave_as_a_token_bucket_lets_them(seed: int, bytes_s: float, mtu: int) -> None:
    rng, full = np.random.default_rng(seed), packet_bytes(mtu)
    gaps = rng.choice([0.0, 0.0, 0.0, 0.7, 2.3, 40.0], 100)  # in the time of a third of a packet
    sizes = rng.choice([1, full // 3, full], 100).tolist()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
        sender = NicSender(endpoint, bytes_s, full)
    given_s = (np.cumsum(gaps) * full / 3 / bytes_s).tolist()
    leaves_s = [sender.leaves(size, now_s) for now_s, size in zip(given_s, sizes, strict=True)]
    framed = [(now_s, size + HEADER_BYTES) for now_s, size in zip(given_s, sizes, strict=True)]
    expected_s = list(bucket(bytes_s, burst_bytes(8 * bytes_s, mtu), framed))
    assert leaves_s == pytest.approx(expected_s, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("slower", [10.0, 0.1])
def test_what_waits_in_a_nic_leaves_at_the_rate_that_it_has_now(slower: float) -> None:
    """Else each later packet of a busy NIC counts as queued for what the others before it took longer."""
    bytes_s = 1e6
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
        sender = NicSender(endpoint, bytes_s, 8948)
    for _ in range(12):
        sender.leaves(8948, 0.0)
    sender.send_at(bytes_s / slower, 0.01)
    left = 12 * (8948 + HEADER_BYTES) - 0.01 * bytes_s + (8948 + HEADER_BYTES)
    lent = burst_bytes(8 * bytes_s / slower)
    assert sender.leaves(8948, 0.01) == pytest.approx(0.01 + (left - lent) * slower / bytes_s)


def test_a_nic_sends_a_packet_and_its_headers_by_a_time_after_all_that_it_holds() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
        sender = NicSender(endpoint, 1000.0, 900, header=100)
    assert (sender.sends_by(900, 5.0, 6.0), sender.sends_by(900, 5.0, 5.95)) == (True, False)
    sender.leaves(900, 5.0)
    assert (sender.sends_by(900, 5.0, 7.0), sender.sends_by(900, 5.0, 6.95)) == (True, False)


def test_a_nic_whose_link_is_down_has_nothing_to_send_before_what_it_is_given_next() -> None:
    """Else its clock runs ahead with what is lost at once, and later packets seem to meet no queue."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
        sender = NicSender(endpoint, 1e6, 8948)
        for _ in range(50):
            assert sender.send(b"", ("255.255.255.255", 9)), "the kernel refuses a broadcast"
            assert sender.leaves(8948, 0.5) == 0.5
