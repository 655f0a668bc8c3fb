"""The compiled engine: run from what was made of exactly these sources, and as the interpreted one does."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import CHECKOUT, need_compiled_engine
from topologies.errors import ScenarioError
from traffic.compiled import COMPILED, ENGINE, INTERPRETED, MODULES, SHARED, engine, folder

FILES = [
    *("ack_packets", "congestion_seam", "datagram_engine", "engine", "engine_conservation", "late_binding"),
    *("order", "packet_feeder", "propagation", "rehearsal", "round_trips"),
]
"""The tests of these modules, in this folder."""
FOUND = f"""
from importlib import import_module
from traffic.compiled import advice, engine
print(engine(), bool(advice()), *{{import_module(each).__file__.rpartition(".")[2] for each in {MODULES}}})
"""
NATIVE, PLAIN = f"{COMPILED} False so", f"{INTERPRETED} True py"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return another checkout of the same sources, which shares this one's environment."""
    need_compiled_engine()
    for room in ("topologies", "traffic"):
        shutil.copytree(CHECKOUT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def found(checkout: Path, before: str = "", **environment: str) -> str:
    """Return which engine a checkout has, whether it gives advice, and what loads its modules."""
    ran = subprocess.run(
        [sys.executable, "-B", "-c", f"{before}\n{FOUND}"],
        cwd=checkout,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
    )
    return ran.stdout.strip() or ran.stderr


def test_another_checkout_of_the_same_sources_has_it_too(checkout: Path) -> None:
    assert found(checkout) == NATIVE


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("traffic/transports/loop.py", PLAIN),
        ("topologies/fabric.py", PLAIN),  # compiled code holds its types
        ("traffic/readers/htsim.py", NATIVE),
    ],
)
def test_what_was_made_of_other_sources_is_not_run(checkout: Path, path: str, expected: str) -> None:
    with (checkout / path).open("a") as file:
        file.write("# edited\n")
    assert found(checkout) == expected


def test_the_interpreted_one_may_be_asked_for(checkout: Path) -> None:
    assert found(checkout, **{ENGINE: INTERPRETED}) == f"{INTERPRETED} False py"


def test_an_engine_that_there_is_not_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE, "interpretd")
    with pytest.raises(ScenarioError, match="there is no engine 'interpretd'"):
        engine()


@pytest.mark.parametrize("lacks", [f"{MODULES[0]}.so", f"*{SHARED}.so"])
def test_what_lacks_a_part_is_not_run(checkout: Path, lacks: str) -> None:
    kept = shutil.copytree(folder(), checkout / "lightrail-engine" / folder().name)
    before = f"import sys; sys.prefix = {str(checkout)!r}"
    assert found(checkout, before) == NATIVE
    next(kept.glob(lacks)).unlink()
    assert found(checkout, before) == PLAIN


@pytest.mark.early
def test_the_tests_of_the_engine_hold_for_the_compiled_one() -> None:
    """They pass in this session with the interpreted one, whose lines are counted."""
    need_compiled_engine()
    files = [f"tests/traffic/test_{name}.py" for name in FILES]
    options = ["--no-cov", "-q", "-p", "no:cacheprovider", "-m", "not slow and not interpreted"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        cwd=CHECKOUT,
        env=os.environ | {ENGINE: COMPILED},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout
