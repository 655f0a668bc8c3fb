"""What a scenario says to input that makes no sense: one sentence, exit code 2, and nothing left."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios.command import ran
from tests.tools import CHECKOUT

SCENARIO = CHECKOUT / "scenarios" / "rails_sparse.py"
MATRIX_OF_64 = "\n".join([" ".join(["1000"] * 64)] * 64)


@pytest.mark.parametrize(
    ("options", "text", "said"),
    [
        (["--trace", "{file}"], "hello", "line 1: found 'hello'"),
        (["--trace", "{file}"], MATRIX_OF_64, "64 GPUs, the fabric has 32"),
        (["--trace", "{file}"], '{"step": 0}', "does not tell how many experts there are"),
        (["--trace", "/nonexistent"], "", "/nonexistent does not exist"),
        (["--servers", "0"], "", "0 servers"),
        (["--rate", "0"], "", "0 bit/s"),
        (["--schemes", "nobody"], "", "no scheme named 'nobody'"),
        (["--schemes", "os:getcwd"], "", "write it as: def getcwd(*, fabric, messages, chunks, rng)"),
        (["--sparsity", "2"], "", "a sparsity of 2"),
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


def test_results_without_a_name_are_refused(tmp_path: Path) -> None:
    command = [sys.executable, str(SCENARIO), "--model-only", "--out", ""]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("--out names no directory")
    assert not any(tmp_path.iterdir())
