"""How sources share NICs that all are seen: never more than there is, and by what is left."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.traffic.relay import PACKET, STEP_S, net
from topologies.fabric import Nic
from traffic.congestion.control import TAKEN_BACK, Acknowledged, Lost, Pipe, Sent, SourceEnds
from traffic.congestion.ideal import PERIOD_PACKETS, WINDOW_PACKETS, Ideal, Shares
from traffic.spraying.policy import QueuePair
from traffic.transports.transport import PACKET_BYTES, packet_s

RATE_BPS = 40e6
BYTES_S = RATE_BPS / 8
PACKET_S = packet_s(RATE_BPS)
RNG = np.random.default_rng(0)


@dataclass
class View:
    """Sources under the test's hands, between numbered servers with one NIC each, or several."""

    ends: list[SourceEnds]
    left: list[int]
    rate_bps: float = RATE_BPS
    slow: set[Nic] = field(default_factory=set)
    """The NICs that have half of their rate."""
    looked: int = 0
    """How often it was asked what is left."""

    def left_bytes(self, number: int) -> int:
        self.looked += 1
        return self.left[number]

    def rate_bytes_s(self, nic: Nic) -> float:
        return self.rate_bps / 8 / (1 + (nic in self.slow))


def view_of(pairs: list[tuple[int, int]], left: list[int], communicators: list[int] | None = None) -> View:
    """Return a view of sources between servers."""
    of = communicators or [0] * len(pairs)
    ends = [SourceEnds((Nic(a, 0),), Nic(b, 0), each) for (a, b), each in zip(pairs, of, strict=True)]
    return View(ends, left)


def shares_of(view: View, now_s: float = 0.0) -> list[float]:
    """Return the share of each source [bytes/s]."""
    shares = Shares(view, PACKET_BYTES)
    return [shares.of(number, now_s) for number in range(len(view.ends))]


PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(4, 7)), min_size=1, max_size=20)


