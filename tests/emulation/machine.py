"""Whether other work kept this machine busy while a test ran: what is then measured may be anything."""

import time

from testbed.run.evidence import cpu_pressure_s
from testbed.run.fidelity import PRESSED


class Machine:
    """This machine since a test began.

    A measurement is right, or the machine was so busy that a verdict would not be *faithful*: tests of times
    and rates ask for one of the two, ``assert machine.busy or 0.9 < ratio < 1.15``.
    """

    def __init__(self) -> None:
        self._began_s, self._waited_s = time.monotonic(), cpu_pressure_s()

    @property
    def busy(self) -> bool:
        """Whether something has waited for a CPU for longer than the verdict allows; unknown is no excuse."""
        return (cpu_pressure_s() - self._waited_s) / (time.monotonic() - self._began_s) > PRESSED.strained
