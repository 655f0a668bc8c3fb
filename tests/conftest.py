"""What holds for the whole session: the coverage floor, and files handed back to the user behind sudo."""

import contextlib
import os
from pathlib import Path

import pytest

from tests.tools import CHECKOUT

CACHES = (".coverage", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the coverage floor for the plain command only: some of the tests cannot cover all of the rooms."""
    picked = [config.getoption(name, None) for name in ("keyword", "markexpr", "deselect", "lf")]
    coverage = config.pluginmanager.get_plugin("_cov")
    if coverage and (any(picked) or config.args_source is not pytest.Config.ArgsSource.TESTPATHS):
        coverage.options.cov_fail_under = 0


def pytest_unconfigure() -> None:
    """Hand the caches back, or the same user's next run without sudo could not write them."""
    if os.geteuid() != 0 or "SUDO_UID" not in os.environ:
        return
    owner = int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", -1))
    for cache in CACHES:
        for path in (CHECKOUT / cache, *(CHECKOUT / cache).rglob("*")):
            _chown(path, *owner)


def _chown(path: Path, uid: int, gid: int) -> None:
    with contextlib.suppress(FileNotFoundError):  # no such cache, or a session beside this one has tidied up
        os.chown(path, uid, gid, follow_symlinks=False)
