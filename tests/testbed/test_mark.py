"""The mark of a boot: written and read, and dead when its process has ended."""

import os
import subprocess
import sys
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from testbed.machine.residue import until
from testbed.network.mark import FIRST_GROUP, Mark
from tests.tools import CHECKOUT

NUMBERS = st.integers(0, 1 << 62)
END_S = 60.0
CHILD = "from testbed.network.mark import Mark; print(Mark.own(), flush=True); input()"


@given(mark=st.builds(Mark, NUMBERS, NUMBERS, NUMBERS))
def test_a_mark_is_read_as_it_was_written(mark: Mark) -> None:
    assert Mark.of(str(mark)) == mark


def test_each_boot_of_a_process_has_a_mark_of_its_own() -> None:
    one, other = Mark.own(), Mark.own()
    assert one.group != other.group
    assert FIRST_GROUP <= one.group < 1 << 31
    assert replace(one, group=other.group) == other
    assert one.pid == os.getpid()
    assert not one.is_dead


def test_a_mark_is_dead_as_soon_as_its_process_is() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout
        mark = Mark.of(child.stdout.readline().strip())
        assert mark
        assert not mark.is_dead
        child.kill()
        assert until(lambda: mark.is_dead, END_S), "its parent has not asked for its end"
    assert mark.is_dead


def test_a_process_that_has_the_number_of_one_that_ended_is_another() -> None:
    own = Mark.own()
    assert replace(own, started=own.started - 1).is_dead
