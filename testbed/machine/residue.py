"""What a run leaves on the host: interfaces, named namespaces, mounts, files, and processes.

Processes are identified by a variable in their environment, which all that a run starts inherit; with
the last process of a namespace the kernel ends the namespace, and all that is in it.
"""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from testbed.machine.machine_lock import MACHINES

MARKER = "LIGHTRAIL_MARK"
"""The environment variable that marks a run's processes."""
PLACES = ("/run", "/run/netns", "/run/openvswitch", "/tmp", "/var/tmp", "/dev/shm")
NAMES = ("lightrail", "ovs", "openvswitch", "mn", "mininet", "vconn", "netns")
MOUNTED = ("/run", "/sys", "/tmp", "/proc")
END_S = 10.0


def things() -> frozenset[str]:
    """Return what this machine holds beside processes: interfaces, mounts and files, each with what it is."""
    interfaces = {f"interface {name}" for _, name in socket.if_nameindex()}
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    files = {
        str(path)
        for place in map(Path, PLACES)
        if place.is_dir()
        for path in place.iterdir()
        if path.parent.name == "netns" or path.name.startswith(NAMES)
        if path != MACHINES  # which stays
    }
    return frozenset(
        interfaces
        | {f"mount {target}" for target in mounts if target.startswith(MOUNTED)}
        | {f"file {path}" for path in files}
    )


def left_behind(before: frozenset[str], mark: str) -> list[str]:
    """Return what a run that has ended left behind; the kernel has some seconds to finish.

    Parameters
    ----------
    before
        `things` before the run.
    mark
        What its processes have in `MARKER`.
    """
    left: list[str] = []

    def nothing_left() -> bool:
        left[:] = sorted(things() - before) + [f"process {p}" for p in processes(mark)]
        return not left

    until(nothing_left, END_S)
    return left


def processes(mark: str) -> list[str]:
    """Return the number and command of each process that a mark is on."""
    wanted = f"{MARKER}={mark}".encode()
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (directory / "environ").read_bytes().split(b"\0"):
                found.append(f"{directory.name} {(directory / 'comm').read_text().strip()}")
        except OSError:  # it ended, or belongs to somebody else
            continue
    return found


def until(condition: Callable[[], bool], within_s: float) -> bool:
    """Return whether a condition came true within some seconds."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        os.sched_yield()
        time.sleep(0.01)
    return True
