"""Open vSwitch for one run: a private database and switch daemon, or the machine's own."""

import contextlib
import os
import select
import socket
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from testbed.kernel import die_with_parent, take_descriptor
from topologies.errors import MachineError, NetworkError

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
START_S = 15.0
SO_SNDBUFFORCE = 32


def datapath_type() -> str:
    """Return ``system`` where the kernel has Open vSwitch's datapath loaded, else ``netdev``."""
    return "system" if Path("/sys/module/openvswitch").exists() else "netdev"


def vsctl(*arguments: str) -> str:
    """Run ``ovs-vsctl`` and return what it prints; NetworkError says what was attempted."""
    done = subprocess.run(["ovs-vsctl", "--timeout=30", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise NetworkError(f"ovs-vsctl {' '.join(arguments)[:120]}: {done.stderr.strip()[:300]}")
    return done.stdout


class PrivateOpenVSwitch:
    """An ``ovsdb-server`` and an ``ovs-vswitchd`` that belong to this process and die with it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._packet_sockets: list[int] = []

    def __enter__(self) -> "PrivateOpenVSwitch":
        """Start both daemons and wait until the database answers."""
        if self._daemons:
            raise NetworkError("Open vSwitch was started twice")
        database, remote = self._directory / "conf.db", self._directory / "db.sock"
        subprocess.run(["ovsdb-tool", "create", str(database), SCHEMA], check=True, capture_output=True)
        self._spawn("ovsdb-server", str(database), f"--remote=punix:{remote}")
        _wait_for(remote)
        vsctl("--no-wait", "init")
        self._spawn("ovs-vswitchd", f"unix:{remote}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the daemons.

        The kernel closes a packet socket only after a grace period, one after the other:
        2.8 s for 256 ports. Copies of them, closed by many threads at once, share the grace
        periods, so that the daemon's own exit is quick.
        """
        for daemon in reversed(self._daemons):
            daemon.kill()
        for daemon in self._daemons:
            daemon.wait()
        with ThreadPoolExecutor(64) as pool:
            list(pool.map(os.close, self._packet_sockets))
        self._packet_sockets.clear()

    @property
    def pid(self) -> int:
        """The process id of ``ovs-vswitchd``."""
        return self._daemons[-1].pid

    def check_alive(self) -> None:
        """Raise NetworkError if a daemon has ended."""
        for daemon in self._daemons:
            if daemon.poll() is not None:
                name = Path(str(daemon.args[0])).name  # type: ignore[index]
                raise NetworkError(
                    f"{name} ended during the run (exit code {daemon.returncode})", "run it again"
                )

    def set_port_buffers(self, buffer_bytes: int) -> int:
        """Give the daemon's packet sockets send buffers that outlast their port's queue; return the smallest.

        In the userspace datapath what waits in a port's queue is charged to the packet socket
        that sent it; past that socket's send buffer packets vanish, and no counter shows it.
        Three times the queue's bytes leaves the queue's own limit, which counts its drops, to
        decide: the kernel charges up to twice a packet's size.
        """
        smallest = 0
        for copy in self._copies_of_packet_sockets():
            with socket.socket(fileno=copy) as packet_socket:
                granted = _grow(packet_socket, 3 * buffer_bytes)
                smallest = min(smallest, granted) if smallest else granted
                packet_socket.detach()
            self._packet_sockets.append(copy)
        return smallest

    def _copies_of_packet_sockets(self) -> list[int]:
        copies = []
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISSOCK(entry.stat().st_mode):
                    copy = take_descriptor(self.pid, int(entry.name))
                    if socket.socket(fileno=os.dup(copy)).family == socket.AF_PACKET:
                        copies.append(copy)
                    else:
                        os.close(copy)
        return copies

    def _spawn(self, *command: str) -> None:
        log = (self._directory / f"{command[0]}.log").open("wb")
        with log:
            self._daemons.append(
                subprocess.Popen(
                    [*command, "--log-file=/dev/null", "-vconsole:warn"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=die_with_parent,
                )
            )


class MachineOpenVSwitch:
    """The machine's own Open vSwitch, as plain Mininet uses it (``--no-sandbox``)."""

    pid = 0

    def __enter__(self) -> "MachineOpenVSwitch":
        """Check that it answers."""
        try:
            vsctl("--timeout=5", "show")
        except (NetworkError, FileNotFoundError) as error:
            raise MachineError(
                "the machine's own Open vSwitch does not answer",
                "start it (service openvswitch-switch start), or leave --no-sandbox out",
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the daemon as it is; the network takes its own bridges away."""

    def check_alive(self) -> None:
        """Nothing to check: the daemon is the machine's."""

    def set_port_buffers(self, buffer_bytes: int) -> int:
        """Leave the daemon's sockets alone, they are the machine's; return 0 for unknown."""
        return 0


def _grow(packet_socket: socket.socket, want_bytes: int) -> int:
    """Raise a send buffer as far as this user may; return what it holds."""
    try:
        packet_socket.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, want_bytes // 2)
    except PermissionError:
        packet_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, want_bytes // 2)
    return packet_socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + START_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise NetworkError(f"ovsdb-server made no {path.name} within {START_S:g} s")
        select.select([], [], [], 0.005)
