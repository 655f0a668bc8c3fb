"""The sandbox: a command in namespaces of its own, which end with it and with the process that started it.

    this process ──── a socket, and a pidfd of this process ────┐
      └── unshare                                               │
            └── process 1 of a new PID namespace (--kill-child), `sandbox_init`
                  └── the command
                        ├── ovsdb-server, ovs-vswitchd, the controller, shells of servers
                        └── ...

When process 1 dies the kernel kills all the others, and with the last of them go the network namespace (every
interface) and the mount namespace (every file under the private /run). So nothing needs cleaning up, whatever
the signal. Process 1 ends the command in order, and then itself, when its socket is shut down or this process
ends.
"""

import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from testbed.machine import sandbox_init
from testbed.machine.commands import PROVISION
from topologies.errors import MachineError

RUN_DIRECTORY = Path("/run/lightrail")
"""Where a network in a sandbox keeps its sockets and logs, on the private /run."""
TOOLS = ("unshare", "nsenter", "mnexec", "ovsdb-server", "ovsdb-tool", "ovs-vswitchd", "ovs-vsctl", "tc")
NAMESPACES = ("--mount", "--pid", "--net", "--ipc", "--uts", "--mount-proc", "--fork", "--kill-child")
TUN = "/dev/net/tun"
STDERR = 2
PLACES_OF_OVS = ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR")
"""Where the tools of Open vSwitch look for its sockets."""
APPARMOR = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
"""Reads 1 where AppArmor keeps ordinary users from namespaces, as on Ubuntu 24.04."""
CONTAINER_HINT = (
    "run the container with --privileged, or with --cap-add SYS_ADMIN --security-opt systempaths=unconfined"
)
KILL_S = sandbox_init.GRACE_S + 5.0
"""After so long a sandbox that was asked to end is killed [s]; process 1 ends it before."""
MOST_BYTES = 1 << 16
"""Of a message of process 1, and of what ``unshare`` complains of."""


def inside_sandbox() -> bool:
    """Return whether this process runs inside a sandbox."""
    return sandbox_init.INSIDE.exists()


