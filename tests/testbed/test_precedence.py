"""Who comes first when CPUs are short: a process that is raised, or else all that are not lowered."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed.machine.precedence import LOWEST, Precedence
from testbed.machine.residue import until

WITHIN_S = 20.0


@pytest.fixture
def sessions() -> Iterator[list[int]]:
    """Return processes, each the leader of a session; skip where sessions have no autogroups."""
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel has no autogroups")
    with ExitStack() as stack:
        started = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(3)]
        for process in started:
            stack.enter_context(process)
            stack.callback(process.kill)
        yield [process.pid for process in started]


def niceness(pid: int) -> int:
    """Return the niceness of a process' session."""
    return int(Path(f"/proc/{pid}/autogroup").read_text().split()[-1])


def test_sessions_are_lowered_however_often_the_kernel_allows_it(sessions: list[int]) -> None:
    with Precedence() as precedence:
        assert precedence.words == ("nice", "-n", str(LOWEST))
        for pid in sessions:
            precedence.put_last(pid)
        assert until(lambda: {niceness(pid) for pid in sessions} == {LOWEST}, WITHIN_S)


def test_where_one_is_raised_no_other_is_lowered(sessions: list[int]) -> None:
    first, *others = sessions
    with Precedence() as precedence:
        precedence.put_first(first)
        if os.geteuid() != 0 or niceness(first) == 0:
            assert precedence.words
            pytest.skip("this user may raise nobody")
        assert precedence.words == ()
        for pid in others:
            precedence.put_last(pid)
    assert [niceness(pid) for pid in sessions] == [-20, 0, 0]
    assert os.getpriority(os.PRIO_PROCESS, first) == -20
