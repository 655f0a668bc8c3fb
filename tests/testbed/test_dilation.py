"""Dilation: one scale of time for transfers and delays."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.experiment.dilation import Dilation
from topologies.errors import ScenarioError
from traffic.messages import CHUNK_BYTES

factors = st.floats(1e-9, 1e9)


@given(rate=factors, volume=factors, real_bytes=st.floats(1, 1e12), real_bps=st.floats(1, 1e12))
def test_a_transfer_is_dilated_as_every_delay_is(
    rate: float, volume: float, real_bytes: float, real_bps: float
) -> None:
    dilation = Dilation(rate, volume)
    real_s = real_bytes * 8 / real_bps
    emulated_s = (real_bytes * volume) * 8 / (real_bps * rate)
    assert dilation.emulated_s(real_s) == pytest.approx(emulated_s)
    assert dilation.real_s(emulated_s) == pytest.approx(real_s)


@pytest.mark.parametrize("factor", [0.0, -1.0, math.inf, math.nan])
def test_a_factor_that_scales_nothing_is_refused(factor: float) -> None:
    with pytest.raises(ScenarioError, match=rf"a rate dilation of {factor:g}; give a positive number"):
        Dilation(rate=factor, volume=1)
    with pytest.raises(ScenarioError, match=rf"a volume dilation of {factor:g}"):
        Dilation(rate=1, volume=factor)


@given(sizes=st.lists(st.integers(1000, 1 << 40), min_size=1), volume=st.floats(1e-3, 1.0))
def test_the_sum_of_sizes_is_kept_to_the_byte(sizes: list[int], volume: float) -> None:
    emulated = Dilation(1.0, volume).emulated_bytes(np.array(sizes, dtype=np.int64))
    assert abs(int(emulated.sum()) - sum(sizes) * volume) <= 1


def test_chunks_of_less_than_a_byte_are_a_byte_each() -> None:
    assert Dilation(1.0, 1e-6).emulated_bytes(np.full(1000, CHUNK_BYTES)).tolist() == [1] * 1000
