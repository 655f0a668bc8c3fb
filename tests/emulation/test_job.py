"""A user's own job over a booted network: every byte, compute that elapses, and its prediction beside it."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from testbed.study.options import DEFAULT_TRANSPORTS
from tests.tools import CHECKOUT, need_sandbox

pytestmark = [pytest.mark.emulation, pytest.mark.usefixtures("modest")]

JOB = {
    "format": "lightrail job 1",
    "name": "small step",
    "gpus": 4,
    "nodes": [
        {"kind": "compute", "name": "forward", "duration_s": 0.001},
        {"kind": "all_to_all", "name": "tokens", "uniform_bytes": 4_000_000, "after": ["forward"]},
        {"kind": "ring_all_reduce", "name": "gradients", "bytes": 8_000_000, "after": ["tokens"]},
    ],
}


def test_a_job_is_emulated_beside_its_prediction(tmp_path: Path) -> None:
    need_sandbox()
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    words = ["--job", "job.json", "--servers", "2", "--rails", "2", "--schemes", "rails", "--out", "out"]
    command = [sys.executable, str(CHECKOUT / "scenarios" / "job.py"), *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    both = pd.read_csv(tmp_path / "out" / "nodes.csv").set_index("node")
    assert set(both["transport"]) == set(DEFAULT_TRANSPORTS.split(","))
    for _, nodes in both.groupby("transport"):
        assert nodes.index.tolist() == ["forward", "tokens", "gradients"]
        assert nodes.loc["forward", "took_s"] == pytest.approx(0.001)
        assert (nodes["start_s"].iloc[1:].to_numpy() >= nodes["end_s"].iloc[:-1].to_numpy()).all()
        assert (nodes["took_s"] >= 0.98 * nodes["bound_s"]).all()
    records = pd.read_csv(tmp_path / "out" / "records.csv")
    sums = records.groupby(["transport", "backend"])["bytes"].sum().unstack()
    assert sums["emulated"].tolist() == sums["predicted"].tolist()
    assert "emulated" in done.stdout
    assert (tmp_path / "out" / "timeline.png").stat().st_size > 1000
