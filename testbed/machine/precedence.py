"""Precedence: Open vSwitch before applications, when CPUs are short.

The kernel shares the CPUs out among sessions first, and only then, by niceness, among a session's processes
(sched(7), "The autogroup feature"). Eight ranks of MPI that spin over two CPUs, each in a session of its own,
had Open vSwitch wait for a CPU four to eight times as long as it ran, at nice 19 and in SCHED_IDLE as
without. With its session raised to -20, which takes root, it waited a ninth as long as it ran. An ordinary
user can only lower the others, one session every 0.1 s: with those at 19 it was a tenth on a quiet machine,
and more where others' processes run too, which such applications then wait for.
"""

import os
import queue
import threading
from pathlib import Path
from typing import Self

HIGHEST, LOWEST = -20, 19
AGAIN_S = 0.05
"""How long until a session is tried again that the kernel refused to lower as yet [s]."""


class Precedence:
    """Has one process come before others; a context manager."""

    def __enter__(self) -> Self:
        """Begin with all alike."""
        self._is_raised = False
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

    def put_first(self, pid: int) -> None:
        """Raise a process, with all its threads and its session, if this user may."""
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                os.setpriority(os.PRIO_PROCESS, int(thread), HIGHEST)
            _set_session(pid, HIGHEST)
        except OSError:  # others are lowered in its place
            self._is_raised = False
        else:
            self._is_raised = True

    @property
    def words(self) -> tuple[str, ...]:
        """The words before a command's own by which it comes after the process that is first."""
        return () if self._is_raised else ("nice", "-n", str(LOWEST))

    def put_last(self, pid: int) -> None:
        """Lower a process' session, now or as soon as the kernel allows it, unless another is raised."""
        if self._is_raised:
            return
        if self._thread is None and not _is_lowered(pid):
            self._thread = threading.Thread(target=self._lower_later, name="precedence", daemon=True)
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
        _set_session(pid, LOWEST)
    except BlockingIOError:
        return False
    except OSError:  # it has ended
        return True
    return True


def _set_session(pid: int, niceness: int) -> None:
    """Set the niceness of a process' session; nothing to a kernel without autogroups."""
    file = Path(f"/proc/{pid}/autogroup")
    if file.exists():
        file.write_text(str(niceness))
