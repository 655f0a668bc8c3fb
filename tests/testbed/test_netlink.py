"""Requests in bulk: what is refused is named. What requests do is seen in tests/emulation."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroute2.netlink.rtnl import RTM_DELLINK, RTM_NEWLINK

from testbed.netlink import Batch
from topologies.errors import NetworkError

NOBODY = 2_000_000_000
REFUSAL = r"(No such device|Operation not permitted)$"
"""What the kernel says of an interface that does not exist, to root and to others."""


def attempt(batch: Batch, number: int) -> None:
    """Add a request that the kernel refuses whoever asks."""
    batch.add(f"delete the link {number}", RTM_DELLINK, {"index": NOBODY + number})


def test_nothing_is_asked_by_an_empty_batch() -> None:
    Batch().commit()


@settings(max_examples=10, deadline=None)
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


def test_a_change_to_an_interface_that_does_not_exist_makes_none() -> None:
    batch = Batch()
    batch.add("raise it", RTM_NEWLINK, {"index": NOBODY, "flags": 1, "change": 1})
    with pytest.raises(NetworkError, match=f"raise it: {REFUSAL}"):
        batch.commit()
