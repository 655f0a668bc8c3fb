"""Directories and files that this user alone can put in their place, opened by descriptors.

A path is walked name by name (openat), so that what was checked is what is used, whoever renames what
meanwhile. *This user* is the caller, the user behind sudo, and root.

- The last directory, and a file in it, are this user's, and nobody else may write them: else what is written
  or read there could be exchanged at any moment.
- Directories above it may be anyone's (`/tmp`, a project's). Whoever exchanges one can put there what is his
  own, which is refused, or move what he may write.
- A symbolic link is followed only where nobody else could have put it, and never where a file is meant.
- A directory that this process has a lock of (`HELD`) is that one: another by its name is refused. Below it
  no link is followed: in a copy of another user's directory (`cp -r`) his links belong to this user.

File systems are believed on owners; root alone mounts those that make them up (FUSE's `user_allow_other`).
"""

import errno
import grp
import os
import pwd
import re
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from topologies.errors import MachineError

FOLDER_MODE, FILE_MODE = 0o755, 0o644
"""Of what is made, less what the umask takes: a group that may write could exchange files."""
PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Neither a link nor a pipe without a reader keeps the open waiting."""
MOST_LINKS = 40
"""As many as the kernel follows."""
MOST_NUMBER = 2**32 - 2
"""Of a user or a group: the next one is the kernel's for none."""
ACL = "system.posix_acl_access"
"""The attribute of a file in which its access control list is: a header, then tag, rights, number of each."""
ACL_HEADER, ACL_ENTRY, ACL_NAMED, ACL_WRITE = 4, "<HHI", {0x02, 0x08}, 2
"""`ACL_USER` and `ACL_GROUP` of `linux/posix_acl.h`."""
ANOTHER = "begin anew with --out in another directory"
"""Of a run that goes on, too: it cannot with its points elsewhere."""
HELD: dict[Path, int] = {}
"""Descriptors of the directories that this process has locks of."""


def _let_go() -> None:
    """Leave its locks to the process that this one was forked from, or they would outlive it."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor in HELD.values():
        os.dup2(nothing, descriptor, inheritable=False)  # closed by what has opened it
    os.close(nothing)
    HELD.clear()


os.register_at_fork(after_in_child=_let_go)


@contextmanager
def place(path: Path, *, make: bool = False) -> Iterator[int]:
    """Open a directory, whoever owns it; make it, and those above it, where they are missing if asked to."""
    descriptor = _walked(path, make)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def own_folder(path: Path) -> Iterator[int]:
    """Open a directory of this user; MachineError if it is not."""
    with place(path) as descriptor:
        check_own(descriptor, path)
        yield descriptor


def make_folder(name: str, above: int, path: Path) -> bool:
    """Make a directory in one that is open, and return whether it was not there already."""
    try:
        os.mkdir(name, FOLDER_MODE, dir_fd=above)
    except FileExistsError:
        return False
    descriptor = os.open(name, FOLDER, dir_fd=above)
    try:
        check_own(descriptor, path)  # it may have been exchanged already
        hand_back(descriptor)
    finally:
        os.close(descriptor)
    return True


def own_file(path: Path, folder: int, flags: int, mode: int = FILE_MODE) -> int:
    """Return a descriptor of a plain file of this user in a directory; MachineError if it is not."""
    try:
        descriptor = os.open(path.name, flags | FILE, mode, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a pipe or a socket
            raise _not_plain(path) from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _not_plain(path)
        check_own(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def hand_back(descriptor: int) -> None:
    """Give what is open to the user behind sudo; nothing happens where there is none."""
    if os.geteuid() != 0 or "SUDO_UID" not in os.environ:
        return
    group = _sudo_number("SUDO_GID") if "SUDO_GID" in os.environ else -1
    try:
        os.fchown(descriptor, _sudo_number("SUDO_UID"), group)
    except OSError as error:
        # In a namespace of an ordinary user, where root is only called so, it is the user's already.
        if error.errno not in (errno.EPERM, errno.EINVAL):
            raise


def check_own(descriptor: int, path: Path) -> None:
    """Raise MachineError if what is open is another user's, or one may write it."""
    status = os.fstat(descriptor)
    could = "could exchange what this run writes and reads"
    another = f"{ANOTHER}, such as {path / 'NAME'}" if stat.S_ISDIR(status.st_mode) else ANOTHER
    if status.st_uid not in _this_user():
        owner = user_name(status.st_uid)
        raise MachineError(
            f"{path} belongs to {owner}, who {could}", f"give a copy of your own (cp -r), or {another}"
        )
    if _others_may_write(descriptor):
        own = "" if status.st_mode & stat.S_ISVTX else f"take their right (chmod go-w {path}), or "
        raise MachineError(f"other users may write {path}, and {could}", f"{own}{another}")


