"""Commands: what they print, and one sentence where they fail."""

import sys

import pytest

from testbed.machine.commands import output_of
from topologies.errors import MachineError


def test_what_a_command_prints_is_returned() -> None:
    assert output_of(["echo", "a", "b"]) == "a b\n"


def test_what_a_command_complains_of_is_in_one_line() -> None:
    fails = ["sh", "-c", "echo said; echo no such >&2; echo bridge >&2; exit 3"]
    with pytest.raises(MachineError, match=r"^sh -c .*: no such bridge \(exit code 3\)$") as caught:
        output_of(fails)
    assert "\n" not in str(caught.value).removeprefix(" ".join(fails))


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(MachineError, match=r"^no-such-program --version: No such file") as caught:
        output_of(["no-such-program", "--version"])
    assert "provision.sh" in caught.value.hint


def test_what_does_not_end_is_killed() -> None:
    with pytest.raises(MachineError, match=r"did not end within 0\.05 s"):
        output_of([sys.executable, "-c", "import signal; signal.pause()"], 0.05)
