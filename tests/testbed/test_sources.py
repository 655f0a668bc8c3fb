"""The tables of sources and flows are at real scale, and what is not there is said to be so."""

import math
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from testbed.experiment.dilation import Dilation
from testbed.live.sources import Queueing, flow_table, queueing, source_table
from tests.traffic.relay import PACKET, net
from topologies.fabric import Nic
from traffic.congestion.control import PerPacket, Pipe, Red
from traffic.spraying.policy import QueuePair
from traffic.transports.datagram_lane import DatagramLane, Source
from traffic.transports.flow_log import Sample
from traffic.transports.marking import Marking
from traffic.transports.transport import UNLIMITED_BYTES

PAIRS = QueuePair(Nic(0, 0), Nic(1, 0), 0), QueuePair(Nic(0, 1), Nic(1, 1), 0)
SCALE = Dilation(rate=1e-4, volume=0.1)
"""An emulated second is a real millisecond, an emulated byte ten real ones."""
PIPE = Pipe(rate_bytes_s=1e6, round_trip_s=0.012, packet_bytes=1000)


def source(number: int, **known: object) -> Source:
    """Return a source of the first or the second queue pair."""
    lane = cast(DatagramLane, SimpleNamespace(queue_pair=PAIRS[number]))
    made = Source(number, PAIRS[number].destination, lane)
    for name, value in known.items():
        setattr(made, name, value)
    return made


def test_a_source_has_a_row_in_real_bytes_and_picoseconds() -> None:
    counts = {"sent": 7, "delivered": 5, "acknowledged": 4, "marked": 3, "resent": 2}
    sources = [source(0, pipe=PIPE, over_window=0.5, **counts), source(1, sent=8)]
    table = source_table(sources, {sources[0]: 6}.get, [PAIRS[1], PAIRS[0]], SCALE, 99)
    assert table.to_dict("list") == {
        "lane": [1, 0],
        "at_ps": [99, 99],
        "granted_bytes": [60, -1],
        "sent_bytes": [70, 80],
        "delivered_bytes": [50, 0],
        "acknowledged": [4, 0],
        "marked": [3, 0],
        "resent": [2, 0],
        "over_window_bytes": [5, -1],
        "round_trip_ps": [12_000_000, -1],
        "bdp_bytes": [120_000, -1],
    }


@pytest.mark.parametrize(("over", "shown"), [(-math.inf, -1), (-9000.0, 0), (0.0, 0), (0.01, 1), (3.0, 30)])
def test_what_was_beyond_a_window_is_told_from_there_being_none(over: float, shown: int) -> None:
    table = source_table([source(0, over_window=over)], lambda _source: None, PAIRS, SCALE, 0)
    assert table["over_window_bytes"].tolist() == [shown]


class Keeps(PerPacket):
    """A congestion control that keeps to its window."""

    window_bytes = 4.0 * PACKET


class Exceeds(Keeps):
    """One that does not."""

    def may_send(self, now_s: float) -> int:
        """Return no limit."""
        return UNLIMITED_BYTES


@pytest.mark.parametrize(("control", "keeps"), [(Keeps, True), (Exceeds, False)])
def test_a_congestion_control_that_exceeds_its_own_window_is_seen(
    control: type[PerPacket], keeps: bool
) -> None:
    with net(control=f"{__name__}:{control.__name__}") as servers:
        (number,) = servers.lanes(PAIRS[0], round_trip_s=0.05)
        servers.post((number, 40 * PACKET, 7))
        servers.finish()
        sources = servers.engine.sources
        table = source_table(sources, sources.granted_bytes, PAIRS, Dilation(1.0, 1.0), 0)
    assert table["delivered_bytes"].tolist() == [40 * PACKET]
    assert (table["over_window_bytes"] == 0).all() == keeps
    assert (table["over_window_bytes"] > 0).all() != keeps


def test_a_sample_has_a_row_in_real_bytes_and_picoseconds() -> None:
    samples = [Sample(1, 2.0, 30, 20, 4.5, 0.25), Sample(0, 3.0, 40, 40, math.inf, math.nan)]
    table = flow_table(samples, lambda at_s: round(at_s * 1000), SCALE)
    assert table.astype(object).where(table.notna(), None).to_dict("list") == {
        "source": [1, 0],
        "at_ps": [2000, 3000],
        "sent_bytes": [300, 400],
        "delivered_bytes": [200, 400],
        "window_bytes": [45.0, None],
        "queue_ps": [250_000_000.0, -1.0],
    }


def test_queues_are_those_of_all_packets_in_real_seconds() -> None:
    marking = Marking(Red(0.0, 0.0, 50.0), np.random.default_rng(0))
    curve = marking.curve(base_s=10.0, packet_s=1.0, lent_s=2.0)
    for queue_s in range(101):
        marking.met(float(queue_s), curve)
    other = Pipe(rate_bytes_s=2e6, round_trip_s=0.02, packet_bytes=1000)
    found = queueing(
        [source(0, pipe=PIPE, marked=20), source(1), source(1, pipe=other, marked=30)], marking, SCALE
    )
    assert found == Queueing(0.05, 0.099, 0.1, 50, (1.2e-5, 2e-5), (12.0, 40.0))
    assert queueing([source(0)], marking, SCALE) is None
