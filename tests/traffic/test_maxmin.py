"""Max-min fairness by its definition, and the parking lot."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from traffic.fluid.maxmin import max_min_rates

CLOSE = 1e-9


@st.composite
def meshes(draw: st.DrawFn) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Draw flows that cross one to four of a few links."""
    links = draw(st.integers(1, 8))
    paths = draw(
        st.lists(st.sets(st.integers(0, links - 1), min_size=1, max_size=4), min_size=1, max_size=12)
    )
    crossings = np.full((len(paths), max(map(len, paths))), -1, dtype=np.int64)
    for row, path in enumerate(paths):
        crossings[row, : len(path)] = sorted(path)
    rate = st.sampled_from([1.0, 2.0, 3.0, 10.0, 1e11]) | st.floats(0.5, 50)
    return crossings, np.array(draw(st.lists(rate, min_size=links, max_size=links)))


def positive(count: int) -> st.SearchStrategy[NDArray[np.float64]]:
    return st.lists(st.floats(0.1, 20), min_size=count, max_size=count).map(np.array)


def assert_max_min(
    crossings: NDArray[np.int64],
    rate_bps: NDArray[np.float64],
    got: NDArray[np.float64],
    weights: NDArray[np.float64],
    coupled: NDArray[np.int64] | None = None,
) -> None:
    """Check the definition: no link over its rate, and each flow at a bottleneck of its own.

    A flow's bottleneck is a full link on which nobody has more for their weight. Flows of equal
    ``coupled`` have the same for their weight, and one bottleneck among them.
    """
    group = np.arange(len(got)) if coupled is None else coupled
    over = [set(row[row >= 0].tolist()) for row in crossings]
    used = [sum(got[f] for f in range(len(got)) if link in over[f]) for link in range(len(rate_bps))]
    assert all(total <= rate * (1 + CLOSE) for total, rate in zip(used, rate_bps, strict=True))
    for number in np.unique(group).tolist():
        mine = np.flatnonzero(group == number)
        levels = got[mine] / weights[mine]
        assert levels.max() <= levels.min() * (1 + CLOSE)
        level = levels.max() * (1 + CLOSE)
        assert any(
            used[link] >= rate_bps[link] * (1 - CLOSE)
            and all(got[f] / weights[f] <= level for f in range(len(got)) if link in over[f])
            for link in set().union(*(over[f] for f in mine))
        )


@given(meshes(), st.data())
def test_rates_are_max_min_fair(
    mesh: tuple[NDArray[np.int64], NDArray[np.float64]], data: st.DataObject
) -> None:
    crossings, rate_bps = mesh
    count = len(crossings)
    weights = data.draw(st.just(np.ones(count)) | positive(count))
    got = max_min_rates(crossings, rate_bps, weights=weights)
    assert_max_min(crossings, rate_bps, got, weights)


@given(meshes(), st.data())
def test_rates_of_coupled_flows_are_max_min_fair(
    mesh: tuple[NDArray[np.int64], NDArray[np.float64]], data: st.DataObject
) -> None:
    crossings, rate_bps = mesh
    count = len(crossings)
    weights = data.draw(st.just(np.ones(count)) | positive(count))
    coupled = np.array(data.draw(st.lists(st.integers(0, count - 1), min_size=count, max_size=count)))
    got = max_min_rates(crossings, rate_bps, weights=weights, coupled=coupled)
    assert_max_min(crossings, rate_bps, got, weights, coupled)


@given(meshes(), st.data())
def test_flows_that_are_coupled_to_none_get_the_same_bit_by_bit(
    mesh: tuple[NDArray[np.int64], NDArray[np.float64]], data: st.DataObject
) -> None:
    crossings, rate_bps = mesh
    alone = np.array(data.draw(st.permutations(range(len(crossings)))))
    got = max_min_rates(crossings, rate_bps, coupled=alone)
    assert got.tolist() == max_min_rates(crossings, rate_bps).tolist()


def test_rates_of_the_parking_lot() -> None:
    crossings = np.array([[0, 1, 2], [0, -1, -1], [1, -1, -1], [1, -1, -1], [2, -1, -1]])
    assert max_min_rates(crossings, np.array([6.0, 6.0, 10.0])).tolist() == [2.0, 4.0, 2.0, 2.0, 8.0]


def test_a_flow_that_crosses_nothing_is_not_held_back() -> None:
    assert max_min_rates(np.full((2, 1), -1), np.ones(1)).tolist() == [np.inf, np.inf]
