"""A pytest session in a sandbox: runs the tests of one file, and reports each to the session outside.

    pytest (the user's)  ──starts──►  python -m tests.emulation.launcher
            ▲                               └── in the sandbox, python -m tests.emulation.box NODE ...
            └──────────── a report per line, on standard output ─────────┘

The session outside asks for one test's reports at a time, so that progress, times and time limits
are those of the test. What is left on the host when the sandbox has ended is counted.
"""

import gc
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

import pytest

from testbed.machine.kernel import tie_to_this_process
from testbed.machine.residue import MARKER, Host, left_behind
from testbed.machine.sandbox import settle
from tests.emulation.launcher import LAUNCHER
from tests.second_run import FinalError
from tests.tools import CHECKOUT

TEST_S = 120
"""How long a test may take [s]: less than outside, so that the session inside says where it hung."""
END_S = 30
OPTIONS = ("-p", "no:randomly", "-p", "no:cacheprovider", "--no-cov", f"--timeout={TEST_S}")


class Box:
    """A sandbox with a pytest session in it; a context manager.

    Parameters
    ----------
    nodes
        The tests to run, in the order in which they will be asked for.
    config
        The session outside.
    """

    def __init__(self, nodes: Sequence[str], config: pytest.Config) -> None:
        self._waiting, self._config = list(nodes), config

    def __enter__(self) -> "Box":
        """Start the session inside."""
        with ExitStack() as stack:
            self._scratch = Path(stack.enter_context(TemporaryDirectory(prefix="emulation-test-")))
            (self._scratch / "tmp").mkdir()
            self._mark, self._before = uuid.uuid4().hex, Host.now()
            self._process = self._start()
            self._stack = stack.pop_all()
        return self

    def _start(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", __name__, f"--basetemp={self._scratch}/pytest", *self._waiting]
        environment = {MARKER: self._mark, "TMPDIR": str(self._scratch / "tmp")}
        with (self._scratch / "output").open("w") as output:
            return subprocess.Popen(
                [*LAUNCHER, *command],
                cwd=CHECKOUT,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                preexec_fn=tie_to_this_process(),
            )

    def __exit__(self, *_error: object) -> None:
        """Wait for the session's end, or end it if there were tests left; fail if it left anything behind."""
        with self._stack:
            if self._waiting:
                self._process.terminate()
            with self._process:
                for _ in self._reports():
                    pass
            left = left_behind(self._before, self._mark)
            left += [f"file {path}" for path in (self._scratch / "tmp").iterdir()]
            assert not left, f"left on the host: {', '.join(left)}"
            assert self._waiting or self._process.returncode in (0, 1), self._last_words()

    def outcome(self, node: str) -> list[pytest.TestReport]:
        """Return the reports of a test's setup, call and teardown, when it has ended."""
        self._waiting.remove(node)
        reports = []
        for report in self._reports():
            if report.nodeid == node:
                reports.append(report)
                if report.when == "teardown":
                    return reports
        raise FinalError(self._last_words())

    def _reports(self) -> Iterator[pytest.TestReport]:
        assert self._process.stdout
        for line in self._process.stdout:
            data = {"config": self._config, "data": json.loads(line)}
            yield self._config.hook.pytest_report_from_serializable(**data)

    def _last_words(self) -> str:
        code = self._process.wait()
        said = (self._scratch / "output").read_text(errors="replace")
        return f"the session in the sandbox ended (exit code {code}):\n{said}"


class Reporter:
    """A plugin that writes each report as a line."""

    def __init__(self, lines: TextIO) -> None:
        self._lines = lines

    def pytest_configure(self, config: pytest.Config) -> None:
        """Keep what reports are written with."""
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a report."""
        data = {"config": self._config, "report": report}
        print(
            json.dumps(self._config.hook.pytest_report_to_serializable(**data)), file=self._lines, flush=True
        )


def skip_reason(report: pytest.TestReport) -> str:
    """Return why a test was skipped, from (path, line, reason)."""
    assert isinstance(report.longrepr, Sequence)
    return str(report.longrepr[2]).removeprefix("Skipped: ")


def main(nodes: list[str]) -> int:
    """Run tests in this sandbox; return pytest's exit code."""
    settle()
    gc.disable()  # until `tests.conftest` has all tests imported: a fifth of a start
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as lines:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        return pytest.main([*OPTIONS, *nodes], plugins=[Reporter(lines)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
