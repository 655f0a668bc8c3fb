"""The transports by name, a user's own among them, and what an engine tells them."""

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.errors import ScenarioError
from topologies.fabric import Nic
from traffic.spraying.policy import QueuePair
from traffic.transports.counts import Counts
from traffic.transports.ideal import Ideal
from traffic.transports.registry import (
    OVER_TCP,
    OwnTransport,
    by_bytes,
    check_transport,
    congestion_control,
    limits_named,
    sends_datagrams,
)
from traffic.transports.tcp import Tcp
from traffic.transports.transport import (
    PACKET_BYTES,
    UNLIMITED_BYTES,
    Limits,
    NicRate,
    Offered,
    packet_s,
)

PAIRS = [QueuePair(Nic(0, 0), Nic(1, 0)), QueuePair(Nic(0, 0), Nic(2, 0)), QueuePair(Nic(3, 0), Nic(1, 0))]
NAMES = [*OVER_TCP, "tcp:reno", f"{__name__}:Halves"]


class Halves:
    """A user's own: half a megabyte each."""

    period_s = inf
    by_bytes = True

    def __init__(self, nic_rate_bps: NicRate, packet_bytes: int) -> None:
        """Record nothing."""

    def know(self, queue_pairs: Sequence[QueuePair]) -> None:
        """Record nothing."""

    def limits(self, offered: Offered) -> Limits:
        """Return windows of half a megabyte."""
        none = Limits.none(len(offered.left_bytes))
        return Limits(np.full(len(offered.left_bytes), 500_000), none.pace_bytes_s, none.sent_bytes)


class OfOneArgument(Halves):
    """A user's own that is made otherwise."""

    def __init__(self, nic_rate_bps: NicRate) -> None:  # too few arguments: that is the test
        """Take one argument."""


class ReturnsNothing(Halves):
    """A user's own that forgets to return."""

    def limits(self, offered: Offered) -> Limits:
        """Return nothing."""
        return None  # type: ignore[return-value]  # what a user's own does


class TooFew(Halves):
    """A user's own that forgets a queue pair."""

    def limits(self, offered: Offered) -> Limits:
        """Return limits of all but one."""
        return Limits.none(len(offered.left_bytes) - 1)


class Stands(Halves):
    """A user's own whose paces are 0."""

    def limits(self, offered: Offered) -> Limits:
        """Return paces of 0."""
        return replace(super().limits(offered), pace_bytes_s=np.zeros(len(offered.left_bytes)))


class Raises(Halves):
    """A user's own that raises, and exits as if all were well."""

    def know(self, queue_pairs: Sequence[QueuePair]) -> None:
        """Exit."""
        sys.exit(0)

    def limits(self, offered: Offered) -> Limits:
        """Divide by what is left."""
        raise ZeroDivisionError("integer division\nby zero")


class CannotBeMade(Halves):
    """A user's own that raises when it is made."""

    def __init__(self, nic_rate_bps: NicRate, packet_bytes: int) -> None:
        """Raise."""
        raise KeyError(packet_bytes)


class WithoutLimits:
    """A user's own that lacks a method."""

    period_s = 1.0

    def know(self, queue_pairs: Sequence[QueuePair]) -> None:
        """Record nothing."""


class WithoutPeriod:
    """A user's own that lacks its period."""

    know, limits = Halves.know, Halves.limits


def a_function(_rate: NicRate, _packet_bytes: int) -> Halves:
    """Return a transport, and be none."""
    return Halves(_rate, _packet_bytes)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("tcp", Tcp),
        ("ideal", Ideal),
        ("tcp:bbr", Tcp),
        (f"{__name__}:Halves", OwnTransport),
    ],
)
def test_a_transport_over_tcp_is_made_by_its_name(name: str, made: type) -> None:
    assert isinstance(limits_named(name)(lambda _nic: 8e6, 1000), made)


@pytest.mark.parametrize("name", NAMES)
def test_credit_alone_sends_datagrams(name: str) -> None:
    assert [sends_datagrams(each) for each in ("credit", name)] == [True, False]
    for each in ("credit", name):
        check_transport(each)
    with pytest.raises(ScenarioError, match="credit"):
        limits_named("credit")


