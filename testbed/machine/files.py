"""Files that are there whole or not at all, and belong to the user who asked for the run.

A file is written beside its place and renamed onto it: a kill at any moment leaves the old one or
the new one. It is not forced to the disk, since it is the process that may die, not the machine.
Under sudo everything is handed back to the user behind it.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from io import FileIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import TemporaryFile
from typing import Self

from testbed.machine.shortage import shortage
from topologies.errors import MachineError, ScenarioError

HINT = "choose another directory with --out"
TAIL_BYTES = 4096
"""How much of a file's end is read at a time to find its last line end."""


def write_whole(path: Path, content: str | bytes | memoryview) -> None:
    """Write a file, or leave the one that is there; MachineError if it cannot be written."""
    data = content.encode() if isinstance(content, str) else content
    with _refusal(path), _beside(path) as part:
        part.write_bytes(data)


class GrowingFile:
    """A file that is written piece by piece, without a name until all of it is there: a kill leaves none.

    Parameters
    ----------
    path
        Its place.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        """Begin it; MachineError if it cannot be written."""
        with _refusal(self._path), contextlib.ExitStack() as ends:
            self._file = ends.enter_context(TemporaryFile(dir=self._path.parent, buffering=0))
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        """Forget what has no place."""
        self._ends.close()

    def append(self, text: str) -> None:
        """Append text, or nothing of it; MachineError if it cannot be written."""
        before, data = self._file.seek(0, os.SEEK_END), memoryview(text.encode())
        with _refusal(self._path):
            try:
                while data:
                    data = data[self._file.write(data) :]
            except BaseException:
                self._file.truncate(before)
                raise

    def place(self) -> None:
        """Write the file that is in its place, whole; MachineError if it cannot be written."""
        with mmap(self._file.fileno(), 0, access=ACCESS_READ) as content, memoryview(content) as data:
            write_whole(self._path, data)


def append_text(path: Path, content: str) -> None:
    """Append lines to a file, or leave it as it is; MachineError if it cannot be written.

    A process that is killed in the middle of it leaves the beginning of a line, since the kernel ends a write
    between two pages; the next append cuts that. To copy all that is there before would take as long as a
    point for a table of many points.
    """
    with _refusal(path):
        new = not path.exists()
        with path.open("a+b", buffering=0) as file:
            _cut_unended_line(file)
            before, data = file.seek(0, os.SEEK_END), memoryview(content.encode())
            try:
                while data:
                    data = data[file.write(data) :]
            except BaseException:
                file.truncate(before)
                raise
        if new:
            hand_back(path)


def _cut_unended_line(file: FileIO) -> None:
    """Cut what follows the last line end of a file."""
    end = at = file.seek(0, os.SEEK_END)
    while at:
        begin = max(at - TAIL_BYTES, 0)
        file.seek(begin)
        if found := file.read(at - begin).rfind(b"\n") + 1:
            at = begin + found
            break
        at = begin
    if at < end:
        file.truncate(at)


@contextlib.contextmanager
def directory_lock(path: Path, *, shared: bool = False, waits: bool = False) -> Iterator[None]:
    """Have a directory to oneself, or share it; ScenarioError if another has it, unless one waits for it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, kind if waits else kind | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise ScenarioError(f"another run writes into {path}", "wait for its end") from error
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> bool:
    """Make a directory and its parents.

    Returns
    -------
    bool
        False if there is something at the path already.

    Raises
    ------
    MachineError
        If it cannot be made.
    """
    with _refusal(path):
        for parent in reversed(path.parents):
            _made(parent)
        return _made(path)


def hand_back(path: Path) -> None:
    """Give a file to the user behind sudo; nothing happens where there is none."""
    if os.geteuid() != 0 or "SUDO_UID" not in os.environ:
        return
    owner, group = int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", -1))
    try:
        os.chown(path, owner, group, follow_symlinks=False)
    except OSError as error:
        # In a namespace of an ordinary user, where root is only called so, the file is the user's already.
        if error.errno not in (errno.EPERM, errno.EINVAL):
            raise


def _made(path: Path) -> bool:
    try:
        path.mkdir()
    except FileExistsError:
        return False
    hand_back(path)
    return True


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Yield an empty new file beside a place; it takes the place unless there is an exception."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    part.touch(exist_ok=False)
    try:
        yield part
        hand_back(part)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _refusal(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if shortage(error):  # no directory helps
            raise
        raise MachineError(f"{path} cannot be written: {error.strerror}", HINT) from error
