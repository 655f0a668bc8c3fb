"""The picture of a run above its prediction."""

from dataclasses import replace

from testbed.report.figures import png_of
from testbed.report.timeline import timeline
from testbed.run.fluid_backend import FluidBackend
from tests.testbed.run_cases import moe, ring


def test_a_timeline_has_a_row_per_node_and_ocs_for_each_run() -> None:
    case = moe()
    run = case.run(FluidBackend(case.fabric, case.delay_s))
    figure = timeline({"emulated": run, "predicted": run}, "credit")
    rows = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]
    assert rows == [["gate", "dispatch", "experts", "combine", "ocs0", "ocs1"]] * 2
    assert png_of(figure).startswith(b"\x89PNG")


def test_a_node_may_have_any_name() -> None:
    case = ring()
    run = case.run(FluidBackend(case.fabric, case.delay_s))
    named = replace(run, tasks=run.tasks.replace({"node": {"step": r"$\frac$ <b> 100 % _"}}))
    assert png_of(timeline({"predicted": named}, "tcp")).startswith(b"\x89PNG")
