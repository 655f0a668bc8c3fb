"""What a user's own code raises, in a command: one sentence with the line, and the traceback on request."""

import json
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pandas as pd
import pytest

from tests.scenarios.command import ran
from tests.tools import CHECKOUT

OWN = """import sys

from traffic.spraying.minrtt import MinRtt
from traffic.spraying.policy import Assignment
from traffic.spraying.rails import Rails


def scheme(*, fabric, messages, chunks, rng):
    return chunks.message[len(chunks)]


def leaves(*, fabric, messages, chunks, rng):
    sys.exit(0)


def fabric():
    return {}["no fabric"]


class Reactive(MinRtt):
    def admit(self, *, message):
        raise ValueError("no queue pair")


def half(*, fabric, messages, chunks, rng):
    found = Rails().assign(fabric=fabric, messages=messages, chunks=chunks, rng=rng)
    return Assignment(found.queue_pairs, found.chunk_qp, found.order[::2])


def astray(*, fabric, messages, chunks, rng):
    found = Rails().assign(fabric=fabric, messages=messages, chunks=chunks, rng=rng)
    return Assignment(found.queue_pairs, found.chunk_qp[::-1].copy(), found.order)


class Elsewhere(MinRtt):
    name = "elsewhere"

    def choose(self, *, message, states, now):
        return len(states)


class Forgetful(MinRtt):
    def acknowledged(self, *, message, lane, rtt_s, marked, now):
        self.seen[message] = rtt_s


class Mine(Rails):
    name = "mine [a]"


class Other(Rails):
    name = "mine [a]"
"""
SMALL = ["--model-only", "--servers", "2", "--rails", "2", "--seeds", "1", "--out", "out"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a user's own code in it."""
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    return tmp_path


def uniform(folder: Path, *options: str) -> "CompletedProcess[str]":
    """Predict a small scenario, in two processes as ever."""
    return ran("rails_uniform", *SMALL, *options, cwd=folder)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--schemes", "own:scheme"], "your scheme raised IndexError at own.py:9: index "),
        (["--schemes", "ecmp,rails,own:scheme"], "your scheme raised IndexError at own.py:9: index "),
        (["--schemes", "own:leaves"], "your scheme raised SystemExit at own.py:13: 0"),
        (["--schemes", "own:Reactive"], "your scheme raised ValueError at own.py:22: no queue pair"),
        (["--schemes", "own:half"], "the scheme 'own:half' has an array of int64, "),
        (
            ["--schemes", "own:astray"],
            "the scheme 'own:astray' placed bytes from GPU 2 to GPU 0 on a queue pair ",
        ),
        (["--schemes", "own:Elsewhere"], "the scheme 'elsewhere' chose 2 for message "),
        (["--schemes", "own:Forgetful"], "your scheme raised AttributeError at own.py:44: "),
        (["--schemes", "leaves:scheme"], "--schemes: your scheme raised SystemExit at leaves.py:2: 0"),
        (["--transport", "leaves:Transport"], "your transport raised SystemExit at leaves.py:2: 0"),
        (
            ["--schemes", "own:Mine,own:Other"],
            "two different experiments are both called 'uniform, mine [a], credit', and differ in scheme "
            "(own:Mine and own:Other)",
        ),
    ],
)
def test_what_a_users_code_raises_is_one_sentence(folder: Path, options: list[str], said: str) -> None:
    done = uniform(folder, *options)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(said)
    assert not (folder / "out").exists()


def test_so_is_what_a_users_fabric_raises(folder: Path) -> None:
    options = ["--model-only", "--seeds", "1", "--out", "out", "--fabric"]
    done = ran("rails_uniform", *options, "own:fabric", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "--fabric: your fabric raised KeyError at own.py:17: 'no fabric'; --debug shows the traceback\n"
    )


def test_debug_shows_the_traceback_of_the_users_code_once(folder: Path) -> None:
    command = [sys.executable, str(CHECKOUT / "scenarios" / "rails_uniform.py"), *SMALL]
    command += ["--schemes", "own:scheme", "--debug"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("return chunks.message[len(chunks)]") == 1


def test_predictions_of_schemes_that_choose_are_called_fluid_limits(folder: Path) -> None:
    done = uniform(folder, "--schemes", "ecmp,reps:3")
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(folder / "out" / "summary.csv")
    assert dict(zip(table["scheme"], table["predicted_as"], strict=True)) == {
        "ecmp": "placed",
        "reps:3": "fluid limit",
    }
    assert json.loads((folder / "out" / "run.json").read_text())["fluid_limits"] == ["reps:3"]
    rows = [line for line in done.stdout.splitlines() if line.startswith(("  ecmp ", "  reps:3 "))]
    assert ["~" in row for row in rows] == [False, True]
    for said in (" ".join(done.stdout.split()), (folder / "out" / "report.html").read_text()):
        assert "~: the prediction is a fluid limit, what the scheme tends to with tiny chunks" in said
    done = uniform(folder, "--schemes", "ecmp")
    assert "fluid limit" not in done.stdout


def test_tables_call_a_class_by_its_name(folder: Path) -> None:
    done = uniform(folder, "--schemes", "rails,own:Mine")
    assert done.returncode == 0, done.stderr
    assert pd.read_csv(folder / "out" / "summary.csv")["scheme"].tolist() == ["rails", "mine [a]"]
    assert "  mine [a] " in done.stdout
