"""Who holds a lock (`flock`), as the kernel knows it: what a file says of that, anyone may have written."""

import os
from contextlib import suppress
from pathlib import Path

from testbed.machine.walk import user_name

LOCKS = Path("/proc/locks")
"""A line per lock: number, kind, ADVISORY, READ or WRITE, process, device and inode, first and last byte."""


def holder(descriptor: int) -> str:
    """Return the process that holds a lock of the file that is open, and whose it is, as words."""
    status = os.fstat(descriptor)
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    pids = list[int]()
    with suppress(OSError):  # hidden
        rows = [line.split() for line in LOCKS.read_text().splitlines()]
        # One that waits for the lock has an arrow for its kind.
        pids += [int(row[4]) for row in rows if row[1] == "FLOCK" and row[5] == file]
    return _words(pids[0]) if pids else "a process that cannot be seen from here"


def _words(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
        owner = user_name(os.stat(f"/proc/{pid}").st_uid)
    except OSError:  # others' processes may be hidden
        return f"process {pid}, or what it left running"
    name = "".join(letter if letter.isprintable() else "?" for letter in command)
    return f"process {pid} ({name}, of {owner})"
