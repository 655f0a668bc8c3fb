"""Files that are there whole or not at all, and belong to the user who asked for the run.

A file is written beside its place and renamed onto it: a kill at any moment leaves the old one or
the new one. It is not forced to the disk, since it is the process that may die, not the machine.
Under sudo everything is handed back to the user behind it. Where other users could exchange a file,
nothing is written or read (`testbed.machine.walk`).
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader, FileIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from secrets import token_hex
from typing import Self

from testbed.machine.lock_holder import holder
from testbed.machine.shortage import shortage
from testbed.machine.walk import (
    ANOTHER,
    FOLDER,
    HELD,
    hand_back,
    make_folder,
    own_file,
    own_folder,
    place,
)
from topologies.errors import MachineError, ScenarioError

BEGUN = re.compile(r"\..+\.[0-9a-f]{16}\.part")
"""The name of a file while it is written, beside its place."""
TAIL_BYTES = 4096
"""How much of a file's end is read at a time to find its last line end."""


def write_whole(path: Path, content: str | bytes | memoryview) -> None:
    """Write a file, or leave the one that is there; MachineError if it cannot be written."""
    data = content.encode() if isinstance(content, str) else content
    part = _beside(path)
    with _refusal(path), own_folder(path.parent) as folder:
        try:
            with FileIO(own_file(part, folder, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                _write(file, data)
                hand_back(file.fileno())
            os.replace(part.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(part.name, dir_fd=folder)
            raise


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
        part = _beside(self._path)
        with _refusal(part), own_folder(part.parent) as folder:
            self._file = FileIO(own_file(part, folder, os.O_RDWR | os.O_CREAT | os.O_EXCL), "r+b")
            os.unlink(part.name, dir_fd=folder)
        return self

    def __exit__(self, *_error: object) -> None:
        """Forget what has no place."""
        self._file.close()

    def append(self, content: str | bytes) -> None:
        """Append content, or nothing of it; MachineError if it cannot be written."""
        with _refusal(self._path):
            _append(self._file, content)

    def fileno(self) -> int:
        """Return its descriptor, for a process that writes it."""
        return self._file.fileno()

    def place(self) -> None:
        """Write the file that is in its place, whole; MachineError if it cannot be written."""
        if not os.fstat(self._file.fileno()).st_size:  # of nothing there is no map
            write_whole(self._path, b"")
            return
        with mmap(self._file.fileno(), 0, access=ACCESS_READ) as content, memoryview(content) as data:
            write_whole(self._path, data)


def append_text(path: Path, content: str) -> None:
    """Append lines to a file, or leave it as it is; MachineError if it cannot be written.

    A process that is killed in the middle of it leaves the beginning of a line, since the kernel ends a write
    between two pages; the next append cuts that. To copy all that is there before would take as long as a
    point for a table of many points.
    """
    with (
        _refusal(path),
        own_folder(path.parent) as folder,
        FileIO(own_file(path, folder, os.O_RDWR | os.O_APPEND | os.O_CREAT), "r+b") as file,
    ):
        hand_back(file.fileno())
        _cut_unended_line(file)
        _append(file, content)


def read_whole(path: Path) -> bytes:
    """Return the content of a file; errors as of `reading`."""
    with reading(path) as file:
        return file.read()


def exists(path: Path) -> bool:
    """Return whether there is something at a path; MachineError if this user may not know."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise MachineError(f"{path} cannot be read: {error.strerror}", "give another directory") from error
    return True


@contextmanager
def reading(path: Path) -> Iterator[BufferedReader]:
    """Open a file; OSError if it cannot be read, MachineError if another user could exchange it."""
    with own_folder(path.parent) as folder, open(own_file(path, folder, os.O_RDONLY), "rb") as file:
        yield file


def remove(path: Path) -> None:
    """Remove a file or an empty directory, if it is there; MachineError if it cannot be removed."""
    with _refusal(path), suppress(FileNotFoundError), place(path.parent) as folder:
        try:
            os.unlink(path.name, dir_fd=folder)
        except IsADirectoryError:
            os.rmdir(path.name, dir_fd=folder)


def remove_begun(path: Path) -> None:
    """Remove what killed processes had begun to write into a directory, if it is there.

    Only for who has the directory to itself (`directory_lock`): what a living process writes looks the same.
    """
    with _refusal(path), suppress(FileNotFoundError), own_folder(path) as folder:
        names = os.listdir(f"/proc/self/fd/{folder}")  # a descriptor of a place (O_PATH) has no list itself
        for name in filter(BEGUN.fullmatch, names):
            os.unlink(name, dir_fd=folder)


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
    with _refusal(path), place(path.parent, make=True) as above:
        return make_folder(path.name or ".", above, path)


@contextmanager
def directory_lock(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Have a directory of this user to oneself, or share it; until then its name is no other's (`HELD`).

    Raises
    ------
    ScenarioError
        If another run has it.
    MachineError
        If another user could exchange what lies in it.
    """
    with ExitStack() as stack:
        with _refusal(path), own_folder(path) as found:
            descriptor = os.open(".", FOLDER, dir_fd=found)
        stack.callback(os.close, descriptor)
        try:
            with _refusal(path):
                fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            said = f"another run writes into {path}: {holder(descriptor)}"
            raise ScenarioError(said, "wait for its end") from error
        HELD[path] = descriptor
        stack.callback(HELD.pop, path, None)
        yield


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Have the lock of a file that this user alone can open; MachineError if there cannot be one."""
    descriptor = lock_file(path)
    try:
        with _refusal(path):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def lock_file(path: Path, *, for_all: bool = False) -> int:
    """Return a descriptor of a file to be locked, which is made if it is not there.

    Parameters
    ----------
    path
        In a directory of this user.
    for_all
        Whether all users may lock it: a file that one can read, one can lock.
    """
    mode = 0o644 if for_all else 0o600
    with _refusal(path), own_folder(path.parent) as folder:
        try:
            descriptor = own_file(path, folder, os.O_RDWR | os.O_CREAT, mode)
        except PermissionError:
            return own_file(path, folder, os.O_RDONLY)
        if os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, mode)  # whatever the umask
        if not for_all:
            hand_back(descriptor)
        return descriptor


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{token_hex(8)}.part")


def _append(file: FileIO, content: str | bytes) -> None:
    """Append content, or nothing of it."""
    before = file.seek(0, os.SEEK_END)
    try:
        _write(file, content.encode() if isinstance(content, str) else content)
    except BaseException:
        file.truncate(before)
        raise


def _write(file: FileIO, data: bytes | memoryview) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


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


@contextmanager
def _refusal(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if shortage(error):  # no directory helps
            raise
        help_too = "remove it, or " if isinstance(error, IsADirectoryError) else ""
        raise MachineError(f"{path} cannot be written: {error.strerror}", f"{help_too}{ANOTHER}") from error
