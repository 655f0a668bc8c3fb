"""The table of a job's nodes beside its prediction."""

from dataclasses import replace

import pytest

from testbed.experiment.experiment import Experiment
from testbed.model.backend import FluidBackend
from testbed.report.nodes import node_table, nodes_of
from tests.testbed.cases import outcome_of, small_fabric
from tests.testbed.run_cases import ring
from tests.testbed.runs import changed
from traffic.collectives.ring import Ring
from traffic.faults import cut
from traffic.job import Collective, Compute, Job
from traffic.job_bounds import node_bounds_s


def test_a_table_has_each_node_with_its_prediction() -> None:
    case = ring()
    predicted = case.run(FluidBackend(case.fabric, case.delay_s))
    late = predicted.tasks.assign(end_s=predicted.tasks["end_s"] * 2, start_s=predicted.tasks["start_s"] * 2)
    bounds_s = node_bounds_s(case.job, case.fabric)
    table = node_table(case.job, bounds_s, changed(predicted, tasks=late), predicted).set_index("node")
    assert list(table.index) == ["warm up", "gradients", "gradients of two", "step"]
    assert table["over_predicted"].tolist() == pytest.approx([2.0] * 4)
    assert table.loc["gradients", "predicted_start_s"] == pytest.approx(0.02)
    assert table["kind"].tolist() == ["compute", "ring all-reduce", "added", "compute"]
    assert table["took_s"].iloc[0] == pytest.approx(2 * table["bound_s"].iloc[0])


def test_each_collective_has_its_busbw_and_computes_have_none() -> None:
    """Two rings at once on NICs of 12.5 GB/s of their own, one of twice the bytes."""
    fabric = small_fabric()
    rings = (Collective(f"sum {k}", Ring(((k, k + 2),), (k + 1) * 40_000_000)) for k in (0, 1))
    job = Job("sums", fabric.gpus, (Compute("warm up", (0,), 0.01), *rings))
    outcome = outcome_of(Experiment(fabric, job, "ecmp"))
    busbw = nodes_of(outcome).set_index("node")["busbw_gbytes_s"]
    assert busbw[["sum 0", "sum 1"]].tolist() == pytest.approx([12.5, 12.5], rel=1e-3)
    assert busbw[["warm up"]].isna().all()
    fault = cut("lost", (), after_s=1.0, gpus=(3,))
    assert (
        nodes_of(replace(outcome, experiment=replace(outcome.experiment, faults=(fault,))))["busbw_gbytes_s"]
        .isna()
        .all()
    )
