"""The page that teaches a user's own pattern: its code runs, as it is printed there, and is written down."""

from pathlib import Path

import pandas as pd
import pytest

from testbed.experiment.experiment import Experiment
from testbed.report.run_json import experiments_of
from tests.docs.pages import Reader, blocks_of, file_of, lines_of, read_by
from tests.test_python_api import ran
from traffic.job_file import read_job

PAGE = "docs/howto/own_pattern.md"
LINES = 25
PATTERN = file_of(PAGE, "own_pattern.py")
(SCRIPT,) = (block.text for block in blocks_of(PAGE) if block.is_script)


def test_it_is_as_long_as_it_says() -> None:
    assert lines_of(PATTERN) <= LINES


def test_its_script_holds_it_beside_a_ring_and_its_job_is_run_again_from_what_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(tmp_path)
    read_by(reader, PAGE)
    table = pd.read_csv(reader.results() / "summary.csv")
    assert table["workload"].tolist() == ["doubling", "ring"]
    # Two of three rounds leave the server, and each moves all bytes; a ring's 14 steps an eighth each.
    assert table["cct_s"][0] == pytest.approx(2 * 4e6 * 8 / 100e9, rel=0.05)
    results = reader.results("job")
    first = pd.read_csv(results / "summary.csv")
    assert (first["cct_s"] / first["bound_s"] >= 1.0).all()
    monkeypatch.syspath_prepend(tmp_path)
    (experiment,) = experiments_of(results / "run.json")
    assert experiment.job == read_job(tmp_path / "gradients.json")
    assert experiment.own == ["own_pattern:Doubling"]
    back = Experiment.from_json(experiment.to_json())
    assert (back, back.key) == (experiment, experiment.key)
    again, said = reader.repeated(results)
    assert again["cct_s"].tolist() == first["cct_s"].tolist()
    assert "has changed since" not in said


def test_a_pattern_of_the_script_itself_is_refused_before_anything_runs(tmp_path: Path) -> None:
    done = ran(PATTERN + SCRIPT.replace("from own_pattern import Doubling\n", ""), tmp_path)
    assert done.returncode != 0
    assert "the pattern '__main__:Doubling' cannot be written down" in done.stderr
    assert "its class is in the script that runs; put it in a module of its own" in done.stderr
    assert not (tmp_path / "results").exists()
