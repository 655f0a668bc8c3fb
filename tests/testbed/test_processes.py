"""Forked processes: results in order, errors as they were raised, and none that outlives block or parent."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import active_children
from pickle import PicklingError

import pytest

from testbed.machine.kernel import tie_to_this_process
from testbed.machine.processes import beside, in_processes
from tests.tools import CHECKOUT
from topologies.errors import MachineError, ScenarioError

PARENT = """
import os, time
from testbed.machine.processes import in_processes

def work(number):
    os.write(1, b"%d\\n" % os.getpid())  # at once: an unbuffered print writes the number and the end apart
    if number > 1:
        time.sleep(60)

with in_processes(work, range(20)) as results:
    list(results)
"""


def test_results_are_in_the_order_of_the_items() -> None:
    items = list(range(50))
    with in_processes(lambda item: (item, os.getpid()), items) as results:
        found = list(results)
    assert [item for item, _ in found] == items
    assert os.getpid() not in {process for _, process in found}


def test_an_error_is_raised_where_its_result_is_due() -> None:
    def refuse(item: int) -> int:
        if item == 2:
            raise ScenarioError("no item 2", "take another")
        return item

    with in_processes(refuse, range(5)) as results:
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(ScenarioError, match="no item 2; take another"):
            next(results)


def test_a_killed_process_is_said() -> None:
    def die(_item: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with (
        pytest.raises(MachineError, match="a process that shared the work was killed"),
        in_processes(die, range(3)) as results,
    ):
        list(results)


def test_what_is_being_computed_when_the_block_is_left_ends_at_once() -> None:
    def work(item: int) -> int:
        if item:
            signal.pause()  # for ever; a test that waited for it would run into its time limit
        return item

    def interrupted() -> None:
        with in_processes(work, range(20)) as results:
            assert next(results) == 0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert active_children() == []


def test_an_interrupt_right_after_the_fork_is_the_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    def tie_interrupted() -> Callable[[], None]:
        return lambda: os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("testbed.machine.processes.tie_to_this_process", tie_interrupted)
    with in_processes(str.upper, ["a", "b"]) as results:
        assert list(results) == ["A", "B"]


def test_a_process_killed_in_the_middle_of_an_answer_blocks_nothing() -> None:
    class Late:
        """Kills the process in which it is pickled, behind what takes several writes to send."""

        def __reduce__(self) -> str:
            os.kill(os.getpid(), signal.SIGKILL)
            return ""

    with pytest.raises(MachineError), in_processes(lambda _: (bytes(1 << 20), Late()), range(5)) as results:
        list(results)


def test_what_cannot_be_pickled_is_an_error_where_its_result_is_due() -> None:
    with in_processes(lambda item: (lambda: item) if item else item, range(3)) as results:
        assert next(results) == 0
        with pytest.raises((AttributeError, PicklingError)):
            next(results)


def test_an_error_has_the_traceback_of_the_process() -> None:
    def refuse_by_name(_item: int) -> None:
        raise ScenarioError("no")

    with in_processes(refuse_by_name, range(1)) as results, pytest.raises(ScenarioError) as caught:
        next(results)
    assert "in refuse_by_name" in caught.value.__notes__[0]


def test_what_runs_beside_a_block_ends_with_it_also_by_an_error() -> None:
    read_end, write_end = os.pipe()

    def for_ever() -> None:
        os.write(write_end, b"%d\n" % os.getpid())
        signal.pause()

    def fail_beside() -> None:
        with beside(for_ever, for_ever):
            os.close(write_end)
            processes.update(int(said.readline()) for _ in range(2))
            raise ScenarioError("an error")

    processes: set[int] = set()
    with open(read_end) as said:
        with pytest.raises(ScenarioError):
            fail_beside()
        assert said.read() == ""  # nothing holds the other end
    assert len(processes - {os.getpid()}) == 2


def test_a_child_that_is_tied_too_late_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert subprocess.run(["true"], preexec_fn=tie_to_this_process()).returncode == 0
    monkeypatch.setattr(os, "getpid", lambda: 1 << 22)  # its parent then seems to have died
    assert subprocess.run(["true"], preexec_fn=tie_to_this_process()).returncode == 1


def test_no_process_outlives_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout as said:
        workers = {int(said.readline()) for _ in range(4)}
        parent.send_signal(signal.SIGKILL)
        assert said.read() == ""  # the pipe is closed when the last that holds it has ended
    assert parent.pid not in workers
