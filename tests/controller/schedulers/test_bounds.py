"""Lower bounds: the paper's formulas by hand, and that LB2 is asked only where it holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.schedulers.bounds import (
    lines,
    lower_bound_1,
    lower_bound_2,
    makespan_lower_bound,
    ranked_weight,
    split_lower_bound,
)
from controller.schedulers.demand import Matrix
from controller.schedulers.spectra import decompose
from tests.controller.schedulers.implementations import DEMANDS
from tests.examples import examples


def row(*entries: float) -> Matrix:
    demand = np.zeros((len(entries), len(entries)))
    demand[0] = entries
    return demand


def test_more_entries_than_switches_share_the_delays() -> None:
    assert makespan_lower_bound(row(0.5, 0.25, 0.25), 2, 0.1) == pytest.approx(1 / 2 + 0.1 * 3 / 2)


def test_fewer_entries_than_switches_need_one_delay() -> None:
    assert makespan_lower_bound(row(0.5, 0.25, 0.25), 5, 0.1) == pytest.approx(1 / 5 + 0.1)


@pytest.mark.parametrize(
    ("entries", "delay", "bound"),
    [
        ((0.5, 0.5), 0.1, 0.6),  # no cut: nothing is better than one entry each
        ((0.9, 0.1), 0.1, 0.65),  # one cut: the average
        ((0.6, 0.4), 0.1, 0.1 + 0.55),  # one cut, the average: (1 + 0.1)/2 > 0.4 + 0.1
        ((0.6, 0.5), 0.1, 0.7),  # a cut would need 0.5 + 0.1 as well: as long as none
    ],
)
def test_as_many_entries_as_switches_are_cut_where_it_pays(
    entries: tuple[float, ...], delay: float, bound: float
) -> None:
    assert makespan_lower_bound(row(*entries), 2, delay) == pytest.approx(bound)
    assert lower_bound_2(np.array([entries]), 2, delay)[0] == pytest.approx(bound)


@settings(max_examples=examples(30, 100), deadline=None)
@given(demand=DEMANDS, switches=st.integers(1, 7), delay=st.sampled_from([0.0, 0.01, 1.0]))
def test_second_bound_counts_only_for_lines_of_one_entry_per_switch(
    demand: Matrix, switches: int, delay: float
) -> None:
    sorted_lines = lines(demand)
    busy = sorted_lines[sorted_lines[:, 0] > 0]
    first = lower_bound_1(busy, switches, delay)
    exact = np.count_nonzero(busy, axis=1) == switches
    second = lower_bound_2(busy[exact], switches, delay)
    assert (second >= first[exact] * (1 - 1e-9)).all(), "theorem 2 is at least as good where it holds"
    expected = max(first.max(initial=0), second.max(initial=0))
    assert makespan_lower_bound(demand, switches, delay) == expected


def test_without_delay_the_bound_is_the_big_switch() -> None:
    assert makespan_lower_bound(np.ones((4, 4)), 2, 0.0) == 2.0
    assert makespan_lower_bound(np.zeros((4, 4)), 2, 1.0) == 0.0


def test_one_long_entry_is_cut_for_more_delays() -> None:
    # Cut into three, one slot on each of three switches: 0.9/3 + 0.1. Two slots would take 0.55.
    assert makespan_lower_bound(row(0.9, 0.0, 0.0), 3, 0.1) == pytest.approx(0.4)
    assert split_lower_bound(row(0.9, 0.0, 0.0), 3, 0.1) == pytest.approx(0.4)
    # Beside a second entry four slots are needed, and one switch shows two of them.
    assert makespan_lower_bound(row(0.9, 0.3, 0.0), 3, 0.1) == pytest.approx(0.5)
    assert split_lower_bound(row(0.9, 0.3, 0.0), 3, 0.1) == pytest.approx(1.6 / 3)


def test_unequal_lines_share_the_slots_they_all_need() -> None:
    # Two slots serve both rows: one lasts 0.8, the other 0.5. Neither row holds more than 1.
    demand = np.diag([0.8, 0.5, 0.0, 0.0]) + np.diag([0.2, 0.5], 2)
    assert ranked_weight(lines(demand), 2) == pytest.approx(1.3)
    assert makespan_lower_bound(demand, 1, 0.4) == pytest.approx(1.0 + 0.8)
    assert split_lower_bound(demand, 1, 0.4) == pytest.approx(1.3 + 0.8)
    assert split_lower_bound(demand, 1, 0.1) == pytest.approx(1.0 + 0.3), "a third slot is cheaper"


@settings(max_examples=examples(30, 100), deadline=None)
@given(demand=DEMANDS)
def test_no_decomposition_beats_the_ranks(demand: Matrix) -> None:
    slots = decompose(demand)
    weight = sum(slot.weight for slot in slots)
    assert weight >= ranked_weight(lines(demand), len(slots)) * (1 - 1e-9)
