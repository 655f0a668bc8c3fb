"""What ``module:function`` names: Python's path first, then the current directory."""

import sys
from pathlib import Path

import pytest

from topologies.errors import FabricError, ScenarioError
from topologies.own import check_arguments, own_code, own_object, own_sources


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


def test_what_the_calling_script_defines_is_refused() -> None:
    with pytest.raises(ScenarioError, match="'__main__:mine' is defined in the calling script; put it"):
        own_object("scheme", "__main__:mine")


def test_other_arguments_are_refused_with_the_line_to_write() -> None:
    check_arguments("scheme", "own:f", lambda a, b=0: None, ["a"], "docs/own.md")
    with pytest.raises(ScenarioError, match=r"'own:f.g' .* arguments a, b; .*: def g\(\*, a, b\), see docs/"):
        check_arguments("scheme", "own:f.g", lambda a: None, ["a", "b"], "docs/own.md")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import sys\nsys.exit(0)", "your scheme raised SystemExit at own_fails.py:2: 0"),
        ("raise SystemExit", "your scheme raised SystemExit at own_fails.py:1"),
        (
            "import no_such_module",
            "your scheme raised ModuleNotFoundError at own_fails.py:1: No module named",
        ),
        ("x = 1\nx / 0", "your scheme raised ZeroDivisionError at own_fails.py:2: division by zero"),
        (
            "raise ValueError('a\\nb\\x1b[31m')",
            "your scheme raised ValueError at own_fails.py:1: a b [31m; --debug",
        ),
        ("raise ValueError('a ' * 999)", "your scheme raised ValueError at own_fails.py:1: a a a"),
        ("def f(:", "the scheme 'own_fails:f' cannot be imported: SyntaxError: invalid syntax"),
    ],
)
def test_a_module_that_raises_or_exits_is_a_sentence_with_the_line(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_fails.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScenarioError) as caught:
        own_object("scheme", "own_fails:f")
    assert str(caught.value).startswith(said)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
    assert caught.value.__cause__ is not None


def test_an_error_is_laid_to_the_innermost_line_of_the_users_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_deep").mkdir()
    (tmp_path / "own_deep" / "__init__.py").write_text("from own_deep.inner import calls\n")
    (tmp_path / "own_deep" / "inner.py").write_text("import json\n\n\ndef calls():\n    json.loads('x')\n")
    monkeypatch.chdir(tmp_path)
    calls = own_object("scheme", "own_deep:calls")
    assert callable(calls)
    with (
        pytest.raises(ScenarioError, match=r"JSONDecodeError at own_deep/inner\.py:5: Expecting value"),
        own_code("scheme", "own_deep:calls"),
    ):
        calls()


def test_errors_that_are_sentences_already_stay_as_they_are() -> None:
    with pytest.raises(FabricError, match=r"^two links; mend it$"), own_code("fabric", "own:f"):
        raise FabricError("two links", "mend it")


def test_sources_are_of_what_is_a_users_own_and_change_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_helps.py").write_text("import json\nimport numpy\n")
    (tmp_path / "own_helped.py").write_text("import own_helps\nf = topologies = None\n")
    monkeypatch.chdir(tmp_path)
    own_object("scheme", "own_helped:f")
    before = own_sources(["own_helped:f"])
    assert {"own_helped", "own_helps"} <= before.keys()
    assert not {"json", "numpy", "topologies.own", "tests.topologies.test_own", "__main__"} & before.keys()
    (tmp_path / "own_helps.py").write_text("import json\n")
    after = own_sources(["own_helped:f"])
    assert [name for name in after if after[name] != before[name]] == ["own_helps"]
    assert own_sources([]) == {}
