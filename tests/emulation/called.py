"""What tests have an emulation worker call: generators that move no packets."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator

from testbed.machine.sandbox import inside_sandbox
from testbed.study.worker import EmulationWorker
from topologies.errors import ScenarioError


class PlainError(Exception):
    """Cannot be made anew from its arguments."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def counted(most: int) -> Generator[int, None, int]:
    """Yield numbers, and say where it is closed; return how many there were."""
    try:
        yield from range(most)
        return most
    finally:
        print(f"closed {most}", file=sys.stderr, flush=True)


def summed() -> Generator[int, int, None]:
    """Yield the sum of all that was sent so far."""
    total = 0
    while True:
        total += yield total


def surroundings() -> Iterator[tuple[bool, str, int, str]]:
    """Yield whether this is a sandbox, the directory, the user, and what the standard input is."""
    yield inside_sandbox(), os.getcwd(), os.geteuid(), os.readlink("/proc/self/fd/0")


def refused(kind: str) -> Iterator[int]:
    """Raise an error after a number."""
    yield 1
    raise {"ours": ScenarioError("no", "take another"), "plain": PlainError(1, 2)}[kind]


def killed(number: signal.Signals) -> Iterator[int]:
    """Send this process a signal after a number."""
    yield 1
    os.kill(os.getpid(), number)
    signal.pause()


def stands() -> Iterator[int]:
    """Start a daemon and another that it leaves behind, and stay."""
    subprocess.Popen(["sh", "-c", "sleep 1000 & sleep 1000"])
    try:
        yield 1
        signal.pause()
    finally:
        print("closed", file=sys.stderr, flush=True)


def call_for_ever(*, leave_a_fork: bool = False, terminal: bool = False) -> None:
    """Have a worker stay, and say so; a forked process may stay too, with all descriptors of this one."""
    with EmulationWorker(terminal=terminal) as worker:
        if leave_a_fork and os.fork() == 0:
            signal.pause()
        for _ in worker.call(stands):
            print("up", flush=True)
