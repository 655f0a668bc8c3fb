"""The table and the picture of a run beside its prediction."""

from dataclasses import replace

import pytest

from testbed.report.figures import png_of
from testbed.report.timeline import node_table, timeline
from testbed.run.fluid_backend import FluidBackend
from tests.testbed.run_cases import moe, ring


def test_a_table_has_each_node_with_its_prediction() -> None:
    case = ring()
    predicted = case.run(FluidBackend(case.fabric, case.delay_s))
    late = predicted.tasks.assign(end_s=predicted.tasks["end_s"] * 2, start_s=predicted.tasks["start_s"] * 2)
    table = node_table(replace(predicted, tasks=late), predicted)
    assert list(table.index) == ["warm up", "gradients", "gradients of two", "step"]
    assert table["over_predicted"].tolist() == pytest.approx([2.0] * 4)
    assert table.loc["gradients", "predicted_start_s"] == pytest.approx(0.02)


def test_a_timeline_has_a_row_per_node_and_ocs_for_each_run() -> None:
    case = moe()
    run = case.run(FluidBackend(case.fabric, case.delay_s))
    figure = timeline({"emulated": run, "predicted": run})
    rows = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]
    assert rows == [["gate", "dispatch", "experts", "combine", "ocs0", "ocs1"]] * 2
    assert png_of(figure).startswith(b"\x89PNG")


def test_a_node_may_have_any_name() -> None:
    case = ring()
    run = case.run(FluidBackend(case.fabric, case.delay_s))
    named = replace(run, tasks=run.tasks.replace({"node": {"step": r"$\frac$ <b> 100 % _"}}))
    assert png_of(timeline({"predicted": named})).startswith(b"\x89PNG")
