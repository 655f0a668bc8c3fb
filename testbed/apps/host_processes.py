"""Processes on hosts: the one way in which a command is carried out there, whoever asks for it.

A command is one process. It enters the host's namespaces, becomes its user, takes what users' commands have,
and then is what was asked for; a tool of the system makes each step and becomes the next, so that its process
number never changes:

    setsid     the terminal that it is to have, if there is one
    nsenter    the host's network, name and mounts, and for an ordinary user the user namespace
    setpriv    the user behind sudo, for root
    env        the working directory, and what signals do by default
    prlimit    the usual number of open files: a daemon that closes each that it may have takes minutes else
    nice       a place behind Open vSwitch, for an ordinary user

It has a session and a process group of its own, and none of this process' descriptors but the three it is
given. What it leaves running, it leaves running: all ends with the sandbox.
"""

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from testbed.apps.environment import host_environment, of_user, with_places
from testbed.network.network import Network
from topologies.errors import ScenarioError

USUAL_FILES, MOST_FILES = 1024, 1 << 19
"""Open files that a process may have, and may ask for."""
KILLED_S = 0.01
"""How long what is killed may take to end, before it is looked for again [s]."""
STUCK_S = 5.0
"""After how long what is killed and does not end is left to the kernel [s]."""
NOT_FOUND, KILLED = 127, 128
"""Exit codes as shells have them: of a command that does not exist, and beside its number of a signal."""


class CommandError(ScenarioError):
    """A command that cannot be started on a host.

    Parameters
    ----------
    sentence, hint
        As of `LightrailError`.
    code
        What a shell would exit with.
    """

    def __init__(self, sentence: str, hint: str = "", code: int = 255) -> None:
        super().__init__(sentence, hint)
        self.code = code


@dataclass(frozen=True)
class HostCommand:
    """A command on a host."""

    host: int
    """The host's number."""
    argv: tuple[str, ...]
    """The program, looked for on the PATH that it gets, and its arguments."""
    env: Mapping[str, str]
    """Its environment; what it does not set of the host's own environment is added."""
    cwd: str
    """The directory that it starts in."""
    as_root: bool = False
    """True to run as the sandbox's root."""
    has_terminal: bool = False
    """True if its standard input is a terminal that is to be its own."""


class HostProcess:
    """A process on a host, from its start on; a context manager, at whose end its session is killed.

    Its number stays its own until it is closed, since it is not reaped before: no signal reaches another.

    Parameters
    ----------
    process
        The leader of a session and a group of its own.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process, self.pid = process, process.pid
        self._pidfd = os.pidfd_open(process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Kill it with all of its session, and forget it."""
        self.kill()
        self.close()

    def fileno(self) -> int:
        """Return a descriptor that can be read once the process has ended."""
        return self._pidfd

    def signal(self, number: int) -> None:
        """Send a signal to what is left of its group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """Kill what is left of its session: OpenMPI gives each rank a group of its own."""
        _kill_all(lambda: [pid for pid in _processes() if _session(pid) == self.pid])

    @property
    def returncode(self) -> int | None:
        """The exit code, 128 + n if signal n ended it; None while it runs."""
        return self._code(os.WNOHANG)

    def wait(self) -> int:
        """Wait for its end, and return its exit code."""
        code = self._code(0)
        assert code is not None
        return code

    def close(self) -> None:
        """Wait for its end, and forget it; what it has left running goes on."""
        self._process.wait()
        os.close(self._pidfd)

    def _code(self, options: int) -> int | None:
        ended = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT | options)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else KILLED + ended.si_status


def start(
    network: Network, command: HostCommand, stdin: int, stdout: int, stderr: int, *, scale: float = 1.0
) -> HostProcess:
    """Start a command on a host.

    Parameters
    ----------
    network
        Booted, with hosts.
    command
        What is run, where.
    stdin, stdout, stderr
        Descriptors; they stay open here.
    scale
        How many times as long as in reality an application is to compute.

    Raises
    ------
    CommandError
        If the host has no such command or directory.
    """
    namespaces, name = network.host_namespaces, network.fabric.servers[command.host].name
    added = host_environment(network, command.host, scale)
    added |= of_user(namespaces.user, as_root=command.as_root)
    environment = with_places({**added, **command.env}) | {"PWD": command.cwd}
    _check(name, command, environment["PATH"])
    entry = namespaces.entry(command.host, as_root=command.as_root)
    session = ["setsid", "--ctty"] if command.has_terminal else []
    plain = [
        "env",
        f"--chdir={command.cwd}",
        "--default-signal",
        "prlimit",
        _files(),
        *namespaces.precedence.words,
    ]
    try:
        begun = subprocess.Popen(
            [*session, *entry, *plain, *command.argv],
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=not session,
        )
    except (OSError, ValueError) as error:  # words too long, or with a NUL; no memory or processes left
        why = error.strerror if isinstance(error, OSError) else error
        raise CommandError(f"{name} cannot run {command.argv[0]!r}: {why}") from error
    process = HostProcess(begun)
    namespaces.precedence.put_last(process.pid)
    return process


def processes_on(network: Network, host: int) -> list[int]:
    """Return the numbers of all processes on a host, whoever started them."""
    own = os.fstat(network.wiring.namespaces[host])
    found = []
    for pid in _processes():
        with suppress(OSError):  # it has ended
            its = os.stat(f"/proc/{pid}/ns/net")
            if (its.st_dev, its.st_ino) == (own.st_dev, own.st_ino):
                found.append(pid)
    return found


def kill_processes_on(network: Network, host: int) -> None:
    """Kill all processes on a host, as its failure does."""
    _kill_all(lambda: processes_on(network, host))


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _session(pid: int) -> int | None:
    """Return the session of a process; None if it has ended, also if it was not reaped."""
    try:
        state, _, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return None
    return None if state in "ZX" else int(session)


def _kill_all(find: Callable[[], Sequence[int]]) -> None:
    """Kill the processes that are found until there are none: one may have started another meanwhile."""
    deadline_s = time.monotonic() + STUCK_S
    while (found := find()) and time.monotonic() < deadline_s:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(KILLED_S)


def _check(host: str, command: HostCommand, path: str) -> None:
    """Raise CommandError if a command has no program or directory; a program that cannot be run says so."""
    if not command.argv:
        raise CommandError(f"there is no command to run on {host}", "give one")
    if not os.path.isdir(command.cwd):
        raise CommandError(f"{host} has no directory {command.cwd}", "start it in another one")
    program = command.argv[0]
    if not (
        os.path.exists(os.path.join(command.cwd, program))
        if "/" in program
        else shutil.which(program, path=path)
    ):
        raise CommandError(f"{host} has no command {program!r}", "install it, or give its path", NOT_FOUND)


def _files() -> str:
    """Return the option for how many open files a process may have, and may ask for."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"--nofile={min(USUAL_FILES, most)}:{min(MOST_FILES, most)}"
