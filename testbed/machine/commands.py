"""Commands of the machine: what they print, or one sentence with what they complained of."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from topologies.errors import MachineError

MOST_CHARACTERS = 300
"""Of a command, and of the end of its complaint, in a sentence."""


def output_of(command: Sequence[str | Path], timeout_s: float | None = None) -> str:
    """Run a command and return what it writes to its standard output.

    Parameters
    ----------
    command
        The program and its arguments.
    timeout_s
        When it is killed [s]; None for never.

    Raises
    ------
    MachineError
        If it does not start, fails, or does not end in time: the command, and what it wrote to stderr.
    """
    words = " ".join(map(str, command))[:MOST_CHARACTERS]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout_s)
    except OSError as error:
        raise MachineError(f"{words}: {error.strerror}", "run: sudo bash vagrant/provision.sh") from error
    except subprocess.TimeoutExpired as error:
        raise MachineError(f"{words}: it did not end within {error.timeout:g} s") from error
    if done.returncode:
        complaint = " ".join(done.stderr.split())[-MOST_CHARACTERS:]
        raise MachineError(f"{words}: {complaint or 'no word of why'} (exit code {done.returncode})")
    return done.stdout