def raise_descriptor_limit() -> int:
    """Allow as many descriptors as this user may have, and return how many: each queue pair takes two."""
    most = int(Path("/proc/sys/fs/nr_open").read_text())
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ValueError, PermissionError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Sandbox:
    """A command in a sandbox of its own; a context manager, which ends all that is in it.

    Parameters
    ----------
    command
        The program, which is looked for on the PATH, and its arguments.
    keep
        Descriptors that its processes have too, under the same numbers.
    terminal
        Whether it has this process' standard streams, and Ctrl-C, which then is the command's alone. Else it
        reads nothing, writes to this process' standard error, and has a session of its own.
    bridged
        Whether it is to have bridges of Open vSwitch, as of `check_tools`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        keep: Sequence[int] = (),
        terminal: bool = False,
        bridged: bool = True,
    ) -> None:
        self._command, self._keep, self._terminal = list(command), tuple(keep), terminal
        self._bridged = bridged

    def __enter__(self) -> "Sandbox":
        """Start the command; MachineError if a tool or a right is missing."""
        check_tools(bridged=self._bridged)
        with ExitStack() as stack:
            self._control, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(self._control)
            said = stack.enter_context(open(os.memfd_create("said"), "r+b"))
            if self._terminal:
                stack.enter_context(_ctrl_c_left_to_the_command())
            stack.callback(self._tell_to_end)
            with there:
                self._process = self._started(there.fileno(), said.fileno())
            self.ended = stack.enter_context(_pidfd(self._process.pid)).fileno()
            """A descriptor that is readable once all of it has ended."""
            stack.callback(self._end)
            self._check(said)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        """Have the command asked to end, and all that is left then, or after `GRACE_S`, killed."""
        self._stack.close()

    def wait(self) -> int:
        """Wait for the command to end; return its exit code, 128 + n where signal n ended it."""
        code = self._process.wait()
        return 128 - code if code < 0 else code

    def heard(self, channel: socket.socket) -> bool:
        """Wait until a socket can be read; return False if all has ended and there is nothing to read."""
        poll = select.poll()
        for descriptor in (channel.fileno(), self.ended):
            poll.register(descriptor, select.POLLIN)
        return channel.fileno() in {descriptor for descriptor, _ in poll.poll()}

    def _started(self, control: int, said: int) -> "subprocess.Popen[bytes]":
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        with _pidfd(os.getpid()) as parent, open(os.dup(STDERR), "wb") as stderr:
            its = (control, parent.fileno(), stderr.fileno())
            init = [sys.executable, "-I", "-S", sandbox_init.__file__, *map(str, its)]
            return subprocess.Popen(
                ["unshare", *user, *NAMESPACES, *init, *self._command],
                env=os.environ | {"PATH": _path()} | dict.fromkeys(PLACES_OF_OVS, str(RUN_DIRECTORY)),
                pass_fds=(*its, *self._keep),
                stdin=None if self._terminal else subprocess.DEVNULL,
                stdout=None if self._terminal else STDERR,
                stderr=said,
                start_new_session=not self._terminal,
            )

    def _check(self, said: BinaryIO) -> None:
        """Return when the command has started; MachineError if it has not."""
        message = self._control.recv(MOST_BYTES) if self.heard(self._control) else b""
        if not message:
            said.seek(0)
            raise _unmade(" ".join(said.read(MOST_BYTES).decode(errors="replace").split()))
        if refused := json.loads(message).get("refused"):
            raise MachineError(f"the sandbox could not be made usable: {refused}", CONTAINER_HINT)

    def _tell_to_end(self) -> None:
        self._control.shutdown(socket.SHUT_RDWR)  # heard whoever else has a copy of this end

    def _end(self) -> None:
        self._tell_to_end()
        poll = select.poll()
        poll.register(self.ended, select.POLLIN)
        try:
            poll.poll(1e3 * KILL_S)
        finally:  # also if this is interrupted
            self._process.kill()  # and the kernel kills process 1 then
            self._process.wait()


def check_tools(*, bridged: bool) -> None:
    """Raise MachineError if this machine lacks what a sandbox needs; a tun device only for bridges."""
    if missing := [tool for tool in TOOLS if not shutil.which(tool, path=_path())]:
        raise MachineError(
            f"this machine lacks {', '.join(missing)} (Open vSwitch and Mininet)",
            PROVISION,
        )
    if not bridged:
        return
    if not os.path.exists(TUN):
        raise MachineError(
            f"{TUN} does not exist, and Open vSwitch needs it",
            f"create it: mkdir -p /dev/net && mknod {TUN} c 10 200 (a container: run it with --device {TUN})",
        )
    if not os.access(TUN, os.W_OK):
        raise MachineError(f"{TUN} is not writable for this user, and Open vSwitch needs it", "run as root")


def _path() -> str:
    """Return where programs are looked for: an ordinary user's PATH may lack the places of the daemons."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def _unmade(complaint: str) -> MachineError:
    """Return why ``unshare`` has made no namespaces, by what it complains of."""
    why = f"({complaint or 'it was killed as it started'})"
    if "/proc failed" in complaint:  # "mount /proc failed": the kernel shows no more than this /proc does
        return MachineError(f"parts of /proc are masked here, so a sandbox gets none {why}", CONTAINER_HINT)
    if os.geteuid() == 0:
        return MachineError(f"root has no CAP_SYS_ADMIN here, which namespaces take {why}", CONTAINER_HINT)
    if APPARMOR.exists() and APPARMOR.read_text().strip() == "1":
        return MachineError(
            f"AppArmor gives ordinary users no namespaces {why}",
            f"run as root, or let unshare make them; for that {PROVISION}",
        )
    return MachineError(
        f"this machine gives ordinary users no namespaces {why}",
        "run as root, or allow them: sysctl user.max_user_namespaces kernel.unprivileged_userns_clone",
    )


def _pidfd(process: int) -> BinaryIO:
    """Return a file, to be closed, whose descriptor is readable when a process has ended."""
    return open(os.pidfd_open(process), "rb", buffering=0)


@contextmanager
def _ctrl_c_left_to_the_command() -> Iterator[None]:
    """Have this process ignore Ctrl-C, which the terminal sends to all, and no other SIGINT."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not _at_terminal() and callable(before):
            before(number, frame)

    if threading.current_thread() is not threading.main_thread():  # it handles no signals
        yield
        return
    # A handler, not SIG_IGN: what is ignored stays ignored in the child, a handler does not.
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _at_terminal() -> bool:
    """Return whether SIGINT is Ctrl-C, which the terminal sends to the sandbox too."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)
