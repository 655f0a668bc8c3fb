"""Names of others through whole runs by the model: complete reports, and nothing of a name is obeyed."""

import csv
import json
import re
from pathlib import Path

import pytest

from testbed.report.csv_text import table_of
from tests.hostile_names import NAMES, raw
from tests.scenarios.command import ran
from tests.scenarios.test_infinitehbd_faults import trace_text
from tests.traffic.test_readers_simai import GRADIENTS, LAYER, simai
from topologies.printable import printable

pytestmark = pytest.mark.drawn
SMALL = ["--servers", "2", "--rails", "2", "--model-only"]
FILE = "=$a_{$ [w] \x1b[31m\x07\u202e" + "é" * 90
"""A file's name: 255 bytes are its longest."""
MATRIX = "0,9000,9000,9000\n9000,0,9000,9000\n9000,9000,0,9000\n9000,9000,9000,0\n"


def checked(out: Path, scenario: str, *options: str | Path) -> str:
    """Run a scenario, hold all that it leaves for people against the rules, and return what it printed."""
    done = ran(scenario, *options, "--out", out, cwd=out.parent)
    assert done.returncode == 0, done.stderr
    report = (out / "report.html").read_text()
    tables = [file.read_text() for file in out.glob("*.csv")]
    assert raw("".join([done.stdout, done.stderr, report, *tables])) == set()
    assert "Warning" not in done.stderr
    assert len(re.findall("<figure", report)) == len(list(out.glob("*.png"))) > 0
    for table in tables:
        assert not [
            cell for row in csv.reader(table.splitlines()) for cell in row if re.match(r"[=+@]|-[^\d]", cell)
        ]
    return done.stdout


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Write jobs whose names, nodes and notes are those of others."""
    folder = tmp_path_factory.mktemp("jobs")
    for number, name in enumerate(NAMES.values()):
        nodes = [
            {"kind": "compute", "name": f"{name}0", "duration_s": 1e-3},
            {"kind": "all_to_all", "name": name, "uniform_bytes": 9000, "after": [f"{name}0"]},
        ]
        job = {"format": "lightrail job 1", "name": name, "gpus": 4, "note": name, "nodes": nodes}
        (folder / f"{number}.json").write_text(json.dumps(job))
    return sorted(folder.iterdir())


def test_jobs_of_any_names_are_told_apart_and_run_again(jobs: list[Path], tmp_path: Path) -> None:
    of_jobs = ["--job", ",".join(map(str, jobs)), *SMALL, "--schemes", "rails", "--transport", "credit,tcp"]
    checked(tmp_path / "out", "job", *of_jobs)
    table = table_of((tmp_path / "out" / "summary.csv").read_bytes(), ["workload", "note"])
    assert {*table["workload"]} == {*table["note"]} == {*map(printable, NAMES.values())}
    nodes = table_of((tmp_path / "out" / "nodes.csv").read_bytes(), ["node"])
    assert {*map(printable, NAMES.values())} < {*nodes["node"]}
    assert len(list((tmp_path / "out" / "traces").iterdir())) == 2 * len(NAMES)
    said = checked(tmp_path / "again", "repeat", tmp_path / "out")
    assert f"credit {len(NAMES)} of {len(NAMES)}" in " ".join(said.split())


def test_a_traces_name_goes_through_the_report_on_schemes(tmp_path: Path) -> None:
    trace = tmp_path / f"{FILE}.csv"
    trace.write_text(MATRIX)
    fewer = ["--sparsity", "0", "--seeds", "1", "--schemes", "rails,ecmp", "--transport", "credit,tcp"]
    checked(tmp_path / "out", "rails_sparse", "--trace", trace, *SMALL, *fewer)
    cells = table_of((tmp_path / "out" / "summary.csv").read_bytes(), ["workload"])["workload"]
    assert printable(f"trace {FILE}.csv") in {*cells}


def test_a_traces_name_goes_through_the_report_on_circuits(tmp_path: Path) -> None:
    trace = tmp_path / f"{FILE}.csv"
    trace.write_text(MATRIX)
    checked(tmp_path / "out", "ocs_spectra", "--workload", trace, "--model-only", "--seeds", "1")


def test_a_traces_name_goes_through_the_report_on_rings(tmp_path: Path) -> None:
    trace = simai(tmp_path, GRADIENTS, LAYER).rename(tmp_path / f"{FILE}.txt")
    checked(tmp_path / "out", "ring_trace", "--trace", trace, *SMALL, "--least-mb", "0")


def test_a_studys_title_is_any_text(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    text = json.dumps(" ".join(NAMES.values()))  # as TOML escapes too
    study.write_text(
        f"title = {text}\nabout = {text}\nscheme = 'rails'\n[fabric]\nbuilder = 'rail'\nservers = 2\n"
        "rails = 2\n[workload]\ngenerator = 'uniform'\n"
    )
    checked(tmp_path / "out", "study", study, "--model-only")
    dry = ran("study", study, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert raw(dry.stdout + dry.stderr) == set()


def test_bytes_of_no_encoding_are_escaped_in_names(tmp_path: Path) -> None:
    trace = tmp_path / "bad\udcff.csv"
    trace.write_text(MATRIX)
    checked(tmp_path / "out", "ocs_spectra", "--workload", trace, "--model-only", "--seeds", "1")


def test_a_scheme_of_ones_own_has_any_name(tmp_path: Path) -> None:
    names = [name for name in NAMES.values() if name.isprintable()]
    classes = [f"class Own{n}(Rails):\n    name = {name!r}\n" for n, name in enumerate(names)]
    (tmp_path / "own_names.py").write_text(
        "\n\n".join(["from traffic.spraying.rails import Rails", *classes])
    )
    schemes = ",".join(["ecmp", *(f"own_names:Own{n}" for n in range(len(names)))])
    checked(tmp_path / "out", "rails_uniform", *SMALL, "--seeds", "1", "--schemes", schemes)
    table = table_of((tmp_path / "out" / "summary.csv").read_bytes(), ["scheme"])
    assert [*table["scheme"]] == ["ecmp", *names]


def test_a_fault_traces_name_is_any_text(tmp_path: Path) -> None:
    trace = tmp_path / f"{FILE}.json"
    trace.write_text(trace_text())
    few = ["--seeds", "1", "--tp", "8", "--jobs", "1"]
    assert printable(FILE)[:10] in checked(tmp_path / "out", "infinitehbd_faults", "--trace", trace, *few)
