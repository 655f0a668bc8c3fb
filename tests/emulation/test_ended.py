"""An emulation that is ended, or of which something is stopped, says so; nothing is left of it."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from testbed.machine.residue import MARKER, left_behind, processes, things, until
from tests.tools import CHECKOUT, hears_interrupts, need_sandbox

pytestmark = [pytest.mark.emulation, pytest.mark.early]

WORDS = ("--servers", "2", "--rails", "2", "--seeds", "1", "--schemes", "rails", "--transport", "credit")
START_S = 120.0
"""How long a network may take to be there [s], calibration included."""


@contextmanager
def emulated(folder: Path, *words: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Start a small emulation; yield it and the mark of its processes, and count what it left."""
    need_sandbox()
    before, mark = things(), uuid.uuid4().hex
    command = [
        sys.executable,
        str(CHECKOUT / "scenarios" / "rails_uniform.py"),
        *WORDS,
        "--out",
        "out",
        *words,
    ]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | {MARKER: mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hears_interrupts,
    ) as run:
        yield run, mark
    assert not left_behind(before, mark)


def process_of(mark: str, word: str) -> int:
    """Return the number of the process whose command has a word, once there is one."""
    found: list[int] = []

    def look() -> bool:
        with suppress(OSError):  # one of them has just ended
            numbers = [int(text.split()[0]) for text in processes(mark)]
            commands = {each: Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0") for each in numbers}
            found[:] = [each for each, command in commands.items() if word.encode() in command]
        return bool(found)

    assert until(look, START_S)
    return found[0]


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGHUP])
def test_what_ends_an_emulation_ends_all_of_it(by: signal.Signals, tmp_path: Path) -> None:
    with emulated(tmp_path) as (run, mark):
        process_of(mark, "ovs-vswitchd")
        os.killpg(run.pid, by)
        said = run.communicate(timeout=60)[1]
    assert run.returncode == 128 + by
    assert [line for line in said.splitlines() if line][-1].startswith(f"ended by {by.name}")
    assert "Traceback" not in said


@pytest.mark.parametrize("word", ["ovs-vswitchd", pytest.param("controller", marks=pytest.mark.slow)])
def test_a_daemon_that_is_stopped_is_named_and_may_go_on(word: str, tmp_path: Path) -> None:
    with emulated(tmp_path) as (run, mark):
        daemon = process_of(mark, word)
        os.kill(daemon, signal.SIGSTOP)
        assert run.stderr is not None
        said = next(line for line in run.stderr if "stopped" in line)
        assert f"(process {daemon}) is stopped, and this run waits for it: kill -CONT {daemon}" in said
        os.kill(daemon, signal.SIGCONT)
        rest = run.communicate(timeout=120)[1]
    assert run.returncode in (0, 2)  # what it timed out on meanwhile is a sentence
    assert "Traceback" not in rest
