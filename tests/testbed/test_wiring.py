"""The token bucket of a rate; what is wired is seen in tests/emulation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.network.wiring import burst_bytes
from traffic.packets import frame_bytes


@given(rate_bps=st.floats(1e3, 1e11), mtu=st.integers(576, 9000))
def test_a_burst_is_two_packets_or_four_milliseconds(rate_bps: float, mtu: int) -> None:
    burst = burst_bytes(rate_bps, mtu)
    packets = burst / frame_bytes(mtu)
    assert packets >= 2
    assert packets == 2 or burst * 8 / rate_bps == pytest.approx(0.004, rel=0.01)
