"""Workers share tests, and emulation tests that measure run when all else has ended."""

import json
import os
import subprocess
import sys
from itertools import product

import pytest

from tests.parallel import ALONE
from tests.parallel import EMULATION as FOLDER
from tests.tools import CHECKOUT

pytest_plugins = ["pytester"]

CONFTEST = """
import json, os, time
from pathlib import Path
import pytest
from tests.conftest import pytest_collection_modifyitems, pytest_xdist_make_scheduler

@pytest.fixture(autouse=True)
def noted(request):
    began = time.monotonic()
    yield
    line = json.dumps([request.node.name, os.environ["PYTEST_XDIST_WORKER"], began, time.monotonic()])
    with Path("ran").open("a") as ran:
        print(line, file=ran)

@pytest.fixture
def meet():
    def wait(here, there):
        Path(here).touch()
        until = time.monotonic() + 120
        while not Path(there).exists():
            assert time.monotonic() < until, f"{there} has not run beside {here}"
            time.sleep(0.01)
    return wait

def pytest_sessionfinish():
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        Path(f"{worker}-ended").touch()
"""
UNIT = """
import pytest
def test_meets_{here}(meet): meet("{here}", "{there}")
@pytest.mark.parametrize("number", range(5))
def test_{here}(number): pass
"""
EMULATION = """
from pathlib import Path
import pytest
@pytest.mark.parametrize("number", range(3))
def test_{name}(number): assert len(list(Path().glob("gw?-ended"))) == 1
"""


def ran(pytester: pytest.Pytester, *files: str) -> list[tuple[str, str, float, float]]:
    """Run files of tests with two workers; return each test that ran, its worker, begin and end [s]."""
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\naddopts = --no-loadscope-reorder --max-worker-restart=0\n")
    for name, text in zip(files[::2], files[1::2], strict=True):
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    session = subprocess.run(
        # Unshuffled, so that no test which waits for another's is a worker's last, held until the other ends.
        [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "2"],
        cwd=pytester.path,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert session.returncode == 0, session.stdout + session.stderr
    return [tuple(json.loads(line)) for line in (pytester.path / "ran").read_text().splitlines()]


def test_unit_tests_run_side_by_side_and_emulation_tests_alone(pytester: pytest.Pytester) -> None:
    emulation = [
        word
        for name in ("first", "second")
        for word in (f"{ALONE}/test_{name}.py", EMULATION.format(name=name))
    ]
    unit = [
        word
        for here, there in (("left", "right"), ("right", "left"))
        for word in (f"tests/unit/test_{here}.py", UNIT.format(here=here, there=there))
    ]
    tests = ran(pytester, *emulation, *unit)
    alone = [test for test in tests if test[0].startswith(("test_first", "test_second"))]
    assert (len(tests), len(alone)) == (2 * 6 + 2 * 3, 2 * 3)
    assert len({worker for _, worker, _, _ in alone}) == 1
    beside = [
        (one[0], other[0])
        for one, other in product(alone, tests)
        if one is not other and one[2] < other[3] and other[2] < one[3]
    ]
    assert beside == []


def test_emulation_tests_do_not_run_beside_the_only_file_of_unit_tests(pytester: pytest.Pytester) -> None:
    unit = "tests/test_one.py", "def test_one(): pass\n"
    tests = ran(pytester, f"{ALONE}/test_a.py", EMULATION.format(name="a"), *unit)
    assert len(tests) == 4


def test_emulation_tests_that_measure_nothing_run_beside_each_other(pytester: pytest.Pytester) -> None:
    beside = [
        word
        for here, there in (("left", "right"), ("right", "left"))
        for word in (f"{FOLDER}/test_{here}.py", UNIT.format(here=here, there=there))
    ]
    tests = ran(pytester, *beside, f"{ALONE}/test_a.py", EMULATION.format(name="a"))
    assert len(tests) == 2 * 6 + 3
