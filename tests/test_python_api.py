"""The page that teaches Python scripts: its code runs, as it is printed there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from testbed.run.outcome import Outcome
from tests.tools import CHECKOUT

PAGE = (CHECKOUT / "docs" / "howto" / "python.md").read_text()
BLOCKS: list[str] = re.findall(r"```python[^\n]*\n(.*?)```", PAGE, re.DOTALL)
LINES = 12


def ran(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder."""
    (folder / "script.py").write_text(code)
    command = [sys.executable, "script.py"]
    # Tests put the checkout on Python's path; where it is installed, .venv does.
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


def test_its_first_script_is_a_dozen_lines() -> None:
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= LINES


@pytest.mark.parametrize(
    ("block", "schemes", "last", "drawn"),
    [
        (BLOCKS[0], ["rails", "ecmp"], "1   ecmp", ["timeline.png"]),
        (BLOCKS[1], ["spectra", "rotor"], "lit  ocs0", []),
    ],
    ids=["packets", "circuits"],
)
def test_its_scripts_predict_print_draw_and_leave_a_report(
    block: str, schemes: list[str], last: str, drawn: list[str], tmp_path: Path
) -> None:
    done = ran(block, tmp_path)
    assert done.returncode == 0, done.stderr
    (results,) = (path.parent for path in tmp_path.glob("*/summary.csv"))
    table = pd.read_csv(results / "summary.csv", keep_default_na=False)
    assert table["circuits" if any(table["circuits"]) else "scheme"].tolist() == schemes
    assert (table["cct_s"] >= 0.999 * table["bound_s"]).all()
    assert (results / "report.html").exists()
    assert f"results: {results.name}/report.html" in done.stdout
    assert last in done.stdout.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.glob("*.png")) == drawn
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in drawn)


def test_two_experiments_of_one_name_are_refused_before_anything_runs(tmp_path: Path) -> None:
    other = 'Experiment(fabric, job, "ecmp", chunk_bytes=65536)'
    done = ran(BLOCKS[0].replace("run([", f"run([{other}] + ["), tmp_path)
    assert done.returncode != 0
    assert "two different experiments are both called 'sparse 0.4, ecmp, credit'" in done.stderr
    assert "differ in chunk_bytes (65536 and " in done.stderr
    assert "give a label" in done.stderr
    assert not (tmp_path / "rails_or_ecmp").exists()


def test_what_it_says_of_an_outcome_is_there() -> None:
    names = {"predicted", "emulated", "run", "bound_s"}
    assert all(f"`{name}" in PAGE for name in names)
    assert names <= set(dir(Outcome)) | set(Outcome.__dataclass_fields__)
