"""Requests in bulk: what is in them, and who is named when one is refused; what they do: tests/emulation."""

import errno
import struct
from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroute2.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST
from pyroute2.netlink.rtnl import RTM_DELLINK, RTM_DELROUTE, RTM_NEWLINK, RTM_NEWQDISC, RTM_NEWROUTE
from pyroute2.netlink.rtnl.rtmsg import rtmsg
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from testbed.machine.netlink import (
    ATTRIBUTE_BYTES,
    CERTAIN,
    METRICS,
    RED,
    SPACED,
    TCA_RED_MAX_P,
    Batch,
    marker_request,
    netem_request,
    route_request,
    shaper_request,
)
from tests.examples import examples
from topologies.errors import NetworkError

NOBODY = 2_000_000_000
PLACES = 24
"""Where in a request the qdisc's handle is."""
REFUSAL = r"(No such device|Operation not permitted)$"
"""What the kernel says of an interface that does not exist, to root and to others."""


def attempt(batch: Batch, number: int) -> None:
    """Add a request that the kernel refuses whoever asks."""
    batch.add(f"delete the link {number}", RTM_DELLINK, {"index": NOBODY + number})


def test_nothing_is_asked_by_an_empty_batch() -> None:
    Batch().commit()


@settings(max_examples=examples(5, 10), deadline=None)
@given(count=st.integers(1, 300))
def test_the_first_request_that_is_refused_is_named(count: int) -> None:
    batch = Batch()
    for number in range(count):
        attempt(batch, number)
    with pytest.raises(NetworkError, match=f"^delete the link 0: {REFUSAL}"):
        batch.commit()


def test_a_batch_is_sent_once() -> None:
    batch = Batch()
    attempt(batch, 1)
    with pytest.raises(NetworkError):
        batch.commit()
    batch.commit()


def test_a_refusal_that_is_ignored_is_none() -> None:
    batch = Batch()
    attempt(batch, 1)
    with pytest.raises(NetworkError) as caught:
        batch.commit()
    refusal = errno.ENODEV if str(caught.value).endswith("No such device") else errno.EPERM
    attempt(batch, 1)
    with pytest.raises(NetworkError):
        batch.commit(ignored=errno.EBUSY)
    attempt(batch, 1)
    batch.commit(ignored=refusal)


def test_a_change_to_an_interface_that_does_not_exist_makes_none() -> None:
    batch = Batch()
    batch.add("raise it", RTM_NEWLINK, {"index": NOBODY, "flags": 1, "change": 1})
    with pytest.raises(NetworkError, match=f"raise it: {REFUSAL}"):
        batch.commit()


def read(request: bytes) -> tcmsg:
    """Return a request as a message."""
    message = tcmsg(request)
    message.decode()
    return message


@pytest.mark.parametrize(
    ("delay_s", "ticks"), [(0.0, 0), (1e-12, 1), (64e-9, 1), (50e-6, 781), (1e-3, 15_625), (1.0, 15_625_000)]
)
def test_a_netem_waits_in_ticks_of_64_ns_and_one_at_least(delay_s: float, ticks: int) -> None:
    message = read(netem_request(delay_s, 0.01, 1000))
    options = message.get_attr("TCA_OPTIONS")
    assert message.get_attr("TCA_KIND") == "netem"
    assert (options["delay"], options["limit"]) == (ticks, 1000)
    assert options["loss"] / CERTAIN == pytest.approx(0.01, abs=1e-9)
    assert (options["gap"], options["duplicate"], options["jitter"]) == (0, 0, 0)


def test_a_netem_is_made_once_and_changed_after() -> None:
    make, change = (read(netem_request(0.0, 0.5, 1, change=change))["header"] for change in (False, True))
    assert make["type"] == change["type"] == RTM_NEWQDISC
    assert make["flags"] == NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
    assert change["flags"] == NLM_F_REQUEST | NLM_F_ACK


def test_a_shaper_is_an_interface_s_own_or_below_its_netem() -> None:
    netem = netem_request(0.0, 0.0, 1)
    alone, below = (
        shaper_request(10**6, 20_000, 1 << 20, below_netem=below_netem) for below_netem in (False, True)
    )
    (root, of_netem), (own, of_alone), (child, of_below) = map(places, (netem, alone, below))
    assert of_netem == of_alone == 0xFFFFFFFF
    assert of_below == root + 1, "class 1:1 of qdisc 1:"
    assert root != own == child, "the kernel lets none take the place of another with its handle"
    assert alone[PLACES + 8 :] == below[PLACES + 8 :]


@pytest.mark.parametrize("rise_bytes", [0, 50_000])
def test_a_marker_has_two_thresholds_and_says_how_likely_marks_are_between_them(rise_bytes: int) -> None:
    message = tcmsg(marker_request(20_000, rise_bytes, 1 << 20))
    message.decode()
    assert message.get_attr("TCA_KIND") == "red"
    options = bytes.fromhex(message.get_attr("TCA_OPTIONS").replace(":", ""))
    assert RED.unpack_from(options, ATTRIBUTE_BYTES)[:3] == (1 << 20, 20_000, 20_000 + rise_bytes)
    probability = struct.pack("=HHI", 8, TCA_RED_MAX_P, round(SPACED * CERTAIN))
    assert probability in options


def places(request: bytes) -> tuple[int, int]:
    """Return a qdisc's handle and its parent's (struct tcmsg)."""
    handle, parent = struct.unpack_from("=II", request, PLACES)
    return handle, parent


NUMBERS, NAMES = st.integers(1, 1 << 20), st.sampled_from(["cubic", "reno", "bbr"])
ROUTE_METRICS = {name: NAMES if name == "RTAX_CC_ALGO" else NUMBERS for name in METRICS}


@settings(max_examples=examples(8, 25))
@given(
    destination=st.ip_addresses(v=4),
    gateway=st.ip_addresses(v=4),
    index=st.integers(1, 1 << 20),
    table=st.integers(1, 1 << 20),
    source=st.none() | st.ip_addresses(v=4),
    metrics=st.none() | st.fixed_dictionaries(ROUTE_METRICS),
    delete=st.booleans(),
)
def test_a_route_reads_back_as_what_was_asked_for(
    destination: IPv4Address,
    gateway: IPv4Address,
    index: int,
    table: int,
    source: IPv4Address | None,
    metrics: dict[str, int | str] | None,
    delete: bool,
) -> None:
    request = route_request(
        IPv4Network(destination), gateway, index, table, source=source, metrics=metrics, delete=delete
    )
    message = rtmsg(request)
    message.decode()
    assert message["header"]["length"] == len(request)
    assert message["header"]["type"] == (RTM_DELROUTE if delete else RTM_NEWROUTE)
    made = 0 if delete else NLM_F_CREATE | NLM_F_REPLACE
    assert message["header"]["flags"] == NLM_F_REQUEST | NLM_F_ACK | made
    expected = {
        "RTA_DST": str(destination),
        "RTA_GATEWAY": str(gateway),
        "RTA_OIF": index,
        "RTA_TABLE": table,
        "RTA_PREFSRC": source and str(source),
    }
    assert {name: message.get_attr(name) for name in expected} == expected
    assert (message["dst_len"], message["flags"], message["scope"]) == (32, 4, 0)  # on link, universe
    found = message.get_attr("RTA_METRICS")
    assert (dict(found["attrs"]) if found else None) == metrics
