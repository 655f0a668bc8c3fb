"""The page that teaches Python scripts is carried out, and the one that lists all names has all of them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd

import lightrail
from testbed.trust.outcome import Outcome
from tests.docs.pages import Reader, blocks_of, read_by
from tests.tools import CHECKOUT

PAGE = "docs/howto/python.md"
NAMES = CHECKOUT / "docs" / "reference" / "python.md"
BLOCKS = [block.text for block in blocks_of(PAGE) if block.language == "python"]
LINES = 12


def ran(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder."""
    (folder / "script.py").write_text(code)
    command = [sys.executable, "script.py"]
    # Tests put the checkout on Python's path; where it is installed, .venv does.
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


def test_its_first_script_is_a_dozen_lines_and_imports_once() -> None:
    lines = [line for line in BLOCKS[0].splitlines() if line.strip()]
    assert len(lines) <= LINES
    assert [line for line in lines if "import" in line] == ["import lightrail as lr"]


def test_its_scripts_predict_print_draw_and_leave_a_report(tmp_path: Path) -> None:
    _, packets, circuits = read_by(Reader(tmp_path), PAGE)
    assert packets.splitlines()[-1].startswith("1   ecmp")
    assert "lit  ocs0" in circuits.splitlines()[-1]
    runs = sorted((tmp_path / "results" / "python").iterdir())
    for results, printed, schemes in zip(
        runs, (packets, circuits), (["rails", "ecmp"], ["spectra", "rotor"]), strict=True
    ):
        table = pd.read_csv(results / "summary.csv", keep_default_na=False)
        assert table["circuits" if any(table["circuits"]) else "scheme"].tolist() == schemes
        assert (table["cct_s"] >= 0.999 * table["bound_s"]).all()
        assert (results / "report.html").exists()
        assert f"results: results/python/{results.name}/report.html" in printed
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


def test_two_experiments_of_one_name_are_refused_before_anything_runs(tmp_path: Path) -> None:
    other = 'lr.Experiment(fabric, job, "ecmp", chunk_bytes=65536)'
    done = ran(BLOCKS[0].replace("run([", f"run([{other}] + ["), tmp_path)
    assert done.returncode != 0
    assert "two different experiments are both called 'sparse 0.4, ecmp, credit'" in done.stderr
    assert "differ in chunk_bytes (65536 and " in done.stderr
    assert "give a label" in done.stderr
    assert not (tmp_path / "results").exists()


def test_what_it_says_of_an_outcome_is_there() -> None:
    names = {"predicted", "emulated", "run", "bound_s"}
    assert all(f"`{name}" in (CHECKOUT / PAGE).read_text() for name in names)
    assert names <= set(dir(Outcome)) | set(Outcome.__dataclass_fields__)


def test_all_names_are_listed_once_and_no_other() -> None:
    listed = re.findall(r"^\| `(\w+)", NAMES.read_text(), re.MULTILINE)
    assert sorted(listed) == dir(lightrail)
