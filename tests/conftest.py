"""What holds for the whole session: the coverage floor, notes of failures, files handed back behind sudo."""

import contextlib
import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings
from xdist.remote import Producer

from tests.examples import ALL, FEW
from tests.excused import Excused
from tests.parallel import EmulationAlone, in_order, workers
from tests.second_run import NOTES_VARIABLE, Recorder
from tests.tools import CHECKOUT
from traffic.compiled import COMPILED, ENGINE, CompiledModules

# A property that takes longer than 200 ms holds all the same: the machine was busy.
settings.register_profile(FEW, deadline=None, max_examples=30)
settings.register_profile(ALL, deadline=None, max_examples=100)
settings.load_profile(FEW)

# Elsewhere than in sandboxes, lines are counted, and tests replace parts of the engine. Commands that tests
# start have the compiled one all the same. Here: a conftest of a folder imports some of it before any hook.
if os.environ.get(ENGINE) != COMPILED and CompiledModules in sys.meta_path:
    sys.meta_path.remove(CompiledModules)

MEASURED = tuple(CHECKOUT / "tests" / room for room in ("topologies", "controller", "traffic"))
"""The tests of the rooms whose coverage has a floor: they reach it alone."""
QUICK = "not slow"
"""The tests that run by default (pyproject.toml)."""
CACHES = (".coverage", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache")


def pytest_configure(config: pytest.Config) -> None:
    """Note failures if asked to, try all examples if slow, and lift the coverage floor for some tests.

    Some of the tests cannot cover all of the rooms.
    """
    # Workers share the CPUs, and so do commands that tests start: threads of linear algebra are in the way.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy is not imported yet
    picked = [config.getoption(name, None) for name in ("keyword", "deselect", "lf")]
    # Of the tests by default, those that the compiled engine takes: with few examples, too.
    if config.getoption("markexpr", "") not in ("", QUICK, f"{QUICK} and not interpreted"):
        settings.load_profile(ALL)
        picked.append(True)
    # Taken out, because sessions in sandboxes would write their notes over these.
    notes = os.environ.pop(NOTES_VARIABLE, "")
    config.pluginmanager.register(Recorder(Path(notes) if notes else None))
    config.pluginmanager.register(Excused())
    coverage = config.pluginmanager.get_plugin("_cov")
    if coverage and (any(picked) or config.args_source is not pytest.Config.ArgsSource.TESTPATHS):
        coverage.options.cov_fail_under = 0


def pytest_collection() -> None:
    """Look for no garbage while all tests are imported, which make little."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage from now on, but not among what is imported."""
    gc.freeze()
    gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    """Choose how many workers ``pytest -n auto`` starts."""
    return workers()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> EmulationAlone:
    """Have emulation tests run alone under ``pytest -n``."""
    return EmulationAlone(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Put emulation tests last, and trace the quick tests of a measured room alone.

    A property with all its examples is slow. A traced property takes half as long again, and a slow one
    covers what a quick one does.
    """
    for item in items:
        if settings.get_current_profile_name() == ALL and is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("slow")
    yield  # here `-m` selects
    items[:] = in_order(items)
    if config.getoption("no_cov", True):  # then the marker fails: there is nothing to pause
        return
    for item in items:
        measured = any(item.path.is_relative_to(room) for room in MEASURED)
        if not measured or item.get_closest_marker("slow"):
            item.add_marker("no_cover")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Hand the caches back, or the same user's next run without sudo could not write them."""
    if hasattr(config, "workerinput") or os.geteuid() != 0 or "SUDO_UID" not in os.environ:
        return
    owner = int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", -1))
    for cache in CACHES:
        for path in (CHECKOUT / cache, *(CHECKOUT / cache).rglob("*")):
            _chown(path, *owner)


def _chown(path: Path, uid: int, gid: int) -> None:
    with contextlib.suppress(FileNotFoundError):  # no such cache, or a session beside this one has tidied up
        os.chown(path, uid, gid, follow_symlinks=False)
