"""A network whose hosts run applications, for a script or a notebook (docs/howto/programs_on_hosts.md).

The network is booted in a sandbox by an emulation worker, which then waits for orders: what fails, what is
lit. Commands go past it, over a *door*, to the server of its hosts (`testbed.apps.host_server`), so that each
starts and ends on its own.
"""

import math
import os
import select
import socket
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from fcntl import F_SETFL, fcntl
from signal import Signals
from subprocess import CompletedProcess
from threading import Lock
from typing import Literal, Self, cast

from testbed.apps.app_checks import check_transport_of_hosts
from testbed.apps.environment import of_asker
from testbed.apps.host_processes import CommandError, kill_processes_on
from testbed.apps.host_server import HostServer, hosts_by_name
from testbed.apps.lightrail_ssh import RefusedError, answered, ask, tell
from testbed.cli.faults_by_hand import StandingFaults
from testbed.experiment.dilation import Dilation
from testbed.machine.congestion import check_congestion_control
from testbed.machine.datapath import bridges, default_datapath
from testbed.machine.processes import interrupt_deferred
from testbed.network.network import Network
from testbed.study.options import emulated_bps
from testbed.study.worker import EmulationWorker
from topologies.errors import LightrailError, NetworkError, ScenarioError
from topologies.fabric import Fabric
from traffic.fault_text import HINT, KINDS
from traffic.packets import DEFAULT_MTU
from traffic.transports.host_settings import HostSettings, TransportSetup, host_settings

LIT_S = 60.0
"""How long an OCS may take to light circuits [s]."""
TIMED_OUT = 124
"""The exit code of what did not end in time, as timeout(1) has it."""
WORDS = 300
"""Characters of a command, and of the end of its complaint, in a sentence."""
CLOSED = -1
"""The descriptor of a socket that is closed."""
Verb = Literal["fail", "mend", "light"]
Order = tuple[Verb, tuple[str, ...]]


def network(
    fabric: Fabric,
    *,
    emulated_rate: float = 100.0,
    transport: str = "tcp",
    mptcp: bool = False,
    scale: float = 1.0,
    waits: bool = True,
) -> "ApplicationNetwork":
    """Return a network whose hosts run applications, to be booted: ``with lr.network(fabric) as net: ...``.

    It is booted when the block is entered. All that runs in it ends with the block, or with this process.

    Parameters
    ----------
    fabric
        What is booted; each server is a host.
    emulated_rate
        What the fabric's first NIC is shaped to, and others in proportion [Mbit/s].
    transport
        TCP of the hosts: ``tcp``, or with a congestion control, such as ``tcp:dctcp``.
    mptcp
        Whether sockets of MPTCP use all NICs of their hosts (``mptcpize run``).
    scale
        How many times as long as in reality applications are to compute that know of it (`LIGHTRAIL_SCALE`).
    waits
        Whether it waits for another emulation's end on this machine; else that is a MachineError.

    Raises
    ------
    LightrailError
        If the transport is none for applications; when it is booted, if this machine cannot emulate it.
    """
    check_transport_of_hosts(transport)
    if not 0 < scale < math.inf:
        raise ScenarioError(f"applications cannot compute {scale:g} times as long", "give a scale above 0")
    rate = emulated_bps(emulated_rate) / fabric.nic_rate_bps(fabric.nics[0])
    time_factor = Dilation(rate, 1.0).time
    settings = host_settings(TransportSetup(transport), fabric, rate, time_factor, DEFAULT_MTU)
    boots = _Boots(fabric, rate, settings, mptcp, scale)
    return ApplicationNetwork(boots, waits=waits)


@dataclass(frozen=True)
class _Boots:
    """A network that is to be booted."""

    fabric: Fabric
    """At real rates."""
    rate: float
    """Emulated rate over real rate."""
    host: HostSettings
    """Settings of the hosts' TCP."""
    mptcp: bool
    """Whether sockets of MPTCP use all NICs."""
    scale: float
    """How many times as long as in reality applications are to compute."""


