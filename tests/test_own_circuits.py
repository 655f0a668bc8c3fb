"""The page that teaches a user's own rule for circuits: its code runs as printed, and is written down."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from testbed.experiment.experiment import Experiment
from testbed.report.run_json import experiments_of
from tests.docs.pages import Reader, blocks_of, file_of, lines_of, read_by
from tests.scenarios import command
from topologies.parallel_ocs import parallel_ocs_fabric

PAGE = "docs/howto/own_circuits.md"
LINES = 20
RULE = file_of(PAGE, "own_circuits.py")
(SCRIPT,) = (block.text for block in blocks_of(PAGE) if block.is_script)
JOB = """{"format": "lightrail job 1", "name": "step", "gpus": 4, "nodes": [
    {"kind": "compute", "name": "attention", "duration_s": 0.001},
    {"kind": "all_to_all", "name": "dispatch", "uniform_bytes": 5e7, "after": ["attention"]},
    {"kind": "ring_all_reduce", "name": "gradients", "bytes": 1e8, "after": ["dispatch"]}
]}"""


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with the page's rule in it, outside of the checkout."""
    (tmp_path / "own_circuits.py").write_text(RULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_circuits", raising=False)
    return tmp_path


def test_it_is_as_long_as_it_says() -> None:
    assert lines_of(RULE) <= LINES


def test_its_script_is_faster_than_fixed_circuits_and_is_run_again_from_what_it_leaves(
    in_folder: Path,
) -> None:
    reader = Reader(in_folder)
    read_by(reader, PAGE)
    results = reader.results()
    table = pd.read_csv(results / "summary.csv")
    assert table["scheme"].tolist() == ["fixed circuits", "once lit"]
    assert table["circuits"].tolist() == ["fixed", "ByBytesOwed"]
    fixed_s, own_s = table["cct_s"]
    assert fixed_s == pytest.approx(300e6 * 8 / 200e9), "two circuits carry the heaviest message"
    assert own_s == pytest.approx(8.0e-3, rel=0.01)
    assert (table["cct_s"] >= table["bound_s"]).all()
    *_, experiment = experiments_of(results / "run.json")
    assert experiment.own == ["own_circuits:ByBytesOwed"]
    assert experiment.circuits is not None
    longer = replace(experiment, circuits=replace(experiment.circuits, hold_s=5e-3))  # type: ignore[type-var]
    for each in (experiment, longer):
        back = Experiment.from_json(each.to_json())
        assert (back, back.key) == (each, each.key)
    assert longer.name == "once lit, ByBytesOwed(hold_s=0.005)"
    (in_folder / "own_circuits.py").write_text(f"{RULE}# edited\n")
    again, said = reader.repeated(results)
    assert "the source of own_circuits has changed since" in said
    assert again["cct_s"].tolist() == table["cct_s"].tolist()


def test_errors_without_circuits_and_without_ocses_name_the_option_that_helps(in_folder: Path) -> None:
    (in_folder / "job.json").write_text(JOB)
    (in_folder / "fabric.json").write_text(parallel_ocs_fabric(4, 4).to_json())
    job = ["--model-only", "--job", "job.json", "--out", "out"]
    fabric, circuits = ["--fabric", "fabric.json"], ["--circuits", "own_circuits:ByBytesOwed"]
    for options, said in (
        (fabric, "light its OCSes by a rule, as by --circuits of job.py"),
        (circuits, "the fabric 'rail' has no OCS; name one that has, as by --fabric of job.py"),
    ):
        refused = command.ran("job", *job, *options, cwd=in_folder)
        assert refused.returncode == 2
        assert said in refused.stderr
        assert not (in_folder / "out").exists()


def test_a_rule_lights_circuits_for_a_job_in_a_file_and_leaves_nothing_to_a_scheme(in_folder: Path) -> None:
    (in_folder / "job.json").write_text(JOB)
    (in_folder / "fabric.json").write_text(parallel_ocs_fabric(4, 4).to_json())
    options = ["--job", "job.json", "--fabric", "fabric.json", "--circuits", "own_circuits:ByBytesOwed"]
    done = command.ran("job", "--model-only", *options, "--out", "out", cwd=in_folder)
    assert done.returncode == 0, done.stderr
    assert re.search(r"dispatch +all-to-all", done.stdout)
    (experiment,) = experiments_of(in_folder / "out" / "run.json")
    assert experiment.name == "once lit, ByBytesOwed"
    refused = command.ran("job", "--model-only", *options, "--schemes", "rails", cwd=in_folder)
    assert refused.returncode == 2
    assert "carry all, and leave nothing to rails; leave it out" in " ".join(refused.stderr.split())
