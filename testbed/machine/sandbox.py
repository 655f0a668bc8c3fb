"""The sandbox: a run in namespaces of its own, which end with it however it dies.

    launcher (what the user started)
      └── unshare                      dies with the launcher (parent-death signal)
            └── the same command, process 1 of a new PID namespace (--kill-child)
                  ├── ovsdb-server, ovs-vswitchd, the controller, shells of servers
                  └── ...

When process 1 dies the kernel kills all the others, and with the last of them go the network
namespace (every interface) and the mount namespace (every file under the private /run). So
nothing needs cleaning up, whatever the signal. The launcher also holds one end of a pipe;
when it closes, process 1 ends itself in order: that is how SIGTERM is handed on, and it
covers the moment before ``unshare`` has set the parent-death signal.
"""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from testbed.machine.commands import output_of
from testbed.machine.kernel import mount, tie_to_this_process
from topologies.errors import MachineError

LIFELINE = "LIGHTRAIL_LIFELINE"
RUN_DIRECTORY = Path("/run/lightrail")
TOOLS = ("unshare", "nsenter", "mnexec", "ovsdb-server", "ovsdb-tool", "ovs-vswitchd", "ovs-vsctl", "tc")
GRACE_S = 10.0
HOOK_S = 0.2
"""In so long Python has left the hook that is called with exceptions that it ignores [s]."""
TUN = "/dev/net/tun"
_ask_again = threading.Event()
"""Whether the main thread has to be asked to end, once more."""


def inside_sandbox() -> bool:
    """Return whether this process runs inside a sandbox."""
    return LIFELINE in os.environ


def run_in_sandbox(command: list[str]) -> int:
    """Run a command in a sandbox of its own and return its exit code.

    Parameters
    ----------
    command
        What to run; it must call `settle` first.

    Returns
    -------
    int
        The command's exit code; 128 + n where signal n ended it.

    Raises
    ------
    MachineError
        If a tool or a right is missing.
    """
    check_machine()
    read_end, write_end = os.pipe()
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    namespaces = ["--mount", "--pid", "--net", "--ipc", "--mount-proc"]
    with _signals_end(write_end):  # before the process starts: a signal meanwhile is no less an end
        process = subprocess.Popen(
            ["unshare", *user, *namespaces, "--fork", "--kill-child", *command],
            env=os.environ | {LIFELINE: str(read_end)},
            pass_fds=(read_end,),
            preexec_fn=tie_to_this_process(),
        )
        os.close(read_end)
        code = process.wait()
    return 128 - code if code < 0 else code


def settle() -> None:
    """Make the fresh namespaces usable: private /run and /sys, loopback up, the lifeline watched."""
    # The handler first: the kernel keeps signals that nobody handles from process 1.
    signal.signal(signal.SIGTERM, _end)
    sys.unraisablehook = _notice_ignored
    threading.Thread(target=_watch, args=(int(os.environ[LIFELINE]),), daemon=True).start()
    raise_descriptor_limit()
    mount("tmpfs", "/run")
    mount("sysfs", "/sys")
    os.environ.update(dict.fromkeys(("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR"), str(RUN_DIRECTORY)))
    output_of(["ip", "link", "set", "lo", "up"])


def raise_descriptor_limit() -> None:
    """Allow as many descriptors as this user may have: each queue pair takes two."""
    most = int(Path("/proc/sys/fs/nr_open").read_text())
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ValueError, PermissionError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def check_machine() -> None:
    """Raise MachineError, with what to do, where a tool or a right is missing."""
    # An ordinary user's PATH may lack the places of the daemons.
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=os.environ["PATH"])]
    if missing:
        raise MachineError(
            f"this machine lacks {', '.join(missing)} (Open vSwitch and Mininet)",
            "run: sudo bash vagrant/provision.sh",
        )
    if not os.access(TUN, os.W_OK):
        raise MachineError(
            f"{TUN} {'is not writable for this user' if os.path.exists(TUN) else 'does not exist'}, "
            "and Open vSwitch needs it",
            "run with sudo"
            if os.path.exists(TUN)
            else f"create it: mkdir -p /dev/net && mknod {TUN} c 10 200",
        )
    if os.geteuid() != 0:
        _check_user_namespaces()


def _check_user_namespaces() -> None:
    try:
        output_of(["unshare", "--user", "--map-root-user", "--mount", "--net", "true"])
    except MachineError as error:
        raise MachineError(
            f"this machine gives ordinary users no namespaces ({error.sentence})",
            "run with sudo (on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns)",
        ) from error


@contextlib.contextmanager
def _signals_end(lifeline: int) -> Iterator[None]:
    """While the sandbox runs, leave Ctrl-C to it, and turn all else into the lifeline's end."""

    def cut(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            os.close(lifeline)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not _at_terminal():
            cut(number, frame)

    before = {number: signal.signal(number, cut) for number in (signal.SIGTERM, signal.SIGHUP)}
    # A handler, not SIG_IGN: what is ignored stays ignored in the child, a handler does not.
    before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        with contextlib.suppress(OSError):
            os.close(lifeline)


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


def _watch(lifeline: int) -> None:
    """Wait for the launcher to let go, ask the main thread to end, and end without it if it does not."""
    os.read(lifeline, 1)
    deadline = time.monotonic() + GRACE_S
    os.kill(os.getpid(), signal.SIGTERM)
    while _ask_again.wait(max(deadline - time.monotonic(), 0.0)):
        _ask_again.clear()
        time.sleep(HOOK_S)
        os.kill(os.getpid(), signal.SIGTERM)
    os._exit(128 + signal.SIGTERM)


def _notice_ignored(unraisable: "sys.UnraisableHookArgs") -> None:
    """Have the main thread asked again if it was asked where Python ignores exceptions: as it forks, say."""
    if isinstance(unraisable.exc_value, SystemExit):
        _ask_again.set()
    else:
        sys.__unraisablehook__(unraisable)


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + signal.SIGTERM)
