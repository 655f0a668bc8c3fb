"""The page about results: it has every column that runs write, in order, and its paths can be read."""

import re
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pandas as pd
import pytest

import testbed.report.pages
from scenarios._spectra.ocs_sweep import SweptWorkload, rows_of
from scenarios._spectra.sweep_report import sweep_report
from testbed.live.light_log import LightLog
from testbed.model.predict import predict
from testbed.report.results import ResultsDirectory
from testbed.report.run_json import RunRecord
from testbed.trust.carried import COLUMNS as WIRE_COLUMNS
from testbed.trust.outcome import Outcome, summary_row
from tests.blank import blank
from tests.results_page import EXPERIMENTS, PAGE, PLANS, documented
from tests.testbed import ocs_cases
from tests.testbed.cases import small_outcomes
from traffic.fault_text import WrittenFault
from traffic.records import COLUMNS, NVLINK, legs_of, path_of

RUN = RunRecord("results_page", "Any run", ["python"], datetime(2026, 1, 2))


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave plots out: their files have no columns."""
    monkeypatch.setattr(testbed.report.pages, "drawn", blank)


def columns_of(folder: Path) -> dict[str, list[str]]:
    """Return the columns of every CSV file in a folder."""
    return {file.name: list(pd.read_csv(file, nrows=0).columns) for file in folder.glob("*.csv")}


def test_runs_of_experiments_write_what_it_documents(tmp_path: Path) -> None:
    outcome = replace(small_outcomes(seeds=1)[1], wire=pd.DataFrame(columns=list(WIRE_COLUMNS)))
    experiment = outcome.experiment
    fault = WrittenFault("nic:0:1@20%-60%").over(experiment.fabric, outcome.predicted_s, 0.0)
    failing = replace(experiment, faults=(fault,))
    with ResultsDirectory(RUN, out=tmp_path / "out") as results:
        results.add(outcome)
        results.add(Outcome(failing, predict(failing)))
    written = columns_of(results.path)
    assert set(written) == {"faults.csv", "nodes.csv", "records.csv", "summary.csv", "wire.csv"}
    assert written == {name: documented(EXPERIMENTS, name) for name in written}


def test_schedules_over_ocses_have_the_columns_that_it_documents_besides() -> None:
    experiment = ocs_cases.experiment_of("spectra")
    predicted = predict(experiment)
    light = LightLog(experiment, predicted.iteration_s, (0,), (), {}, 0.0, 100, 1_000_000)
    row = summary_row(Outcome(experiment, predicted, predicted, light=light))
    besides = documented(EXPERIMENTS, "summary.csv, schedules over OCSes")
    assert list(row) == [*documented(EXPERIMENTS, "summary.csv"), *besides]


def test_plans_write_what_it_documents() -> None:
    planned = sweep_report([rows_of(SweptWorkload("gpt", 0.003, delays=(0.01,), switches=(4,), plus=()), 0)])
    assert list(planned.rows[0]) == documented(PLANS, "summary.csv")
    assert not planned.tables


def test_every_column_has_a_meaning() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    tables = PAGE.count("| column | unit | meaning |")
    assert len(re.findall(r"^### .+\.csv", PAGE, re.MULTILINE)) == tables > 0
    assert all(row.count("|") == 4 and row.split("|")[3].strip() for row in rows if row.count("|") > 3)


def test_its_paths_are_read_as_it_says() -> None:
    examples = re.findall(r"^\| `(nvlink|\d+@[^`]+)` \|", PAGE, re.MULTILINE)
    assert NVLINK in examples
    values = dict.fromkeys(COLUMNS, 0)
    records = pd.DataFrame([values | {"path": path} for path in examples]).astype(COLUMNS)
    legs = legs_of(records)
    assert legs["bytes"].to_list() == [8192, 4096, 4096, 8192]
    ends = [(str(ports[0]), str(ports[-1])) for ports in map(path_of, legs["path"])]
    assert ends == [("h0:1", "leaf0:5"), ("h0:0", "leaf0:5"), ("h0:1", "leaf1:5"), ("h0:0", "ocs0:5")]


def test_a_point_is_read_without_lightrail(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    outcome = small_outcomes(seeds=1)[0]
    with ResultsDirectory(RUN, out=tmp_path / "out") as results:
        results.add(outcome)
    asked = "print(len(messages), *names, *sys.modules.keys() & {'testbed', 'traffic', 'topologies'})"
    command = [sys.executable, "-I", "-c", f"{example}import sys\n{asked}"]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True)
    messages = sum(len(run.tables.messages) for run in outcome.runs.values())
    assert done.stdout.split() == [str(messages), "emulated", "predicted"], done.stderr
