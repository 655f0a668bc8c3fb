"""The token bucket of a rate, and the end of what is wired; what is wired is seen in tests/emulation."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.network.mark import Mark
from testbed.network.wiring import Shape, Wiring
from topologies.errors import NetworkError
from topologies.rail import rail_fabric
from traffic.packets import DEFAULT_MTU, burst_bytes, frame_bytes
from traffic.transports.host_settings import OF_DATAGRAMS


@given(rate_bps=st.floats(1e3, 1e11), mtu=st.integers(576, 9000))
def test_a_burst_is_two_packets_or_four_milliseconds(rate_bps: float, mtu: int) -> None:
    burst = burst_bytes(rate_bps, mtu)
    packets = burst / frame_bytes(mtu)
    assert packets >= 2
    assert packets == 2 or burst * 8 / rate_bps == pytest.approx(0.004, rel=0.01)


def test_all_buckets_are_full_when_the_slowest_links_is() -> None:
    """Two packets of 9014 bytes in each: 14.4 ms at 10 Mbit/s, 48 at an uplink's 3."""
    fabric = rail_fabric(2, 1, 1, rate_bps=10e6, uplink_bps=3e6)
    shapes = {
        port: Shape(link.rate_bps, burst_bytes(link.rate_bps), 1 << 20)
        for port, link in fabric.link_at.items()
    }
    wiring = Wiring(fabric, (), shapes, Mark(1, 1, 1), {}, OF_DATAGRAMS, DEFAULT_MTU)
    assert wiring.refill_s == pytest.approx(0.0481, rel=0.01)


def test_namespaces_are_closed_though_links_cannot_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_group: int) -> None:
        raise NetworkError("delete the links of group 1: Device or resource busy")

    monkeypatch.setattr("testbed.network.wiring.delete_links", refuse)
    held = os.pipe()
    fabric = rail_fabric(2, 1)
    wiring = Wiring(fabric, held, {}, Mark(1, 1, 1), {}, OF_DATAGRAMS, DEFAULT_MTU)
    with pytest.raises(NetworkError, match="busy"):
        wiring.close()
    for descriptor in held:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
