"""Bits that rot in a results directory: a resumed run and a repeated one are the same, or name the damage."""

import json
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from tests.scenarios.command import ran

SMALL = ("--model-only", "--servers", "2", "--rails", "2", "--schemes", "ecmp,rails", "--seeds", "1")
READ_AGAIN = ("run.json", "summary.csv", "SHA256SUMS")
"""The files that a repetition reads."""
KEPT = ("fabrics", "jobs", "experiments")
"""The parts of run.json that say what is run, not when and where."""


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Return the directory of a small run."""
    out = tmp_path / "whole"
    done = ran("rails_uniform", *SMALL, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("flips", [12, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_mended_or_refused_or_makes_no_difference(
    flips: int, whole: Path, tmp_path: Path
) -> None:
    expected, out = contents(whole), tmp_path / "out"
    shutil.copytree(whole, out)
    again = repeated(out, tmp_path)
    shutil.rmtree(out)
    files = sorted(file.relative_to(whole) for file in whole.rglob("*") if file.is_file())
    failures = []
    for number in range(flips):
        random = Random(number)
        name = files[number % len(files)] if number < len(files) else random.choice(files)
        shutil.copytree(whole, out)
        where = flip(out / name, random)
        if str(name) in READ_AGAIN and repeated(out, tmp_path) not in (again, None):
            failures.append(f"{name}, {where}: repeat.py says something else")
        done = ran("rails_uniform", *SMALL, "--resume", out)
        if done.returncode == 2 and done.stderr.strip().count("\n") == 0:
            pass
        elif (done.returncode, contents(out)) != (0, expected):
            failures.append(f"{name}, {where}: exit code {done.returncode}, {done.stderr[-300:]}")
        shutil.rmtree(out)
    assert not failures, f"{len(failures)} of {flips}:\n" + "\n".join(failures[:20])


def flip(file: Path, random: Random) -> str:
    """Flip a bit of a file; return which."""
    data = bytearray(file.read_bytes())
    at, bit = random.randrange(len(data)), random.randrange(8)
    data[at] ^= 1 << bit
    file.write_bytes(data)
    return f"bit {bit} of byte {at}"


def contents(out: Path) -> dict[str, bytes | object]:
    """Return the bytes of each file of a directory; of run.json, which says when and where too, a part."""
    held: dict[str, bytes | object] = {
        str(file.relative_to(out)): file.read_bytes()
        for file in out.rglob("*")
        if file.is_file() and file.name not in ("run.json", "SHA256SUMS")
    }
    run = json.loads((out / "run.json").read_text())
    check = subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=out)
    return {**held, "run.json": [run[name] for name in KEPT], "SHA256SUMS": check.returncode}


def repeated(out: Path, tmp_path: Path) -> str | None:
    """Return the output of a repetition, but for where its results are; None if it is refused."""
    done = ran("repeat", out, "--out", tmp_path / "again")
    shutil.rmtree(tmp_path / "again", ignore_errors=True)
    if done.returncode == 2 and done.stderr.strip().count("\n") == 0:
        return None
    return f"{done.returncode} {done.stdout[: done.stdout.rfind('results: ')]} {done.stderr}"
