"""The page that teaches a user's own scheme: its code runs, as it is printed there."""

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd

from tests.tools import CHECKOUT

PAGE = (CHECKOUT / "docs" / "howto" / "own_scheme.md").read_text()
LINES = 20


def block(language: str) -> str:
    """Return the page's one block of a language."""
    (found,) = re.findall(rf"```{language}[^\n]*\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def test_it_is_20_lines() -> None:
    assert len([line for line in block("python").splitlines() if line.strip()]) <= LINES


def test_it_runs_beside_the_others_by_the_command_that_the_page_gives(tmp_path: Path) -> None:
    (tmp_path / "own_scheme.py").write_text(block("python"))
    scenario, *options = block("console").removeprefix("$ python ").split()
    command = [sys.executable, str(CHECKOUT / scenario), *options]
    small = ["--servers", "2", "--rails", "2", "--out", str(tmp_path / "out")]
    subprocess.run([*command, *small], check=True, cwd=tmp_path)
    table = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert table["scheme"].tolist() == ["ecmp", "rails", "own_scheme:in_turn"]
    assert (table["cct_s"] / table["bound_s"]).tolist()[-1] < 1.1
