"""A run that is gone on with by its directory alone: its options are those that it was begun with."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenarios.command import killed, ran
from tests.testbed.run_files import unsealed
from tests.tools import CHECKOUT

SMALL = ("--model-only", "--servers", "4", "--rails", "2", "--seeds", "2", "--schemes", "rails,ecmp")
STUDY = """
scheme = ["rails", "ecmp"]
seeds = 9

[fabric]
builder = "rail"
servers = 4
rails = 2

[workload]
generator = "uniform"
"""
KINDS = {
    "study": ("mine.toml", "--model-only", "--set", "fabric.rails=2", "--set", "mtu=3000"),
    "infinitehbd_dcn": ("--model-only", "--nodes", "16", "--domain-nodes", "8", "--job-percent", "75"),
    "infinitehbd_faults": ("--servers", "24", "--trace", "none", "--tp", "8,16"),
    "ocs_spectra": ("--model-only", "--servers", "4", "--ocses", "2", "--schedulers", "less", "--seeds", "9"),
}
"""A scenario of each kind, beside a file's own options (test_resume.py): a study, points, calls, OCSes."""


OWN = """
import sys

from traffic.spraying.rails import Rails

print("loaded", file=sys.stderr)


def mine(*, fabric, messages, chunks, rng):
    return Rails().assign(fabric=fabric, messages=messages, chunks=chunks, rng=rng)
"""
FAILS = """
import os

from traffic.spraying.rails import Rails

calls = []


def mine(*, fabric, messages, chunks, rng):
    calls.append(0)
    if os.environ.get("FAILS") and len(calls) > 2:
        raise MemoryError
    return Rails().assign(fabric=fabric, messages=messages, chunks=chunks, rng=rng)
"""


