"""Signals that end a command: Ctrl-C, SIGTERM and SIGHUP, each an interrupt; those that are ignored stay so.

Python's library alone: a scenario imports this before anything else.
"""

import os
import signal
from types import FrameType

ENDING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
_heard: list[int] = []
"""Those that have interrupted this command, in order."""


def hear(*, at_once: bool = False) -> None:
    """Have each interrupt this command, or end it at once, while nothing has begun that has to be closed."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end if at_once else _interrupt)


def ignore() -> None:
    """Ignore all from now on."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def heard() -> int:
    """Return the signal that has interrupted this command; SIGINT if none was heard of."""
    return _heard[0] if _heard else signal.SIGINT


def said_of(number: int) -> str:
    """Return the word for what a signal did: that of the first one of Ctrl-C."""
    return "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"


def _interrupt(number: int, _frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; while this command ends, only a SIGTERM does more: it ends it at once.

    A terminal that is closed sends SIGHUP more than once, by the kernel and by the shell.
    """
    if _heard and number == signal.SIGTERM:
        _end(number, None)
    if not _heard or number == signal.SIGINT:
        _heard.append(number)
        raise KeyboardInterrupt


def _end(number: int, _frame: FrameType | None) -> None:
    os.write(2, f"{said_of(number)}\n".encode())
    os._exit(128 + number)
