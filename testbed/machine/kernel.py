"""The Linux system calls that Python's library lacks (os.setns and os.unshare came with 3.12)."""

import contextlib
import ctypes
import errno
import os
import signal
from collections.abc import Callable, Iterator

from topologies.errors import MachineError

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
SYS_PIDFD_GETFD = 438

_libc = ctypes.CDLL(None, use_errno=True)


def new_network_namespace() -> int:
    """Return a file descriptor that holds a new network namespace; closing it ends the namespace."""
    home = _own_namespace()
    try:
        _call("create a network namespace", _libc.unshare(CLONE_NEWNET))
        return _own_namespace()
    finally:
        _call("return from a new network namespace", _libc.setns(home, CLONE_NEWNET))
        os.close(home)


@contextlib.contextmanager
def inside_namespace(namespace: int) -> Iterator[None]:
    """Run the block in a network namespace; a socket made there stays there. Only this thread moves."""
    home = _own_namespace()
    try:
        _call("enter a network namespace", _libc.setns(namespace, CLONE_NEWNET))
        try:
            yield
        finally:
            _call("leave a network namespace", _libc.setns(home, CLONE_NEWNET))
    finally:
        os.close(home)


def tie_to_this_process() -> Callable[[], None]:
    """Return what a child calls first, or has as its preexec_fn: the kernel then kills it when this one dies.

    If this one has died before the kernel was asked, the child ends at once.
    """
    parent = os.getpid()

    def tie() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return tie


def take_descriptor(pid: int, descriptor: int) -> int | None:
    """Return a copy of another process' file descriptor (pidfd_getfd), or None if that is not open."""
    process = os.pidfd_open(pid)
    try:
        copy: int = _libc.syscall(SYS_PIDFD_GETFD, process, descriptor, 0)
    finally:
        os.close(process)
    if copy < 0 and ctypes.get_errno() == errno.EBADF:
        return None
    return _call(f"take descriptor {descriptor} of process {pid}", copy)


def _own_namespace() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _call(attempt: str, result: int) -> int:
    if result >= 0:
        return result
    raise MachineError(
        f"{attempt}: {os.strerror(ctypes.get_errno())}", "run it as root, or in lightrail's own sandbox"
    )
