"""The summary of an outcome: the numbers that are shown, worked out by hand."""

import numpy as np
import pytest

from testbed.run.dilation import Dilation
from testbed.run.experiment import Experiment
from testbed.run.outcome import summary_row
from tests.testbed.cases import outcome_of
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.steps import single
from traffic.workloads.placement import placed


def test_the_busbw_shown_of_a_trace_smaller_than_its_fabric_is_that_between_its_ranks() -> None:
    """Two ranks owe each other 1.25 GB over 100 Gbit/s: 0.1 s, 12.5 GB/s, half of it busbw between two."""
    fabric = rail_fabric(4, 1)
    trace = single(Demand("trace", np.array([[0, 1_250_000_000], [1_250_000_000, 0]])))
    asked = Experiment(fabric, placed(trace, fabric), "ecmp", Dilation(1.0, 1.0), chunk_bytes=1 << 20)
    row = summary_row(outcome_of(asked))
    assert row["cct_s"] == pytest.approx(0.1)
    assert row["busbw_gbytes_s"] == pytest.approx(6.25)
