"""The page that teaches a user's own fabric: its code runs, as printed there, and what is wrong is said."""

import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.report.run_json import experiments_of
from testbed.report.slow_links import slow_text
from testbed.study.study_options import described
from testbed.study.toml_document import read_document
from tests.docs.pages import Reader, file_of, lines_of, read_by
from tests.scenarios.command import ran
from tests.tools import CHECKOUT
from topologies.errors import LightrailError, ScenarioError
from topologies.fabric import Fabric, Link, Port, Server, Switch, equal_servers
from topologies.own import own_fabric
from topologies.rail import rail_fabric

PAGE = "docs/howto/own_fabric.md"
LINES = 25
WITH_FABRIC = [
    path.stem
    for path in sorted((CHECKOUT / "scenarios").glob("*.toml"))
    if 'fabric = "fabric"' in path.read_text()
]
SIZES = [
    (scenario, name)
    for scenario in WITH_FABRIC
    for name, key in tomllib.loads((CHECKOUT / "scenarios" / f"{scenario}.toml").read_text())[
        "options"
    ].items()
    if key.startswith("fabric.")
]
JOB = """{"format": "lightrail job 1", "name": "large", "gpus": 9,
          "nodes": [{"kind": "all_to_all", "name": "a", "uniform_bytes": 1000}]}"""


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with the page's fabric in it, as a module and as a file."""
    (tmp_path / "own_fabric.py").write_text(file_of(PAGE, "own_fabric.py"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_fabric", raising=False)
    (tmp_path / "two_pods.json").write_text(own_fabric("own_fabric:two_pods").to_json())
    return tmp_path


def test_it_is_25_lines() -> None:
    assert lines_of(file_of(PAGE, "own_fabric.py")) <= LINES


def test_its_command_and_its_script_predict_over_it(in_folder: Path) -> None:
    reader = Reader(in_folder)
    _, printed, _ = read_by(reader, PAGE)
    results = reader.results("rails_uniform")
    made = own_fabric("own_fabric:two_pods")
    for each in (results, reader.results()):
        assert {each.fabric for each in experiments_of(each / "run.json")} == {made}
    table = pd.read_csv(results / "summary.csv")
    assert set(table["scheme"]) == {"ecmp", "reps"}
    assert (table["cct_s"] > 1.5 * table["bound_s"]).all()  # thin spines
    assert "RailS" not in printed


def test_a_file_is_the_same_fabric(in_folder: Path) -> None:
    assert own_fabric("two_pods.json") == own_fabric(str(in_folder / "two_pods.json"))
    assert own_fabric("two_pods.json") == own_fabric("own_fabric:two_pods")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere.json", "the fabric 'nowhere.json' cannot be read: No such file or directory"),
        (".", "the fabric '.' cannot be read: Is a directory"),
        ("/dev/zero", "the fabric '/dev/zero' cannot be read: not a regular file"),
        ("bytes.json", "the fabric 'bytes.json' cannot be read: it is not text"),
        ("bad.json", "in 'bad.json' the text is not a valid fabric: line 1: Expecting value"),
        ("wrong.json", "in 'wrong.json' two links share the port"),
        ("nowhere:f", "the fabric 'nowhere:f' cannot be imported: ModuleNotFoundError"),
        ("own_fabric:nothing", "the fabric 'own_fabric:nothing' cannot be imported: AttributeError"),
        ("own_fabric:NIC_BPS", "the fabric 'own_fabric:NIC_BPS' is of the type float, and not a Fabric"),
        ("os:getcwd", "the fabric 'os:getcwd' cannot be loaded: os is a module of Python itself"),
        ("topologies.own:own_fabric", "the fabric 'topologies.own:own_fabric' does not take the arguments"),
        (
            "topologies.own:own_object",
            "the fabric 'topologies.own:own_object' is not annotated to return Fabric",
        ),
    ],
)
def test_what_is_no_fabric_is_said_in_a_sentence(in_folder: Path, name: str, said: str) -> None:
    (in_folder / "bytes.json").write_bytes(b"\xff\xfe")
    (in_folder / "bad.json").write_text("hello")
    wired, twice = '["h1", 0], "b": ["leaf0", 1]', '["h1", 0], "b": ["leaf0", 0]'
    (in_folder / "wrong.json").write_text(rail_fabric(2, 1).to_json().replace(wired, twice))
    with pytest.raises(LightrailError) as error:
        own_fabric(name)
    assert str(error.value).startswith(said)
    assert error.value.hint
    assert "\n" not in str(error.value)


