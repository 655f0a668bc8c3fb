"""Commands of the machine: what they print, or one sentence with what they complained of; and a child."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.machine.kernel import tie_to_this_process
from topologies.errors import MachineError

PROVISION = "run as root: bash vagrant/provision.sh"
"""Advice where something is not installed; root in a container has no sudo."""
CHECKOUT = Path(__file__).resolve().parents[2]
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
        raise MachineError(f"{words}: {error.strerror}", PROVISION) from error
    except subprocess.TimeoutExpired as error:
        raise MachineError(f"{words}: it did not end within {error.timeout:g} s") from error
    if done.returncode:
        complaint = " ".join(done.stderr.split())[-MOST_CHARACTERS:]
        raise MachineError(f"{words}: {complaint or 'no word of why'} (exit code {done.returncode})")
    return done.stdout


class Child(subprocess.Popen[bytes]):
    """A program that runs beside this process and dies with it; when its block is left it is killed.

    What it writes goes to a log, but for what it says where this process hears that.
    """

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str], *, heard: bool = False
    ) -> None:
        self.log = log
        with log.open("wb") as written:
            super().__init__(
                command,
                cwd=CHECKOUT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if heard else written,
                stderr=written,
                env=os.environ | environment,
                start_new_session=True,  # Ctrl-C is not for it
                preexec_fn=tie_to_this_process(),
            )

    def __exit__(self, *_error: object) -> None:
        self.kill()
        self.wait()
        if self.stdout:
            self.stdout.close()
