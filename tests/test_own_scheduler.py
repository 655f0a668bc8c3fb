"""The page that teaches a user's own scheduler: its code runs, as it is printed there."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.schedulers.demand import Matrix
from controller.schedulers.registry import Scheduler, scheduler_named
from testbed.experiment.ocs_plan import plan_of
from tests.controller.schedulers.implementations import DEMANDS, check
from tests.docs.pages import Reader, file_of, lines_of, read_by
from tests.examples import examples
from tests.testbed.ocs_cases import experiment_of

PAGE = "docs/howto/own_scheduler.md"
NAME = "own_scheduler:heaviest_first"
LINES = 20


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    """The page's scheduler, in the current directory."""
    (tmp_path / "own_scheduler.py").write_text(file_of(PAGE, "own_scheduler.py"))
    monkeypatch.chdir(tmp_path)
    return scheduler_named(NAME)


def test_it_is_20_lines() -> None:
    assert lines_of(file_of(PAGE, "own_scheduler.py")) <= LINES


def test_it_is_compared_with_spectra_by_command_and_by_script(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    read_by(reader, PAGE)
    for scenario in ("ocs_spectra", "python"):
        table = pd.read_csv(reader.results(scenario) / "summary.csv").set_index("circuits")
        assert table["cct_s"][NAME] > table["cct_s"]["spectra"] > table["bound_s"]["spectra"]


@settings(
    max_examples=examples(15, 50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(demand=DEMANDS, switches=st.integers(1, 5), delay=st.sampled_from([0.0, 1e-3, 0.1, 1.0]))
def test_it_is_valid_as_the_registered_ones_are(
    scheduler: Scheduler, demand: Matrix, switches: int, delay: float
) -> None:
    check(scheduler, demand, switches, delay)


def test_it_is_planned_under_its_name(scheduler: Scheduler) -> None:
    experiment = experiment_of(NAME, "benchmark")
    assert experiment.circuits_name == NAME
    planned = plan_of(experiment.rule)
    plan = scheduler(planned.line_s, len(planned.ocses), planned.delay_s)
    assert planned.schedule == plan
    assert plan.makespan < 2 * planned.lower_bound_s


def test_it_may_write_to_its_demand(scheduler: Scheduler) -> None:
    demand = np.ones((3, 3))
    scheduler(demand, 1, 0.0)
    assert (demand == 1).all()
