"""Chunks at emulated scale: in sum what the real ones are, unless they would be less than a byte."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from testbed.work import emulated_bytes
from traffic.messages import CHUNK_BYTES, Chunks


def chunks_of(sizes: list[int]) -> Chunks:
    """Return chunks of these sizes, a message each."""
    return Chunks(np.arange(len(sizes)), np.array(sizes, dtype=np.int64))


@given(sizes=st.lists(st.integers(1000, 1 << 40), min_size=1), volume=st.floats(1e-3, 1.0))
def test_the_sum_is_kept_to_the_byte(sizes: list[int], volume: float) -> None:
    assert abs(int(emulated_bytes(chunks_of(sizes), volume).sum()) - sum(sizes) * volume) <= 1


def test_chunks_of_less_than_a_byte_are_a_byte_each() -> None:
    assert emulated_bytes(chunks_of([CHUNK_BYTES] * 1000), 1e-6).tolist() == [1] * 1000
