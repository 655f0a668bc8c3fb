"""Autogroups: the kernel shares the CPUs out among sessions first, and only then among a session's processes.

A process' own niceness counts inside its session alone (sched(7), "The autogroup feature"), so eight ranks of
MPI that spin in sessions of their own leave Open vSwitch a ninth of the machine, at whatever niceness: it then
waited for a CPU four times as long as it ran, over two CPUs. With their sessions at 19 it was a tenth. The
kernel lets an ordinary user lower one session every 0.1 s.
"""

import queue
import threading
from pathlib import Path
from typing import Self

LEAST = "19"
AGAIN_S = 0.05
"""How long until a session is tried again that the kernel refused to lower as yet [s]."""


class Autogroups:
    """Lowers the sessions of processes; a context manager."""

    def __enter__(self) -> Self:
        self._left: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        return self

    def __exit__(self, *_error: object) -> None:
        """Lower no more."""
        self._closed.set()
        self._left.put(None)
        if self._thread:
            self._thread.join()

    def lower(self, pid: int) -> None:
        """Have all others come before the session of a process: now, or as soon as the kernel allows it."""
        if self._thread is None and not _is_lowered(pid):
            self._thread = threading.Thread(target=self._lower_later, name="autogroups", daemon=True)
            self._thread.start()
        if self._thread:
            self._left.put(pid)

    def _lower_later(self) -> None:
        while (pid := self._left.get()) is not None:
            while not _is_lowered(pid):
                if self._closed.wait(AGAIN_S):
                    return


def _is_lowered(pid: int) -> bool:
    """Lower a session; return False if the kernel refuses it as yet."""
    try:
        Path(f"/proc/{pid}/autogroup").write_text(LEAST)
    except BlockingIOError:
        return False
    except OSError:  # it has ended, or the kernel has no autogroups
        return True
    return True