def user_name(number: int) -> str:
    """Return the name of a user, or what stands for one without a name."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _this_user() -> set[int]:
    """Return the numbers of root, the caller and the user behind sudo."""
    is_behind = os.geteuid() == 0 and "SUDO_UID" in os.environ
    return {0, os.geteuid(), _sudo_number("SUDO_UID") if is_behind else 0}


def _sudo_number(name: str) -> int:
    """Return the number that a variable of sudo has; MachineError if it is none of a user or a group."""
    text = os.environ[name]
    if re.fullmatch("[0-9]{1,10}", text) and int(text) <= MOST_NUMBER:
        return int(text)
    raise MachineError(
        f"{name} is {text!r}, which is not the number of a user or a group",
        f"unset {name}, or start with sudo",
    )


def _others_may_write(descriptor: int) -> bool:
    status = os.fstat(descriptor)
    # The group's rights are the most that an access control list gives to anybody it names.
    by_group = status.st_mode & stat.S_IWGRP and not (
        is_alone(status.st_gid, status.st_uid) and not _has_named_writers(descriptor)
    )
    return bool(by_group or status.st_mode & stat.S_IWOTH)


@cache
def is_alone(group: int, user: int) -> bool:
    """Return whether a group is a user's alone: many systems have one for each, and a umask of 002.

    Root's never is: containers run users that have no name, and are in no list, in group 0. Asked once, since
    a network's list of users may be long.
    """
    try:
        found = grp.getgrgid(group)
    except KeyError:
        return False
    name = user_name(user)
    members = {*found.gr_mem, *(each.pw_name for each in pwd.getpwall() if each.pw_gid == group)}
    return group != 0 and found.gr_name == name and members <= {name}


def _has_named_writers(descriptor: int) -> bool:
    """Return whether an access control list lets users or groups write that it names."""
    try:
        found = os.getxattr(f"/proc/self/fd/{descriptor}", ACL)  # a place has no attributes by its descriptor
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP):
            return False
        raise
    entries = struct.iter_unpack(ACL_ENTRY, found[ACL_HEADER:])
    return any(tag in ACL_NAMED and rights & ACL_WRITE for tag, rights, _ in entries)


def _walked(path: Path, make: bool) -> int:
    """Return a descriptor of a directory, from the nearest above it that is held, or from the start."""
    if held := next((each for each in (path, *path.parents) if each in HELD), None):
        return _below(held, path, make)
    base = Path(path.anchor or ".")
    return _inside(os.open(base, PLACE), path.relative_to(base).parts, path, make)


def _below(held: Path, path: Path, make: bool) -> int:
    """Return a descriptor of a directory that is held, or of one below it, over no link."""
    here, where = _still_there(held), held
    for name in path.relative_to(held).parts:
        above, where = here, where / name
        try:
            here = _named(above, name, where, make)
        except NotADirectoryError as error:
            raise MachineError(
                f"{where} is a link, or not a directory", f"remove it, or {ANOTHER}"
            ) from error
        finally:
            os.close(above)
    return here


def _still_there(held: Path) -> int:
    """Return a descriptor of a directory that is held; MachineError if its name is not its own any more."""
    base = Path(held.anchor or ".")
    with suppress(OSError, MachineError):
        found = _inside(os.open(base, PLACE), held.relative_to(base).parts, held, make=False)
        if os.path.samestat(os.fstat(found), os.fstat(HELD[held])):
            return found
        os.close(found)
    raise MachineError(
        f"{held} was removed, or another directory took its name, while this run wrote into it",
        "leave it where it is, and begin anew",
    )


def _inside(here: int, names: tuple[str, ...], path: Path, make: bool) -> int:
    """Return a descriptor of a directory that names lead to, and close that of where they begin."""
    left, links = [*reversed(names)], 0
    while left:
        above, name = here, left.pop()
        try:
            here, more = _step(above, name, path, make)
        finally:
            os.close(above)
        left += reversed(more)
        links += bool(more)
        if links > MOST_LINKS:
            os.close(here)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return here


def _step(above: int, name: str, path: Path, make: bool) -> tuple[int, tuple[str, ...]]:
    """Return a descriptor of the directory of a name; of a link, of where it starts, and the names in it."""
    try:
        return _named(above, name, path, make), ()
    except NotADirectoryError as error:
        try:
            target = Path(os.readlink(name, dir_fd=above))
        except OSError:
            raise error from None
    # In a user's namespace root has no number, and who owns / owns the machine.
    trusted = _this_user() | {os.stat("/").st_uid}
    if os.fstat(above).st_uid not in trusted or _others_may_write(above):
        raise MachineError(
            f"{path} leads over the symbolic link {name}, which other users can exchange",
            f"give the directory that it leads to, or {ANOTHER}",
        )
    start = target.anchor or "."
    return os.open(start, PLACE, dir_fd=above), target.relative_to(start).parts


def _named(above: int, name: str, path: Path, make: bool) -> int:
    """Return a descriptor of the directory of a name, which is no link."""
    try:
        return os.open(name, PLACE, dir_fd=above)
    except FileNotFoundError:
        if not make:
            raise
        make_folder(name, above, path)
        return os.open(name, PLACE, dir_fd=above)


def _not_plain(path: Path) -> MachineError:
    return MachineError(f"{path} is not a plain file", f"remove it, or {ANOTHER}")
