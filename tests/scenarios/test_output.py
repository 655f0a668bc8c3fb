"""What a scenario does where its tables cannot be printed: the results are there all the same."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from tests.scenarios.command import ran
from tests.tools import CHECKOUT

FILES = {"records.csv", "summary.csv", "run.json", "report.html", "busbw.png"}


def printed(out: Path, stdout: int | IO[bytes], **environment: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a small scenario over two seeds by the model, its standard output as given."""
    small = ["--model-only", "--servers", "2", "--rails", "2", "--seeds", "2", "--schemes", "ecmp,rails"]
    command = [sys.executable, "scenarios/rails_uniform.py", *small, "--out", str(out)]
    given = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | environment
    return subprocess.run(command, cwd=CHECKOUT, env=given, stdout=stdout, stderr=subprocess.PIPE)


@pytest.mark.parametrize("output", ["full disk", "pipe that nobody reads"])
@pytest.mark.parametrize("environment", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "unbuffered"])
def test_what_cannot_be_printed_is_told_in_a_sentence_and_nothing_is_lost(
    tmp_path: Path, output: str, environment: dict[str, str]
) -> None:
    out, (reader, writer) = tmp_path / "out", os.pipe()
    os.close(reader)
    with Path("/dev/full").open("wb") as full, os.fdopen(writer, "wb") as pipe:
        done = printed(out, full if output == "full disk" else pipe, **environment)
    (told,) = done.stderr.decode().strip().splitlines()
    assert done.returncode == 2
    assert told.startswith("standard output cannot be written: ")
    assert told.endswith(f"; the results are complete: {out}/report.html")
    assert {path.name for path in out.iterdir()} >= FILES


def test_a_letter_that_the_terminal_does_not_have_is_replaced(tmp_path: Path) -> None:
    done = printed(tmp_path / "out", subprocess.PIPE, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr.strip()) == (0, b"")
    assert "Means over 2 seeds ? standard deviation." in done.stdout.decode("ascii")
    assert f"results: {tmp_path}/out/report.html" in done.stdout.decode("ascii")


@pytest.mark.parametrize("columns", ["20", "60", ""])
def test_a_narrow_output_has_every_number_and_says_what_is_predicted_alike(
    tmp_path: Path, columns: str
) -> None:
    small = ["--model-only", "--servers", "2", "--rails", "2", "--seeds", "1", "--schemes", "ecmp,rails"]
    small += ["--transport", "tcp,tcp:reno"]
    done = ran("rails_uniform", *small, "--out", tmp_path / "out", env={**os.environ, "COLUMNS": columns})
    rows = [words for line in done.stdout.splitlines() if (words := line.split())[1:2] == ["model"]]
    assert [(row[0], len(row)) for row in rows] == [("ecmp", 10), ("rails", 10)], done.stdout
    assert "…" not in done.stdout
    said = "Left out: tcp:reno, predicted as tcp is."
    assert said in " ".join(done.stdout.split())
    assert said in (tmp_path / "out" / "report.html").read_text()
