"""Whether other work kept this machine busy while a test ran: what is then measured may be anything."""

import threading
from typing import Self

from testbed.trust.evidence import cpu_pressure_s
from testbed.trust.fidelity import PRESSED
from tests.excused import EXCUSED

WINDOW_S = 1.0
"""How long something waits for a CPU most of the time until the machine is busy [s]: a burst of other work is
lost in the mean over a test."""


class Machine:
    """This machine while a test runs; a context manager.

    A measurement is right, or the machine was so busy that a verdict would not be *faithful*: tests of times
    and rates ask for one of the two, ``assert machine.busy or 0.9 < ratio < 1.15``. Those that were busy are
    named when the session ends (`tests.excused`).

    Parameters
    ----------
    properties
        Those of the test's reports.
    """

    def __init__(self, properties: list[tuple[str, object]]) -> None:
        self._properties = properties
        self._ended = threading.Event()
        self._most = 0.0
        """The largest share of a window in which something waited for a CPU."""

    def __enter__(self) -> Self:
        """Begin to look."""
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Look no longer."""
        self._ended.set()
        self._thread.join()

    @property
    def busy(self) -> bool:
        """Whether something waited for a CPU for longer than the verdict allows; unknown is no excuse."""
        if self._most <= PRESSED.strained:
            return False
        self._properties.append((EXCUSED, True))
        return True

    def _look(self) -> None:
        waited_s = cpu_pressure_s()
        while not self._ended.wait(WINDOW_S):
            before_s, waited_s = waited_s, cpu_pressure_s()
            self._most = max(self._most, (waited_s - before_s) / WINDOW_S)
