"""Processes of this run that are stopped (SIGSTOP), for which it would wait for ever without a word.

A prediction may take hours, and a message of an emulation as long as the slowest link makes it: no time says
that something hangs. The kernel says who is stopped: a worker, the controller, Open vSwitch in a sandbox. All
of them descend from this process, so it looks at those, and whoever is stopped may go on.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LOOK_S = 3.0
"""How long a process is stopped at least before it is named, and at most twice that [s]."""
PROC = Path("/proc")


def say_what_is_stopped() -> None:
    """Name on standard error each process below this one that is stopped, as long as this one runs."""
    threading.Thread(target=_say, daemon=True).start()


def stopped() -> dict[int, str]:
    """Return the names of the processes below this one that are stopped, by their numbers."""
    return {number: name for number, name, state in _below(os.getpid()) if state == "T"}


def _say() -> None:
    before, said = set[int](), set[int]()
    while True:
        time.sleep(LOOK_S)
        now = stopped()
        for number in sorted(now.keys() & before - said):
            words = f"{now[number]} (process {number}) is stopped, and this run waits for it"
            os.write(
                2, f"{words}: kill -CONT {number} has it go on\n".encode()
            )  # no lock: a fork may copy it
        said = (said & now.keys()) | (now.keys() & before)
        before = {*now}


def _below(parent: int) -> Iterator[tuple[int, str, str]]:
    """Yield number, name and state of each process below one; what ends meanwhile is left out."""
    threads = list[Path]()
    with suppress(OSError):  # one that ends just now has no threads that could be listed
        threads += (PROC / str(parent) / "task").glob("*/children")
    for file in threads:
        for number in map(int, _text(file).split()):
            head, _, rest = _text(PROC / str(number) / "stat").rpartition(")")
            if rest:
                yield number, head.partition("(")[2], rest.split()[0]
                yield from _below(number)


def _text(file: Path) -> str:
    """Return the text of a file of the kernel; nothing once its process has ended."""
    with suppress(OSError):
        return file.read_text()
    return ""
