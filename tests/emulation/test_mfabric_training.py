"""A layer of a training step over the prototype's circuits: circuits as planned, time as predicted."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.emulation.machine import Machine
from tests.tools import CHECKOUT, need_sandbox

pytestmark = [pytest.mark.emulation, pytest.mark.real_cpus, pytest.mark.usefixtures("modest")]


@pytest.mark.slow
def test_a_layer_over_the_prototype_s_circuits(tmp_path: Path, machine: Machine) -> None:
    need_sandbox()
    options = ["--models", "mixtral-8x7b", "--layers", "1", "--transport", "credit", "--out", "out"]
    command = [sys.executable, str(CHECKOUT / "scenarios" / "mfabric_prototype.py"), *options]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "150"},
    )
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "3 + 1 NICs credit ocs0 3 0 0 0 yes 0 0 0" in said, "a full mesh, which stays"
    summary = pd.read_csv(tmp_path / "out" / "summary.csv").set_index("scheme")
    assert machine.busy or summary["over_predicted"].between(0.9, 1.15).all()
    iteration_s = summary["iteration_s"]
    assert machine.busy or 1 < iteration_s["3 + 1 NICs"] / iteration_s["4 packet NICs"] < 1.5
