"""A second run of the emulation tests that failed; what `.ci/run` does after pytest.

    .ci/run ──► pytest, which notes what failed (`Recorder`)
       └──────► python -m tests.second_run CODE NOTES, which decides and runs

Some tests of moving packets fail where a busy machine keeps a process waiting for too long. Such a
test fails in its own call, alone or with a few others, and not again. All else fails at once: unit
tests; set-ups and tear-downs, where a residue on the host shows; tests that cannot be collected; a
session that crashed, in the sandbox or outside; a coverage below its floor; any exit code that is
not that of failed tests.
"""

import json
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

NOTES_VARIABLE = "LIGHTRAIL_FAILURES"
"""The environment variable that names the file for the notes; without it nothing is noted."""
MOST_TESTS = 5
"""More emulation tests that fail in one run are no flake."""


class FinalError(AssertionError):
    """A failure that no second run excuses, also where it shows in an emulation test's call."""


@dataclass(frozen=True)
class Failure:
    """A phase of a test that failed."""

    node: str
    """The test's node id."""
    phase: str
    """``setup``, ``call`` or ``teardown``; ``collection``; ``???`` where a worker died."""
    emulation: bool
    """Whether the test has the marker ``emulation``."""
    final: bool
    """Whether it was a `FinalError`."""

    @property
    def may_be_flaky(self) -> bool:
        """Whether a second run may excuse it."""
        return self.emulation and self.phase == "call" and not self.final


class Recorder:
    """A plugin that notes a session's failures.

    Reports are made where the tests run, which is in workers under ``pytest -n``, and all reach the
    session that writes the notes; so each takes along what is to be noted of it.

    Parameters
    ----------
    notes
        The file for the notes, written when the session ends; None writes none, as in a worker.
    """

    def __init__(self, notes: Path | None) -> None:
        self._notes = notes
        self._failures: list[Failure] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put on a report what a second run asks of its test."""
        report = yield
        # Not the report's keywords: every test in the folder tests/emulation has that word.
        emulation = item.get_closest_marker("emulation") is not None
        final = call.excinfo is not None and call.excinfo.errisinstance(FinalError)
        report.user_properties += [("emulation", emulation), ("final", final)]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a phase that failed, as all other plugins have left its report."""
        if report.failed:
            said = dict(report.user_properties)  # empty where a worker died: that report is not made above
            emulation, final = bool(said.get("emulation", False)), bool(said.get("final", True))
            self._failures.append(Failure(report.nodeid, str(report.when), emulation, final))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what could not be collected: with workers the exit code does not say so."""
        if report.failed:
            self._failures.append(Failure(report.nodeid, "collection", emulation=False, final=True))

    def pytest_sessionfinish(self) -> None:
        """Write the notes."""
        if self._notes:
            self._notes.write_text(json.dumps([asdict(failure) for failure in self._failures]))


class Passed:
    """A plugin that keeps the tests that passed; one that was skipped did not."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a test whose call passed."""
        if report.when == "call" and report.passed:
            self.nodes.add(report.nodeid)


def noted(notes: Path) -> list[Failure]:
    """Return what a session noted: nothing, if it did not come to its end."""
    text = notes.read_text() if notes.exists() else ""
    return [Failure(**each) for each in json.loads(text or "[]")]


def refusal(code: int, failures: Sequence[Failure]) -> str:
    """Return why there is no second run, empty if there is one.

    Parameters
    ----------
    code
        The exit code of pytest.
    failures
        What it noted.
    """
    if code != pytest.ExitCode.TESTS_FAILED:
        return f"pytest ended with the exit code {code}"
    if not failures:
        return "pytest failed, and not because of a test"
    if final := [failure for failure in failures if not failure.may_be_flaky]:
        return "not an emulation test's own call: " + ", ".join(f"{f.node} ({f.phase})" for f in final)
    if len(failures) > MOST_TESTS:
        return f"{len(failures)} emulation tests failed, more than {MOST_TESTS}"
    return ""


def coverage_refusal() -> str:
    """Return why the first run's coverage is too low, empty if it is not.

    A coverage below its floor and failed tests have the same exit code, so that both at once look like one.
    """
    command = [sys.executable, "-m", "coverage", "report", "--format=total"]
    report = subprocess.run(command, capture_output=True, text=True)
    return "" if report.returncode == 0 else f"coverage: {' '.join((report.stdout + report.stderr).split())}"


def run_again(nodes: Sequence[str]) -> int:
    """Run tests again in a new session, and so in new sandboxes; return the exit code."""
    print("second run of the emulation tests that failed:", *nodes, sep="\n  ", flush=True)
    passed = Passed()
    code = int(pytest.main(["--no-cov", *nodes], plugins=[passed]))
    for node in nodes:
        print("FLAKY" if node in passed.nodes else "FAILED AGAIN", node)
    if code == 0 and passed.nodes >= set(nodes):
        print("result: passed, but for the flaky tests above, which failed once")
        return 0
    print("result: failed, also in the second run")
    return code or 1


def main(code: int, notes: Path) -> int:
    """Decide on a second run after pytest's exit code, and run it; return the exit code of both."""
    if code == 0:
        return 0
    failures = noted(notes)
    if why := refusal(code, failures) or coverage_refusal():
        print(f"result: failed, without a second run ({why})")
        return code
    return run_again([failure.node for failure in failures])


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
