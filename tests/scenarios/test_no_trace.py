"""``--trace none``: nothing is replayed, though the data set of a scenario is found."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scenarios.infinitehbd_faults import fault_trace
from tests.scenarios.command import ran
from tests.traffic.test_readers_simai import GRADIENTS, LAYER, simai
from tests.traffic.trace_files import AICB_LOG
from traffic.fault_trace import stand_in_trace
from traffic.workloads.datasets import A100_LOG, ENVIRONMENT, GPT_STEP

PERMUTATION = "\n".join(["Nodes 16", "Connections 16", *(f"{i}->{i ^ 1} start 0 size 9" for i in range(16))])
SMALL = ("--model-only", "--schemes", "ecmp", "--seeds", "1")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a place with small data sets."""
    for name in (A100_LOG, GPT_STEP, "htsim/perm_16n_16c_2MB.cm"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / A100_LOG).write_text(AICB_LOG)
    simai(tmp_path, GRADIENTS, LAYER).replace(tmp_path / GPT_STEP)
    (tmp_path / "htsim" / "perm_16n_16c_2MB.cm").write_text(PERMUTATION)
    return tmp_path


@pytest.mark.parametrize(
    ("scenario", "replays", "made_up"),
    [
        ("rails_sparse", [], []),
        ("ring_trace", ["--servers", "2", "--rails", "2", "--least-mb", "0"], ["--servers", "2"]),
        ("spray_permutation", [], []),
    ],
)
def test_none_leaves_the_data_set_out(
    data: Path, scenario: str, replays: list[str], made_up: list[str]
) -> None:
    def workloads(*words: str) -> set[str]:
        environment = {**os.environ, ENVIRONMENT: str(data)}
        out = data / f"out{len(words)}"
        done = ran(scenario, *SMALL, *words, "--out", out, cwd=data, env=environment)
        assert (done.returncode, done.stderr.strip()) == (0, ""), done.stderr
        return set(pd.read_csv(out / "summary.csv")["workload"])

    replayed, none = workloads(*replays), workloads(*made_up, "--trace", "none")
    assert not {each for each in none if each.startswith("trace ")}
    assert len({each for each in replayed - none if each.startswith("trace ")}) == 1


def test_none_is_the_stand_in_of_the_fault_trace() -> None:
    assert fault_trace(Path("none")).name == stand_in_trace(np.random.default_rng(0)).name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trace", "none", "--experts", "8"], "--experts: no trace is replayed, so experts has no effect"),
        (
            ["--trace", "m.csv", "--experts", "8"],
            "m.csv is no routing trace, so experts (--experts) would have",
        ),
        (
            ["--trace", "m.csv", "--token-bytes", "8"],
            "m.csv counts no tokens, so bytes_per_token (--token-bytes)",
        ),
        (
            ["--trace", "m.npy", "--token-bytes", "8"],
            "m.npy counts no tokens, so bytes_per_token (--token-bytes)",
        ),
        (["--tokens-per-gpu", "8"], "is no routing trace, so tokens_per_gpu (--tokens-per-gpu) would"),
    ],
)
def test_what_counts_for_no_trace_of_the_run_is_refused(data: Path, words: list[str], said: str) -> None:
    (data / "m.csv").write_text("0,5\n5,0")
    np.save(data / "m.npy", [[0, 5], [5, 0]])
    done = ran("rails_sparse", *SMALL, *words, cwd=data, env={**os.environ, ENVIRONMENT: str(data)})
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
