"""Messages of a demand and their chunks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.errors import DemandError
from traffic.demand import Demand
from traffic.messages import MOST_CHUNKS, Messages, chunks_of, messages_of


@given(st.lists(st.integers(0, 1_000_000) | st.just(0)), st.integers(1, 10_000))
def test_chunks_are_whole_but_for_the_last_and_sum_to_their_message(sizes: list[int], whole: int) -> None:
    ends = np.zeros(len(sizes), dtype=np.int64)
    chunks = chunks_of(Messages(ends, ends + 1, np.array(sizes, dtype=np.int64)), whole)
    assert (chunks.message == np.sort(chunks.message)).all()
    for index, size in enumerate(sizes):
        mine = chunks.bytes[chunks.message == index].tolist()
        assert sum(mine) == size
        assert mine[:-1] == [whole] * (len(mine) - 1)
        assert all(0 < each <= whole for each in mine)


def test_more_chunks_than_memory_holds_are_refused_before_they_are_made() -> None:
    messages = messages_of(Demand("huge", np.array([[0, 2**53], [1, 0]])))
    with pytest.raises(DemandError, match="274,877,906,945 chunks of 32,768 bytes at once"):
        chunks_of(messages)
    with pytest.raises(DemandError, match=f"{MOST_CHUNKS + 1:,} chunks of 1 bytes"):
        chunks_of(messages_of(Demand("large", np.array([[0, MOST_CHUNKS], [1, 0]]))), 1)
