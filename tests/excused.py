"""How many tests asked nothing of what they measured, since other work kept the machine busy.

A session names them when it ends. On a quiet machine there are none: a test that is named then has to run
where nothing runs beside it (`tests/emulation/alone`), or at a rate that this machine carries.
"""

import pytest

EXCUSED = "excused"
"""The property of a report whose test asked nothing of a measurement."""


class Excused:
    """A plugin that counts and names the tests that a busy machine excused."""

    def __init__(self) -> None:
        self._nodes: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that was excused."""
        if (EXCUSED, True) in map(tuple, report.user_properties):
            self._nodes[report.nodeid] = None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the tests that were excused."""
        if self._nodes:
            terminalreporter.write_line(f"excused by a busy machine: {len(self._nodes)} tests that measure")
            for node in self._nodes:
                terminalreporter.write_line(f"  EXCUSED {node}")
