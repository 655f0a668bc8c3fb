"""How long a process could not run: stopped, throttled, or without a CPU.

A process that sleeps waits for work and is well. One that does not sleep and whose CPU time stands still
gets nothing done, whatever the reason; a thread looks at it every 20 ms.
"""

import math
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

LOOK_S = 0.02
SLEEPS = "SI"
"""The states in which a process waits for work (proc(5))."""


class StallWatch:
    """Watches the main thread of a process between entering and leaving; a context manager.

    Parameters
    ----------
    pid
        The process.
    """

    def __init__(self, pid: int) -> None:
        self._stat = Path(f"/proc/{pid}/task/{pid}/stat")
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.longest_s = 0.0
        """The longest time in which it could not run [s]."""

    def __enter__(self) -> Self:
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Look no more."""
        self._left.set()
        self._thread.join()

    def _look(self) -> None:
        ran_at, ran = time.monotonic(), -1
        with suppress(OSError):  # a process that has ended is found by who needs it
            while not self._left.wait(LOOK_S):
                state, ticks = _state(self._stat)
                now = time.monotonic()
                if state in SLEEPS or ticks != ran:
                    ran_at, ran = now, ticks
                self.longest_s = max(self.longest_s, now - ran_at)


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, all threads together [s]."""
    return _state(Path(f"/proc/{pid}/stat"))[1] / os.sysconf("SC_CLK_TCK")


def run_delay_s(pid: int) -> float:
    """Return how long the threads of a process that could run have waited for a CPU, together [s].

    It is NaN where the kernel does not count it (CONFIG_SCHED_INFO).
    """
    delays_s = list(map(_run_delay_s, Path(f"/proc/{pid}/task").glob("*/schedstat")))
    return sum(delays_s) if delays_s else math.nan


def _run_delay_s(schedstat: Path) -> float:
    """Return it of one thread, 0 once that has ended [s]."""
    with suppress(OSError):
        return int(schedstat.read_text().split()[1]) / 1e9
    return 0.0


def _state(stat: Path) -> tuple[str, int]:
    """Return a state and the ticks of CPU time, user's and kernel's."""
    fields = stat.read_text().rpartition(")")[2].split()
    return fields[0], int(fields[11]) + int(fields[12])
