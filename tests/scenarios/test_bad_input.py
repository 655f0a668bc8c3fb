"""What a scenario says to input that makes no sense: one sentence, exit code 2, and nothing left."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from testbed.machine.datapath import DEFAULT
from tests.scenarios.command import ran
from tests.tools import CHECKOUT
from tests.traffic.trace_files import router_record
from topologies.rail import rail_fabric

SCENARIO = CHECKOUT / "scenarios" / "rails_sparse.py"
FABRIC = rail_fabric(2, 1).to_json()
MATRIX_OF_64 = "\n".join([" ".join(["1000"] * 64)] * 64)


@pytest.mark.parametrize(
    ("options", "text", "said"),
    [
        (["--trace", "{file}"], "hello", "line 1: found 'hello'"),
        (["--trace", "{file}", "--servers", "8"], MATRIX_OF_64, "64 GPUs, the fabric has 32"),
        (
            ["--trace", "{file}"],
            '{"step": 0}',
            "expected a JSON object with step, layer, rank and top_indices",
        ),
        (
            ["--trace", "{file}"],
            router_record(0, 0, 0, [[1]]),
            "how many experts there are; give experts (--",
        ),
        (["--trace", "/nonexistent"], "", "/nonexistent does not exist"),
        (["--servers", "0"], "", "0 servers"),
        (["--rate", "0"], "", "0 bit/s"),
        (["--schemes", "nobody"], "", "no scheme named 'nobody'"),
        (
            ["--schemes", "topologies.rail:rail_fabric"],
            "",
            "write it as: def rail_fabric(*, fabric, messages, chunks, rng)",
        ),
        (["--schemes", "os:getcwd"], "", "cannot be loaded: os is a module of Python itself"),
        (["--schemes", "\udcff "], "", "expected a text in Unicode"),  # a byte that is no text
        (["--sparsity", "2"], "", "a sparsity of 2"),
        (
            ["--servers", "99999999999999999999"],
            "",
            "a fabric of 799999999999999999992 links",
        ),
        (["--servers", "2000", "--spines", "1"], "", "an all-to-all between 8000 GPUs"),
        (["--seeds", "99999999999999999999"], "", "99999999999999999999 seeds; take 1 to 10000"),
        (["--rate", "1e300"], "", "h0:0 - leaf0:0 has a rate of inf bit/s"),
        (["--link-delay-us", "1e308"], "", "h0:0 - leaf0:0 has a delay of 1e+302 s"),
        (["--volume", "1e308"], "", "1e+308 times the bytes; give --volume from 1e-12 to 1000"),
        (["--detect-us", "1e308", "--fail", "gpu:0@1ms"], "", "known after 1e+308 us"),
        (
            ["--detect-us", "1000"],
            "",
            "no fault is given by --fail, so --detect-us has no effect; leave it out",
        ),
        (
            ["--volume", "0.1", "--emulated-rate", "10", "--no-sandbox"],
            "",
            "--model-only emulates nothing, so --volume and --emulated-rate and --no-sandbox have no effect",
        ),
        (["--datapath", "kernel"], "", "--model-only emulates nothing, so --datapath has no effect"),
        (["--detect-us", "-1"], "", "known after -1 us; give --detect-us from 0"),
        (["--fail", f"nic:{'9' * 5000}:0@1ms"], "", "is not a valid fault"),
        (
            ["--fabric", "{file}"],
            FABRIC.replace('"gpus": 1', '"gpus": 1e9', 1),
            "a fabric of 1000000001 GPUs",
        ),
        (["--fabric", "{file}"], FABRIC.replace('"name": "h0"', '"name": "-x"', 1), "a node is named '-x'"),
    ],
)
def test_bad_input_is_told_in_a_sentence(tmp_path: Path, options: list[str], text: str, said: str) -> None:
    file, out = tmp_path / "trace.txt", tmp_path / "out"
    file.write_text(text)
    words = [option.format(file=file) for option in options]
    done = ran("rails_sparse", "--model-only", "--seeds", "1", "--out", out, *words)
    told = [line for line in done.stderr.strip().splitlines() if "going on without it" not in line]
    assert done.returncode == 2
    assert len(told) == 1
    assert said in told[0]
    assert not out.exists()


@pytest.mark.slow
def test_predictions_alone_are_those_for_what_forwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["--schemes", "ecmp", "--sparsity", "0.6", "--trace", "none", "--seeds", "1"]
    found = {}
    for named in ("netdev", "kernel", "route"):
        monkeypatch.setenv(DEFAULT, named)
        done = ran("rails_sparse", "--model-only", *small, "--out", tmp_path / named)
        assert done.returncode == 0, done.stderr
        found[named] = pd.read_csv(tmp_path / named / "records.csv").path.tolist()
    assert found["netdev"] == found["kernel"] != found["route"]


def test_results_without_a_name_are_refused(tmp_path: Path) -> None:
    command = [sys.executable, str(SCENARIO), "--model-only", "--out", ""]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("--out names no directory")
    assert not any(tmp_path.iterdir())
