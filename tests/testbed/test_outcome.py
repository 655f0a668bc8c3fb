"""The summary of an outcome: the numbers that are shown, worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.trust.outcome import ORDER, Verdict, bound_s, summary_row
from tests.testbed.cases import HEALTHY, OVERTAKEN, experiment_of, outcome_of, small_fabric
from topologies.rail import rail_fabric
from traffic.collectives.point_to_point import PointToPoint
from traffic.demand import Demand
from traffic.job import Collective, Job
from traffic.steps import single
from traffic.transports.reordering import Reordering
from traffic.workloads.placement import placed
from traffic.workloads.synthetic import uniform


def test_the_busbw_shown_of_a_trace_smaller_than_its_fabric_is_that_between_its_ranks() -> None:
    """Two ranks owe each other 1.25 GB over 100 Gbit/s: 0.1 s, 12.5 GB/s, as nccl-tests' alltoall has it."""
    fabric = rail_fabric(4, 1)
    trace = single(Demand("trace", np.array([[0, 1_250_000_000], [1_250_000_000, 0]])))
    asked = Experiment(fabric, placed(trace, fabric), "ecmp", Dilation(1.0, 1.0), chunk_bytes=1 << 20)
    row = summary_row(outcome_of(asked))
    assert row["cct_s"] == pytest.approx(0.1)
    assert row["busbw_gbytes_s"] == pytest.approx(12.5)


def test_the_cct_of_a_job_with_starts_counts_the_wait_for_them() -> None:
    """A hundred Gbit/s carry 1.25 GB in 0.1 s: once at the start, and once at 5 s."""
    fabric = rail_fabric(2, 1)
    sent = PointToPoint(((0, 1, 1_250_000_000),))
    nodes = (Collective("first", sent), Collective("second", sent, at_s=5.0))
    outcome = outcome_of(Experiment(fabric, Job("late", 2, nodes), "ecmp", Dilation(1.0, 1.0)))
    assert outcome.cct_s == pytest.approx(5.1)
    assert outcome.predicted_s == pytest.approx(5.1)
    assert outcome.bound_s == pytest.approx(5.1)
    assert bound_s(outcome.experiment, forwarded=True) == pytest.approx(0.1)
    assert summary_row(outcome)["cct_mean_s"] == pytest.approx(0.1)


def order_of(order: Reordering | None) -> dict[str, float]:
    """Return what the summary says of an outcome's order."""
    outcome = outcome_of(experiment_of(small_fabric(), uniform(4), "rails"), Verdict("faithful"))
    row = summary_row(replace(outcome, order=order))
    return {name: float(str(row[name])) for name in ORDER}


def test_the_order_of_packets_is_a_share_extents_and_what_is_held_at_real_scale() -> None:
    """Of 100 packets 10 were overtaken; bytes are a hundredth of the real ones."""
    assert order_of(OVERTAKEN) == {
        "overtaken": pytest.approx(0.1),
        "overtaken_p50": 0.0,
        "overtaken_p99": 4.0,
        "overtaken_max": 20.0,
        "held_bytes": pytest.approx(300_000),
    }


@pytest.mark.parametrize("order", [None, Reordering({})])
def test_the_order_of_no_packets_is_unknown(order: Reordering | None) -> None:
    assert all(map(math.isnan, order_of(order).values()))


def test_what_became_of_packets_is_in_the_summary() -> None:
    asked = experiment_of(small_fabric(), uniform(4), "rails")
    names = ("packets_sent", "packets_arrived", "packets_anew", "packets_late")
    emulated = summary_row(outcome_of(asked, Verdict("faithful"), measures=HEALTHY))
    assert [emulated[name] for name in names] == [50_003, 50_000, 3, 2]
    predicted = summary_row(outcome_of(asked))
    assert all(math.isnan(float(str(predicted[name]))) for name in names)
