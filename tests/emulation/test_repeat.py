"""An emulated run again: at the scale of the first, and held against it."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from testbed.report.run_json import experiments_of
from tests.tools import CHECKOUT, need_sandbox

# At rates that only real CPUs carry.
pytestmark = [
    pytest.mark.emulation,
    pytest.mark.real_cpus,
    pytest.mark.early,
    pytest.mark.usefixtures("modest"),
]


def ran(name: str, *options: str | Path) -> str:
    """Run a scenario in a sandbox of its own; return what it prints."""
    need_sandbox()
    command = [sys.executable, str(CHECKOUT / "scenarios" / f"{name}.py"), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_again_is_emulated_at_the_scale_of_the_first(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    small = ["--servers", "2", "--rails", "2", "--seeds", "1", "--emulated-rate", "30"]
    ran("rails_uniform", "--transport", "credit", "--schemes", "ecmp,rails", *small, "--out", first)
    said = ran("repeat", first, "--out", again)
    assert experiments_of(again / "run.json") == experiments_of(first / "run.json")
    assert said.count("as long as before") == 2
    table = pd.read_csv(again / "summary.csv")
    assert not table["verdict"].eq("model").any()
