"""The scenario of ring traces: what its table says, and what it refuses."""

import json
import os
from pathlib import Path
from subprocess import CompletedProcess

import pandas as pd
import pytest

from tests.scenarios import command
from tests.traffic.test_readers_simai import GRADIENTS, LAYER, simai
from tests.traffic.trace_files import AICB_LOG, written

SMALL = ["--servers", "2", "--rails", "2", "--least-mb", "0"]
MADE_UP = ["--synthetic", "--servers", "2", "--rails", "2", "--tp", "1", "--layers", "1"]


def ran(*options: str) -> "CompletedProcess[str]":
    """Run the scenario without an emulation."""
    return command.ran("ring_trace", "--model-only", *options, env=os.environ | {"COLUMNS": "150"})


def words(out: Path, *options: str) -> str:
    """Run the scenario and return what it prints, without the layout."""
    done = ran("--out", str(out), *options)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("kind", ["rail", "fat-tree"])
def test_a_step_is_replayed_over_either_fabric(tmp_path: Path, kind: str) -> None:
    trace = simai(tmp_path, GRADIENTS, LAYER, LAYER, LAYER)
    said = words(tmp_path / "out", "--trace", str(trace), "--fabric-kind", kind, *SMALL)
    assert "3 of 4 layers" in said, "two of three that are equal"
    assert "ring all-reduce NVLink 2 1 4" in said
    assert "ring reduce-scatter network 2 1 2 0.004" in said
    assert "iteration all 4" in said
    assert "Ring collectives of a training step" in (tmp_path / "out" / "report.html").read_text()
    nodes = pd.read_csv(tmp_path / "out" / "nodes.csv")
    assert len(nodes) == 1 + 2 * 3 + 2 * 4 + 4, "computes, and two groups of each collective"


@pytest.mark.drawn
def test_a_log_is_replayed(tmp_path: Path) -> None:
    trace = written(tmp_path, AICB_LOG, "log.csv")
    said = words(tmp_path / "out", "--trace", str(trace), *SMALL, "--servers", "4", "--least-mb", "1e-4")
    assert "tp 2 dp 4 ep 4" in said
    assert "all-to-all network 4 - 4 0.0041" in said
    assert "ring all-gather NVLink 2 1 4" in said


def test_a_made_up_step_is_called_synthetic_and_meets_the_closed_form(tmp_path: Path) -> None:
    said = words(
        tmp_path / "out", "--synthetic", "--servers", "2", "--rails", "2", "--tp", "1", "--layers", "1"
    )
    assert "Synthetic: 1 layers" in said
    assert "ring all-reduce network 4 2 1 839" in said
    summary = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert set(summary["workload"]) == {"synthetic gpt, 1 layers"}
    assert summary["cct_s"].tolist() == pytest.approx([2 * 3 / 4 * 12 * 5120**2 * 4 * 8 / 200e9], rel=0.01)


def test_rings_per_rail_are_as_much_faster_as_there_are_rails(tmp_path: Path) -> None:
    took = []
    for rings in ("one", "per-rail"):
        words(tmp_path / rings, *MADE_UP, "--rings", rings)
        took.append(pd.read_csv(tmp_path / rings / "summary.csv")["cct_s"][0])
    assert took[0] == pytest.approx(2 * took[1], rel=0.01)
    run = json.loads((tmp_path / "one" / "run.json").read_text())
    assert run["report"] == "rings"


def test_a_trace_of_small_collectives_alone_says_which_option_takes_them(tmp_path: Path) -> None:
    trace = simai(tmp_path, GRADIENTS, LAYER)
    done = ran("--out", str(tmp_path / "out"), "--trace", str(trace), *SMALL[:-2])
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"{trace} holds no collective of 1e+06 bytes or more; lower --least-mb" in done.stderr
    assert not (tmp_path / "out").exists()


def test_tensor_parallel_ranks_of_a_trace_are_its_own(tmp_path: Path) -> None:
    trace = simai(tmp_path, GRADIENTS, LAYER)
    done = ran("--out", str(tmp_path / "out"), "--trace", str(trace), "--tp", "2", *SMALL)
    assert done.returncode == 2
    assert "the step is of a trace, so --tp has no effect; leave it out, or make up a step" in done.stderr


@pytest.mark.parametrize(
    ("options", "text", "said"),
    [
        (
            ["--trace", "{file}"],
            "hello",
            "line 1: found 'hello', expected the start of AICB's CSV or a SimAI",
        ),
        (["--trace", "/nonexistent"], "", "/nonexistent does not exist"),
        (["--synthetic", "--tp", "5"], "", "5 tensor-parallel ranks on 32 GPUs"),
        (["--synthetic", "--layers", "0"], "", "0 layers"),
        (["--synthetic", "--least-mb", "-1"], "", "-1 MB"),
        (["--synthetic", "--schemes", "nobody"], "", "no scheme named 'nobody'"),
        (
            ["--synthetic", "--least-mb", "1"],
            "",
            "the step is made up, so --least-mb has no effect; leave it",
        ),
        (["--synthetic", "--trace", "{file}"], "", "the step is made up, so --trace has no effect"),
        (["--fabric", "x", "--servers", "4"], "", "--fabric is wired already, so --servers has no effect"),
        (
            ["--fabric", "x", "--rate", "100", "--fabric-kind", "rail"],
            "",
            "so --fabric-kind and --rate have no effect; leave out the one or the other",
        ),
        (["--servers", "0"], "", "0 servers"),
        (["--servers", "0", "--fabric-kind", "fat-tree"], "", "has no server"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, options: list[str], text: str, said: str) -> None:
    (tmp_path / "trace.txt").write_text(text)
    out = tmp_path / "out"
    done = ran("--out", str(out), *(option.format(file=tmp_path / "trace.txt") for option in options))
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert said in line
    assert not out.exists()
