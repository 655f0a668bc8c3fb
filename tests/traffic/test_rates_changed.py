"""Transports that learn that NICs are slower, or as fast as before: what they reckon with follows."""

import pytest

from topologies.fabric import Nic
from traffic.spraying.policy import QueuePair
from traffic.transports.counts import Counts
from traffic.transports.credit import Credits, Has
from traffic.transports.ideal import Ideal
from traffic.transports.round_trips import ACKNOWLEDGED_BYTES, Crossing, RoundTrips
from traffic.transports.tcp import Tcp
from traffic.transports.transport import HEADER_BYTES, FollowsRates

PACKET = 1000
RATE_BPS = 8 * 1000.0 * (PACKET + HEADER_BYTES)
"""A thousand packets a second."""


class Rates:
    """The rates of NICs, a share of which may be left."""

    def __init__(self) -> None:
        self.shares: dict[Nic, float] = {}

    def __call__(self, nic: Nic) -> float:
        """Return a NIC's rate [bit/s]."""
        return RATE_BPS * self.shares.get(nic, 1.0)


def granted_packets(credits: Credits, source: int, at_s: float, lasts_s: float) -> float:
    """Return how many packets a lone source is granted in a time, all that it was granted arriving."""
    granted = 0
    for turn in range(round(lasts_s / 0.002)):
        more = dict(credits.turn(at_s + turn * 0.002)[0]).get(source, 0)
        credits.gone(source, more)
        granted += more
    return granted / PACKET


@pytest.mark.parametrize("known", [True, False])
def test_rates_may_change_before_there_are_sources(known: bool) -> None:
    rates, nic = Rates(), Nic(1, 0)
    credits = Credits(rates, PACKET)
    credits.rates_changed()
    Ideal(rates, PACKET).rates_changed()
    if known:
        source = credits.source(nic)
    rates.shares[nic] = 0.5
    credits.rates_changed()
    if not known:
        source = credits.source(nic)
    credits.announce(Has(source, 10_000 * PACKET, 0, 0.0), 0.0)
    assert granted_packets(credits, source, 0.0, 1.0) == pytest.approx(500, rel=0.02)


@pytest.mark.parametrize("tells", [True, False])
def test_receivers_grant_at_the_rates_that_their_nics_have_now(tells: bool) -> None:
    rates, nic = Rates(), Nic(1, 0)
    credits = Credits(rates, PACKET)
    source = credits.source(nic)
    credits.announce(Has(source, 10_000 * PACKET, 0, 0.0), 0.0)
    assert granted_packets(credits, source, 0.0, 1.0) == pytest.approx(1000, rel=0.02)
    for share, at_s in ((0.5, 1.0), (1.0, 2.0)):
        rates.shares[nic] = share
        if tells:
            credits.rates_changed()
        expected = 1000 * share if tells else 1000
        assert granted_packets(credits, source, at_s, 1.0) == pytest.approx(expected, rel=0.02)


def paces(ideal: Ideal) -> list[float]:
    """Return the paces of two queue pairs that have as much left."""
    counts = Counts()
    counts.reserve(2)
    counts.posted[:2] = 10**9
    return list(map(float, ideal.limits(counts.offered((), 0.0, False)).pace_bytes_s))


def test_an_ideal_transport_shares_nics_by_the_rates_that_they_have_now() -> None:
    rates = Rates()
    ideal = Ideal(rates, PACKET)
    ideal.know([QueuePair(Nic(0, 0), Nic(2, 0)), QueuePair(Nic(1, 0), Nic(2, 1))])
    first, second = paces(ideal)
    rates.shares[Nic(0, 0)] = 0.5
    assert paces(ideal) == [first, second], "nobody told it"
    ideal.rates_changed()
    assert paces(ideal) == pytest.approx([first / 2, second])
    rates.shares.clear()
    ideal.rates_changed()
    assert paces(ideal) == [first, second]


def test_a_chunk_that_takes_as_long_as_a_slower_nic_needs_is_not_marked() -> None:
    nic, chunk = Nic(0, 0), 20 * PACKET
    takes_s = 8 * chunk * (PACKET + ACKNOWLEDGED_BYTES) / PACKET / RATE_BPS
    for share, tells, is_marked in ((1.0, False, False), (0.5, False, True), (0.5, True, False)):
        trips = RoundTrips([Crossing(nic, RATE_BPS, RATE_BPS)], PACKET)
        if tells:
            trips.rates_changed([(RATE_BPS * share, RATE_BPS)])
        trips.handed_over(0, chunk, 0.0)
        assert trips.arrived(0, takes_s / share).marked is is_marked


def test_a_transport_need_not_follow_rates() -> None:
    assert isinstance(Ideal(Rates()), FollowsRates)
    assert not isinstance(Tcp(Rates()), FollowsRates)
