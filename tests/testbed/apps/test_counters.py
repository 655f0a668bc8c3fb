"""Counters become rates over time that add up to what was sent."""

import numpy as np
import pytest
from numpy.typing import NDArray

from testbed.apps import counters
from testbed.apps.app_record import HostTcp
from testbed.apps.counters import TICK_S, LinkTicks, since, tcp_counts

NAMES = ["leaf0:0", "leaf0:1"]


def reading(first: float, second: float = 0.0, drops: int = 0, waiting: int = 0) -> NDArray[np.float64]:
    """Return the counters of two ports; the first dropped packets, and has bytes waiting."""
    return np.array([[first, first // 100, drops, waiting], [second, second // 100, 0, 0]], dtype=float)


def ticks_of(*readings: tuple[float, NDArray[np.float64]], origin_s: float = 100.0) -> LinkTicks:
    """Return ticks of readings since their origin, the first of which is at it."""
    ticks = LinkTicks(origin_s, readings[0][1])
    for at_s, each in readings[1:]:
        ticks.add(origin_s + at_s, each)
    return ticks


def test_what_is_sent_between_two_readings_is_spread_over_their_ticks() -> None:
    late = ticks_of((0.0, reading(500)), (0.05, reading(600)), (0.25, reading(1600)), (0.3, reading(1600)))
    table = late.table(NAMES, 99.0)
    assert table["port"].tolist() == ["leaf0:0"] * 3
    assert table["at_s"].tolist() == pytest.approx([1.0, 1.1, 1.2])
    assert table["bytes"].tolist() == [350, 500, 250]


def test_the_most_that_waited_in_a_tick_is_kept_and_every_drop() -> None:
    seen = ticks_of(
        (0.0, reading(0)),
        (0.03, reading(0, waiting=70)),
        (0.06, reading(0, 10, 3, 20)),
        (0.09, reading(0, 10, 3)),
    )
    table = seen.table(NAMES, 100.0)
    assert table[["port", "bytes", "drops", "backlog_bytes"]].to_numpy().tolist() == [
        ["leaf0:0", 0, 3, 70],
        ["leaf0:1", 10, 0, 0],
    ]


def test_ticks_become_wider_where_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MOST_TICKS", 8)
    every = [(number * TICK_S, reading(number * 101.0, waiting=number)) for number in range(100)]
    ticks = ticks_of(*every)
    table = ticks.table(NAMES, 100.0)
    assert ticks.tick_s == 16 * TICK_S
    assert len(table) <= 8
    assert table["bytes"].sum() == 99 * 101
    assert table["backlog_bytes"].max() == 99
    assert set(table["bytes"].iloc[1:-1]) <= {16 * 101 - 1, 16 * 101, 16 * 101 + 1}


def test_a_reading_after_a_long_time_makes_no_more_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MOST_TICKS", 8)
    table = ticks_of((0.0, reading(0)), (0.1, reading(100)), (1000.0, reading(1100))).table(NAMES, 100.0)
    assert len(table) <= 8
    assert table["bytes"].sum() == 1100


def test_a_counter_that_begins_anew_sends_nothing_back() -> None:
    table = ticks_of((0.0, reading(0)), (0.05, reading(900)), (0.09, reading(100))).table(NAMES, 100.0)
    assert table["bytes"].tolist() == [900]


def test_without_a_reading_there_is_nothing() -> None:
    assert LinkTicks(0.0, reading(5)).table(NAMES, 0.0).empty


def test_counters_of_tcp_are_found_by_their_names() -> None:
    snmp = "Ip: Forwarding\nIp: 1\nTcp: InSegs OutSegs RetransSegs\nTcp: 7 10 2\nUdp: RcvbufErrors\nUdp: 4\n"
    snmp += "UdpLite: RcvbufErrors\nUdpLite: 0\n"
    netstat = "TcpExt: SyncookiesSent TCPTimeouts\nTcpExt: 0 3\nIpExt: InOctets\nIpExt: 99\n"
    assert tcp_counts({"snmp": snmp, "netstat": netstat}) == {
        "segments": 10,
        "resent": 2,
        "timeouts": 3,
        "unread": 4,
    }


def test_what_hosts_counted_in_a_run_is_the_difference() -> None:
    assert since((HostTcp(0, 10, 1, 0, 5, 1),), (HostTcp(0, 30, 4, 2, 5, 8),)) == (
        HostTcp(0, 20, 3, 2, 0, 7),
    )
