"""A program that a test needs is found, or the test says why it did not run."""

import pytest

from tests.tools import path_of


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
