"""The Linux system calls that Python's library lacks (os.setns and os.unshare came with 3.12)."""

import contextlib
import ctypes
import errno
import os
import signal
from collections.abc import Callable, Iterator

from topologies.errors import MachineError

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x20000, 0x4000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_BIND = 0x2, 0x4, 0x1000
PR_SET_PDEATHSIG = 1
SYS_PIDFD_GETFD = 438

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]


def new_network_namespace() -> int:
    """Return a file descriptor that holds a new network namespace; closing it ends the namespace."""
    home = namespace_of_thread("net")
    try:
        _call("create a network namespace", _libc.unshare(CLONE_NEWNET))
        return namespace_of_thread("net")
    finally:
        _call("return from a new network namespace", _libc.setns(home, CLONE_NEWNET))
        os.close(home)


@contextlib.contextmanager
def inside_namespace(namespace: int) -> Iterator[None]:
    """Run the block in a network namespace; a socket made there stays there. Only this thread moves."""
    home = namespace_of_thread("net")
    try:
        _call("enter a network namespace", _libc.setns(namespace, CLONE_NEWNET))
        try:
            yield
        finally:
            _call("leave a network namespace", _libc.setns(home, CLONE_NEWNET))
    finally:
        os.close(home)


def unshare_names_and_mounts() -> None:
    """Give this thread a host name and mounts of its own, copies at first; other threads keep theirs."""
    _call("create a host's namespaces", _libc.unshare(CLONE_NEWUTS | CLONE_NEWNS))


def enter_mounts(namespace: int) -> None:
    """Have this thread, whose mounts are its own, see those of a mount namespace."""
    _call("enter a mount namespace", _libc.setns(namespace, CLONE_NEWNS))


def namespace_of_thread(kind: str) -> int:
    """Return a descriptor that holds this thread's namespace of a kind: ``net``, ``uts`` or ``mnt``."""
    return os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount as mount(2) does; MachineError, with what was attempted, if the kernel refuses."""
    done = _libc.mount(source.encode(), os.fsencode(target), kind.encode(), flags, options.encode())
    _call(f"mount {source} on {target}", done)


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


def _call(attempt: str, result: int) -> int:
    if result >= 0:
        return result
    raise MachineError(
        f"{attempt}: {os.strerror(ctypes.get_errno())}", "run it as root, or in lightrail's own sandbox"
    )