@pytest.mark.parametrize("name", NAMES)
@given(left=st.lists(st.integers(0, 10**9), min_size=3, max_size=3).filter(any))
def test_every_transport_limits_what_it_is_offered(name: str, left: list[int]) -> None:
    transport = limits_named(name)(lambda _nic: 8e6, 1000)
    assert transport.period_s > 0
    transport.know(PAIRS)
    counts = Counts()
    counts.reserve(3)
    counts.posted[:3] = left
    limits = transport.limits(counts.offered((), 5.0, True))
    for array in (limits.window_bytes, limits.pace_bytes_s, limits.sent_bytes):
        assert array.shape == (3,)
    assert (limits.pace_bytes_s > 0).all()
    assert (limits.window_bytes >= 0).all()
    assert (limits.sent_bytes >= 0).all()


@pytest.mark.parametrize(
    ("name", "control"),
    [("tcp", "cubic"), ("tcp:cubic", "cubic"), ("tcp:dctcp", "dctcp"), ("credit", None), ("mine:Tcp", None)],
)
def test_the_name_says_what_controls_congestion(name: str, control: str | None) -> None:
    assert congestion_control(name) == control


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("ideal", True),
        ("credit", False),
        ("tcp", False),
        ("tcp:bbr", False),
        (f"{__name__}:Halves", True),
        (f"{__name__}:WithoutLimits", False),
    ],
)
def test_a_transport_says_whether_it_shares_by_bytes(name: str, shares: bool) -> None:
    assert by_bytes(name) is shares


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("udp", "there is no transport named 'udp'"),
        ("", "there is no transport named ''"),
        ("TCP", "there is no transport named 'TCP'"),
        ("nowhere:Transport", "the transport 'nowhere:Transport' cannot be imported"),
        (f"{__name__}:Nothing", "cannot be imported: AttributeError"),
        (f"{__name__}:WithoutLimits", f"'{__name__}:WithoutLimits' is not a transport"),
        (f"{__name__}:WithoutPeriod", f"'{__name__}:WithoutPeriod' is not a transport"),
        (f"{__name__}:a_function", f"'{__name__}:a_function' is not a transport"),
        (f"{__name__}:OfOneArgument", "cannot be made: "),
    ],
)
def test_what_is_no_transport_is_refused_in_a_sentence(name: str, sentence: str) -> None:
    for refuses in (limits_named, check_transport):
        with pytest.raises(ScenarioError, match=re.escape(sentence)) as caught:
            refuses(name)
        assert "\n" not in str(caught.value)
        assert caught.value.hint


@pytest.mark.parametrize(
    ("own", "what"),
    [
        ("ReturnsNothing", "an object of type NoneType"),
        ("TooFew", "window_bytes of shape (2,), not (3,)"),
        ("Stands", "a pace that is not positive"),
    ],
)
def test_limits_that_are_none_are_refused_in_a_sentence(own: str, what: str) -> None:
    transport, counts = limits_named(f"{__name__}:{own}")(lambda _nic: 8e6, 1000), Counts()
    transport.know(PAIRS)
    counts.reserve(3)
    with pytest.raises(ScenarioError, match=re.escape(f"the transport '{__name__}:{own}' returned {what}")):
        transport.limits(counts.offered((), 5.0, True))


def test_what_a_users_own_transport_raises_is_a_sentence() -> None:
    transport, counts = limits_named(f"{__name__}:Raises")(lambda _nic: 8e6, 1000), Counts()
    counts.reserve(1)
    where = r"at .*test_transports\.py:\d+"
    with pytest.raises(ScenarioError, match=f"your transport raised SystemExit {where}: 0; --debug"):
        transport.know(PAIRS)
    with pytest.raises(ScenarioError, match=f"raised ZeroDivisionError {where}: integer division by zero;"):
        transport.limits(counts.offered((), 5.0, True))
    with pytest.raises(ScenarioError, match=f"your transport raised KeyError {where}: 1000;"):
        limits_named(f"{__name__}:CannotBeMade")(lambda _nic: 8e6, 1000)


