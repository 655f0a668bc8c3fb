"""The benchmark that boots stock Mininet, at a small size."""

import json
import os
import subprocess
import sys

import pytest

from tests.emulation.box import Box
from tests.tools import CHECKOUT

pytestmark = pytest.mark.emulation

SMALL = """
from dataclasses import replace
from functools import partial
import bench
name = "boot_stop_speedup_vs_mininet"
small = partial(bench.FIGURES[name].measure, servers=2, rails=1)
bench.FIGURES[name] = replace(bench.FIGURES[name], measure=small, sandbox=False)  # the test's own serves
bench.bench([name])
"""


def test_boot_stop_speedup_prints_its_line_and_no_warnings_of_mininet(sandbox: Box | None) -> None:
    paths = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "scenarios")])
    # Matplotlib says so when it is imported for the first time on a machine, and looks for fonts.
    subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], check=True)
    ran = subprocess.run(
        [sys.executable, "-c", SMALL],
        env=os.environ | {"PYTHONPATH": paths},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    [line] = ran.stdout.splitlines()
    assert json.loads(line)["figure"] == "boot_stop_speedup_vs_mininet"
    assert json.loads(line)["value"] > 0
