"""What gets a second run: an emulation test's own call, and nothing else."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.second_run import MOST_TESTS, NOTES_VARIABLE, Failure, noted, refusal
from tests.tools import CHECKOUT

pytest_plugins = ["pytester"]

FLAKY = Failure("tests/emulation/test_a.py::test_b", "call", emulation=True, final=False)
BEGIN = """
import pytest
from pathlib import Path
from tests.second_run import FinalError
def fails_once(name):
    if not Path(name).exists():
        Path(name).touch()
        raise AssertionError("the first time")
@pytest.fixture
def set_up_fails(): assert False
@pytest.fixture
def tear_down_fails():
    yield
    assert False
"""
TESTS = {
    "flaky": "@pytest.mark.emulation\ndef test_flaky(): fails_once('flaky')\n",
    "broken": "@pytest.mark.emulation\ndef test_broken(): assert False\n",
    "skipped": "@pytest.mark.emulation\n"
    "def test_skipped():\n"
    "    fails_once('skipped')\n"
    "    pytest.skip('the second time')\n",
    "unit": "def test_unit(): fails_once('unit')\n",
    "set-up": "@pytest.mark.emulation\ndef test_set_up(set_up_fails): pass\n",
    "tear-down": "@pytest.mark.emulation\ndef test_tear_down(tear_down_fails): pass\n",
    "residue": "@pytest.mark.emulation\ndef test_residue(): raise FinalError('left on the host')\n",
    "passes": "def test_passes(): pass\n",
}
WORKERS = ("-p", "xdist", "-n", "2", "--max-worker-restart=0")
HEADER = "[pytest]\nmarkers = emulation\n"
PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_cov"}
"""What the sessions load: importing all plugins takes four times as long as the sessions."""
ONCE_MORE = "second run of"
First = Callable[..., tuple[int, Path]]


@pytest.fixture(scope="module")
def covered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a file, of whose three lines two were run, and what coverage notes of it."""
    folder = tmp_path_factory.mktemp("covered")
    (folder / "measured.py").write_text("x = 1\nif not x:\n    x = 2\n")
    run(folder, {}, "coverage", "run", "--data-file=covered", "measured.py")
    return folder


@pytest.fixture
def first_run(pytester: pytest.Pytester, covered: Path) -> First:
    """Return what runs some of the tests as `.ci/run` does, and returns the exit code and the notes."""

    def ran(*names: str, text: str = "", options: tuple[str, ...] = ()) -> tuple[int, Path]:
        shutil.copy(covered / "covered", pytester.path / ".coverage")
        pytester.makeconftest("from tests.conftest import pytest_configure")
        pytester.makeini(HEADER)
        pytester.makepyfile(test_it=BEGIN + "".join(TESTS[name] for name in names) + text)
        notes = pytester.path / "notes"
        session = run(pytester.path, {NOTES_VARIABLE: str(notes)}, "pytest", *options)
        return session.returncode, notes

    return ran


def second_run(pytester: pytest.Pytester, code: int, notes: Path) -> tuple[int, str]:
    """Decide and run again; return the exit code and what was printed."""
    ran = run(pytester.path, {}, "tests.second_run", str(code), str(notes))
    assert ran.stderr == ""
    return ran.returncode, ran.stdout


