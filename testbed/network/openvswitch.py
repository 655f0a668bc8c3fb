"""Open vSwitch for one run: a private database and switch daemon, or the machine's own."""

import contextlib
import math
import os
import shutil
import socket
import stat
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from controller.app.proof import run_directories
from testbed.machine.commands import Child
from testbed.machine.datapath import Datapath, delete_kernel_datapath, lost_upcalls
from testbed.machine.kernel import take_descriptor
from testbed.network.mark import Mark
from topologies.addresses import openflow_port
from topologies.errors import MachineError, NetworkError
from topologies.fabric import Port

DIRECTORY = "lightrail-"
"""How the names of runs' directories begin; their mark follows."""
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
START_S = 15.0
CHECK_S = 0.2
START_IT = "start it (service openvswitch-switch start), or leave --no-sandbox out"
ANSWER_S = 120
"""How long a transaction may take [s]: with 80 bridges on a slow machine half a minute."""
FORCE = {socket.SO_SNDBUF: 32, socket.SO_RCVBUF: 33}
"""SO_SNDBUFFORCE and SO_RCVBUFFORCE, which Python does not name: root may go over the sysctl's limit."""
RECEIVE_BUFFER_BYTES = 8 << 20
"""What waits at a port while the daemon is not scheduled: 208 KiB, the default, is 23 ms at 40 Mbit/s."""
SOL_PACKET, PACKET_STATISTICS = 263, 6
CLOSING_STACK_BYTES = 128 << 10
"""Of a thread that closes sockets: at the usual 8 MB, 64 of them take half a GB of address space."""
PROBE = "ffffffffffff" + "02" + "00" * 5 + "88b5" + "00" * 46
"""A packet of an EtherType for experiments (IEEE 802, 0x88b5), which no server takes."""
LOGGING = ("-vconsole:warn", "-vdpif:console:err", "--log-file=/dev/null")
"""What daemons say; dpif warns at each `controller.app.proof` that there is no datapath."""
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_TOP_PAD_": str(16 << 20)}
"""Have the daemons keep what they free. At each port that it polls, each time, ovs-vswitchd allocates
32 packets (300 KB at an MTU of 9000) and frees what did not come; by default the C library gives that back
to the kernel at once, and three quarters of the daemon's time went into faulting it in again."""


def vsctl(*arguments: str, check: Callable[[], None] = lambda: None) -> str:
    """Run ``ovs-vsctl`` and return what it prints.

    Parameters
    ----------
    arguments
        Its arguments.
    check
        Called now and then; raises if what it waits for has died.

    Raises
    ------
    NetworkError
        If it fails: what was attempted, and why.
    """
    return _run("ovs-vsctl", f"--timeout={ANSWER_S}", *arguments, check=check)


def machine_directory(mark: Mark) -> Path:
    """Make a directory, for this user alone, of sockets that the machine's own Open vSwitch may connect to.

    It connects to those in its own run directory only.
    """
    reason = ""
    for place in run_directories():
        directory = place / f"{DIRECTORY}{mark}"
        try:
            directory.mkdir(mode=0o700)
            return directory
        except OSError as error:
            reason = reason or f"make a directory in {place}: {error.strerror}"
    raise MachineError(reason, START_IT)


def remove_dead_directories() -> None:
    """Remove what `machine_directory` made for runs whose process was killed before it could."""
    for directory in (found for place in run_directories() for found in place.glob(f"{DIRECTORY}*")):
        mark = Mark.of(directory.name.removeprefix(DIRECTORY))
        if mark and mark.is_dead:
            shutil.rmtree(directory, ignore_errors=True)  # another boot may be at it


