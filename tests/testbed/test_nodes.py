"""The table of a job's nodes beside its prediction."""

import pytest

from testbed.report.nodes import node_table
from testbed.run.fluid_backend import FluidBackend
from tests.testbed.run_cases import ring
from tests.testbed.runs import changed
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
