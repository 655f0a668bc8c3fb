"""Two processes: results in order, errors as they were raised, and no process that outlives its parent."""

import os
import signal
import subprocess
import sys

import pytest

from testbed.machine.processes import in_processes
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


def test_no_process_outlives_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout as said:
        workers = {int(said.readline()) for _ in range(4)}
        parent.send_signal(signal.SIGKILL)
        assert said.read() == ""  # the pipe is closed when the last that holds it has ended
    assert parent.pid not in workers
