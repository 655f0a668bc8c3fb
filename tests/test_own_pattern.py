"""The page that teaches a user's own pattern: its code runs, as it is printed there, and is written down."""

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from testbed.report.run_json import experiments_of
from testbed.run.experiment import Experiment
from tests.test_python_api import ran
from tests.tools import CHECKOUT
from traffic.job_file import read_job

PAGE = (CHECKOUT / "docs" / "howto" / "own_pattern.md").read_text()
LINES = 25


def blocks(language: str) -> list[str]:
    """Return the page's blocks of a language."""
    return [str(found) for found in re.findall(rf"```{language}[^\n]*\n(.*?)```", PAGE, re.DOTALL)]


PATTERN, SCRIPT = blocks("python")
(JOB,) = blocks("json")
(COMMAND,) = blocks("console")


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with the page's pattern and job in it."""
    (tmp_path / "own_pattern.py").write_text(PATTERN)
    (tmp_path / "gradients.json").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_pattern", raising=False)
    return tmp_path


def test_it_is_as_long_as_it_says() -> None:
    assert len([line for line in PATTERN.splitlines() if line.strip()]) <= LINES


def carried_out(scenario: str, *options: str) -> str:
    """Return what a scenario prints that is carried out in the current directory."""
    command = [sys.executable, str(CHECKOUT / scenario), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_its_job_survives_json_and_is_run_again_from_it(in_folder: Path) -> None:
    scenario, *options = COMMAND.removeprefix("$ python ").split()
    carried_out(scenario, *options, "--out", "first")
    carried_out("scenarios/repeat.py", "first", "--out", "again")
    first, again = (pd.read_csv(in_folder / out / "summary.csv") for out in ("first", "again"))
    assert first["cct_s"].tolist() == again["cct_s"].tolist()
    assert (first["cct_s"] / first["bound_s"] >= 1.0).all()
    (experiment,) = experiments_of(in_folder / "first" / "run.json")
    assert experiment.job == read_job(in_folder / "gradients.json")
    assert experiment.own == ["own_pattern:Doubling"]
    back = Experiment.from_json(experiment.to_json())
    assert (back, back.key) == (experiment, experiment.key)
    (in_folder / "own_pattern.py").write_text(f"{PATTERN}# edited\n")
    edited = carried_out("scenarios/repeat.py", "first", "--out", "edited")
    assert "the source of own_pattern has changed since" in " ".join(edited.split())


def test_its_script_holds_it_beside_a_ring(in_folder: Path) -> None:
    done = ran(SCRIPT, in_folder)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(in_folder / "doubling_or_ring" / "summary.csv")
    assert table["workload"].tolist() == ["doubling", "ring"]
    # Two of three rounds leave the server, and each moves all bytes; a ring's 14 steps an eighth each.
    assert table["cct_s"][0] == pytest.approx(2 * 4e6 * 8 / 100e9, rel=0.05)


def test_a_pattern_of_the_script_itself_is_refused_before_anything_runs(in_folder: Path) -> None:
    code = PATTERN + SCRIPT.replace("from own_pattern import Doubling\n", "")
    done = ran(code, in_folder)
    assert done.returncode != 0
    assert "the pattern '__main__:Doubling' cannot be written down" in done.stderr
    assert "its class is in the script that runs; put it in a module of its own" in done.stderr
    assert not (in_folder / "doubling_or_ring").exists()