@settings(deadline=None)
@given(pairs=PAIRS, data=st.data())
def test_no_nic_is_promised_more_than_it_has_and_none_with_bytes_nothing(
    pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    size = len(pairs)
    left = data.draw(st.lists(st.integers(0, 10**9), min_size=size, max_size=size))
    communicators = data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    shares = np.array(shares_of(view_of(pairs, left, communicators)))
    for end in (0, 1):
        for nic in {pair[end] for pair in pairs}:
            mine = np.array([pair[end] == nic for pair in pairs])
            assert shares[mine].sum() <= BYTES_S * (1 + 1e-9)
    assert ((shares > 0) == (np.array(left) > 0)).all()


def test_what_is_left_decides() -> None:
    found = shares_of(view_of([(0, 4), (0, 5), (1, 6)], [3_000_000, 1_000_000, 7]))
    assert found == pytest.approx([0.75 * BYTES_S, 0.25 * BYTES_S, BYTES_S])


def test_the_longest_source_of_each_communicator_counts_as_much() -> None:
    found = shares_of(view_of([(0, 4), (0, 5), (0, 6)], [8_000_000, 4_000_000, 1000], [0, 0, 1]))
    assert found == pytest.approx([0.4 * BYTES_S, 0.2 * BYTES_S, 0.4 * BYTES_S])


def test_what_may_leave_by_several_nics_takes_an_even_part_of_each() -> None:
    near = Nic(0, 0), Nic(0, 1)
    view = View([SourceEnds(near, Nic(4, 0), 0), SourceEnds(near[:1], Nic(5, 0), 0)], [1_000_000, 500_000])
    assert shares_of(view) == pytest.approx([BYTES_S, 0.5 * BYTES_S])
    view.slow = {near[1]}
    assert shares_of(view) == pytest.approx([BYTES_S, 0.5 * BYTES_S])
    view.slow = set(near)
    assert shares_of(view) == pytest.approx([0.75 * BYTES_S, 0.25 * BYTES_S])


def test_all_are_shared_once_a_period_and_what_was_posted_since_at_once() -> None:
    view = view_of([(0, 4), (0, 5), (1, 6)], [1_000_000, 1_000_000, 0])
    shares = Shares(view, PACKET_BYTES)
    half = [shares.of(number, 0.0) for number in (0, 1)]
    assert half == [0.5 * BYTES_S] * 2
    assert view.looked == 3
    view.left[0], soon_s = 3_000_000, 0.9 * PERIOD_PACKETS * PACKET_S
    assert [shares.of(number, soon_s) for number in (0, 1)] == half
    assert view.looked == 3
    assert shares.of(0, 1.1 * PERIOD_PACKETS * PACKET_S) == 0.75 * BYTES_S
    assert view.looked == 6
    view.left[2] = 10
    assert shares.of(2, 1.2 * PERIOD_PACKETS * PACKET_S) == BYTES_S


def test_a_source_that_comes_later_has_a_share_at_once() -> None:
    view = view_of([(0, 4)], [1_000_000])
    shares = Shares(view, PACKET_BYTES)
    assert shares.of(0, 0.0) == BYTES_S
    view.ends.append(SourceEnds((Nic(0, 0),), Nic(7, 0), 0))
    view.left.append(1_000_000)
    assert [shares.of(number, 0.0) for number in (1, 0)] == [0.5 * BYTES_S] * 2


def test_shares_follow_the_rates_that_nics_have() -> None:
    view = view_of([(0, 4), (1, 5)], [1_000_000, 1_000_000])
    shares = Shares(view, PACKET_BYTES)
    assert [shares.of(number, 0.0) for number in (0, 1)] == [BYTES_S] * 2
    view.slow = {Nic(1, 0)}
    assert [shares.of(number, 1.0) for number in (0, 1)] == [BYTES_S, BYTES_S / 2]
    view.slow = {Nic(4, 0)}
    assert [shares.of(number, 2.0) for number in (0, 1)] == [BYTES_S / 2, BYTES_S]


def controls_of(view: View, propagation_s: float = 0.0) -> list[Ideal]:
    """Return the congestion control of each source."""
    pipe = Pipe(view.rate_bps / 8, PACKET_S + propagation_s, PACKET_BYTES, propagation_s=propagation_s)
    shares = Shares(view, PACKET_BYTES)
    return [Ideal(pipe, RNG, shares, number) for number in range(len(view.ends))]


def test_an_incast_fits_the_window_of_its_receiver() -> None:
    controls = controls_of(view_of([(sender, 9) for sender in range(5)], [10**8] * 5))
    assert [control.may_send(0.0) for control in controls] == [WINDOW_PACKETS // 5 * PACKET_BYTES] * 5


def test_a_window_holds_what_its_own_round_trip_takes_besides_and_a_packet_at_least() -> None:
    view = view_of([(0, 4), (0, 5)], [999_999_999, 1])
    packets = BYTES_S * (WINDOW_PACKETS + 30) * PACKET_S / PACKET_BYTES
    most, least = controls_of(view, 30 * PACKET_S)
    assert (most.may_send(0.0), most.window_bytes) == (round(packets) * PACKET_BYTES,) * 2
    assert least.may_send(0.0) == PACKET_BYTES


def test_what_is_on_its_way_takes_room_until_it_is_acknowledged_lost_or_taken_back() -> None:
    (control,) = controls_of(view_of([(0, 4)], [10**8]))
    window = WINDOW_PACKETS * PACKET_BYTES
    assert control.may_send(0.0) == window
    control.on_events([Sent(window, 0), Sent(PACKET_BYTES, 0)], [], [], 0.0)
    assert control.may_send(0.0) == 0
    acknowledged = Acknowledged(3 * PACKET_BYTES, 1.0, marked=True, entropy=0)
    lost = [Lost(PACKET_BYTES, 0, "silent"), Lost(PACKET_BYTES, 0, TAKEN_BACK)]
    control.on_events([], [acknowledged], lost, 0.0)
    assert control.may_send(0.0) == 4 * PACKET_BYTES


def windows(rate_bps: float) -> list[float]:
    """Return the windows of an incast as it is carried, one packet's time after the other."""
    view = view_of([(sender, 9) for sender in range(3)], [n * PACKET_BYTES for n in (200, 150, 90)])
    view.rate_bps, found = rate_bps, list[float]()
    controls = controls_of(view, 3 * packet_s(rate_bps))
    for turn in range(60):
        for number, control in enumerate(controls):
            control.may_send(1.99 * turn * packet_s(rate_bps))
            found.append(control.window_bytes)
            view.left[number] = max(view.left[number] - (number + 1) * PACKET_BYTES, 0)
    return found


@pytest.mark.parametrize("rate_bps", [8e6, 70e6])
def test_windows_are_the_same_at_every_rate(rate_bps: float) -> None:
    there = windows(24e6)
    assert len(set(there)) > 5, "nothing moved"
    assert windows(rate_bps) == there


def test_queue_pairs_of_a_nic_end_together_whatever_each_has() -> None:
    sizes = [30 * PACKET, 90 * PACKET, 180 * PACKET]
    with net(fate=lambda seen: [(20 * STEP_S, seen)], control="ideal") as found:
        lanes = found.lanes(*(QueuePair(Nic(0, 0), Nic(far, 0)) for far in (1, 2, 3)))
        found.post(*((lane, size, lane) for lane, size in zip(lanes, sizes, strict=True)))
        found.run(lambda: any(not found.engine.owed(lane) for lane in lanes))
        parts = [found.engine.counted(lane) / size for lane, size in zip(lanes, sizes, strict=True)]
        assert min(parts) > 0.8, "as one ends, the others nearly do"
        found.finish()
