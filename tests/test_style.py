"""The house rules that a machine can check: linters, and imports that go one way."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import settings

from tests.tools import CHECKOUT, path_of
from traffic.compiled import MODULES

MAY_IMPORT = {
    "topologies": {"topologies"},
    "controller": {"controller", "topologies"},
    "traffic": {"traffic", "topologies"},
    "testbed": {"testbed", "controller", "traffic", "topologies"},
    "scenarios": {"scenarios", "testbed", "controller", "traffic", "topologies"},
    "tests": {"tests", "scenarios", "testbed", "controller", "traffic", "topologies"},
}
"""The rooms, and the rooms that each may import: the arrows of ARCHITECTURE.md."""

FILES = sorted(path.relative_to(CHECKOUT) for room in MAY_IMPORT for path in (CHECKOUT / room).rglob("*.py"))
OPENINGS = {"Return what": 379, "What": 565, "Whether it": 23}
"""How many docstrings still begin with a clause in place of a noun; these numbers may only fall."""
READERS = {"pickle.load", "pickle.loads", "pickle.Unpickler", "pandas.read_pickle", "pd.read_pickle"}
READERS |= {f"{library}.{name}" for library in ("cloudpickle", "dill") for name in ("load", "loads")}
READERS |= {"joblib.load", "torch.load", "shelve.open", "marshal.load", "marshal.loads"}
READERS |= {"testbed.study.packed.unpack"}
PASSED_ON = {"testbed/study/packed.py", "testbed/study/ray_cluster.py", "testbed/study/worker.py"}
"""Files that unpickle what another process of the same run sends: nothing that outlives it is a pickle."""
SHELL = sorted(
    path.relative_to(CHECKOUT) for path in [*CHECKOUT.glob("vagrant/*.sh"), CHECKOUT / ".ci" / "run"]
)
each_file = pytest.mark.parametrize("path", FILES, ids=str)


def tree_of(path: Path) -> ast.Module:
    """Parse one file of the checkout."""
    return ast.parse((CHECKOUT / path).read_text())


@cache
def imports_of(path: Path) -> tuple[str, ...]:
    """Return the full name of everything that a file imports, wherever in the file it does so."""
    return tuple(_imports_of(path))


def _imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import; imports are flat"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (str(each.value) for each in node.args if isinstance(each, ast.Constant))


def module_of(path: Path) -> str:
    """Return a file's import path, which is its path."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["ruff", "check"], id="ruff check"),
        pytest.param(["ruff", "format", "--check"], id="ruff format"),
        # Half a minute; beside much other work it took more than the five that any test may take.
        pytest.param(["mypy"], id="mypy", marks=[pytest.mark.early, pytest.mark.timeout(1200)]),
        pytest.param(["codespell"], id="codespell"),
        pytest.param(["shellcheck", *map(str, SHELL)], id="shellcheck"),
    ],
)
def test_linter_is_content(command: list[str]) -> None:
    linter = [path_of(command[0]), *command[1:]]
    ran = subprocess.run(linter, cwd=CHECKOUT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@each_file
def test_imports_follow_the_arrows(path: Path) -> None:
    room = path.parts[0]
    rooms = {name.partition(".")[0] for name in imports_of(path)} & MAY_IMPORT.keys()
    assert rooms <= MAY_IMPORT[room], f"{path} imports {sorted(rooms - MAY_IMPORT[room])}"


@pytest.mark.parametrize("path", [path for path in FILES if path.parts[0] == "topologies"], ids=str)
def test_topologies_need_little_to_be_described(path: Path) -> None:
    allowed = {*sys.stdlib_module_names, "topologies", "numpy", "networkx", "pydantic"}
    if path.name == "mn.py":
        allowed.add("mininet")  # the file that Mininet's own command reads
    assert {name.partition(".")[0] for name in imports_of(path)} <= allowed


def test_no_circle_of_imports() -> None:
    modules = {module_of(path): path for path in FILES}
    graph: nx.DiGraph[str] = nx.DiGraph()
    for importer, path in modules.items():
        for name in imports_of(path):
            imported = name if name in modules else name.rpartition(".")[0]
            if imported in modules and imported != importer:
                graph.add_edge(importer, imported)
    assert list(nx.simple_cycles(graph)) == []


def test_folders_of_testbed_import_one_way() -> None:
    folders = {path.parts[1] for path in FILES if path.parts[0] == "testbed" and len(path.parts) > 2}
    graph: nx.DiGraph[str] = nx.DiGraph()
    for path in FILES:
        if path.parts[0] == "testbed" and path.parts[1] in folders:
            imported = {name.split(".")[1] for name in imports_of(path) if name.startswith("testbed.")}
            graph.add_edges_from((path.parts[1], other) for other in (imported & folders) - {path.parts[1]})
    assert list(nx.simple_cycles(graph)) == []


def test_one_file_imports_the_openflow_library() -> None:
    seams = [
        str(path)
        for path in FILES
        if path.parts[0] != "tests" and "os_ken" in {name.partition(".")[0] for name in imports_of(path)}
    ]
    assert seams == ["controller/app/openflow.py"]


def test_one_file_runs_commands_and_waits_for_them() -> None:
    """What they complain of is an error's sentence: elsewhere a failure would be a traceback."""
    waiting = {"subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output"}
    files = [
        str(path)
        for path in FILES
        if path.parts[0] != "tests"
        and waiting
        & {ast.unparse(each) for each in ast.walk(tree_of(path)) if isinstance(each, ast.Attribute)}
    ]
    assert files == ["testbed/machine/commands.py"]


def test_coverage_leaves_out_what_holds_sockets_or_threads_and_nothing_else() -> None:
    coverage = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["coverage"]["run"]
    impure = {"select", "selectors", "socket", "subprocess", "threading"}
    measured = [path for path in FILES if path.parts[0] in coverage["source"]]
    holding = {
        str(path) for path in measured if {name.partition(".")[0] for name in imports_of(path)} & impure
    }
    assert holding == set(coverage["omit"])


@pytest.mark.parametrize("module", MODULES)
def test_what_is_compiled_asks_for_no_attribute_by_hasattr(module: str) -> None:
    """Compiled, it takes any error for a no, that of a user's own code too."""
    nodes = ast.walk(tree_of(Path(*module.split(".")).with_suffix(".py")))
    assert not [node for node in nodes if isinstance(node, ast.Name) and node.id == "hasattr"]


@each_file
def test_no_bare_except(path: Path) -> None:
    bare = [
        node.lineno
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert bare == [], f"{path}: bare except in lines {bare}"


def docstrings_of(path: Path) -> Iterator[str]:
    """Yield docstrings, those of attributes among them: all statements that are a string."""
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text.strip()


def test_ever_fewer_docstrings_begin_with_a_clause() -> None:
    """A noun says it sooner: "Bytes that a server sends", "Return the bytes ...", "True if ..."."""
    begins = re.compile(rf"({'|'.join(OPENINGS)})\b")
    found = Counter(
        opening[1] for path in FILES for text in docstrings_of(path) if (opening := begins.match(text))
    )
    assert found <= Counter(OPENINGS), f"{dict(found)} after {OPENINGS}: begin a new docstring with a noun"
    assert found == OPENINGS, f"there are fewer: lower OPENINGS to {dict(found)}"


def test_no_two_classes_share_a_name() -> None:
    """A reader who meets a name elsewhere takes it for the same thing."""
    found = defaultdict[str, list[str]](list)
    for path in FILES:
        if path.parts[0] != "tests":
            for node in tree_of(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(f"{path}:{node.lineno}")
    shared = {name: places for name, places in found.items() if len(places) > 1}
    assert not shared, "give one of each another name"


def test_ever_fewer_files_unpickle_what_lasts() -> None:
    """A pickle runs the code of whoever wrote it, and is read by the version alone that wrote it."""
    found = {
        str(path)
        for path in FILES
        if path.parts[0] != "tests"
        and READERS
        & {
            *imports_of(path),
            *(ast.unparse(each) for each in ast.walk(tree_of(path)) if isinstance(each, ast.Attribute)),
        }
    }
    assert found <= PASSED_ON, f"{found - PASSED_ON} unpickle: have them read JSON or Parquet"
    assert found == PASSED_ON, "there are fewer: take them out of the list above"


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES}), ids=str)
def test_init_holds_a_docstring_and_no_logic(folder: Path) -> None:
    init = folder / "__init__.py"
    assert (CHECKOUT / init).is_file(), f"{init} is missing: a foreign package of that name would win"
    tree = tree_of(init)
    assert ast.get_docstring(tree), f"{init} has no docstring"
    if init != Path("traffic/__init__.py"):  # which has Python find the compiled engine
        assert len(tree.body) == 1, f"{init} holds more than a docstring"


def test_nothing_else_at_the_top() -> None:
    known = {*MAY_IMPORT, "docs", "vagrant", "results", "data", "lightrail.egg-info", "__pycache__"}
    known |= {
        "pyproject.toml",
        "requirements.lock",
        "requirements-cluster.lock",
        "requirements-jax.lock",
        "README.md",
        "lightrail.py",
        "mkdocs.yml",
        "Makefile",
        "Dockerfile",
        "CITATION.cff",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
    }
    assert {name for name in os.listdir(CHECKOUT) if not name.startswith(".")} <= known


def test_no_property_fails_because_the_machine_was_busy() -> None:
    assert settings().deadline is None
