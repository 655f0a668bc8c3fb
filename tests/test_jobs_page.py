"""The page that teaches job files: its jobs are read, its command prints what it says, its Python runs."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from testbed.report.run_json import experiments_of
from tests.tools import CHECKOUT
from traffic.job_file import AnyNode, JobModel, read_job

PAGE = (CHECKOUT / "docs" / "reference" / "jobs.md").read_text()


def blocks(language: str) -> list[str]:
    """Return the page's blocks of a language."""
    return [str(found) for found in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)]


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with the page's first job in it."""
    (tmp_path / "moe_step.json").write_text(blocks("json")[0])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    assert re.findall(r"^```(\w+)$", PAGE, re.MULTILINE) == ["json", "console", "json", "json", "python"]


def test_its_command_prints_what_it_says(in_folder: Path) -> None:
    command, *table = blocks("console")[0].splitlines()
    words = command.removeprefix("$ python scenarios/job.py ").split()
    run = [sys.executable, str(CHECKOUT / "scenarios" / "job.py"), *words, "--out", "out"]
    done = subprocess.run(run, cwd=in_folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = [line.rstrip() for line in done.stdout.splitlines()]
    assert printed[: len(table)] == table
    names = {path.name for path in (in_folder / "out").iterdir()}
    tables = {"nodes.csv", "summary.csv", "summary.parquet", "records.csv", "points"}
    assert names == tables | {"run.json", "report.html", "timeline.png", "fabric.png", "traces", "SHA256SUMS"}
    (ran,) = experiments_of(in_folder / "out" / "run.json")
    assert ran.job == read_job(in_folder / "moe_step.json")
    nodes = pd.read_csv(in_folder / "out" / "nodes.csv")["node"].tolist()
    assert nodes == ["attention", "dispatch", "gradients", "experts", "combine"]


def test_its_second_job_unfolds(in_folder: Path) -> None:
    (in_folder / "layers.json").write_text(blocks("json")[1])
    job = read_job(in_folder / "layers.json")
    assert [node.name for node in job.nodes[:4]] == [
        "layer[0]/weights", "layer[0]/forward", "layer[0]/tokens", "layer[1]/weights",
    ]  # fmt: skip
    assert [node.name for node in job.nodes[12:]] == ["gradients", "checkpoint", "optimizer"]
    assert {node.after for node in job.nodes[12:14]} == {("layer[3]/tokens",)}


def test_its_third_job_starts_a_node_at_a_time(in_folder: Path) -> None:
    (in_folder / "mouse.json").write_text(blocks("json")[2])
    assert {node.name: node.at_s for node in read_job(in_folder / "mouse.json").nodes} == {
        "elephant": 0.0,
        "mouse": 1e-4,
    }


@pytest.mark.usefixtures("in_folder")
def test_its_python_does_what_it_says() -> None:
    example = doctest.DocTestParser().get_doctest(blocks("python")[0], {}, "jobs.md", None, 0)
    assert doctest.DocTestRunner().run(example).failed == 0


def test_it_names_every_key_and_kind_of_the_format() -> None:
    models = [JobModel, *AnyNode.__args__]
    keys = {key for model in models for key in model.model_fields}
    kinds = {kind for model in models[1:] for kind in model.model_fields["kind"].annotation.__args__}
    assert all(f"`{word}`" in PAGE for word in keys | kinds)
