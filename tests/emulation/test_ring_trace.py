"""Ring collectives of a trace over a booted network, beside their prediction and their closed form."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from testbed.study.options import DEFAULT_TRANSPORTS
from tests.tools import CHECKOUT, need_sandbox
from tests.traffic.test_readers_simai import simai

# test_job.py emulates a ring too, and unit tests read the trace.
pytestmark = [pytest.mark.emulation, pytest.mark.slow, pytest.mark.usefixtures("modest")]

ROW = "micro -1 1 NONE 0 1 NONE 0 1 {} 100000000 1"


def test_rings_of_a_trace_are_emulated(tmp_path: Path) -> None:
    need_sandbox()
    trace = simai(tmp_path, *map(ROW.format, ("ALLREDUCE", "ALLGATHER")), header="MICRO")
    options = ["--trace", str(trace), "--servers", "2", "--rails", "2", "--out", "out"]
    command = [sys.executable, str(CHECKOUT / "scenarios" / "ring_trace.py"), *options]
    wide = {**os.environ, "COLUMNS": "150"}
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=wide
    )
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert said.count("ring all-reduce network 4 2 1 100") == len(DEFAULT_TRANSPORTS.split(","))
    nodes = pd.read_csv(tmp_path / "out" / "nodes.csv")
    assert set(nodes["transport"]) == set(DEFAULT_TRANSPORTS.split(","))
    assert (nodes["took_s"] >= 0.98 * nodes["bound_s"]).all()
    assert (tmp_path / "out" / "timeline.png").stat().st_size > 1000
