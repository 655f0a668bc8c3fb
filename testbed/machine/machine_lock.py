"""The machine's lock: one emulation at a time on a machine, whoever asks for it.

It is a `flock` on a file that all users share. The kernel lets go of it when the last process that has the
descriptor has ended, so a sandbox that inherits it holds it to its end.
"""

import fcntl
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from topologies.errors import MachineError

PLACES = ("/run/lock", "/tmp")
NAME = "lightrail.lock"
MOST_BYTES = 64
"""Of what the file says of who holds the lock."""


@contextmanager
def machine_lock() -> Iterator[int]:
    """Hold the machine's lock, and yield its descriptor; wait for whoever holds it, and say so."""
    lock = _opened(_path())
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"another emulation runs on this machine{_holder(lock)}: waiting for it\n")
            fcntl.flock(lock, fcntl.LOCK_EX)
        _sign(lock)
        yield lock
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)  # a process that was forked meanwhile may have a copy
        os.close(lock)


def _path() -> Path:
    """Return the file, in the first place in which all users may make one: so all take the same."""
    for place in map(Path, PLACES):
        with suppress(OSError):
            if place.stat().st_mode & stat.S_IWOTH:
                return place / NAME
    return Path(PLACES[-1]) / NAME


def _opened(path: Path) -> int:
    """Return a descriptor of the file, which is made if there is none.

    Another user's file in such a place must not be opened with O_CREAT alone (fs.protected_regular).
    """
    try:
        with suppress(FileExistsError):
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            os.fchmod(lock, 0o666)  # whatever the umask
            return lock
        with suppress(PermissionError):
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise MachineError(f"the lock {path} cannot be opened: {error.strerror}", "remove it") from error


def _sign(lock: int) -> None:
    """Write who holds the lock, and since when, where this user may."""
    with suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"pid {os.getpid()}, since {time.strftime('%H:%M:%S')}".encode(), 0)


def _holder(lock: int) -> str:
    said = os.pread(lock, MOST_BYTES, 0).decode("ascii", "ignore")
    return f" ({said})" if said.isprintable() and said else ""
