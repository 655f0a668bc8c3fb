"""A server as applications see it, a host: its name, the names of others, and its own devices.

Each host has a UTS and a mount namespace beside its network namespace, all held by descriptors. They are made
in bulk by one thread, since a process per host takes seconds for 64 of them. What a host has of its own:

    name             h0
    /etc/hosts       the names of all hosts and NICs: h1, h1-nic0
    /etc/hostname    its name
    /sys             the devices of its network namespace
    /dev/shm, TMP    empty; what applications leave there, killed or not, ends with the network

All else, users' files among it, it shares with the machine, as hosts of a cluster share a file system.
"""

import os
import pwd
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from testbed.machine.kernel import (
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    enter_mounts,
    inside_namespace,
    mount,
    namespace_of_thread,
    unshare_names_and_mounts,
)
from testbed.machine.precedence import Precedence
from testbed.machine.sandbox import inside_sandbox
from testbed.network.wiring import Wiring
from topologies.addresses import host_ip, nic_ip, nic_name
from topologies.errors import MachineError
from topologies.fabric import Fabric

HOSTS = Path("/run/lightrail-hosts")
"""Directory that all hosts share, on the sandbox's private /run: each user may read it."""
TMP = HOSTS / "tmp"
"""The directory for temporary files; each host has its own."""
SHARED_MEMORY = Path("/dev/shm")
ANYBODY = "mode=1777"
PING_GROUPS = Path("/proc/sys/net/ipv4/ping_group_range")
ALL_GROUPS = "0 2147483647"
ROOT = 0


@dataclass(frozen=True)
class HostUser:
    """The user as whom applications run."""

    uid: int
    """Its number on the machine."""
    gid: int
    """The number of its group there."""
    is_mapped: bool
    """Whether the sandbox shows it as root: an ordinary user made the sandbox. Applications have its own
    number, in a user namespace below: some refuse root."""


def host_user() -> HostUser:
    """Return the user who asked for this sandbox: root's is the one behind sudo, if there is one."""
    inside, uid, count = map(int, Path("/proc/self/uid_map").read_text().split()[:3])
    if (inside, count) == (ROOT, 1):
        gid = int(Path("/proc/self/gid_map").read_text().split()[1])
        return HostUser(uid, gid, is_mapped=uid != ROOT)
    return HostUser(int(os.environ.get("SUDO_UID", ROOT)), int(os.environ.get("SUDO_GID", ROOT)), False)


def hosts_file(fabric: Fabric) -> str:
    """Return the /etc/hosts of all hosts."""
    lines = ["127.0.0.1 localhost"]
    lines += [f"{host_ip(number)} {server.name}" for number, server in enumerate(fabric.servers)]
    lines += [f"{nic_ip(fabric, nic)} {nic_name(fabric, nic)}" for nic in fabric.nics]
    return "".join(f"{line}\n" for line in lines)


class HostNamespaces:
    """The namespaces of all hosts of a network; a context manager.

    Parameters
    ----------
    wiring
        Where the hosts' network namespaces are.
    """

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self.user = host_user()

    def __enter__(self) -> "HostNamespaces":
        """Make them; MachineError outside a sandbox, or if the kernel refuses something."""
        if not inside_sandbox():
            raise MachineError("applications run on hosts in a sandbox alone", "leave out --no-sandbox")
        with ExitStack() as stack:
            self._held = stack
            self.precedence = stack.enter_context(Precedence())
            (HOSTS / "etc").mkdir(parents=True, exist_ok=True)
            TMP.mkdir(exist_ok=True)
            for folder in (HOSTS, HOSTS / "etc"):
                folder.chmod(0o755)  # whatever the umask
            _write("hosts", hosts_file(self._wiring.fabric))
            self._user_namespace = self._hold(_user_namespace(self.user)) if self.user.is_mapped else None
            with ThreadPoolExecutor(1) as thread:  # it ends, and what it has moved to matters to nobody
                self._own = thread.submit(self._make).result()
            self._held = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        """Let go of them: each ends with its last process."""
        self._held.close()

    def entry(self, host: int, *, as_root: bool = False) -> list[str]:
        """Return the words before a command's own by which it runs on a host; it keeps its process number.

        Parameters
        ----------
        host
            Its number.
        as_root
            Whether it runs as the sandbox's root; by default as the user of applications.
        """
        uts, mounts = self._own[host]
        holds = {"net": self._wiring.namespaces[host], "uts": uts, "mount": mounts}
        words = ["nsenter", *(f"--{kind}={_path(descriptor)}" for kind, descriptor in holds.items())]
        if as_root:
            return [*words, "--"]
        if self._user_namespace is not None:
            return [*words, f"--user={_path(self._user_namespace)}", "--preserve-credentials", "--"]
        if self.user.uid == ROOT:
            return [*words, "--"]
        return [*words, "--", "setpriv", *_becoming(self.user), "--"]

    def _make(self) -> list[tuple[int, int]]:
        """Return the UTS and mount namespace of each host; this thread is left in the last host's."""
        base = namespace_of_thread("mnt")
        try:
            return [self._made(number, base) for number in range(len(self._wiring.namespaces))]
        finally:
            os.close(base)

    def _made(self, number: int, base: int) -> tuple[int, int]:
        name = self._wiring.fabric.servers[number].name
        file_of_name = _write(f"{name}.hostname", f"{name}\n")
        with inside_namespace(self._wiring.namespaces[number]):
            unshare_names_and_mounts()
            socket.sethostname(name)
            mount(str(HOSTS / "etc" / "hosts"), "/etc/hosts", flags=MS_BIND)
            if Path("/etc/hostname").exists():
                mount(str(file_of_name), "/etc/hostname", flags=MS_BIND)
            mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV)
            for folder in (TMP, SHARED_MEMORY):
                mount("tmpfs", str(folder), "tmpfs", MS_NOSUID | MS_NODEV, ANYBODY)
            # Ping takes no privilege then; an ordinary user's sandbox knows no group but that user's, as 0.
            PING_GROUPS.write_text(f"{ROOT} {ROOT}" if self.user.is_mapped else ALL_GROUPS)
        own = self._hold(namespace_of_thread("uts")), self._hold(namespace_of_thread("mnt"))
        enter_mounts(base)
        return own

    def _hold(self, descriptor: int) -> int:
        self._held.callback(os.close, descriptor)
        return descriptor


def _write(name: str, text: str) -> Path:
    path = HOSTS / "etc" / name
    path.write_text(text)
    path.chmod(0o644)
    return path


def _path(descriptor: int) -> str:
    """Return the path of a descriptor of this process: a command that is given it inherits nothing."""
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def _becoming(user: HostUser) -> list[str]:
    try:
        pwd.getpwuid(user.uid)
    except KeyError:  # and so has no groups but the one it is asked for with
        groups = "--clear-groups"
    else:
        groups = "--init-groups"
    return [f"--reuid={user.uid}", f"--regid={user.gid}", groups]


def _user_namespace(user: HostUser) -> int:
    """Return a descriptor that holds a user namespace in which this sandbox's root has its number outside.

    It is one for all hosts: their processes may signal, trace and share memory with each other.
    """
    mapped = ["unshare", "--user", f"--map-user={user.uid}", f"--map-group={user.gid}", "--", "cat"]
    with subprocess.Popen(mapped, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"\n")
        process.stdin.flush()
        if not process.stdout.readline():  # else it runs, and its numbers are set
            raise MachineError(
                "a user namespace for applications was refused", "raise user.max_user_namespaces"
            )
        return os.open(f"/proc/{process.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
