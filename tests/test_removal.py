"""Papers can be taken out: nothing but a paper's own files, and tests of them, imports them."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.tools import CHECKOUT

ROOMS = ("topologies", "controller", "traffic", "testbed", "scenarios")
PAPERS = {
    "mFabric": (
        "topologies/mfabric.py",
        "controller/circuits/regional.py",
        "controller/schedulers/mfabric*.py",
        "controller/schedulers/copilot.py",
        "traffic/delegated.py",
        "traffic/delegation.py",
        "traffic/gathered.py",
        "scenarios/_mfabric/*.py",
        "scenarios/mfabric_*.py",
        "tests/*mfabric*.py",
    ),
    "InfiniteHBD": (
        "topologies/khop_ring.py",
        "controller/circuits/ring_*.py",
        "controller/circuits/round_circuits.py",
        "controller/schedulers/infinitehbd*.py",
        "traffic/readers/infinitehbd.py",
        "traffic/workloads/khop_all_to_all.py",
        "scenarios/_infinitehbd/*.py",
        "scenarios/infinitehbd_*.py",
        "tests/*infinitehbd*.py",
    ),
    "Spectra": (
        *(f"controller/schedulers/{name}.py" for name in ("spectra", "spectra_plus", "stuffing")),
        *(f"controller/schedulers/{name}.py" for name in ("less", "eclipse", "bvn", "solstice")),
        "scenarios/_spectra/*.py",
        "scenarios/ocs_spectra.py",
        "scenarios/ocs_figures.py",
        "tests/*spectra*.py",
    ),
    "TopoOpt": (
        *(f"controller/schedulers/{name}.py" for name in ("topoopt", "totient", "ring_classes")),
        *(f"controller/schedulers/{name}.py" for name in ("blossom_rounds", "coin_change", "ocs_reconfig")),
        "controller/circuits/ocs_reconfig.py",
        "controller/circuits/shard*.py",
        "traffic/models/layered.py",
        "traffic/models/convolutional.py",
        "traffic/models/topoopt*.py",
        "traffic/strategies/*.py",
        "scenarios/_topoopt/*.py",
        "scenarios/topoopt_*.py",
        "tests/*topoopt*.py",
    ),
}
"""The files of each; schedulers that are made of Spectra's steps are its rivals, and go with it."""
REGISTRIES = {
    "controller.schedulers.registry",
    "testbed.experiment.circuits_registry",
    "traffic.scheme_setup",
}
"""The modules below scenarios that name a paper's files in strings: what they name is imported when used."""
DOCUMENTATION = "scenarios._docs"
"""The modules that draw the figures of the documentation, which describes all papers."""


LEFT_OUT = (
    "--ignore=tests/vagrant",  # looks at the checkout's own .venv
    "--ignore=tests/docs",  # pages name all papers
)
UNIT_TESTS = ("-m", "pytest", "-q", "-n", "2", "-m", "not slow and not emulation", *LEFT_OUT, "tests")


def modules(root: Path) -> dict[str, Path]:
    """Return the modules of a checkout by name, each with its file."""
    files = [root / "lightrail.py"]
    files += [file for room in (*ROOMS, "tests") for file in (root / room).rglob("*.py")]
    return {".".join(file.relative_to(root).with_suffix("").parts): file for file in files}


def imported(file: Path, known: Iterable[str]) -> set[str]:
    """Return which of some modules a file imports."""
    names = set[str]()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names.intersection(known)


def named(file: Path, known: Iterable[str]) -> set[str]:
    """Return the modules, of some, that a file names as ``module:name`` in a string."""
    return set(re.findall(r'"([\w.]+):\w+"', file.read_text())).intersection(known)


def own(paper: str, known: dict[str, Path], root: Path) -> set[str]:
    """Return the modules of a paper."""
    return {
        name
        for name, file in known.items()
        if any(fnmatch(str(file.relative_to(root)), pattern) for pattern in PAPERS[paper])
    }


NAMED = {
    "mFabric": r"mfabric_\w",
    "InfiniteHBD": r"infinitehbd_\w",
    "Spectra": r"ocs_(spectra|figures)|SCHEDULERS|\"(spectra|less|eclipse|bvn|solstice)\"",
    "TopoOpt": r"topoopt_(testbed|scale|shared)|_mfabric\.step\.(panel|points)|mfabric_training",
}
"""How tests name a paper's scenarios and schedulers that do not import them."""


def naming(paper: str, known: dict[str, Path]) -> set[str]:
    """Return the tests that name something of a paper."""
    tests = {name: file for name, file in known.items() if name.startswith("tests.")}
    return {name for name, file in tests.items() if re.search(NAMED[paper], file.read_text())}


def needing(gone: set[str], known: dict[str, Path]) -> set[str]:
    """Return the modules that import some, directly or not."""
    imports = {name: imported(file, known) for name, file in known.items()}
    found = set(gone)
    while more := {name for name, needs in imports.items() if name not in found and needs & found}:
        found |= more
    return found - gone


@pytest.mark.parametrize("paper", PAPERS)
def test_nothing_else_needs_a_paper_s_files(paper: str) -> None:
    known = modules(CHECKOUT)
    mine = own(paper, known, CHECKOUT)
    assert len(mine) >= 10, "the patterns name its files"
    allowed = ("tests.", DOCUMENTATION)
    assert {name for name in needing(mine, known) if not name.startswith(allowed)} == set()


@pytest.mark.parametrize("paper", PAPERS)
def test_below_scenarios_registries_alone_name_a_paper_s_files(paper: str) -> None:
    known = modules(CHECKOUT)
    mine = own(paper, known, CHECKOUT)
    others = {name for name in known.keys() - mine if not name.startswith(("tests.", "scenarios."))}
    assert {name for name in others if named(known[name], mine)} <= REGISTRIES


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("paper", PAPERS)
def test_everything_else_works_without_it(paper: str, tmp_path: Path) -> None:
    """Delete its files and the tests that import or name them, and run all other unit tests."""
    copy = tmp_path / "lightrail"
    shutil.copytree(CHECKOUT, copy, ignore=shutil.ignore_patterns(".venv", ".git", "results", "__pycache__"))
    (copy / ".venv").symlink_to(CHECKOUT / ".venv")
    known = modules(copy)
    mine = own(paper, known, copy) | naming(paper, known) | {"tests.test_removal"}
    for name in mine | needing(mine, known):
        known[name].unlink()
    imports = "\n".join(f"import {name}" for name in modules(copy) if not name.startswith("tests."))
    as_scenarios = os.environ | {"PYTHONPATH": f"{copy}:{copy / 'scenarios'}"}
    for command, environment in (
        (["-c", imports], as_scenarios),
        (UNIT_TESTS, None),
    ):
        done = subprocess.run(
            [sys.executable, *command], cwd=copy, capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
