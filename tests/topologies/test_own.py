"""What ``module:function`` names: Python's path first, then the current directory."""

import sys
from pathlib import Path

import pytest

from topologies.errors import ScenarioError
from topologies.own import check_arguments, own_object


def test_the_current_directory_is_searched_after_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path, here = tmp_path / "on_path", tmp_path / "here"
    for folder, name in ((on_path, "own_in_both"), (here, "own_in_both"), (here, "own_in_one")):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(f"where = {folder.name!r}\n")
    monkeypatch.syspath_prepend(on_path)
    monkeypatch.chdir(here)
    before = list(sys.path)
    assert own_object("scheme", "own_in_both:where") == "on_path"
    assert own_object("scheme", "own_in_one:where") == "here"
    assert sys.path == before


def test_a_failed_search_leaves_the_path_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    with pytest.raises(ScenarioError, match="the scheme 'own_nowhere:x' cannot be imported: ModuleNotFound"):
        own_object("scheme", "own_nowhere:x")
    assert sys.path == before


def test_other_arguments_are_refused_with_the_line_to_write() -> None:
    check_arguments("scheme", "own:f", lambda a, b=0: None, ["a"], "docs/own.md")
    with pytest.raises(ScenarioError, match=r"'own:f.g' .* arguments a, b; .*: def g\(\*, a, b\), see docs/"):
        check_arguments("scheme", "own:f.g", lambda a: None, ["a", "b"], "docs/own.md")
