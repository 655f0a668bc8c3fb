"""A scenario runs under the checkout's .venv, whatever python was called."""

import ast
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.tools import CHECKOUT, path_of

SCENARIO = """\
import _checkout
import json, os, sys
writes_bytecode = not sys.flags.dont_write_bytecode
print(json.dumps([sys.prefix, sys.path[0], sys.argv[1:], writes_bytecode, os.environ.get("PYTHONPATH")]))
"""
SCENARIOS = sorted((CHECKOUT / "scenarios").glob("*.py"))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Draw a checkout of one scenario that prints what it runs under, without a .venv as yet."""
    (tmp_path / "scenarios").mkdir()
    shutil.copy(CHECKOUT / "scenarios" / "_checkout.py", tmp_path / "scenarios")
    for package in ("testbed/machine", "topologies"):
        shutil.copytree(CHECKOUT / package, tmp_path / package)
    (tmp_path / "scenarios" / "echo.py").write_text(SCENARIO)
    return tmp_path


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command away from any checkout, with its output kept."""
    env = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run([str(word) for word in command], env=env, cwd="/", capture_output=True, text=True)


def test_any_python_is_replaced_by_the_checkouts(checkout: Path) -> None:
    venv.create(checkout / ".venv", symlinks=True)
    ran = run(
        path_of("python3"), "-B", checkout / "scenarios" / "echo.py", "--rails", "4 5", PYTHONPATH="/opt"
    )
    expected = [str(checkout / ".venv"), str(checkout), ["--rails", "4 5"], False, "/opt"]
    assert (ran.returncode, ran.stderr, json.loads(ran.stdout)) == (0, "", expected)


def test_the_checkouts_python_stays(checkout: Path) -> None:
    venv.create(checkout / ".venv", symlinks=True)
    ran = run(checkout / ".venv" / "bin" / "python", checkout / "scenarios" / "echo.py")
    assert json.loads(ran.stdout) == [str(checkout / ".venv"), str(checkout), [], True, None]


def test_a_venv_that_is_a_link_serves(checkout: Path) -> None:
    venv.create(checkout / "elsewhere", symlinks=True)
    (checkout / ".venv").symlink_to("elsewhere")
    ran = run(path_of("python3"), checkout / "scenarios" / "echo.py")
    assert json.loads(ran.stdout)[0] == str(checkout / ".venv")


def test_a_foreign_home_of_python_does_not_loop(checkout: Path) -> None:
    venv.create(checkout / ".venv", symlinks=True)
    ran = run(path_of("python3"), checkout / "scenarios" / "echo.py", PYTHONHOME=sys.base_prefix)
    assert json.loads(ran.stdout)[0] == str(checkout / ".venv")


@pytest.mark.parametrize("broken", [False, True], ids=["none", "broken"])
def test_without_a_venv_one_sentence_says_what_to_do(checkout: Path, broken: bool) -> None:
    if broken:
        venv.create(checkout / ".venv", symlinks=True)
        (checkout / ".venv" / "pyvenv.cfg").unlink()
    ran = run("/usr/bin/python3", checkout / "scenarios" / "echo.py")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"no usable .venv in {checkout}; run as root: bash vagrant/provision.sh\n"


def test_ctrl_c_while_modules_are_imported_is_one_word(checkout: Path) -> None:
    venv.create(checkout / ".venv", symlinks=True)
    interrupting = "import _checkout\nimport os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('on')\n"
    (checkout / "scenarios" / "echo.py").write_text(interrupting)
    ran = run(checkout / ".venv" / "bin" / "python", checkout / "scenarios" / "echo.py")
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name)
def test_scenarios_are_read_by_an_old_python_up_to_the_first_import(path: Path) -> None:
    oldest = (3, 6) if path.name == "_checkout.py" else (3, 8)
    tree = ast.parse(path.read_text(), feature_version=oldest)
    first = next((node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)), None)
    if not path.name.startswith("_"):
        assert first is not None
        assert ast.unparse(first) == "import _checkout"
