"""The transports by name, a user's own among them, and what is refused of them."""

import re
from math import nan

import numpy as np
import pytest

from topologies.errors import ScenarioError
from traffic.congestion.control import CongestionControl, PerPacket, Pipe, Red
from traffic.congestion.credit import Credit, Receiver
from traffic.transports.registry import (
    NAMED,
    algorithm_named,
    by_bytes,
    check_transport,
    congestion_control,
    sends_datagrams,
)

PIPE = Pipe(1e6, 0.01, 1000)


class Fixed(PerPacket):
    """A user's own: ten packets on the way."""

    window_bytes = 10_000.0
    by_bytes = True
    marks = Red(0.2, 0.8)
    receiver = Receiver
    announcement, on_granted = Credit.announcement, Credit.on_granted


class NoNextTime:
    """A user's own that lacks methods."""

    on_events, may_send = PerPacket.on_events, PerPacket.may_send


class OfOneArgument(PerPacket):
    """A user's own that is made otherwise."""

    def __init__(self, pipe: Pipe) -> None:  # too few arguments: that is the test
        """Take one argument."""


def with_attributes(**attributes: object) -> type:
    """Return a congestion control with attributes of its class."""
    return type("WithAttributes", (PerPacket,), attributes)


MarksOfPairs = with_attributes(marks=(0.2, 0.8))
MarksOfNothing = with_attributes(marks=Red(nan, 0.8))
ByList = with_attributes(by_bytes=[1, 2])
NoOverview = with_attributes(overview=5)
OfTwoArguments = with_attributes(overview=PerPacket)
NoReceiver = with_attributes(receiver=Receiver)
NoGrants = with_attributes(receiver=PerPacket, announcement=Credit.announcement, on_granted=Credit.on_granted)
"""Each is not a transport."""


def a_function(pipe: Pipe, rng: np.random.Generator) -> CongestionControl:
    """Return a congestion control, and be none."""
    return PerPacket(pipe, rng)


def own(name: str) -> str:
    """Return how something of this module is named."""
    return f"{__name__}:{name}"


@pytest.mark.parametrize("name", [*NAMED, own("Fixed")])
def test_all_but_the_kernels_tcp_is_a_congestion_control_over_datagrams(name: str) -> None:
    check_transport(name)
    assert sends_datagrams(name)
    algorithm = algorithm_named(name)
    assert algorithm.name == name
    assert algorithm_named(name) is algorithm, "it is looked up once"


@pytest.mark.parametrize("name", ["tcp", "tcp:reno", "tcp:bbr"])
def test_the_kernels_tcp_is_no_congestion_control_over_datagrams(name: str) -> None:
    check_transport(name)
    assert not sends_datagrams(name)
    assert not by_bytes(name)


@pytest.mark.parametrize(
    ("name", "control"),
    [("tcp", "cubic"), ("tcp:cubic", "cubic"), ("tcp:dctcp", "dctcp"), ("credit", None), ("mine:Tcp", None)],
)
def test_the_name_says_what_controls_congestion(name: str, control: str | None) -> None:
    assert congestion_control(name) == control


def test_a_class_says_itself_what_it_needs() -> None:
    algorithm = algorithm_named(own("Fixed"))
    assert (algorithm.marks, algorithm.by_bytes) == (Red(0.2, 0.8), True)
    assert algorithm.receiver
    receiver = algorithm.receiver(1e6, 1000)
    receiver.expect(3)
    assert receiver.granted_bytes(3) == 0
    made = algorithm.make(PIPE, np.random.default_rng(0))
    assert made.may_send(0.0) == 10_000
    credit = algorithm_named("credit")
    assert (credit.by_bytes, credit.clairvoyant) == (False, False)
    assert credit.receiver
    assert isinstance(credit.receiver(1e6, 1000), Receiver)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("udp", "there is no transport named 'udp'"),
        ("", "there is no transport named ''"),
        ("TCP", "there is no transport named 'TCP'"),
        ("tcp:reno;ls", "'reno;ls' controls no congestion"),
        ("nowhere:Transport", "the transport 'nowhere:Transport' cannot be imported"),
        (own("Nothing"), "cannot be imported: AttributeError"),
        (own("NoNextTime"), f"{own('NoNextTime')!r} is not a transport: it lacks next_s, rates_changed"),
        (own("a_function"), f"{own('a_function')!r} is not a transport: it is a function and not a class"),
        (own("PIPE"), f"{own('PIPE')!r} is not a transport: it is a Pipe and not a class"),
        (own("OfOneArgument"), f"{own('OfOneArgument')!r} cannot be made with pipe, rng"),
        (own("MarksOfPairs"), f"marks of the transport {own('MarksOfPairs')!r} is (0.2, 0.8)"),
        (own("MarksOfNothing"), f"marks of the transport {own('MarksOfNothing')!r} is Red(least=nan"),
        (own("ByList"), f"by_bytes of the transport {own('ByList')!r} is [1, 2]"),
        (own("NoOverview"), f"overview of the transport {own('NoOverview')!r} is 5"),
        (own("OfTwoArguments"), "cannot be made with pipe, rng, overview, number"),
        (own("NoReceiver"), "has receivers that cannot grant: it lacks announcement, on_granted"),
        (own("NoGrants"), "has receivers that cannot grant: it lacks receiver.expect, receiver.on_announced"),
    ],
)
def test_what_is_no_transport_is_refused_in_a_sentence(name: str, sentence: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(sentence)) as caught:
        check_transport(name)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
