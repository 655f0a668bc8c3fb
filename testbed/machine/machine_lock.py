"""The machine's lock: one emulation at a time on a machine, whoever asks for it.

It is a `flock` on a file in a directory of root's, which all users can read and none can exchange; root makes
it when a run of root's finds none, or `vagrant/provision.sh` at each boot. Where there is none, each user has
one. The kernel lets go of it when the last process that has the descriptor has ended, so a sandbox that
inherits it holds it to its end. Who can read the file can also hold it for ever: so it is said who does.
"""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident

from testbed.machine.commands import PROVISION
from testbed.machine.files import lock_file, make_directory
from testbed.machine.lock_holder import holder
from topologies.errors import MachineError

MACHINES, OWN = Path("/run/lightrail"), "/tmp/.lightrail-{}"
"""The directory of root's, and one of a user's, by number."""
NAME = "lock"
_HELD_BY: set[tuple[int, int]] = set()
"""The process and the thread that hold it, which would wait for themselves."""


@contextmanager
def machine_lock(*, waits: bool = True) -> Iterator[int]:
    """Hold the machine's lock, and yield its descriptor; where another does, say who, and wait or raise."""
    lock, mine = _opened(), (os.getpid(), get_ident())
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if mine in _HELD_BY:
                raise MachineError(
                    "this script or notebook emulates already, and would wait for itself",
                    "end that first: leave its with block",
                ) from error
            said = f"another emulation runs on this machine, {holder(lock)}"
            if not waits:
                raise MachineError(said, "leave out --no-wait, and this one waits for its end") from error
            sys.stderr.write(f"{said}: waiting for it\n")
            fcntl.flock(lock, fcntl.LOCK_EX)
        _HELD_BY.add(mine)
        try:
            yield lock
        finally:
            _HELD_BY.discard(mine)
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)  # a process that was forked meanwhile may have a copy
        os.close(lock)


def _opened() -> int:
    """Return a descriptor of the file, in the first place that has one or where this user may make one."""
    with suppress(OSError):  # it is there, or this user may make none
        MACHINES.mkdir()
        MACHINES.chmod(0o755)  # whatever the umask
    with suppress(MachineError):
        return lock_file(MACHINES / NAME, for_all=True)
    try:
        own = Path(OWN.format(os.geteuid()))
        make_directory(own)
        return lock_file(own / NAME)
    except MachineError as error:
        raise MachineError(error.sentence, f"have one made that all users share: {PROVISION}") from error
