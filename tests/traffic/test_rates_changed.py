"""Sources and round trips that learn that NICs are slower, or as fast as before."""

import pytest

from tests.traffic.source_cases import arrive, lane_of, send
from topologies.fabric import Nic
from traffic.congestion.control import SourceEnds
from traffic.spraying.policy import QueuePair
from traffic.transports.datagram_lane import Crossed, Source
from traffic.transports.packet_feeder import group_between
from traffic.transports.registry import algorithm_named
from traffic.transports.round_trips import ACKNOWLEDGED_BYTES, Crossing, RoundTrips
from traffic.transports.sources import Sources
from traffic.transports.transport import HEADER_BYTES

PACKET, PACKET_S = 1000, 0.001
RATE_BPS = 8 * (PACKET + HEADER_BYTES) / PACKET_S
LANE = QueuePair(Nic(0, 0), Nic(1, 0))
BOTH_NICS = SourceEnds((Nic(0, 0), Nic(0, 1)), LANE.destination, 0)


class Rates:
    """The rates of NICs, a share of which may be left."""

    def __init__(self) -> None:
        self.shares: dict[Nic, float] = {}

    def __call__(self, nic: Nic) -> float:
        """Return a NIC's rate [bit/s]."""
        return RATE_BPS * self.shares.get(nic, 1.0)


def sources_of(rates: Rates) -> Sources:
    """Return the sources of an engine, none yet."""
    return Sources(algorithm_named("credit"), rates, PACKET, seed=0)


def lone(sources: Sources, *, groups: bool = False) -> Source:
    """Return a source that has much to send, by one NIC or by either of two."""
    key = group_between(BOTH_NICS) if groups else None
    source = sources.add(lane_of(LANE, Crossed(RATE_BPS / 8)), key)
    sources.want(source, 10_000 * PACKET)
    return source


def granted_packets(sources: Sources, source: Source, at_s: float, lasts_s: float) -> float:
    """Return how many packets a lone source is granted in a time, all that it was granted arriving."""
    granted = 0
    for turn in range(round(lasts_s / 0.002)):
        sources.turn(at_s + turn * 0.002)
        more = source.allowed
        send(sources, source, more)
        arrive(source, more)
        granted += more
    return granted / PACKET


@pytest.mark.parametrize("known", [True, False])
def test_rates_may_change_before_there_are_sources(known: bool) -> None:
    rates = Rates()
    sources = sources_of(rates)
    sources.rates_changed()
    if known:
        source = lone(sources)
    rates.shares[LANE.destination] = 0.5
    sources.rates_changed()
    if not known:
        source = lone(sources)
    assert granted_packets(sources, source, 0.0, 1.0) == pytest.approx(500, rel=0.02)


@pytest.mark.parametrize("tells", [True, False])
def test_receivers_grant_at_the_rates_that_their_nics_have_now(tells: bool) -> None:
    rates = Rates()
    sources = sources_of(rates)
    source = lone(sources)
    assert granted_packets(sources, source, 0.0, 1.0) == pytest.approx(1000, rel=0.02)
    for share, at_s in ((0.5, 1.0), (1.0, 2.0)):
        rates.shares[LANE.destination] = share
        if tells:
            sources.rates_changed()
        expected = 1000 * share if tells else 1000
        assert granted_packets(sources, source, at_s, 1.0) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("groups", "shares", "rate"),
    [
        (False, {}, 1.0),
        (False, {Nic(0, 0): 0.5}, 0.5),
        (False, {Nic(1, 0): 0.25}, 0.25),
        (True, {Nic(0, 0): 0.5}, 1.0),
        (True, {Nic(0, 0): 0.25, Nic(0, 1): 0.5}, 0.75),
        (True, {Nic(0, 0): 0.25, Nic(1, 0): 0.5}, 0.5),
    ],
)
def test_the_pipe_of_a_source_is_as_wide_as_its_nics_and_the_destination_are_now(
    groups: bool, shares: dict[Nic, float], rate: float
) -> None:
    rates = Rates()
    sources = sources_of(rates)
    source = lone(sources, groups=groups)
    sources.turn(0.0)
    before = source.pipe
    rates.shares.update(shares)
    sources.turn(1.0)
    assert source.pipe == before, "nobody told it"
    sources.rates_changed()
    assert source.pipe
    assert source.pipe.rate_bytes_s == pytest.approx(rate * RATE_BPS / 8)
    assert source.pipe.round_trip_s == pytest.approx(PACKET_S / rate)
    rates.shares.clear()
    sources.rates_changed()
    assert source.pipe == before


@pytest.mark.parametrize("longest", [0, 1])
def test_the_pipe_of_a_group_is_its_longest_path(longest: int) -> None:
    """Else packets by a longer one would seem to meet a queue, and windows would not fill it."""
    sources = sources_of(Rates())
    near = QueuePair(Nic(0, 0), Nic(1, 0)), QueuePair(Nic(0, 1), Nic(1, 0))
    first, other = (
        lane_of(pair, Crossed(RATE_BPS / 8, delay_s=0.01 * (2 if place == longest else 1), links=4))
        for place, pair in enumerate(near)
    )
    source = sources.add(first, group_between(BOTH_NICS), [other])
    sources.crosses(source)
    assert source.pipe
    assert source.pipe.propagation_s == pytest.approx(0.04)
    other.crossed = Crossed(RATE_BPS / 8, delay_s=0.03)
    for each in other.leads:
        sources.crosses(each)
    assert source.pipe.propagation_s == pytest.approx(0.06), "one of its paths became longer"


def test_a_chunk_that_takes_as_long_as_a_slower_nic_needs_is_not_marked() -> None:
    nic, chunk = Nic(0, 0), 20 * PACKET
    takes_s = 8 * chunk * (PACKET + ACKNOWLEDGED_BYTES) / PACKET / RATE_BPS
    for share, tells, is_marked in ((1.0, False, False), (0.5, False, True), (0.5, True, False)):
        trips = RoundTrips([Crossing(nic, RATE_BPS, RATE_BPS)], PACKET)
        if tells:
            trips.rates_changed([(RATE_BPS * share, RATE_BPS)])
        trips.handed_over(0, chunk, 0.0)
        assert trips.arrived(0, takes_s / share).marked is is_marked
