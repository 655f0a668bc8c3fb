"""Programs that a test needs are found, or the test says why it did not run; slow tests are left out."""

import os
import subprocess
import sys

import pytest

from tests.tools import CHECKOUT, path_of

pytest_plugins = ["pytester"]

PROPERTY = """
from hypothesis import given, settings, strategies
from tests.examples import examples
@given(strategies.integers())
@settings(max_examples=examples(3, 7), database=None)
def test_property(x): print("an example")
"""


def test_a_missing_program_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-program is not installed"):
        path_of("no-such-program")


def test_a_missing_program_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-program is not installed"):
        path_of("no-such-program")


def test_a_program_is_found_beside_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATH")
    assert path_of("pytest").endswith("/bin/pytest")


@pytest.mark.parametrize(("options", "count"), [((), 3), (("-m", "slow"), 7)])
def test_properties_are_tried_with_few_examples_and_as_slow_tests_with_all(
    pytester: pytest.Pytester, options: tuple[str, ...], count: int
) -> None:
    pytester.makeconftest("from tests.conftest import pytest_collection_modifyitems, pytest_configure")
    pytester.makeini("[pytest]\naddopts = -m 'not slow'\nmarkers = slow\n  early\n")
    quick = "import pytest\ndef test_quick(): pass\n@pytest.mark.slow\ndef test_slow(): pass\n"
    pytester.makepyfile(test_property=PROPERTY, test_others=quick)
    session = subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-v", *options],
        cwd=pytester.path,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert session.returncode == 0, session.stdout + session.stderr
    assert session.stdout.count("an example\n") == count
    assert ("::test_slow" in session.stdout, "::test_quick" in session.stdout) == (bool(options), not options)
