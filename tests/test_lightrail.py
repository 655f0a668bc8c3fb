"""The facade: names that are loaded when asked for, a command, and runs whose script may run twice."""

import os
import pydoc
import subprocess
import sys
import tomllib
import venv
from dataclasses import replace
from pathlib import Path
from typing import assert_type

import pytest

import lightrail as lr
from tests.tools import CHECKOUT
from topologies.errors import ScenarioError
from topologies.fabric import Fabric

ROOMS = ("topologies", "traffic", "controller", "testbed", "scenarios", "numpy")


def ran(*words: str, folder: Path = CHECKOUT, path: Path = CHECKOUT) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with what is beside lightrail.py on its path."""
    environment = os.environ | {"PYTHONPATH": str(path)}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def lightrail(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return ran("-m", "lightrail", *words)


@pytest.mark.parametrize("name", dir(lr))
def test_each_name_is_there(name: str) -> None:
    assert getattr(lr, name) is not None


def test_type_checkers_know_its_names() -> None:
    assert_type(lr.rail_fabric(servers=2, rails=2), Fabric)  # mypy reads this


def test_the_import_loads_no_room() -> None:
    code = f"import lightrail, sys; dir(lightrail); print([each for each in {ROOMS} if each in sys.modules])"
    assert ran("-c", code).stdout == "[]\n"


def test_a_single_name_is_imported() -> None:
    done = ran(
        "-c", "from lightrail import Link; import sys; print(Link.__module__, 'pandas' in sys.modules)"
    )
    assert (done.stdout, done.stderr) == ("topologies.fabric False\n", "")


def test_its_help_says_what_there_is() -> None:
    assert "rail_fabric, fat_tree_fabric" in pydoc.render_doc(lr)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("rail_fabrik", "did you mean rail_fabric or"), ("qqq", r"dir\(lightrail\) lists what it has")],
)
def test_an_unknown_name_is_a_sentence(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=f"lightrail has no '{name}'; {hint}"):
        getattr(lr, name)


def test_a_copy_without_its_checkout_says_so(tmp_path: Path) -> None:
    (tmp_path / "lightrail.py").write_text((CHECKOUT / "lightrail.py").read_text())
    listed = ran("-S", "-m", "lightrail", "list", folder=tmp_path, path=tmp_path)
    assert (listed.returncode, listed.stdout) == (2, "")
    assert listed.stderr.startswith(
        "lightrail runs from its checkout, and this is a copy of lightrail.py alone"
    )
    imported = ran("-S", "-c", "from lightrail import Job", folder=tmp_path, path=tmp_path)
    assert imported.stderr.endswith(f"ImportError: {listed.stderr}")


def test_a_python_without_the_packages_says_which_has_them(tmp_path: Path) -> None:
    bare = tmp_path / "bare"  # an environment of its own, without any package
    venv.create(bare, with_pip=False)
    command = [str(bare / "bin" / "python"), "-m", "lightrail", "list"]
    ends = f"; run this with {CHECKOUT}/.venv/bin/python\n"
    listed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert (listed.returncode, listed.stdout) == (2, "")
    assert listed.stderr == f"{command[0]} has no package typer, which lightrail needs{ends}"
    command[1:] = ["-c", "from lightrail import Fabric"]
    imported = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert imported.stderr.endswith(ends)


def test_the_list_has_every_scenario_and_its_sentence() -> None:
    listed = [line.split(maxsplit=1) for line in lightrail("list").stdout.splitlines() if line[0] == " "]
    names = {path.stem for path in (CHECKOUT / "scenarios").glob("[!_]*.py")}
    assert {name for name, _ in listed} == names
    assert all(sentence.endswith(".") for _, sentence in listed)


def test_the_list_loads_no_scenario() -> None:
    code = (
        "import sys, lightrail; sys.argv = ['lightrail', 'list']\n"
        "try: lightrail.main()\n"
        "finally: print([each for each in ('testbed', 'numpy') if each in sys.modules])"
    )
    assert ran("-c", code).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("command", [(), ("list",), ("run",)])
def test_each_command_has_help(command: tuple[str, ...], option: str) -> None:
    assert "Usage: lightrail" in lightrail(*command, option).stdout


@pytest.mark.parametrize(
    ("words", "file"), [(("run", "rails_sparse"), "rails_sparse.py"), (("study",), "study.py")]
)
def test_options_after_the_name_are_the_scenarios(words: tuple[str, ...], file: str) -> None:
    done = lightrail(*words, "--no-such-option")
    assert (done.returncode, f"Usage: {file}" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("rails_spars", "did you mean rails_sparse"), ("../tests", "`lightrail list` names all")],
)
def test_an_unknown_scenario_is_a_sentence(name: str, hint: str) -> None:
    done = lightrail("run", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"unknown scenario '{name}'; {hint}")


def test_the_version_is_pyprojects() -> None:
    stated = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]
    assert lightrail("--version").stdout == f"lightrail {stated}\n"


@pytest.fixture
def experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[lr.Experiment]:
    """Return a small experiment, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    fabric = lr.rail_fabric(servers=2, rails=2)
    return [lr.Experiment(fabric, lr.single(lr.uniform(fabric.gpus)), "rails")]


