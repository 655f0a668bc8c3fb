"""How NICs share their rates: never more than there is, and by what is left."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies.fabric import Nic
from traffic.spraying.policy import QueuePair
from traffic.transports.ideal import HEADROOM, LEAST_WINDOW_PACKETS, MOST_WINDOW_PACKETS, Ideal
from traffic.transports.transport import PACKET_BYTES, packet_s

RATE_BPS = 40e6
PACKET_S = packet_s(RATE_BPS)
MOST_WINDOW_S = MOST_WINDOW_PACKETS * PACKET_S


def shares(pairs: list[tuple[int, int]]) -> Ideal:
    """Return what shares the NICs of queue pairs between numbered servers with one NIC each."""
    ideal = Ideal(lambda _nic: RATE_BPS)
    ideal.know([QueuePair(Nic(a, 0), Nic(b, 0)) for a, b in pairs])
    return ideal


PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(4, 7)), min_size=1, max_size=20)


@settings(deadline=None)
@given(pairs=PAIRS, data=st.data())
def test_no_nic_is_promised_more_than_it_has(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    left = np.array(
        data.draw(st.lists(st.integers(0, 10**9), min_size=len(pairs), max_size=len(pairs))), float
    )
    paces = shares(pairs).paces_bytes_s(left)
    windows = shares(pairs).windows_bytes(left, 0.1)
    for end in (0, 1):
        for nic in {pair[end] for pair in pairs}:
            mine = np.array([pair[end] == nic for pair in pairs])
            spare = mine.sum() * PACKET_BYTES
            assert windows[mine].sum() <= RATE_BPS / 8 * 0.1 + spare
            if end == 0:
                assert paces[mine].sum() <= 2 * HEADROOM * RATE_BPS / 8 + mine.sum()
                owing = mine & (left > 0)
                even = HEADROOM * RATE_BPS / 8 / max(owing.sum(), 1)
                assert (paces[owing] >= min(even, PACKET_BYTES / MOST_WINDOW_S) * (1 - 1e-9)).all()


def test_what_is_left_decides() -> None:
    left = np.array([3e6, 1e6])
    assert shares([(0, 4), (0, 5)]).paces_bytes_s(left) == pytest.approx(
        HEADROOM * np.array([3.75e6, 1.25e6])
    )


def test_an_incast_fits_the_window_of_its_receiver() -> None:
    windows = shares([(sender, 9) for sender in range(8)]).windows_bytes(np.full(8, 1e8), 0.1)
    assert windows.sum() == pytest.approx(RATE_BPS / 8 * 0.1, rel=0.1)


@pytest.mark.parametrize(
    ("left_bytes", "window_s"),
    [(1e4, LEAST_WINDOW_PACKETS * PACKET_S), (1.5e6, 0.03), (1e9, MOST_WINDOW_PACKETS * PACKET_S)],
)
def test_the_window_is_a_tenth_of_what_there_is_within_limits(left_bytes: float, window_s: float) -> None:
    assert shares([(0, 4)]).window_s(np.array([left_bytes])) == pytest.approx(window_s)


def test_a_window_holds_what_its_own_round_trip_takes_besides_and_so_many_packets_at_least() -> None:
    left = np.full(2, 1e6)
    window_s = 0.05 + np.array([0.0, 0.2])
    packets = shares([(0, 4), (0, 5)]).windows_bytes(left, window_s) / PACKET_BYTES
    assert packets.tolist() == [round(2.5e6 * 0.05 / PACKET_BYTES), round(2.5e6 * 0.25 / PACKET_BYTES)]
    least = shares([(0, 4), (0, 5)]).windows_bytes(np.array([1.0, 1e6]), 0.05, least_packets=2)
    assert least[0] == 2 * PACKET_BYTES
