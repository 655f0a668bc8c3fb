"""Fair weights: in proportion within a communicator, equal at most between them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traffic.fair_weights import fair_weights

QUEUE_PAIRS = st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 3)), min_size=1, max_size=30)


@given(QUEUE_PAIRS)
def test_each_communicators_fullest_weighs_the_same_and_its_others_in_proportion(
    queue_pairs: list[tuple[int, int]],
) -> None:
    left, communicator = np.array(queue_pairs).T
    found = fair_weights(left.astype(float), communicator)
    for number in set(communicator.tolist()):
        mine = communicator == number
        most = left[mine].max()
        expected = left[mine] * (left.max() / most) if most else np.zeros(mine.sum())
        np.testing.assert_allclose(found[mine], expected)


@given(QUEUE_PAIRS)
def test_of_one_communicator_it_is_what_is_left_to_the_last_bit(queue_pairs: list[tuple[int, int]]) -> None:
    left = np.array([size for size, _ in queue_pairs], dtype=float)
    assert (fair_weights(left, np.full(len(left), 5)) == left).all()