def test_a_script_that_runs_twice_has_two_directories(experiments: list[lr.Experiment]) -> None:
    first, second = lr.run(experiments), lr.run(experiments)
    assert first.path.parent == second.path.parent == Path("results", "python")
    assert first.path != second.path


def test_results_are_replaced_only_if_asked_and_only_by_others(experiments: list[lr.Experiment]) -> None:
    lr.run(experiments, "mine", title="before")
    with pytest.raises(ScenarioError, match="holds the results of another run; overwrite=True replaces them"):
        lr.run(experiments, "mine")
    other = replace(experiments[0], chunk_bytes=65536)
    with pytest.raises(ScenarioError, match="are both called"):
        lr.run([*experiments, other], "mine", overwrite=True)
    assert (title_of("mine"), os.listdir()) == ("before", ["mine"])
    lr.run(experiments, "mine", overwrite=True, title="after")
    assert (title_of("mine"), os.listdir()) == ("after", ["mine"])


def title_of(folder: str) -> str:
    """Return the title of a report."""
    return Path(folder, "report.html").read_text().partition("<title>")[2].partition("</title>")[0]


def test_no_name_is_no_directory(experiments: list[lr.Experiment]) -> None:
    with pytest.raises(ScenarioError, match="out names no directory; leave it out"):
        lr.run(experiments, "")
    assert os.listdir() == []


def test_a_notebook_shows_results_from_another_directory_and_without_a_plot(
    experiments: list[lr.Experiment], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = lr.run(experiments, "mine")
    whole = results._repr_html_() or ""
    Path("mine", "cct_cdf.png").unlink()
    monkeypatch.chdir("/")
    shown = results._repr_html_() or ""
    assert shown.count("<img") == whole.count("<img") - 1
    assert "1 more plot" in shown


def test_a_notebook_shows_tables_of_results_without_a_png(experiments: list[lr.Experiment]) -> None:
    shown = lr.run(experiments, plots="pdf")._repr_html_() or ""
    assert (shown.count("<table>"), shown.count("<img")) == (1, 0)
    assert "more plots" in shown


def test_overwriting_nothing_in_particular_is_refused(experiments: list[lr.Experiment]) -> None:
    with pytest.raises(ScenarioError, match="there is nothing to overwrite"):
        lr.run(experiments, overwrite=True)


def test_a_notebook_shows_tables_plots_and_a_link(experiments: list[lr.Experiment]) -> None:
    results = lr.run(experiments, "mine & <b>", title="<script>")
    shown = results._repr_html_() or ""
    assert shown.count("<table>") == 1
    assert '<img alt="' in shown
    assert '<a href="mine%20%26%20%3Cb%3E/report.html">mine &amp; &lt;b&gt;/report.html</a>' in shown
    assert "<script>" not in shown
    assert len(shown) < 500_000
