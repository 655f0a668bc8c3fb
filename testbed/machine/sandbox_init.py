"""Process 1 of a sandbox: makes it usable, starts a command, reaps orphans, and ends when it has to.

It is run by its path, with Python's library alone, so that it starts in 20 ms:

    python -I -S sandbox_init.py CONTROL PARENT STDERR COMMAND ...

CONTROL is its end of a socket, over which it says once that the command runs, or why not. It ends the
command, and then itself, when the other end is shut down or when PARENT, a pidfd, says that this process has
ended: at whatever moment it is killed, whatever other process has a copy of its descriptors, and whichever of
its threads started this one. When process 1 has ended the kernel kills all others of its PID namespace.
"""

import ctypes
import fcntl
import json
import math
import os
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path

INSIDE = Path("/run/lightrail-sandbox")
"""A file that process 1 makes on the private /run: no host has it."""
GRACE_S = 10.0
"""How long a command may take to end when it is asked to [s]."""
MS_NOSUID_NODEV = 0x2 | 0x4
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1
_libc = ctypes.CDLL(None, use_errno=True)


def main(control: socket.socket, parent: int, stderr: int, command: list[str]) -> int:
    """Run a command in these fresh namespaces; return its exit code, 128 + n where signal n ended it."""
    os.dup2(stderr, sys.stderr.fileno())
    for descriptor in (control.fileno(), parent, stderr):
        os.set_inheritable(descriptor, False)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C is the command's; process 1 then ignores it
    woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    try:
        settle()
        child = start(command)
    except OSError as error:
        control.send(json.dumps({"refused": f"{error.filename or command[0]}: {error.strerror}"}).encode())
        return 1
    control.send(json.dumps({"started": command[0]}).encode())
    return watched(child, woken, (control.fileno(), parent))


def settle() -> None:
    """Mount a private /run and /sys, and bring loopback up."""
    mount("tmpfs", "/run")
    INSIDE.touch()
    mount("sysfs", "/sys")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))


def mount(kind: str, target: str) -> None:
    """Mount a fresh file system of a kind (``tmpfs``, ``sysfs``) over a directory."""
    if _libc.mount(kind.encode(), target.encode(), kind.encode(), MS_NOSUID_NODEV, None) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), f"mount {kind} on {target}")


def start(command: list[str]) -> int:
    """Start a command with the signals that Python ignores as they are by default; return its number."""
    return os.posix_spawnp(command[0], command, os.environ, setsigdef=(signal.SIGPIPE, signal.SIGXFSZ))


def watched(child: int, woken: int, ends: tuple[int, ...]) -> int:
    """Reap what ends until the child does, which is asked to once one of the ends is readable.

    Parameters
    ----------
    child
        The command's process.
    woken
        Readable when a child has ended.
    ends
        Readable when this sandbox has to end.

    Returns
    -------
    int
        The child's exit code; 128 + SIGTERM if it does not end in time.
    """
    poll, deadline_s = select.poll(), math.inf
    for descriptor in (woken, *ends):
        poll.register(descriptor, select.POLLIN)
    while (left_s := deadline_s - time.monotonic()) > 0:
        ready = {descriptor for descriptor, _ in poll.poll(None if math.isinf(left_s) else 1e3 * left_s)}
        if woken in ready:
            os.read(woken, 1 << 16)
        if ready & {*ends}:
            for descriptor in ends:
                poll.unregister(descriptor)
            deadline_s = time.monotonic() + GRACE_S
            os.kill(child, signal.SIGTERM)
        if (code := _reaped(child)) is not None:
            return code
    return 128 + signal.SIGTERM


def _reaped(child: int) -> int | None:
    """Reap all that has ended; return the child's exit code if it was among that."""
    while True:
        number, status = os.waitpid(-1, os.WNOHANG)
        if number == child:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
        if number == 0:
            return None


if __name__ == "__main__":
    if os.getpid() != 1:
        sys.exit("this runs as process 1 of a sandbox, and mounts over what others have")
    control_end, parent_end, stderr_end = map(int, sys.argv[1:4])
    os._exit(main(socket.socket(fileno=control_end), parent_end, stderr_end, sys.argv[4:]))
