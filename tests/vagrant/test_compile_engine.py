"""The script that compiles the engine: what it leaves, and what it says where it cannot work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import CHECKOUT
from traffic.compiled import MODULES, SHARED

SCRIPT = """
import os, sys, sysconfig, time
from pathlib import Path
from types import SimpleNamespace
sys.prefix = os.environ["ENVIRONMENT"]
sys.path[:0] = [{checkout!r}, {checkout!r} + "/vagrant"]
import compile_engine
from compile_engine import MODULES, folder
from traffic.compiled import SHARED
names = (*MODULES, "x" + SHARED)
compile_engine._translated = lambda _: [SimpleNamespace(name=n, sources=[n], include_dirs=[]) for n in names]
"""
"""It compiles what mypyc is not asked to make."""
QUICK = """
compile_engine._compile = lambda source, extension: source
compile_engine._link = lambda objects, result: result.write_text("")
"""


def compiled(environment: Path, patch: str) -> "subprocess.CompletedProcess[str]":
    """Return how the script ended, after a patch of it, in an environment without what was compiled."""
    script = SCRIPT.format(checkout=str(CHECKOUT)) + patch + "\ncompile_engine.main()\n"
    return subprocess.run(
        [sys.executable, "-B", "-c", script],
        env=os.environ | {"ENVIRONMENT": str(environment)},
        capture_output=True,
        text=True,
    )


def engines(environment: Path) -> list[Path]:
    """Return the names that are left where engines are kept."""
    return list((environment / "lightrail-engine").glob("*"))


def test_what_was_edited_meanwhile_is_not_kept(tmp_path: Path) -> None:
    turns = "places = [folder(), Path('other')]\ncompile_engine.folder = lambda: places.pop(0)"
    ran = compiled(tmp_path, QUICK + turns)
    said = "the sources of the engine were edited while it was compiled; compile it again\n"
    assert (ran.returncode, ran.stderr, engines(tmp_path)) == (1, said, [])


def test_what_lacks_a_part_is_compiled_again(tmp_path: Path) -> None:
    for _ in range(2):
        ran = compiled(tmp_path, QUICK)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "Compiling the engine\n", "")
        (engine,) = engines(tmp_path)
        assert len(list(engine.iterdir())) == len([*MODULES, SHARED])
        (engine / f"{MODULES[0]}.so").unlink()


def test_what_is_compiled_already_need_not_be_ones_own(tmp_path: Path) -> None:
    assert compiled(tmp_path, QUICK).returncode == 0
    refuses = "def utime(*_): raise PermissionError\nos.utime = utime"
    ran = compiled(tmp_path, refuses)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_what_a_killed_one_left_is_removed_in_time(tmp_path: Path) -> None:
    for name, age_s in (("new-old", 2 * 3600), ("new-now", 0)):
        left = tmp_path / "lightrail-engine" / name
        left.mkdir(parents=True)
        os.utime(left, (left.stat().st_mtime - age_s,) * 2)
    assert compiled(tmp_path, QUICK).returncode == 0
    assert {path.name for path in engines(tmp_path) if path.name.startswith("new-")} == {"new-now"}


def test_whoever_may_read_the_environment_has_the_engine(tmp_path: Path) -> None:
    assert compiled(tmp_path, QUICK + "os.umask(0o077)").returncode == 0
    assert all(path.stat().st_mode & 0o005 == 0o005 for path in engines(tmp_path))


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        (
            "sysconfig.get_config_var = lambda _: 'no-compiler'",
            "there is no no-compiler; run as root: bash vagrant/provision.sh",
        ),
        ("(Path(sys.prefix) / 'lightrail-engine').write_text('')", "{tmp}/lightrail-engine: File exists"),
        (
            "def _translated(_): import none\ncompile_engine._translated = _translated",
            "this Python has no none;",
        ),
    ],
    ids=["no compiler", "no folder", "no mypyc"],
)
def test_what_it_lacks_is_one_sentence(tmp_path: Path, patch: str, said: str) -> None:
    ran = compiled(tmp_path, patch)
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"the engine is not compiled: {said.format(tmp=tmp_path)}")
    assert ran.stderr.count("\n") == 1
