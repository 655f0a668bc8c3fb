"""A pytest session in a sandbox: runs the tests that the session outside asks for, and reports each.

    pytest (the user's)  ──starts──►  python -m tests.emulation.launcher
            │  ▲                            └── in the sandbox, python -m tests.emulation.box FILE ...
            │  └─────────── a report per line, on standard output ──────┘   ▲
            └────────────── a test per line, on standard input ─────────────┘

The session outside asks for one test at a time, so that progress, times and time limits are those of the
test. It starts one sandbox for all its tests: to start Python and import them takes longer than to boot
a network. What is left on the host when the sandbox has ended is counted.
"""

import contextlib
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
from testbed.machine.residue import MARKER, left_behind, things
from tests.emulation.launcher import LAUNCHER
from tests.second_run import FinalError
from tests.tools import CHECKOUT
from traffic.compiled import COMPILED, ENGINE

IN_SANDBOX = "sandbox"
"""The fixture that tests ask for which run in a sandbox."""

TEST_S = 120
"""How long a test may take [s]: less than outside, so that the session inside says where it hung."""
END_S = 30
OPTIONS = ("-m", "", "-p", "no:randomly", "-p", "no:cacheprovider", "--no-cov", f"--timeout={TEST_S}")


class Box:
    """A sandbox with a pytest session in it; a context manager.

    Parameters
    ----------
    files
        The files of the tests that it may be asked for.
    config
        The session outside.
    """

    def __init__(self, files: Sequence[str], config: pytest.Config) -> None:
        self._files, self._config = list(files), config

    def __enter__(self) -> "Box":
        """Start the session inside."""
        with ExitStack() as stack:
            self._scratch = Path(stack.enter_context(TemporaryDirectory(prefix="emulation-test-")))
            (self._scratch / "tmp").mkdir()
            self._mark, self._before = uuid.uuid4().hex, things()
            self._process = self._start()
            self._stack = stack.pop_all()
        return self

    def _start(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", __name__, f"--basetemp={self._scratch}/pytest", *self._files]
        environment = {MARKER: self._mark, "TMPDIR": str(self._scratch / "tmp"), ENGINE: COMPILED}
        with (self._scratch / "output").open("w") as output:
            return subprocess.Popen(
                [*LAUNCHER, *command],
                cwd=CHECKOUT,
                env=os.environ | environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                preexec_fn=tie_to_this_process(),
            )

    def __exit__(self, *_error: object) -> None:
        """End the session, which has nothing left to do; fail if it left anything behind."""
        with self._stack:
            with self._process:
                self._process.communicate()
            left = left_behind(self._before, self._mark)
            left += [f"file {path}" for path in (self._scratch / "tmp").iterdir()]
            assert not left, f"left on the host: {', '.join(left)}"
            assert self._process.returncode in (0, 1), self._last_words()

    def outcome(self, node: str, following: str = "") -> list[pytest.TestReport]:
        """Run a test; return the reports of its setup, call and teardown.

        Parameters
        ----------
        node
            The test.
        following
            The test that is asked for next, as far as is known: what both share is kept for it.
        """
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has ended, and has said why
            print(json.dumps([node, following]), file=self._process.stdin, flush=True)
        reports = []
        for report in self._reports():
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


class OnRequest:
    """A plugin that runs the tests it is asked for, and writes each report as a line."""

    def __init__(self, requests: TextIO, lines: TextIO) -> None:
        self._requests, self._lines = requests, lines

    def pytest_configure(self, config: pytest.Config) -> None:
        """Keep what reports are written with."""
        self._config = config

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run tests until no more are asked for."""
        items, promised = {item.nodeid: item for item in session.items}, ""
        last: pytest.Item | None = None
        for line in self._requests:
            node, following = json.loads(line)
            if last and promised and promised != node:  # the one promised was skipped outside
                session.config.hook.pytest_runtest_teardown(item=last, nextitem=None)
            last, promised = items[node], following if following in items else ""
            session.config.hook.pytest_runtest_protocol(item=last, nextitem=items.get(promised))
        if last and promised:
            session.config.hook.pytest_runtest_teardown(item=last, nextitem=None)
        return True

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


def main(files: list[str]) -> int:
    """Run tests in this sandbox as they are asked for; return pytest's exit code."""
    gc.disable()  # until `tests.conftest` has all tests imported: a fifth of a start
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as lines, os.fdopen(os.dup(0)) as requests:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        return pytest.main([*OPTIONS, *files], plugins=[OnRequest(requests, lines)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
