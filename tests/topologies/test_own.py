"""What ``module:function`` names: Python's path first, then the current directory."""

import os
import py_compile
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest

from topologies.errors import FabricError, LightrailError, ScenarioError
from topologies.fabric import Fabric
from topologies.own import (
    NotLoadedError,
    check_arguments,
    check_returns,
    is_a,
    own_code,
    own_files,
    own_object,
    own_sources,
    say_own,
    without_own_code,
)
from topologies.rail import rail_fabric


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
    with pytest.raises(ScenarioError, match="'own:f' does not take the arguments a"):
        check_arguments("scheme", "own:f", max, ["a"], "docs/own.md")  # which has no signature


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


def test_an_error_of_lightrails_has_the_users_line_that_led_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_wires.py").write_text(
        "from topologies.rail import rail_fabric\n\n\ndef calls():\n    rail_fabric(-1, 1)\n"
    )
    monkeypatch.chdir(tmp_path)
    calls = own_object("fabric", "own_wires:calls")
    assert callable(calls)
    with pytest.raises(LightrailError, match=r"^own_wires\.py:5: "), own_code("fabric", "own_wires:calls"):
        calls()


def test_errors_that_are_sentences_already_stay_as_they_are() -> None:
    with pytest.raises(FabricError, match=r"^two links; mend it$"), own_code("fabric", "own:f"):
        raise FabricError("two links", "mend it")


def test_sources_are_of_what_is_a_users_own_and_change_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_helps.py").write_text("import json\nimport lightrail as lr\nimport numpy\n")
    (tmp_path / "own_helped.py").write_text("import own_helps\nf = topologies = None\n")
    monkeypatch.chdir(tmp_path)
    own_object("scheme", "own_helped:f")
    before = own_sources(["own_helped:f"])
    assert {"own_helped", "own_helps"} <= before.keys()
    others = {"json", "numpy", "lightrail", "topologies.own", "tests.topologies.test_own", "__main__"}
    assert not others & before.keys()
    (tmp_path / "own_helps.py").write_text("import json\n")
    after = own_sources(["own_helped:f"])
    assert [name for name in after if after[name] != before[name]] == ["own_helps"]
    assert own_sources([]) == {}


