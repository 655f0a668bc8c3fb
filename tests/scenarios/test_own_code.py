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
from topologies.fabric import Fabric
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.policy import Assignment
from traffic.spraying.rails import Rails


def scheme(*, fabric, messages, chunks, rng):
    return chunks.message[len(chunks)]


def leaves(*, fabric, messages, chunks, rng):
    sys.exit(0)


def fabric() -> Fabric:
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


LEAVES = """from pathlib import Path

from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.spraying.rails import Rails

Path("imported").touch()


def wired() -> Fabric:
    Path("called").touch()
    return rail_fabric(2, 2)


class Mine(Rails):
    name = "mine"


class Sent:
    lower = renumbered = None
"""
STUDY = """scheme = "{scheme}"
[fabric]
builder = "{builder}"
[[workload]]
generator = "uniform"
"""
JOB = {
    "format": "lightrail job 1",
    "name": "own",
    "gpus": 4,
    "nodes": [{"kind": "own", "name": "sent", "pattern": "leaving:Sent"}],
}


def loaded(folder: Path) -> set[str]:
    """Return the files that a user's module left where it was imported and called; take them away."""
    left = {name for name in ("imported", "called") if (folder / name).exists()}
    for name in left:
        (folder / name).unlink()
    return left


@pytest.mark.parametrize(
    ("builder", "scheme", "what"),
    [
        ("leaving:wired", "ecmp", "the fabric 'leaving:wired'"),
        ("big_switch", "leaving:Mine", "the scheme 'leaving:Mine'"),
    ],
)
def test_a_dry_run_of_a_study_loads_none_of_it_and_says_what_it_would(
    tmp_path: Path, builder: str, scheme: str, what: str
) -> None:
    (tmp_path / "leaving.py").write_text(LEAVES)
    servers = "servers = 2\n" * (builder == "big_switch")
    text = STUDY.format(builder=builder, scheme=scheme).replace("[[w", f"{servers}[[w")
    (tmp_path / "study.toml").write_text(text)
    done = ran("study", "study.toml", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert said.startswith(f"A dry run loads no code of yours, and this run is decided by {what} of ")
    assert said.endswith("are not known without it. Nothing was booted.")
    named = f"study.toml runs leaving.py:{what.split(':')[1][:-1]} from {tmp_path}\n"
    assert done.stderr == named
    assert loaded(tmp_path) == set()
    done = ran("study", "study.toml", "--model-only", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(named)
    assert "imported" in loaded(tmp_path)


def test_what_is_varied_is_named_too_before_it_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "leaving.py").write_text(LEAVES.replace("wired()", "wired(spines: int = 1)"))
    text = STUDY.format(builder="leaving:wired", scheme="ecmp") + "[grid]\nspines = [1, 2]\n"
    (tmp_path / "study.toml").write_text(text)
    done = ran("study", "study.toml", "--dry-run", cwd=tmp_path)
    assert (done.returncode, loaded(tmp_path)) == (0, set())
    assert done.stderr == f"study.toml runs leaving.py:wired from {tmp_path}\n"


def test_a_module_beside_a_study_is_not_found_by_those_that_do_not_name_it(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(
        STUDY.format(builder="big_switch", scheme="ecmp").replace("[[w", "servers = 2\n[[w")
    )
    for name in ("mpl_toolkits", "numexpr", "bottleneck"):  # matplotlib and pandas look for these
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(LEAVES)
    (tmp_path / "here").mkdir()
    # A Python of its own, which has not imported them yet.
    command = [sys.executable, str(CHECKOUT / "scenarios" / "study.py"), str(tmp_path / "study.toml")]
    command += ["--model-only", "--out", "out"]
    done = subprocess.run(command, cwd=tmp_path / "here", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert loaded(tmp_path / "here") == set()


def test_a_dry_run_of_a_job_and_of_a_run_again_loads_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "leaving.py").write_text(LEAVES)
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    done = ran("job", "--job", "job.json", "--dry-run", cwd=tmp_path)
    assert (done.returncode, loaded(tmp_path)) == (0, set()), done.stderr
    assert f"job.json runs leaving.py:Sent from {tmp_path}\n" in done.stderr
    assert "is decided by the pattern 'leaving:Sent' of " in " ".join(done.stdout.split())
    uniform(tmp_path, "--schemes", "leaving:Mine")
    assert loaded(tmp_path) == {"imported"}
    done = ran("repeat", "out", "--dry-run", cwd=tmp_path)
    assert (done.returncode, loaded(tmp_path)) == (0, set()), done.stderr
    assert f"out/run.json runs leaving.py:Mine from {tmp_path}\n" in done.stderr
    assert "is decided by the scheme 'leaving:Mine' of " in " ".join(done.stdout.split())


def test_a_study_of_pythons_own_functions_runs_none(tmp_path: Path) -> None:
    text = STUDY.format(builder="os:system", scheme="ecmp").replace("[[w", 'command = "touch called"\n[[w')
    (tmp_path / "study.toml").write_text(text)
    (tmp_path / "passed_on.py").write_text("from os import system\n")
    for options in ([], ["--dry-run"]):
        done = ran("study", "study.toml", *options, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "fabric.builder: the fabric 'os:system' cannot be loaded: os is a module of" in done.stderr
    (tmp_path / "study.toml").write_text(text.replace("os:", "passed_on:"))
    done = ran("study", "study.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "the fabric 'passed_on:system' is not annotated to return Fabric" in done.stderr
    assert loaded(tmp_path) == set()