def run(
    folder: Path, environment: dict[str, str], module: str, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """Run a module in a folder, with this checkout's `tests` at hand."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env=os.environ | PLUGINS | {"PYTHONPATH": str(CHECKOUT)} | environment,
        capture_output=True,
        text=True,
    )


def test_a_flaky_emulation_test_is_run_again_and_named(pytester: pytest.Pytester, first_run: First) -> None:
    code, said = second_run(pytester, *first_run("flaky", "passes"))
    assert code == 0
    assert "FLAKY test_it.py::test_flaky\n" in said
    assert "1 passed in" in said, "of two tests, the one that failed"
    assert said.splitlines()[-1].startswith("result: passed")


def test_an_emulation_test_that_fails_again_fails_the_run(
    pytester: pytest.Pytester, first_run: First
) -> None:
    code, said = second_run(pytester, *first_run("flaky", "broken"))
    assert code == 1
    assert "FLAKY test_it.py::test_flaky\nFAILED AGAIN test_it.py::test_broken\n" in said
    assert said.splitlines()[-1].startswith("result: failed")


def test_an_emulation_test_that_is_skipped_the_second_time_has_not_passed(
    pytester: pytest.Pytester, first_run: First
) -> None:
    code, said = second_run(pytester, *first_run("skipped"))
    assert (code, "FAILED AGAIN test_it.py::test_skipped" in said) == (1, True)


def test_what_workers_saw_fail_is_noted_as_without_workers(first_run: First) -> None:
    code, notes = first_run("flaky", "unit", "tear-down", "residue", options=WORKERS)
    expected = {
        Failure("test_it.py::test_flaky", "call", emulation=True, final=False),
        Failure("test_it.py::test_unit", "call", emulation=False, final=False),
        Failure("test_it.py::test_tear_down", "teardown", emulation=True, final=False),
        Failure("test_it.py::test_residue", "call", emulation=True, final=True),
    }
    assert (code, set(noted(notes))) == (1, expected)


@pytest.mark.parametrize("name", ["unit", "set-up", "tear-down", "residue"])
def test_what_is_no_emulation_tests_own_call_gets_no_second_run(
    pytester: pytest.Pytester, first_run: First, name: str
) -> None:
    code, said = second_run(pytester, *first_run("flaky", name))
    assert (code, ONCE_MORE in said) == (1, False)
    assert f"own call: test_it.py::test_{name.replace('-', '_')} (" in said


def test_what_cannot_be_collected_gets_no_second_run(pytester: pytest.Pytester, first_run: First) -> None:
    code, said = second_run(pytester, *first_run("flaky", text="import nothing_of_that_name\n"))
    assert (code, ONCE_MORE in said) == (2, False)


def test_a_session_that_dies_gets_no_second_run(pytester: pytest.Pytester, first_run: First) -> None:
    text = "import os\ndef test_dies(): os._exit(1)\n"  # the exit code of failed tests
    code, said = second_run(pytester, *first_run("flaky", text=text))
    assert (code, said) == (
        1,
        "result: failed, without a second run (pytest failed, and not because of a test)\n",
    )


@pytest.mark.parametrize(
    "text",
    ["import os\ndef test_dies(): os._exit(1)\n", "import nothing_of_that_name\n"],
    ids=["died", "collection"],
)
def test_a_worker_that_dies_or_cannot_collect_gets_no_second_run(
    pytester: pytest.Pytester, first_run: First, text: str
) -> None:
    pytester.makepyfile(test_other=text)
    code, said = second_run(pytester, *first_run("flaky", options=WORKERS))
    assert (code != 0, ONCE_MORE in said) == (True, False)
    assert said.startswith("result: failed, without a second run (")


def test_a_coverage_below_its_floor_is_not_excused(pytester: pytest.Pytester, first_run: First) -> None:
    code, notes = first_run("flaky")
    (pytester.path / ".coveragerc").write_text("[report]\nfail_under = 90\n")
    code, said = second_run(pytester, code, notes)
    assert (code, ONCE_MORE in said) == (1, False)
    assert "(coverage: 67 Coverage failure: total of 67 is less than fail-under=90)" in said


def test_a_session_without_failures_is_left_alone(pytester: pytest.Pytester, first_run: First) -> None:
    assert second_run(pytester, *first_run("passes")) == (0, "")


def test_a_session_inside_another_writes_no_notes(first_run: First) -> None:
    text = f"import os\ndef test_inside(): assert {NOTES_VARIABLE!r} not in os.environ\n"
    assert first_run(text=text)[0] == 0


def test_the_folder_named_emulation_makes_no_emulation_test(
    pytester: pytest.Pytester, first_run: First
) -> None:
    folder = pytester.mkpydir("emulation")
    (folder / "test_folder.py").write_text("def test_folder(): assert False\n")
    _, notes = first_run()
    assert noted(notes) == [Failure("emulation/test_folder.py::test_folder", "call", False, False)]


@pytest.mark.parametrize("code", [2, 3, 4, 5, 134, 137, -9])
def test_other_exit_codes_get_no_second_run(code: int) -> None:
    assert refusal(code, [FLAKY]) == f"pytest ended with the exit code {code}"


def test_a_handful_of_failures_may_be_flakes_and_more_are_none() -> None:
    failures = [replace(FLAKY, node=f"test_{number}") for number in range(MOST_TESTS + 1)]
    assert refusal(1, failures[:-1]) == ""
    assert refusal(1, failures) == "6 emulation tests failed, more than 5"


def test_a_failure_without_a_failed_test_gets_no_second_run() -> None:
    assert refusal(1, []) == "pytest failed, and not because of a test"


def test_ci_hands_pytests_exit_code_and_notes_on_and_ends_with_the_decision(tmp_path: Path) -> None:
    says = 'echo "$(basename "$0") ${1:-} ${2:-} ${3:-}" >>said\n'
    stubs = {
        "vagrant/provision.sh": says,
        ".venv/bin/pytest": f'{says}echo "[]" >"$LIGHTRAIL_FAILURES"\nexit 1\n',
        ".venv/bin/python": f"{says}exit 7\n",
        ".ci/run": (CHECKOUT / ".ci" / "run").read_text().replace("$(mktemp)", "notes"),
    }
    for name, text in stubs.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text.startswith("#!") else f"#!/bin/bash\n{text}")
        path.chmod(0o755)
    assert subprocess.run([tmp_path / ".ci" / "run"]).returncode == 7
    said = (tmp_path / "said").read_text().splitlines()
    assert [line.strip() for line in said] == [
        "provision.sh",
        "pytest -n auto",
        "python -m tests.second_run 1",
    ]
    assert not (tmp_path / "notes").exists()
