"""The log of flows: when samples are taken, of which sources, and what of them is kept."""

from math import isnan
from typing import cast

import pytest

from tests.traffic.relay import PACKET, PACKET_S, Net, net
from tests.traffic.test_datagram_engine import ONE, OTHER
from topologies.fabric import Nic
from traffic.transports import flow_log
from traffic.transports.datagram_lane import DatagramLane, Source
from traffic.transports.flow_log import PERIOD_PACKETS, FlowLog


def source_of(number: int, sent: int) -> Source:
    """Return a source that has sent so much."""
    source = Source(number, Nic(1, 0), cast(DatagramLane, None))
    source.sent = sent
    return source


def test_a_sample_is_taken_of_each_source_that_has_sent_once_a_period() -> None:
    log, silent, busy = FlowLog(), source_of(0, 0), source_of(1, 0)
    busy.window_bytes = 7000.0
    for tick in range(20):
        busy.sent += 1000
        busy.delivered += 500
        busy.queued_s, busy.queued = busy.queued_s + 0.25 * tick, busy.queued + 1
        log.take([silent, busy], float(tick), 2.0)
    assert [sample.at_s for sample in log.samples] == [0.0, 8.0, 16.0]
    assert [sample[2:5] for sample in log.samples] == [
        (1000, 500, 7000.0),
        (9000, 4500, 7000.0),
        (17_000, 8500, 7000.0),
    ]
    assert {sample.source for sample in log.samples} == {1}
    assert [sample.queue_s for sample in log.samples] == [0.0, 0.25 * 4.5, 0.25 * 12.5]


def test_a_sample_may_be_taken_before_it_is_time_and_has_no_queue_without_packets() -> None:
    log, source = FlowLog(), source_of(0, 1)
    for at_s, anyway in ((0.0, False), (1.0, False), (2.0, True), (9.0, False), (10.0, False)):
        log.take([source], at_s, 2.0, anyway=anyway)
    assert [sample.at_s for sample in log.samples] == [0.0, 2.0, 10.0]
    assert all(isnan(sample.queue_s) for sample in log.samples)


def test_with_too_many_samples_every_second_time_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_log, "MOST_SAMPLES", 8)
    log, sources = FlowLog(), [source_of(0, 1), source_of(1, 1)]
    for tick in range(12):
        log.take(sources, float(tick * PERIOD_PACKETS), 1.0)
    assert [sample.at_s / PERIOD_PACKETS for sample in log.samples[::2]] == [0.0, 4.0, 8.0]
    assert [sample.source for sample in log.samples] == [0, 1] * 3


def logged(of: Net) -> list[int]:
    """Return the bytes that had been delivered of all flows at each time of the log."""
    delivered = dict[float, int]()
    for sample in of.engine.flow_log.samples:
        delivered[sample.at_s] = delivered.get(sample.at_s, 0) + sample.delivered_bytes
    return list(delivered.values())


@pytest.mark.parametrize("round_trip_s", [0.0, 0.03])
def test_an_engine_logs_the_end_of_each_message(round_trip_s: float) -> None:
    with net() as servers:
        one, other = servers.lanes(ONE, OTHER, round_trip_s=round_trip_s)
        servers.post((one, 40 * PACKET, 0), (other, 15 * PACKET, 1))
        arrived = servers.finish()
        at_s = [sample.at_s for sample in servers.engine.flow_log.samples]
        assert len(set(at_s)) >= 40 / PERIOD_PACKETS
        assert logged(servers)[-1] == 55 * PACKET
        for arrival in arrived:
            assert min(abs(each - arrival.at) for each in at_s) < PACKET_S
