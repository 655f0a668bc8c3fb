"""What tests ask of their session: programs, found or a reason for a skip; sandboxes; numbers of examples."""

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from testbed.machine.commands import PROVISION
from testbed.machine.residue import until
from testbed.machine.sandbox import Sandbox
from topologies.errors import MachineError
from traffic.compiled import extensions

CHECKOUT = Path(__file__).resolve().parent.parent
REAPED_S = 10.0
"""Within so long a process that has ended is gone, also on a busy machine."""


def path_of(program: str) -> str:
    """Return the path of `program`: the one beside this Python first, then as on root's PATH.

    Where it is missing the test is skipped; with CI set it fails, since provision.sh should have brought it.
    """
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]
    found = shutil.which(program, path=os.pathsep.join(folders))
    return found or _miss(f"{program} is not installed; {PROVISION}")


def need_compiled_engine() -> None:
    """Return where the engine was compiled; elsewhere skip the test, or fail it with CI set."""
    if not extensions():
        _miss(f"the engine is not compiled; {PROVISION}")


def need_sandbox() -> None:
    """Return where a sandbox can be made; elsewhere skip the test, or fail it with CI set."""
    try:
        with Sandbox(["true"]) as sandbox:
            sandbox.wait()
    except MachineError as error:
        _miss(str(error))


def _miss(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def hears_interrupts() -> None:
    """Have a process hear SIGINT: a shell's background job inherits that it is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def ends(group: int) -> bool:
    """Return whether a process group has no process any more, once what adopted its last has reaped it."""

    def is_gone() -> bool:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        return False

    return until(is_gone, REAPED_S)