def test_what_runs_is_the_source_and_no_cache_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "own_cached"
    package.mkdir()
    sources = {
        package / "__init__.py": "where = 'source'\ndef f(): from own_later import where; return where\n",
        package / "inner.py": "from own_beside import where\n",
        tmp_path / "own_beside.py": "where = 'source'\n",
        tmp_path / "own_later.py": "where = 'source'\n",
    }
    for file, source in sources.items():
        file.write_text("where, f = 'cache', lambda: 'cache'\n")
        py_compile.compile(str(file), invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
        file.write_text(source)
    monkeypatch.chdir(tmp_path)
    assert own_object("scheme", "own_cached:where") == "source"
    assert own_object("scheme", "own_cached.inner:where") == "source"
    monkeypatch.syspath_prepend(tmp_path)
    later = own_object("scheme", "own_cached:f")
    assert callable(later)
    assert later() == "source"


RAN = "from pathlib import Path\nPath({file!r}).touch()\ndef f(): pass\n"


def test_a_module_is_found_without_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, ran = tmp_path / "own_package", tmp_path / "ran"
    package.mkdir()
    (package / "__init__.py").write_text(RAN.format(file=str(ran)))
    (package / "inner.py").write_text(RAN.format(file=str(ran)))
    monkeypatch.chdir(tmp_path)
    with without_own_code():
        for name in ("own_package:f", "own_package.inner:f"):
            with pytest.raises(NotLoadedError, match=f"the scheme '{name}' of {package}"):
                own_object("scheme", name)
        with pytest.raises(ScenarioError, match="cannot be imported: ModuleNotFoundError"):
            own_object("scheme", "own_package.gone:f")
        assert own_object("scheme", "topologies.rail:rail_fabric") is rail_fabric
    with pytest.raises(ScenarioError, match="cannot be imported: ModuleNotFoundError"):
        own_object("scheme", "own_package.gone:f")
    assert not ran.exists()
    assert callable(own_object("scheme", "own_package.inner:f"))
    assert ran.exists()


@pytest.mark.parametrize(
    "name",
    ["os:system", "posix:system", "builtins:exec", "subprocess:Popen", "os.path:join", "antigravity:x"],
)
def test_python_itself_is_no_code_of_the_users(name: str) -> None:
    module = name.partition(":")[0]
    before = module in sys.modules
    with pytest.raises(
        ScenarioError, match=f"'{name}' cannot be loaded: {module} is a module of Python itself"
    ):
        own_object("fabric", name)
    assert (module in sys.modules) == before


@pytest.mark.parametrize("name", ["pyroute2:NetNS", "numpy:load", "numpy.linalg:norm", "typer:main"])
def test_an_installed_package_is_no_code_of_the_users(name: str) -> None:
    assert own_files([name]) == {}
    module = name.partition(":")[0]
    with pytest.raises(
        ScenarioError, match=f"'{name}' cannot be loaded: {module} is a module of an installed package; name"
    ):
        own_object("circuits", name)


def test_nor_is_what_modules_of_lightrail_have_from_elsewhere() -> None:
    assert own_object("fabric", "topologies.rail:rail_fabric") is rail_fabric
    assert own_object("fabric", "tests.topologies.test_own:rail_fabric") is rail_fabric
    for module, name, source in [("test_own", "Path", "pathlib"), ("test_own", "partial", "functools")]:
        with pytest.raises(ScenarioError, match=f"{module} has it from {source}; name it as module:"):
            own_object("circuits", f"tests.topologies.{module}:{name}")


@pytest.mark.parametrize(
    "name", ["", ":", ":f", "..:f", "own..f:f", "a/b:f", "\0:f", "-:f", "own_nowhere.x:f"]
)
def test_what_names_no_module_is_a_sentence(name: str) -> None:
    with pytest.raises(
        ScenarioError, match=r"cannot be imported: (ModuleNotFoundError|it is not module:func)"
    ):
        own_object("fabric", name)


@pytest.mark.parametrize("name", ["own_unsaid", "own_unsaid:", "own_unsaid:a.b", "own_unsaid:f:g"])
def test_a_name_that_is_not_said_is_not_imported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_unsaid.py").write_text(RAN.format(file=str(tmp_path / "ran")))
    monkeypatch.chdir(tmp_path)
    assert own_files([name]) == {}
    with pytest.raises(ScenarioError, match=f"the fabric '{name}' cannot be imported: it is not module:func"):
        own_object("fabric", name)
    assert not (tmp_path / "ran").exists()


def test_what_a_file_names_is_said_once_and_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_said.py").write_text(RAN.format(file=str(tmp_path / "ran")))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "a\nb.toml"
    document = {
        "scheme": ["ecmp", "ecmp:4", "tcp:reno", "own_said:f", "os:system", "traffic.demand:Demand", ":"],
        "circuits": [{"rule": "scheduled", "fields": {"scheduler": "own_said:g", "x": [1, "own_said:f"]}}],
    }
    for _ in range(2):
        say_own(file, document)
    escaped = str(file).replace("\n", "\\n")
    assert capsys.readouterr().err.splitlines() == [
        f"{escaped} runs own_said.py:{name} from {tmp_path}" for name in "fg"
    ]
    assert not (tmp_path / "ran").exists()
    assert "own_said" not in sys.modules


def wired() -> Fabric:
    """Return a fabric."""
    return rail_fabric(2, 1)


def several() -> "list[tuple[int, Fabric]] | None":
    """Return fabrics."""
    raise AssertionError


def anything() -> object:
    """Return anything."""
    raise AssertionError


def unannotated():  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Return anything."""
    raise AssertionError


@pytest.mark.parametrize("function", [wired, several, partial(wired)])
def test_what_is_annotated_to_return_a_kind_may_be_called(function: Callable[..., object]) -> None:
    check_returns("fabric", "own:f", function, "Fabric", is_a(Fabric), "docs/howto/own_fabric.md")


@pytest.mark.parametrize("function", [anything, unannotated, os.system, max, int, Fabric.to_json])
def test_what_is_not_is_refused_before_it_is_called(function: Callable[..., object]) -> None:
    with pytest.raises(
        ScenarioError,
        match=r"the fabric 'own:f' is not annotated to return Fabric; .* def f\(\.\.\.\) -> Fabric, see",
    ):
        check_returns("fabric", "own:f", function, "Fabric", is_a(Fabric), "docs/howto/own_fabric.md")