SCRIPT = """
import lightrail as lr

fabric = lr.rail_fabric(servers=2, rails=2)
lr.run([lr.Experiment(fabric, lr.single(lr.uniform(fabric.gpus)), "rails")], "out", overwrite=True)
"""
FINDS = os.environ | {"PYTHONPATH": str(CHECKOUT)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a study in it."""
    (tmp_path / "mine.toml").write_text(STUDY)
    return tmp_path


@pytest.mark.parametrize(
    "scenario", [pytest.param(name, marks=[pytest.mark.slow] * (name != "study")) for name in KINDS]
)
def test_a_run_that_was_killed_goes_on_by_its_directory_alone(scenario: str, folder: Path) -> None:
    words = KINDS[scenario]
    assert ran(scenario, *words, "--out", "whole", cwd=folder).returncode == 0
    points = folder / "out" / "points"
    killed(scenario, *words, "--jobs", "1", "--out", "out", cwd=folder, when=lambda: some(points))
    made = {file.name: file.stat().st_mtime_ns for file in points.iterdir() if file.name[0] != "."}
    done = ran(scenario, "--resume", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert {name: (points / name).stat().st_mtime_ns for name in made} == made, "carried out again"
    one, other = ((folder / name / "summary.csv").read_bytes() for name in ("out", "whole"))
    assert one == other


def some(points: Path) -> bool:
    """Return whether a run has written some of its points."""
    return points.exists() and len(list(points.iterdir())) > 1


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run."""
    folder = tmp_path_factory.mktemp("begun")
    done = ran("rails_uniform", *SMALL, "--out", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(
    ("scenario", "words", "said"),
    [
        ("rails_uniform", ("--seeds", "3"), "out was begun with --seeds 2, and --seeds 3 is given; leave it"),
        (
            "rails_uniform",
            ("--volume", "2"),
            "out was begun without --volume, and --volume 2 is given; leave",
        ),
        (
            "rails_uniform",
            ("--datapath", "kernel"),
            "out was begun with --datapath netdev, and --datapath ke",
        ),
        (
            "rails_uniform",
            ("--share-queue-pairs",),
            "out was begun without --share-queue-pairs, and --share-",
        ),
        (
            "rails_sparse",
            (),
            "out is a run of rails_uniform.py; run: python {scenarios}/rails_uniform.py --res",
        ),
        (
            "study",
            ("mine.toml",),
            "out is a run of rails_uniform.py; run: python {scenarios}/rails_uniform.py",
        ),
    ],
)
def test_what_contradicts_the_run_is_refused_with_both(
    scenario: str, words: tuple[str, ...], said: str, begun: Path
) -> None:
    done = ran(scenario, *words, "--resume", "out", cwd=begun)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(said.format(scenarios=CHECKOUT / "scenarios"))


@pytest.mark.parametrize("program", ["../../somewhere", "no_such_scenario", "a b"])
def test_a_run_of_no_scenario_here_has_no_command_to_print(program: str, begun: Path, tmp_path: Path) -> None:
    def change(document: dict[str, object]) -> None:
        document["typed"]["program"] = program  # type: ignore[index]

    done = ran("rails_uniform", "--resume", edited(begun, change, tmp_path), cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.endswith(f"is a run of {program}.py; give it to that one\n")


def test_a_run_of_a_script_is_refused_with_its_command(folder: Path) -> None:
    script = folder / "mine.py"
    script.write_text(SCRIPT)
    assert subprocess.run([sys.executable, script.name], cwd=folder, env=FINDS, check=False).returncode == 0
    done = ran("rails_uniform", "--model-only", "--resume", "out", cwd=folder)
    said = "out is a run of a script, which nothing goes on with; run it again: python mine.py\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_the_formats_of_plots_are_kept_and_a_default_may_be_given(folder: Path) -> None:
    words = ("--model-only", "--servers", "2", "--rails", "2", "--seeds", "1", "--schemes", "ecmp")
    done = ran("rails_uniform", *words, "--plots", "pdf", "--out", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    drawn = folder / "out" / "cct_cdf.pdf"
    drawn.unlink()
    done = ran("rails_uniform", "--resume", "out", "--mtu", "9000", "--loss", "0", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert (drawn.exists(), drawn.with_suffix(".png").exists()) == (True, False)


def test_what_says_the_same_or_decides_nothing_is_free(begun: Path) -> None:
    kernel = os.environ | {"LIGHTRAIL_DATAPATH": "kernel"}
    free = ["--jobs", "1", "--debug"]
    done = ran("rails_uniform", *SMALL, *free, "--resume", "out", cwd=begun, env=kernel)
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_plots_are_drawn_in_the_formats_that_are_asked_for_afterwards(begun: Path) -> None:
    done = ran("rails_uniform", "--resume", "out", "--plots", "png,pdf", cwd=begun)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert (begun / "out" / "cct_cdf.pdf").exists()


def edited(folder: Path, change: Callable[[dict[str, object]], object], tmp_path: Path) -> Path:
    """Return a copy of a run whose options somebody changed on purpose, without its checksum."""
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out)
    document = json.loads(unsealed(out / "run.json"))
    change(document)
    (out / "run.json").write_text(json.dumps(document))
    return out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seeds": "none"}, "--seeds: found 'none', expected a whole number"),
        ({"seeds": "2; touch proof"}, "--seeds: found '2; touch proof', expected a whole number"),
        ({"seeds": ["2", "3"]}, "run.json has the option seeds, and rails_uniform.py keeps none of that"),
        ({"jobs": "3"}, "run.json has the option jobs, and rails_uniform.py keeps none of that name"),
        ({"datapath": False}, "run.json has the option datapath, and rails_uniform.py keeps none of that"),
        ({"model_only": False}, "run.json has the option model_only, and rails_uniform.py keeps none of"),
        ({"schemes": ["ecmp"]}, "run.json has the option schemes, and rails_uniform.py keeps none of that"),
        ({"seeds": 2}, "is not a valid run"),
    ],
)
def test_options_of_a_file_are_checked_as_typed_ones(
    options: dict[str, object], said: str, begun: Path, tmp_path: Path
) -> None:
    def change(document: dict[str, object]) -> None:
        document["typed"]["options"] |= options  # type: ignore[index]

    done = ran("rails_uniform", "--resume", edited(begun, change, tmp_path), cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_a_run_of_no_command_takes_the_options_that_are_given(begun: Path, tmp_path: Path) -> None:
    out = edited(begun, lambda document: document.pop("typed"), tmp_path)
    assert ran("rails_uniform", *SMALL, "--resume", out).returncode == 0
    refused = ran("rails_uniform", "--resume", out)
    assert refused.returncode == 2
    assert "was predicted, and would now be emulated" in refused.stderr


def test_a_file_that_is_elsewhere_is_named_with_its_place(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    words = ("mine.toml", "--model-only", "--set", "seeds=1")
    assert ran("study", *words, "--out", "out", cwd=folder).returncode == 0
    done = ran("study", "--resume", folder / "out", cwd=elsewhere)
    said = (
        f"mine.toml, which {folder}/out was begun with, is in {folder} and not here; go on with the run from"
    )
    assert done.returncode == 2
    assert done.stderr.startswith(said)
    (folder / "mine.toml").rename(elsewhere / "moved.toml")  # a file that is given is compared by content
    done = ran("study", "moved.toml", "--resume", folder / "out", cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    (elsewhere / "moved.toml").write_text(STUDY.replace("ecmp", "pxn"))
    done = ran("study", "moved.toml", "--resume", folder / "out", cwd=elsewhere)
    assert "holds the points of another study" in done.stderr


def test_a_trace_that_moved_is_given_and_compared_by_content(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / "mine.csv").write_text("0,1e6,1e6,1e6\n" * 4)
    words = ("--model-only", "--rails", "2", "--schemes", "ecmp", "--trace", "mine.csv", "--out", "out")
    done = ran("rails_sparse", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    again = ("--resume", "out", "--trace", elsewhere / "mine.csv")
    shutil.copy(folder / "mine.csv", elsewhere)
    done = ran("rails_sparse", *again, cwd=folder)
    assert done.returncode == 0, done.stderr
    (elsewhere / "mine.csv").write_text("0,1e6,1e6,2e6\n" * 4)
    assert "holds the points of another study" in ran("rails_sparse", *again, cwd=folder).stderr
    gone = ran("rails_sparse", "--resume", "out", "--trace", "gone.csv", cwd=folder).stderr
    assert gone.startswith("out was begun with --trace mine.csv, and --trace gone.csv is given")


def test_code_that_a_run_names_is_said_before_it_is_loaded(folder: Path) -> None:
    (folder / "own_scheme.py").write_text(OWN)
    words = ("--model-only", "--servers", "2", "--rails", "2", "--seeds", "1")
    done = ran("rails_uniform", *words, "--schemes", "ecmp,own_scheme:mine", "--out", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    done = ran("rails_uniform", "--resume", "out", cwd=folder)
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert lines.index(f"out/run.json runs own_scheme.py:mine from {folder}") < lines.index("loaded")


def test_the_line_that_an_interrupted_run_prints_goes_on_with_it(folder: Path) -> None:
    (folder / "fails.py").write_text(FAILS)
    words = ("--model-only", "--servers", "2", "--rails", "2", "--seeds", "3", "--schemes", "fails:mine")
    out = "it's a run"
    command = [sys.executable, str(CHECKOUT / "scenarios" / "rails_uniform.py"), *words, "--jobs", "1"]
    env = {key: value for key, value in os.environ.items() if key != "SUDO_UID"} | {"FAILS": "1"}
    done = subprocess.run([*command, "--out", out], cwd=folder, capture_output=True, text=True, env=env)
    assert done.returncode == 2
    *_, finished, line = done.stderr.splitlines()
    assert finished == f"what was finished is in {out}; to go on:"
    shim = folder / "bin" / "python"
    shim.parent.mkdir()
    shim.symlink_to(sys.executable)
    env = env | {"PATH": f"{shim.parent}:{os.environ['PATH']}", "FAILS": ""}
    again = subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True, env=env)
    assert again.returncode == 0, again.stderr
    assert (folder / out / "summary.csv").read_text().count("\n") == 1 + 3


def test_a_folder_whose_name_is_no_text_takes_the_options_again(tmp_path: Path) -> None:
    folder = tmp_path / "\udcff"
    folder.mkdir()
    assert ran("rails_uniform", *SMALL, "--out", "out", cwd=folder).returncode == 0
    assert ran("rails_uniform", *SMALL, "--resume", "out", cwd=folder).returncode == 0


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_has_a_short_form(word: str, folder: Path) -> None:
    done = ran("rails_uniform", word, cwd=folder)
    assert done.returncode == 0
    assert "--servers" in done.stdout