@given(st.integers(0, 50))
def test_no_limits_limit_nothing(queue_pairs: int) -> None:
    limits = Limits.none(queue_pairs)
    assert limits.window_bytes.tolist() == limits.sent_bytes.tolist() == [UNLIMITED_BYTES] * queue_pairs
    assert limits.pace_bytes_s.tolist() == [inf] * queue_pairs
    limits.sent_bytes[:1] = 7
    assert (limits.window_bytes == UNLIMITED_BYTES).all(), "the arrays are each others'"


@given(sizes=st.lists(st.integers(0, 100), min_size=1, max_size=5), data=st.data())
def test_counts_offer_what_has_not_arrived_and_nothing_of_what_is_held(
    sizes: list[int], data: st.DataObject
) -> None:
    counts, total = Counts(), sum(sizes)
    posted = data.draw(st.lists(st.integers(0, 10**12), min_size=total, max_size=total))
    held = data.draw(st.lists(st.booleans(), min_size=total, max_size=total))
    size = 0
    for more in sizes:  # as queue pairs come, what was counted of those before stays
        counts.reserve(size + more)
        counts.posted[size : size + more] = posted[size : size + more]
        counts.held[size : size + more] = held[size : size + more]
        counts.round_trip_s[size : size + more] = 0.5
        size += more
    counts.arrived[:size] = np.array(posted[:size], dtype=np.int64) // 3
    offered = counts.offered((), 7.0, True)
    left = [0 if still else each - each // 3 for each, still in zip(posted, held, strict=True)]
    assert offered.left_bytes.tolist() == left
    assert offered.arrived_bytes.tolist() == [each // 3 for each in posted]
    assert offered.waiting_bytes.tolist() == [0] * size
    assert offered.group.tolist() == list(range(size))
    assert offered.among.tolist() == [1.0] * size
    assert offered.round_trip_s.tolist() == [0.5] * size
    assert (offered.now_s, offered.anew) == (7.0, True)
    counts.arrived[:size] = 0
    assert offered.arrived_bytes.tolist() == [each // 3 for each in posted], "what was offered stays so"


def decided(name: str, rate_bps: float) -> list[tuple[float, list[float]]]:
    """Return what a transport lets an incast of three do as it is carried, and when, in packets' times."""
    transport, time_s = limits_named(name)(lambda _nic: rate_bps, PACKET_BYTES), packet_s(rate_bps)
    pairs = [QueuePair(Nic(sender, 0), Nic(9, 0)) for sender in range(3)]
    transport.know(pairs)
    counts = Counts()
    counts.reserve(3)
    counts.posted[:3] = np.array([200, 150, 90]) * PACKET_BYTES
    counts.round_trip_s[:3] = [0.0, 3 * time_s, 9 * time_s]
    history = list[tuple[float, list[float]]]()
    now_s = 7 * time_s
    for _ in range(60):
        limits = transport.limits(counts.offered((), now_s, not history))
        paces = np.minimum(limits.pace_bytes_s, 8 * rate_bps) * time_s
        may = np.minimum(limits.sent_bytes, counts.arrived[:3] + limits.window_bytes)
        history.append((transport.period_s / time_s, [*may.tolist(), *paces.tolist()]))
        counts.arrived[:3] = np.minimum(counts.posted[:3], np.maximum(counts.arrived[:3], may - PACKET_BYTES))
        now_s += 1.99 * time_s
    return history


@pytest.mark.parametrize("rate_bps", [8e6, 70e6])
def test_a_transport_is_the_same_at_every_rate(rate_bps: float) -> None:
    here, there = decided("ideal", rate_bps), decided("ideal", 24e6)
    assert len({tuple(limits) for _, limits in there}) > 5, "nothing moved"
    for (period, limits), (other_period, other_limits) in zip(here, there, strict=True):
        assert period == pytest.approx(other_period)
        assert limits == pytest.approx(other_limits, rel=1e-6, abs=1.0)


class Known(Halves):
    """A user's own that finds its period once it knows the queue pairs."""

    period_s = inf

    def know(self, queue_pairs: Sequence[QueuePair]) -> None:
        """Be asked after 7 s."""
        self.period_s = 7.0


def test_a_users_own_may_say_how_often_it_is_asked_once_it_knows_nics() -> None:
    transport = limits_named(f"{__name__}:Known")(lambda _nic: 8e6, 1000)
    assert transport.period_s == inf
    transport.know(PAIRS)
    assert transport.period_s == 7.0
