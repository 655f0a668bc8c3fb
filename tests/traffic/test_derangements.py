"""Permutations without fixed points, apart from each other as long as that can be."""

import numpy as np
import pytest

from traffic.workloads.derangements import derangements


@pytest.mark.parametrize("size", [2, 3, 5, 8, 16])
@pytest.mark.parametrize("seed", range(5))
def test_nobody_sends_to_itself_and_flows_coincide_only_where_they_must(size: int, seed: int) -> None:
    orders = list(derangements(4, size, np.random.default_rng(seed)))
    assert all(sorted(order) == list(range(size)) for order in orders)
    assert not (np.array(orders) == np.arange(size)).any()
    for column in np.array(orders).T:
        assert len(set(column.tolist())) == min(4, size - 1)


def test_the_generator_decides_which() -> None:
    first, again, other = (
        [order.tolist() for order in derangements(4, 8, np.random.default_rng(seed))] for seed in (0, 0, 1)
    )
    assert first == again != other