class PrivateOpenVSwitch:
    """An ``ovsdb-server`` and an ``ovs-vswitchd`` that belong to this process and die with it.

    Parameters
    ----------
    directory
        For their sockets, database and logs.
    datapath
        Which forwards.
    """

    def __init__(self, directory: Path, datapath: Datapath) -> None:
        self._directory, self._datapath = directory, datapath
        self._daemons: list[Child] = []
        self._packet_sockets: list[socket.socket] = []
        self._dropped = 0

    def __enter__(self) -> "PrivateOpenVSwitch":
        """Start both daemons and wait until the database answers; a start that fails ends what it began."""
        if self._daemons:
            raise NetworkError("Open vSwitch was started twice")
        database, remote = self._directory / "conf.db", self._directory / "db.sock"
        with ExitStack() as undo:
            undo.push(self)
            _run("ovsdb-tool", "create", str(database), SCHEMA)
            self._spawn("ovsdb-server", str(database), f"--remote=punix:{remote}")
            _wait_for(remote)
            vsctl("--no-wait", "init")
            self._spawn("ovs-vswitchd", f"unix:{remote}")
            undo.pop_all()
        self._remote = remote
        return self

    def __exit__(self, *_error: object) -> None:
        """End the daemons.

        The kernel closes a packet socket only after a grace period, one after the other:
        2.8 s for 256 ports. Copies of them, closed by many threads at once, share the grace
        periods, so that the daemon's own exit is quick.
        """
        for daemon in reversed(self._daemons):
            daemon.kill()
        for daemon in self._daemons:
            daemon.wait()
        self._close_packet_sockets()
        if self._datapath == "kernel":
            delete_kernel_datapath()

    @property
    def pid(self) -> int:
        """The process id of ``ovs-vswitchd``."""
        return self._daemons[-1].pid

    def check_alive(self) -> None:
        """Raise NetworkError if a daemon has ended."""
        for daemon in self._daemons:
            if daemon.poll() is not None:
                raise NetworkError(
                    f"{daemon.log.stem} ended during the run (exit code {daemon.returncode})", "run it again"
                )

    def kill(self) -> None:
        """Kill ``ovs-vswitchd``."""
        self._daemons[-1].kill()
        self._daemons[-1].wait()

    def revive(self) -> None:
        """Start ``ovs-vswitchd`` again, which makes its bridges anew as the database has them."""
        self._close_packet_sockets()
        self._daemons.pop()
        self._spawn("ovs-vswitchd", f"unix:{self._remote}")

    def set_send_buffer(self, want_bytes: int, port: Port) -> int:
        """Give the socket that the daemon sends all packets by a buffer; return what was granted [bytes].

        In the userspace datapath what waits in the queues of all ports together is charged to
        one packet socket; past its send buffer packets vanish, and no counter shows it. So it
        must hold more than the ports' queues, which count what they drop. The daemon makes that
        socket for its first packet (af_packet_sock in its lib/netdev-linux.c), whichever port and
        bridge that leaves by, hence a packet out of one port; should there be several such sockets,
        the least buffer counts. The kernel's datapath has none: 0.

        Parameters
        ----------
        want_bytes
            How large the buffer should be [bytes].
        port
            A switch's port that has a link: out of another nothing is sent.

        Raises
        ------
        NetworkError
            If the daemon has no socket to send by.
        """
        if self._datapath == "kernel":
            return 0
        probe = f"in_port=controller packet={PROBE} actions=output:{openflow_port(port.number)}"
        _run("ovs-ofctl", "-OOpenFlow13", "packet-out", port.node, probe, check=self.check_alive)
        self._packet_sockets = sockets_of(self.pid, socket.AF_PACKET)
        for each in self._packet_sockets:
            _grow(each, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        # Those that receive are bound to an interface each.
        senders = [each for each in self._packet_sockets if not each.getsockname()[0]]
        if not senders:
            self.check_alive()
            raise NetworkError("ovs-vswitchd has no socket to send packets by", "run it again")
        return min(_grow(each, socket.SO_SNDBUF, want_bytes) for each in senders)

    def packet_drops(self) -> float:
        """Return how many packets so far the daemon was too slow to take, over all ports."""
        if self._datapath == "kernel":
            return lost_upcalls()
        for each in self._packet_sockets:
            statistics = each.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
            self._dropped += struct.unpack("=II", statistics)[1]  # the kernel counts from 0 again
        return self._dropped

    def _close_packet_sockets(self) -> None:
        usual = threading.stack_size(CLOSING_STACK_BYTES)
        try:
            with ThreadPoolExecutor(64) as pool:
                list(pool.map(socket.socket.close, self._packet_sockets))
        finally:
            threading.stack_size(usual)
        self._packet_sockets.clear()

    def _spawn(self, *command: str) -> None:
        log = self._directory / f"{command[0]}.log"
        self._daemons.append(Child([*command, *LOGGING], log, KEEP_MEMORY))


class MachineOpenVSwitch:
    """The machine's own Open vSwitch, as plain Mininet uses it (``--no-sandbox``).

    Parameters
    ----------
    datapath
        Which forwards.
    """

    pid = 0

    def __init__(self, datapath: Datapath) -> None:
        self._datapath = datapath

    def __enter__(self) -> "MachineOpenVSwitch":
        """Check that it answers."""
        try:
            vsctl("--timeout=5", "show")
        except (NetworkError, FileNotFoundError) as error:
            raise MachineError("the machine's own Open vSwitch does not answer", START_IT) from error
        return self

    def __exit__(self, *_error: object) -> None:
        """Leave the daemon as it is; the network takes its own bridges away."""

    def check_alive(self) -> None:
        """Nothing to check: the daemon is the machine's."""

    def kill(self) -> None:
        """Raise MachineError, as `revive` does: the daemon is the machine's."""
        raise MachineError("the machine's own Open vSwitch is not killed", "leave --no-sandbox out")

    revive = kill

    def set_send_buffer(self, want_bytes: int, port: Port) -> int:
        """Leave the daemon's sockets alone, they are the machine's; return 0 for unknown."""
        return 0

    def packet_drops(self) -> float:
        """Return what the kernel's datapath counts; NaN for the daemon's sockets, which are the machine's."""
        return lost_upcalls() if self._datapath == "kernel" else math.nan


def sockets_of(pid: int, family: int) -> list[socket.socket]:
    """Return copies of a process' sockets of a family, without those that it closes meanwhile.

    What is looked at is the copy: by then the process may have another file under the same number.
    """
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        copy = take_descriptor(pid, int(number))
        if copy is None:
            continue
        if not stat.S_ISSOCK(os.fstat(copy).st_mode):
            os.close(copy)
            continue
        taken = socket.socket(fileno=copy)
        if taken.family == family:
            found.append(taken)
        else:
            taken.close()
    return found


def _run(*command: str, check: Callable[[], None] = lambda: None) -> str:
    """Run a command of Open vSwitch's and return what it prints; see `vsctl`."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    said, complaint = process.communicate(timeout=CHECK_S)
                    break
                check()
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        check()
        raise NetworkError(f"{' '.join(command)[:120]}: {complaint.strip()[:300]}")
    return said


def _grow(packet_socket: socket.socket, buffer: int, want_bytes: int) -> int:
    """Raise a socket's buffer as far as this user may, and return it; the kernel doubles what is asked."""
    try:
        packet_socket.setsockopt(socket.SOL_SOCKET, FORCE[buffer], want_bytes // 2)
    except PermissionError:
        packet_socket.setsockopt(socket.SOL_SOCKET, buffer, want_bytes // 2)
    return packet_socket.getsockopt(socket.SOL_SOCKET, buffer)


def _wait_for(path: Path) -> None:
    """Wait until somebody listens on a socket; its path is there a moment sooner."""
    deadline = time.monotonic() + START_S
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        while client.connect_ex(str(path)):
            if time.monotonic() > deadline:
                raise NetworkError(f"ovsdb-server does not listen on {path.name} after {START_S:g} s")
            time.sleep(0.005)
