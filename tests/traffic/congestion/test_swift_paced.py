"""Swift below a packet: when packets leave, that some leave whatever is lost, and an incast's queue."""

from dataclasses import replace
from itertools import pairwise
from math import ceil, inf
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traffic.congestion.one_queue import Flow, OneQueue
from tests.traffic.congestion.reference_swift import target_delay
from tests.traffic.relay import PACKET, PACKET_S, STEP_S, net, passes
from topologies.fabric import Nic
from traffic.congestion.control import OVERTAKEN, SILENT, TAKEN_BACK, Acknowledged, Lost, LostHow, Pipe, Sent
from traffic.congestion.nscc import Nscc
from traffic.congestion.swift import LEAST_PACKETS, MOST_BDP, Swift
from traffic.spraying.policy import QueuePair
from traffic.transports.datagram_engine import TICK_PACKETS

M = 9000
PIPE = Pipe(1e6, 0.16, M, 6, 0.16 - M / 1e6)
R, TICK_S = PIPE.round_trip_s, M / 1e6 / 2
FATES: list[LostHow | None] = [None, OVERTAKEN, SILENT, TAKEN_BACK]


class Ticks:
    """Swift as the engine asks it: at a tick, if it has news or wants to be asked; packets leave at once."""

    def __init__(self) -> None:
        self.control = Swift(PIPE, np.random.default_rng(0))
        self.now, self.ask_at = 0.0, 0.0
        self.sent_s: list[float] = []
        self.sent: list[Sent] = []

    def hear(self, fate: LostHow | None, rtt_s: float = R) -> None:
        """Have a packet that is on its way be acknowledged, or lost."""
        acknowledged = [Acknowledged(M, rtt_s, False, 0)] if fate is None else []
        lost = [Lost(M, 0, fate)] if fate else []
        self.control.on_events(self.sent, acknowledged, lost, self.now)
        self.sent, self.ask_at = [], self.now

    def tick(self) -> None:
        """Ask, if it is time, and send what is allowed."""
        waits_s = self.ask_at - self.now if self.ask_at < inf else 0.0
        self.now += TICK_S * (1 if self.sent else max(ceil(waits_s / TICK_S), 1))
        if self.sent:
            self.control.on_events(self.sent, (), (), self.now)
            self.sent, self.ask_at = [], self.now
        if self.now >= self.ask_at:
            for _ in range(self.control.may_send(self.now) // M):
                self.sent.append(Sent(M, 0))
                self.sent_s.append(self.now)
            self.ask_at = self.control.next_s(self.now)


def below_a_packet(halvings: int, rtt: float) -> Ticks:
    """Return one whose window has been halved so often, with nothing on its way."""
    ticks = Ticks()
    ticks.tick()
    for _ in ticks.sent_s[1:]:
        ticks.hear(TAKEN_BACK)
    for _ in range(halvings):
        ticks.sent.append(Sent(M, 0))
        ticks.now += 100 * R
        ticks.hear(None, rtt * R)
    ticks.hear(TAKEN_BACK)
    return ticks


@given(st.integers(5, 9), st.floats(9.0, 20.0))
def test_a_window_below_a_packet_sends_one_every_round_trip_over_the_window(
    halvings: int, rtt: float
) -> None:
    """The round trip is the smoothed one. What was sent is taken back, which moves no window."""
    ticks = below_a_packet(halvings, rtt)
    w = ticks.control.cwnd_bytes / M
    assert LEAST_PACKETS <= w < 1
    smoothed = R * (rtt - (rtt - 1) * (7 / 8) ** halvings)
    ticks.sent_s.clear()
    for _ in range(12):
        ticks.tick()
        if ticks.control.on_the_way:  # it heard so a tick after it was sent
            ticks.hear(TAKEN_BACK)
    assert len(ticks.sent_s) == 4, "it is asked when it hears something, and when one is due"
    for before, after in pairwise(ticks.sent_s):
        assert -1e-9 <= after - before - smoothed / w <= TICK_S + 1e-9


@pytest.mark.parametrize("links", [2, 6])
@pytest.mark.parametrize("w", [0.1, 0.5, 1, 4, 16, 26, 200])
def test_the_target_grows_with_links_and_with_small_windows(w: float, links: int) -> None:
    control = Swift(replace(PIPE, links=links), np.random.default_rng(0))
    control.cwnd_bytes = w * M
    assert control.target_s() == pytest.approx(target_delay(w, links) * R)


def test_a_packet_that_its_nic_held_up_left_within_a_packets_time_of_its_news() -> None:
    ticks = below_a_packet(8, 12.0)
    asked_s = ticks.now + 1000 * R
    control, heard_s, smoothed_s = ticks.control, asked_s + 10 * R, R * (12 - 11 * (7 / 8) ** 8)
    assert control.may_send(asked_s) == M
    control.on_events([Sent(M, 0)], (), [Lost(M, 0, TAKEN_BACK)], heard_s)
    left_s = heard_s - M / PIPE.rate_bytes_s
    assert control.next_s(heard_s) == pytest.approx(left_s + smoothed_s * M / control.cwnd_bytes)


def test_one_packet_is_on_its_way_though_another_is_due() -> None:
    ticks = below_a_packet(8, 12.0)
    ticks.sent_s.clear()
    for _ in range(1000):
        ticks.tick()
    assert len(ticks.sent_s) == 1
    assert ticks.ask_at == inf, "it is not asked in vain"
    ticks.hear(SILENT)
    ticks.tick()
    assert len(ticks.sent_s) == 2, "it was due long ago"


@given(st.lists(st.tuples(st.sampled_from(FATES), st.floats(0.9, 14.0), st.integers(0, 99)), max_size=60))
def test_something_may_be_sent_within_a_bounded_time_whatever_is_lost(
    drawn: list[tuple[LostHow | None, float, int]],
) -> None:
    ticks, most_rtt_s = Ticks(), R
    for fate, rtt, wait in drawn:
        ticks.tick()
        if ticks.control.on_the_way or ticks.sent:
            ticks.hear(fate, rtt * R)
            most_rtt_s = max(most_rtt_s, rtt * R)
        ticks.now += wait * TICK_S
        assert LEAST_PACKETS * M <= ticks.control.cwnd_bytes <= MOST_BDP * PIPE.bdp_bytes
        assert ticks.control.window_bytes >= M
    while ticks.control.on_the_way or ticks.sent:
        ticks.hear(SILENT)
    begun, sent = ticks.now, len(ticks.sent_s)
    while len(ticks.sent_s) == sent:
        ticks.tick()
        assert ticks.now - begun <= most_rtt_s / LEAST_PACKETS + TICK_S


def test_the_engine_sends_a_packet_every_round_trip_over_the_window() -> None:
    """Behind a relay that holds each packet for 20 R: W is as small as can be, and the pace 200 R."""
    with net(lambda seen: [(20 * PACKET_S, each) for _, each in passes(seen)], control="swift") as servers:
        (number,) = servers.lanes(QueuePair(Nic(1, 0), Nic(0, 0), 1))
        left_s = list[float]()
        servers.post((number, 40 * PACKET, 0))
        begun_s = servers.clock.now
        while len(left_s) < 10 and servers.clock.now < begun_s + 3.0:
            servers.step()
            left_s += [servers.clock.now] * (len(servers.relay.seen) - len(left_s))
        (source,) = servers.engine.sources
        assert isinstance(source.control, Swift)
        assert source.control.cwnd_bytes == LEAST_PACKETS * PACKET
        assert source.over_window <= 0
    rtt_s = 20 * PACKET_S + STEP_S
    smoothed_s = rtt_s - (rtt_s - PACKET_S) * (7 / 8) ** source.acknowledged
    apart_s = left_s[-1] - left_s[-2]
    assert -1e-9 <= apart_s - smoothed_s / LEAST_PACKETS <= TICK_PACKETS * PACKET_S + 2 * STEP_S


def test_a_large_incast_is_paced_and_its_queue_stays_at_the_target() -> None:
    """64 sources through a pipe of 4 packets: nscc has a packet of each on its way at least."""
    bytes_s = 12.5e9
    pipe = Pipe(bytes_s, 4 * M / bytes_s, M, 2, 3 * M / bytes_s)
    flows = [Flow(200 * M)] * 64
    swift, nscc = (
        OneQueue(make, flows, pipe, marks, 0).passed() for make, marks in ((Swift, None), (Nscc, Nscc.marks))
    )
    swift_rtt, nscc_rtt = (1 + median(each.queues[len(each.queues) // 2 :]) / 4 for each in (swift, nscc))
    assert nscc_rtt == pytest.approx(64 / 4, abs=1)
    assert target_delay(1.0, 2) < swift_rtt < target_delay(LEAST_PACKETS, 2)
    assert max(swift.took_s) < 1.02 * 64 * 200 * M / bytes_s
