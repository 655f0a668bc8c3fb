"""Another user of this machine, for tests that root runs: one without a name, who tries what he may."""

import os
import shutil
import signal
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import print_exc

import pytest

OTHER = 65533
"""His number, and his group's: nobody has them."""


def need_root() -> None:
    """Skip a test that takes two users."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user too")


@contextmanager
def yard() -> Iterator[Path]:
    """Make a directory of this user that all can enter, in one that all may write."""
    path = Path(tempfile.mkdtemp(prefix="yard-", dir="/tmp"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def given(path: Path, mode: int | None = None) -> Path:
    """Give a file or a directory to the other user, and return its path."""
    os.chown(path, OTHER, OTHER, follow_symlinks=False)
    if mode is not None:
        path.chmod(mode)
    return path


NO_FILES = ("link", "pipe", "socket", "directory", "device")
"""Kinds of what can lie where a file is meant."""


def plant(kind: str, path: Path, target: Path) -> None:
    """Put something that is not a plain file at a path, a link to the target among them."""
    if kind == "link":
        path.symlink_to(target)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    elif kind == "directory":
        path.mkdir()
    else:
        need_root()
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero


@contextmanager
def doing(act: Callable[[], object]) -> Iterator[int]:
    """Have a process of the other user do something while the block runs, and yield its number."""
    if (child := os.fork()) == 0:
        try:
            become_other()
            act()
        except BaseException:
            print_exc()
        os._exit(1)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def done(act: Callable[[], object]) -> bool:
    """Return whether a process of the other user did something without an error."""
    if (child := os.fork()) == 0:
        try:
            become_other()
            act()
        except BaseException:
            print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def become_other() -> None:
    """Give up all rights of root, for good."""
    os.setgroups([])
    os.setgid(OTHER)
    os.setuid(OTHER)
