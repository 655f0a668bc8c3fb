"""The mark of one boot: by it what the boot made is found again, and it says whether its process lives.

With ``--no-sandbox`` links and records outlive a process that is killed; the next run removes them
(`testbed.network.bridges.remove_dead_runs`).
"""

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

FIRST_GROUP = 1 << 30
"""Far from the groups that people give to links."""
STATE, STARTED = 0, 19
"""Where /proc/PID/stat (proc(5)) has a process' state and start, behind its name."""


@dataclass(frozen=True)
class Mark:
    """What all links, records and directories of a boot carry, and those of no other."""

    group: int
    """The group of its links: under it they are deleted together."""
    pid: int
    """The process that boots."""
    started: int
    """When that process started [clock ticks since the machine did]: numbers of processes are given again."""

    @classmethod
    def own(cls) -> "Mark":
        """Return a new mark of this process."""
        started = _started(os.getpid())
        assert started is not None
        return cls(FIRST_GROUP + secrets.randbelow(FIRST_GROUP), os.getpid(), started)

    @classmethod
    def of(cls, text: str) -> "Mark | None":
        """Return the mark that `str` wrote; None if it wrote something else."""
        found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", text)
        return cls(*map(int, found.groups())) if found else None

    def __str__(self) -> str:
        return f"{self.group}.{self.pid}.{self.started}"

    @property
    def is_dead(self) -> bool:
        """Whether its process has ended."""
        return _started(self.pid) != self.started


def _started(pid: int) -> int | None:
    """Return when a process started [clock ticks since the machine did]; None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    # A killed process stays as a zombie until its parent has asked for its end.
    return None if fields[STATE] in "ZX" else int(fields[STARTED])