class ApplicationNetwork:
    """A network whose hosts run applications; a context manager, see `network`."""

    def __init__(self, boots: "_Boots", *, waits: bool) -> None:
        self.fabric, self._boots = boots.fabric, boots
        self._waits, self._is_open = waits, False
        self._one_order, self._one_keeps = Lock(), Lock()
        self._numbers = hosts_by_name(self.fabric)
        self._running: list[ApplicationProcess] = []

    def __repr__(self) -> str:
        return f"<network of fabric {self.fabric.name}, {len(self.fabric.servers)} hosts>"

    def __enter__(self) -> Self:
        """Boot, or leave nothing behind and raise LightrailError."""
        if self._is_open:
            raise NetworkError("a network was booted twice", "make a new one")
        with ExitStack() as stack:
            self._door, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(self._door)
            with inside:
                keep, bridged = (inside.fileno(),), bool(bridges(self.fabric, default_datapath()))
                worker = EmulationWorker(waits=self._waits, keep=keep, bridged=bridged)
                stack.enter_context(worker)
                self._orders = worker.call(serving, self._boots, inside.fileno())
                stack.enter_context(closing(self._orders))
                next(self._orders)
            stack.callback(self._close_processes)
            self._stack, self._is_open = stack.pop_all(), True
        return self

    def __exit__(self, *_error: object) -> None:
        """End all that runs, and the network."""
        self._is_open = False
        self._stack.close()

    @property
    def hosts(self) -> list["ApplicationHost"]:
        """All hosts, in order."""
        return [self.host(number) for number in range(len(self.fabric.servers))]

    def host(self, which: int | str) -> "ApplicationHost":
        """Return a host by its number, or by a name or an address of it; ScenarioError if there is none."""
        number = which if isinstance(which, int) else self._numbers.get(which, -1)
        if not 0 <= number < len(self.fabric.servers):
            names = [server.name for server in self.fabric.servers]
            raise ScenarioError(
                f"fabric {self.fabric.name} has no host {which!r}", f"its hosts are {names[0]} to {names[-1]}"
            )
        return ApplicationHost(self, self.fabric.servers[number].name)

    def fail(self, what: str) -> None:
        """Have something fail now: ``nic:0:1``, ``server:3`` with all that runs there, or ``nic:0:1=0.5``.

        Raises
        ------
        ScenarioError
            If the fabric has no such part, or it has failed already.
        """
        self._order("fail", what)

    def mend(self) -> None:
        """Have all that failed work again."""
        self._order("mend")

    def light(self, ocs: str, circuits: str) -> None:
        """Have an OCS light circuits, ``0>1 1>0``, or none, ``-``; return once hosts send over them.

        Raises
        ------
        LightrailError
            If there is no such OCS, or it cannot light them.
        """
        self._order("light", ocs, circuits)

    def connected(self) -> socket.socket:
        """Return a new socket to the server of the hosts."""
        if not self._is_open:
            raise NetworkError("the network is not booted", "run commands inside its with block")
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            try:
                socket.send_fds(self._door, [b"{}"], [there.fileno()])
            except OSError as error:
                here.close()
                raise NetworkError(f"the network has ended: {error.strerror}", "boot it again") from error
        return here

    def keep(self, process: "ApplicationProcess") -> None:
        """Have a process end with the network at the latest, also if its caller forgets it."""
        with self._one_keeps:
            for each in self._running:
                if not each.is_running:
                    each.close()
            self._running = [*(each for each in self._running if each.is_running), process]

    def _close_processes(self) -> None:
        for process in self._running:
            process.close()

    def _order(self, verb: Verb, *words: str) -> None:
        """Have the worker carry out an order; raise what it raises there."""
        if not self._is_open:
            raise NetworkError("the network is not booted", f"call {verb} inside its with block")
        # An order that was interrupted would leave its answer to the next one.
        with self._one_order, interrupt_deferred():
            if error := self._orders.send((verb, words)):
                raise error


