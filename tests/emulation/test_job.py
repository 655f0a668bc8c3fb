"""A user's own job over a booted network: every byte, compute that elapses, and its prediction beside it."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
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
    _check_sources(tmp_path / "out", both[both["transport"] == "credit"])
    assert "emulated" in done.stdout
    assert (tmp_path / "out" / "timeline.png").stat().st_size > 1000


def _check_sources(out: Path, nodes: pd.DataFrame) -> None:
    """Assert that sources sent while collectives ran, by the clock of the run, and all that they owed."""
    archives = [zipfile.ZipFile(file) for file in (out / "points").iterdir() if not file.suffix]
    point = next(archive for archive in archives if "sources.parquet" in archive.namelist())
    sources, flows = (pd.read_parquet(point.open(f"{name}.parquet")) for name in ("sources", "flows"))
    assert (sources["granted_bytes"] == sources["sent_bytes"]).all()
    assert sources["over_window_bytes"].unique().tolist() == [-1], "credit has no window"
    assert (flows.groupby("source")["delivered_bytes"].max() > 0.5 * sources["delivered_bytes"]).all()
    assert (flows.groupby("source")["at_ps"].diff().dropna() >= 0).all()
    starts_ps, ends_ps = 1e12 * nodes["start_s"].to_numpy()[1:], 1e12 * nodes["end_s"].to_numpy()[1:]
    at_ps = flows["at_ps"].to_numpy()[:, None]
    slack_ps = 0.02 * ends_ps[-1]  # between its counting and its being seen
    assert ((starts_ps <= at_ps) & (at_ps <= ends_ps + slack_ps)).any(axis=1).all(), "outside collectives"
    summary = pd.read_csv(out / "summary.csv").set_index("transport")
    columns = ["queue_p50_s", "queue_p99_s", "queue_max_s"]
    assert (np.diff(summary[columns].loc["credit"].to_numpy(dtype=float), prepend=0.0) >= 0).all()
    assert summary[columns].loc["tcp"].isna().all()
