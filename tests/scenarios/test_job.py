"""The scenario that predicts a user's own job: bad input, jitter, and jobs of many nodes."""

import itertools
import json
from pathlib import Path
from subprocess import CompletedProcess

import pandas as pd
import pytest

from tests.scenarios.command import ran

JOB = {
    "format": "lightrail job 1",
    "name": "drawn",
    "gpus": 4,
    "nodes": [
        {"kind": "compute", "name": "a", "duration_s": 0.5},
        {"kind": "ring_all_reduce", "name": "b", "bytes": 1e9, "after": ["a"]},
    ],
}
SMALL = ["--servers", "2", "--rails", "2", "--schemes", "rails", "--model-only"]


def predicted(*options: str | Path) -> "CompletedProcess[str]":
    """Run the scenario."""
    return ran("job", *options)


def summary(tmp_path: Path, *options: str, job: object = JOB) -> pd.DataFrame:
    """Run the scenario with a job on a small fabric, and return its summary."""
    (tmp_path / "job.json").write_text(json.dumps(job))
    out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
    done = predicted("--job", tmp_path / "job.json", *SMALL, "--out", out, *options)
    assert done.returncode == 0, done.stderr
    assert f"results: {out}/report.html" in done.stdout
    return pd.read_csv(out / "nodes.csv")


@pytest.mark.parametrize(
    ("options", "text", "said"),
    [
        (["--model-only"], "hello", "line 1: Expecting value, expected JSON"),
        (["--model-only"], json.dumps({**JOB, "gpus": -4}), "gpus: found -4, expected 1 or more"),
        (["--model-only", "--job", "/nonexistent"], "", "/nonexistent does not exist"),
        (["--model-only", "--job", "{folder}"], "", "is a directory"),
        (
            ["--model-only", "--servers", "1", "--rails", "2"],
            json.dumps(JOB),
            "is for 4 GPUs, the fabric has 2",
        ),
        (["--model-only", "--servers", "0"], json.dumps(JOB), "0 servers"),
        (["--model-only", "--schemes", "nobody"], json.dumps(JOB), "no scheme named 'nobody'"),
        (["--model-only", "--jitter", "-1"], json.dumps(JOB), "a jitter of -1; give a sigma from 0 to 2"),
        (["--model-only", "--seeds", "0"], json.dumps(JOB), "0 seeds; take 1 to 10000"),
        (
            ["--model-only"],
            json.dumps({**JOB, "nodes": [{"kind": "compute", "name": "a", "gpus": [], "duration_s": 1}]}),
            "no node of job 'drawn' has a GPU",
        ),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, options: list[str], text: str, said: str) -> None:
    file, out = tmp_path / "job.json", tmp_path / "out"
    file.write_text(text)
    words = [option.format(folder=tmp_path) for option in options]
    done = predicted("--job", file, "--out", out, *words)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2
    assert len(lines) == 1
    assert said in lines[0]
    assert not out.exists()


def test_help_is_the_docstring() -> None:
    words = " ".join(predicted("--help").stdout.split())
    assert "Compute and collectives of a training step" in words
    assert all(option in words for option in ("--job", "--schemes", "--jitter", "--seeds", "--model-only"))


def test_jitter_is_of_its_seed_and_the_slowest_gpu_decides(tmp_path: Path) -> None:
    plain, drawn, again = (
        summary(tmp_path, *options) for options in ((), *(("--jitter", "0.2", "--seeds", "2"),) * 2)
    )
    assert drawn.equals(again)
    one, other = (drawn[drawn["seed"] == seed].reset_index() for seed in (0, 1))
    assert not one["took_s"].equals(other["took_s"])
    assert plain["took_s"].tolist() == pytest.approx([0.5, 2 * 3 / 4 * 1e9 / 25e9], rel=0.01)
    assert one["took_s"][0] != pytest.approx(0.5)
    assert one["bound_s"][0] == pytest.approx(one["took_s"][0])


def test_jobs_schemes_and_seeds_are_points_of_one_report(tmp_path: Path) -> None:
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file in files:
        file.write_text(json.dumps({**JOB, "name": file.stem}))
    words = [*SMALL, "--schemes", "rails,ecmp", "--seeds", "2", "--jitter", "0.1"]
    done = predicted("--job", ",".join(map(str, files)), *words, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    points = pd.read_csv(tmp_path / "out" / "summary.csv")[["workload", "scheme", "seed"]]
    expected = itertools.product(("one", "two"), ("rails", "ecmp"), (0, 1))
    assert sorted(points.itertuples(index=False, name=None)) == sorted(expected)
    (tmp_path / "again.json").write_text(files[0].read_text())
    again = predicted("--job", f"{files[0]},{tmp_path / 'again.json'}", *SMALL, "--out", tmp_path / "both")
    assert again.returncode == 0, again.stderr
    named = pd.read_csv(tmp_path / "both" / "summary.csv")["workload"]
    assert named.tolist() == [f"one, job {file}" for file in (files[0], tmp_path / "again.json")]


@pytest.mark.drawn
def test_the_first_of_many_nodes_are_shown(tmp_path: Path) -> None:
    many = {**JOB, "nodes": [{**JOB["nodes"][0], "repeat": 100}]}  # type: ignore[index]
    assert len(summary(tmp_path, job=many)) == 100
    done = predicted("--job", tmp_path / "job.json", *SMALL, "--out", tmp_path / "again")
    assert "a[59]" in done.stdout
    assert "a[60]" not in done.stdout
    assert "all job 0 50000 50000 50000 1.00" in " ".join(done.stdout.split())
    assert "40 more nodes in nodes.csv" in " ".join(done.stdout.split())


def test_a_job_can_be_repeated(tmp_path: Path) -> None:
    first = summary(tmp_path, "--jitter", "0.2", "--seeds", "2")
    (out,) = tmp_path.glob("out*")
    done = ran("repeat", out, "--out", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    assert "drawn: rails takes as long as before" in " ".join(done.stdout.split())
    assert pd.read_csv(tmp_path / "again" / "nodes.csv").equals(first)


def test_a_ring_beside_an_all_to_all_waits_for_it_where_they_are_told_to_share_queue_pairs(
    tmp_path: Path,
) -> None:
    nodes = [
        {"kind": "all_to_all", "name": "long", "uniform_bytes": 1e9},
        {"kind": "ring_all_reduce", "name": "short", "bytes": 1e6},
    ]
    own, shared = (
        summary(tmp_path, "--servers", "4", "--rails", "1", *more, job={**JOB, "nodes": nodes}).set_index(
            "node"
        )
        for more in ([], ["--share-queue-pairs"])
    )
    # Six steps of a fourth of it, at a fourth of 100 Gbit/s; or when the other's 3 GB have left the NIC.
    assert own["took_s"]["short"] == pytest.approx(6 * 8e6 / 100e9, rel=0.01)
    assert shared["took_s"]["short"] == pytest.approx(3 * 8e9 / 100e9, rel=0.01)
    assert set(shared["scheme"]) == {"rails, shared queue pairs"}