class ApplicationHost:
    """A host of a network.

    Parameters
    ----------
    network
        Its network, booted.
    name
        Its name.
    """

    def __init__(self, network: ApplicationNetwork, name: str) -> None:
        self._network, self.name = network, name

    def __repr__(self) -> str:
        return f"<host {self.name} of {self._network.fabric.name}>"

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float | None = None,
        check: bool = False,
        input: str | bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> "CompletedProcess[str]":
        """Run a command, and return what it wrote and its exit code, 128 + n if signal n ended it.

        Parameters
        ----------
        argv, input, env, cwd
            As of `start`.
        timeout
            When it is killed [s]; None for never.
        check
            Whether an exit code that is not 0 is an error.

        Raises
        ------
        CommandError
            If the host has no such command, it does not end in time, or fails where that is checked.
        """
        with self.start(argv, input=input, env=env, cwd=cwd) as process:
            words = " ".join(process.argv)[:WORDS]
            try:
                code = process.wait(timeout)
            except TimeoutError:
                late = f"{words} on {self.name} did not end within {timeout:g} s"
                raise CommandError(late, process.errors.strip()[-WORDS:], TIMED_OUT) from None
            done = CompletedProcess(list(process.argv), code, process.output, process.errors)
        if check and code:
            complaint = " ".join(done.stderr.split())[-WORDS:]
            raise CommandError(f"{words} on {self.name} ended with exit code {code}", complaint, code)
        return done

    def start(
        self,
        argv: Sequence[str],
        *,
        input: str | bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> "ApplicationProcess":
        """Start a command, and return it; it ends with the network at the latest.

        Parameters
        ----------
        argv
            The program and its arguments.
        input
            What it reads from its standard input.
        env
            Variables beside this process'.
        cwd
            Its directory; by default this one.

        Raises
        ------
        CommandError
            If the host has no such command.
        """
        if isinstance(argv, str):
            raise ScenarioError(f"{argv!r} is not a list of words", f'give ["sh", "-c", {argv!r}]')
        request = {
            "host": self.name,
            "argv": [str(word) for word in argv],
            "env": {**of_asker(os.environ), **(env or {})},
            "cwd": os.path.abspath(cwd or "."),
        }
        process = ApplicationProcess(
            self._network.connected(), request, input.encode() if isinstance(input, str) else input
        )
        self._network.keep(process)
        return process


class ApplicationProcess:
    """A process on a host; a context manager, at whose end it is killed. Several threads may use it.

    Parameters
    ----------
    connection
        A new socket to the server of the hosts, which is closed with this.
    request
        What is asked of that (`testbed.apps.host_server`).
    stdin
        What the process reads from its standard input.
    """

    def __init__(self, connection: socket.socket, request: Mapping[str, object], stdin: bytes) -> None:
        self.argv, self.host = tuple(cast(list[str], request["argv"])), str(request["host"])
        self._code: int | None = None
        self._one_at_a_time = Lock()
        with ExitStack() as stack:
            self._connection = stack.enter_context(connection)
            # Files and no pipes: nobody has to read them, and what a command leaves running keeps none open.
            self._output, self._errors = (stack.enter_context(_Written()) for _ in range(2))
            with open(os.memfd_create("stdin"), "w+b", buffering=0) as given:
                given.write(stdin)
                given.seek(0)
                ask(connection, request, (given.fileno(), self._output.fileno(), self._errors.fileno()))
            try:
                answered(connection)
            except RefusedError as refused:
                raise CommandError(refused.sentence, refused.hint, refused.code) from None
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "running" if self.is_running else "ended" if self._code is None else f"exit code {self._code}"
        return f"<{' '.join(self.argv)[:WORDS]} on {self.host}, {state}>"

    @property
    def is_running(self) -> bool:
        """True until it has ended."""
        with suppress(TimeoutError, NetworkError):
            self.wait(0.0)
            return False
        return self._connection.fileno() != CLOSED

    @property
    def output(self) -> str:
        """Its standard output so far."""
        with self._one_at_a_time:
            return self._output.text

    @property
    def errors(self) -> str:
        """Its standard error so far."""
        with self._one_at_a_time:
            return self._errors.text

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit code, 128 + n if signal n ended it.

        Raises
        ------
        TimeoutError
            If it still runs after a timeout [s].
        NetworkError
            If its block or the network has ended before.
        """
        with self._one_at_a_time:
            if (code := self._heard()) is not None:
                return code
            own = os.dup(self._connection.fileno())  # another thread may close the connection meanwhile
        try:
            _is_readable(own, timeout)
        finally:
            os.close(own)
        with self._one_at_a_time:
            code = self._heard()
        if code is None:
            raise TimeoutError(f"{self.argv[0]} did not end within {timeout:g} s")
        return code

    def signal(self, number: int) -> None:
        """Send a signal to it and to all of its group; ScenarioError for a number that is none."""
        try:
            signal = Signals(number)
        except ValueError:
            raise ScenarioError(f"{number!r} is not a signal", "take one of Python's module signal") from None
        with self._one_at_a_time:
            tell(self._connection, {"signal": int(signal)})

    def close(self) -> None:
        """Kill it, and all of its session, unless it has ended; what it has written can still be read."""
        with self._one_at_a_time:
            with suppress(OSError):  # it is closed already; else threads that wait for it are woken
                self._connection.shutdown(socket.SHUT_RDWR)
            self._stack.close()

    def _heard(self) -> int | None:
        """Return its exit code, None while it runs; NetworkError if there will be none."""
        if self._code is None:
            if self._connection.fileno() == CLOSED:
                raise NetworkError(f"{self.argv[0]} was killed when its block ended", "wait for it inside")
            if not _is_readable(self._connection.fileno(), 0.0):
                return None
            try:
                self._code = int(str(answered(self._connection)["ended"]))
            except RefusedError as error:
                raise NetworkError(f"{self.argv[0]} has no exit code: {error.sentence}") from None
        return self._code


def _is_readable(descriptor: int, timeout: float | None) -> bool:
    """Return whether a descriptor can be read within a time [s]."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(None if timeout is None else 1e3 * timeout))


class _Written:
    """The file in memory that a process writes a stream into; a context manager."""

    def __init__(self) -> None:
        self._file = open(os.memfd_create("written"), "a+b", buffering=0)  # noqa: SIM115  # closed with this
        # Python's "a" does not reach a descriptor that is open: of two that write at once, one would be lost.
        fcntl(self._file, F_SETFL, os.O_APPEND)
        self._kept = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._kept = self._read()
        self._file.close()

    def fileno(self) -> int:
        """Return the descriptor to be written to."""
        return self._file.fileno()

    @property
    def text(self) -> str:
        """Its content, as text."""
        return (self._kept if self._file.closed else self._read()).decode(errors="replace")

    def _read(self) -> bytes:
        return os.pread(self._file.fileno(), os.fstat(self._file.fileno()).st_size, 0)


def serving(boots: "_Boots", door: int) -> Generator[LightrailError | None, Order, None]:
    """Boot a network and serve its hosts, in a worker; yield what came of each order, None if all is well.

    Parameters
    ----------
    boots
        What is booted, and how.
    door
        A descriptor over which sockets to the server of the hosts come.
    """
    check_congestion_control(boots.host.congestion_control)  # an ordinary user may take more in here
    booted = Network(boots.fabric, boots.rate, host=boots.host, hosts=True)
    with booted as network, HostServer(network, door, scale=boots.scale):
        network.impair(Dilation(boots.rate, 1.0).time)
        if boots.mptcp:
            network.hosts.offer_mptcp()
        standing = StandingFaults(network)
        error: LightrailError | None = None
        while True:
            verb, words = yield error
            error = None
            try:
                _carry_out(network, standing, verb, words)
            except LightrailError as failure:
                error = failure


def _fail(standing: StandingFaults, what: str) -> None:
    try:
        standing.fail(what)
    except ScenarioError as error:  # it has no time here, and nothing is predicted
        hint = f"name {KINDS}; =SHARE or =loss:PROBABILITY after it" if error.hint == HINT else error.hint
        raise ScenarioError(error.sentence.replace("@0s", ""), hint) from None


def _carry_out(network: Network, standing: StandingFaults, verb: Verb, words: Sequence[str]) -> None:
    """Carry out an order, or raise LightrailError."""
    if verb == "fail":
        (what,) = words
        if "@" in what:
            raise ScenarioError(
                f"{what} has a time, and what fails here fails now", "leave out @ and the time"
            )
        _fail(standing, what)
        kind, _, server = what.partition(":")
        if kind == "server" and "=" not in server:
            kill_processes_on(network, int(server))
    elif verb == "mend":
        standing.mend()
    else:
        ocs, circuits = words
        names = [switch.name for switch in network.fabric.switches if switch.kind == "ocs"]
        if ocs not in names:
            hint = f"take {', '.join(names)}" if names else "take a fabric with one"
            raise ScenarioError(f"fabric {network.fabric.name} has no OCS {ocs!r}", hint)
        network.northbound.light(ocs, circuits)
        network.northbound.wait_idle(ocs, LIT_S)
        network.hosts.follow_light()
