"""Measures of flows, worked out by hand, and the properties that define Jain's index."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from topologies.rail import rail_fabric
from traffic.clock import NEVER, SECOND
from traffic.collectives.point_to_point import PointToPoint
from traffic.flow_measures import (
    completion_times_s,
    first_completion_s,
    jain_index,
    late_completion_s,
    p99_completion_s,
)
from traffic.job import Collective, Job
from traffic.tables import MESSAGES, Tables


def tables(*rows: tuple[int, int, bool, bool]) -> Tables:
    """Return the tables of messages (released_ps, end_ps, given up, crosses)."""
    found = pd.DataFrame(rows, columns=["released_ps", "end_ps", "given_up", "crosses"])
    return Tables(messages=found.reindex(columns=list(MESSAGES), fill_value=0).astype(MESSAGES))


FLOWS = tables(
    (2 * SECOND, 12 * SECOND, False, True),
    (3 * SECOND, 5 * SECOND, False, True),
    (4 * SECOND, 8 * SECOND, False, True),
    (4 * SECOND, NEVER, True, True),  # given up
    (0, SECOND, False, False),  # inside a server
)


def test_flows_are_measured_from_their_own_release() -> None:
    assert completion_times_s(FLOWS).tolist() == [10.0, 2.0, 4.0]
    assert p99_completion_s(FLOWS) == pytest.approx(10.0 - 0.02 * 6.0), "between the last two of three"
    assert late_completion_s(FLOWS) == 3.0


def test_the_first_completion_counts_from_the_first_release() -> None:
    assert first_completion_s(FLOWS) == 3.0


def test_of_no_flow_nothing_is_known() -> None:
    nothing = tables((0, NEVER, True, True), (0, SECOND, False, False))
    assert not len(completion_times_s(nothing))
    assert math.isnan(first_completion_s(nothing))
    assert math.isnan(p99_completion_s(nothing))
    assert math.isnan(late_completion_s(nothing))
    assert math.isnan(late_completion_s(tables((0, 5, False, True), (0, 7, False, True)))), "none is late"


def test_a_mouse_among_elephants_is_late() -> None:
    """A hundred Gbit/s into one server: 5 MB alone for 0.1 ms, then beside 0.625 MB at half the rate each."""
    nodes = (
        Collective("elephant", PointToPoint(((0, 2, 5_000_000),))),
        Collective("mouse", PointToPoint(((1, 2, 625_000),)), at_s=1e-4),
    )
    run = predict(Experiment(rail_fabric(3, 1, rate_bps=100e9), Job("mice", 3, nodes), "ecmp")).tables
    assert completion_times_s(run) == pytest.approx([4.5e-4, 1e-4])
    assert first_completion_s(run) == pytest.approx(2e-4)
    assert late_completion_s(run) == pytest.approx(1e-4)


@given(st.lists(st.integers(0, 1 << 53), min_size=1, max_size=9))
def test_jains_index_is_between_one_of_all_and_all_alike_whatever_the_scale(delivered: list[int]) -> None:
    index = jain_index(delivered)
    if not any(delivered):
        assert math.isnan(index)
        return
    assert (1 - 1e-9) / len(delivered) <= index <= 1 + 1e-9
    assert jain_index(np.array(delivered) / 1e3) == pytest.approx(index)
    assert jain_index([*delivered, *[0] * len(delivered)]) == pytest.approx(index / 2)


@given(st.integers(1, 9), st.integers(0, 9))
def test_flows_that_share_alike_beside_others_that_have_nothing(sharing: int, others: int) -> None:
    assert jain_index([5] * sharing + [0] * others) == pytest.approx(sharing / (sharing + others))
    assert math.isnan(jain_index([]))