def test_a_scheme_that_needs_rails_says_so(in_folder: Path) -> None:
    uneven = Server("a", 2, 2, 1e12), Server("b", 1, 2, 1e12)
    ports = Port("a", 0), Port("a", 1), Port("b", 0)
    links = tuple(Link(port, Port("s", number), 100e9) for number, port in enumerate(ports))
    (in_folder / "uneven.json").write_text(Fabric("uneven", uneven, (Switch("s", 3),), links).to_json())
    check_refused("rails_uniform", ["--fabric", "uneven.json", "--schemes", "rails"], "so it has no rails")


@pytest.mark.usefixtures("in_folder")
def test_a_fabric_and_the_size_of_another_exclude_each_other() -> None:
    options = ["--fabric", "two_pods.json", "--rails", "2"]
    check_refused("rails_uniform", options, "--fabric says what --rails says too; ")


@pytest.mark.parametrize(("scenario", "option"), SIZES)
def test_an_option_of_another_fabric_is_refused_with_any_value(scenario: str, option: str) -> None:
    """Also with the one that it has by default: this fabric may have another one."""
    describe = described(CHECKOUT / "scenarios" / f"{scenario}.toml")
    file = read_document(CHECKOUT / "scenarios" / f"{scenario}.toml", ["fabric"])
    default = file.tables("fabric")[0].get(str(file.table("options")[option]).partition(".")[2], 1)
    for value in (default, 16):
        with pytest.raises(ScenarioError, match=f"--fabric says what --{option} says too; leave out the one"):
            describe(fabric="own_fabric:two_pods", **{option: str(value)})


@given(rate=st.floats(1, 2e6), nvlink=st.floats(1, 2e6))
def test_a_rate_under_a_megabit_is_named_and_no_other(rate: float, nvlink: float) -> None:
    """Whichever fabric of several has it, and whether on a link or inside a server."""
    slow = replace(rail_fabric(2, 2, rate_bps=rate), servers=equal_servers(2, 2, 2, nvlink))
    count = sum(link.rate_bps < 1e6 for link in slow.links) + 2 * (nvlink < 1e6)
    for fabrics in ([rail_fabric(2, 2), slow], [slow, rail_fabric(2, 2)]):
        said = slow_text(fabrics)
        assert bool(said) is bool(count)
        assert not said or said.startswith(f"Slow: {count} links under 1 Mbit/s, the slowest is ")
        assert not said or f" with {min(rate, nvlink):g} bit/s; rates of a Fabric are in bit/s" in said


def test_a_fabric_in_gigabits_is_named_once_under_the_table_and_in_the_report(in_folder: Path) -> None:
    (in_folder / "slow.json").write_text(rail_fabric(2, 2, rate_bps=100).to_json())
    done = ran(
        *(
            "rails_uniform",
            "--model-only",
            "--seeds",
            "1",
            "--schemes",
            "ecmp,rails",
            "--fabric",
            "slow.json",
        ),
        *("--out", "out"),
        cwd=in_folder,
    )
    for text in (done.stdout, (in_folder / "out" / "report.html").read_text()):
        said = " ".join(text.split())
        assert said.count("the slowest is h0:0 - leaf0:0 with 100 bit/s; rates of a Fabric are in bit/s") == 1


def test_a_job_for_more_gpus_is_refused(in_folder: Path) -> None:
    (in_folder / "job.json").write_text(JOB)
    options = ["--fabric", "own_fabric:two_pods", "--job", "job.json"]
    check_refused("job", options, "the job is for 9 GPUs, the fabric has 8")


def check_refused(scenario: str, options: list[str], said: str) -> None:
    """Check that a scenario ends with one sentence."""
    done = ran(scenario, "--model-only", "--out", "out", *options, cwd=Path.cwd())
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert said in line
