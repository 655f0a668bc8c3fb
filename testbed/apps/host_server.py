"""The server that carries out commands on hosts: for programs there, and for the process outside the sandbox.

It is a thread of the worker. A connection is a SEQPACKET socket, and one process:

    client                                                        server
      [request, and its stdin, stdout, stderr as descriptors] ──►
                                                              ◄── {"started": pid} | {"refused": sentence,
                                                                   "hint": what to do, "code": exit code}
      {"signal": number}                                      ──►  to the process' group, as often as asked
                                                              ◄── {"ended": exit code}

A request is JSON in a memfd, the first descriptor, since a message has a limit: ``{"host": "h0", "argv":
[...], "env": {...}, "cwd": "/"}``; with ``"terminal": true`` if the streams are a terminal that the command
is to have, and, from root alone, ``"as_root": true``. The descriptors are closed here once the process has
its own. A connection that hangs up kills the process' session, and so does a signal that ends the process:
what is killed leaves nothing.

The message ``{"follow": "light"}`` needs no descriptor: the hosts' routes follow what is lit, and the answer
is ``{"followed": true}``.

Programs on hosts connect to a socket that all users may use. The process outside has a *door*, a socket over
which it sends connected sockets, since it cannot reach into the sandbox otherwise.
"""

import json
import os
import selectors
import signal
import socket
import stat
import struct
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Self
from weakref import WeakSet

from testbed.apps.environment import place_programs
from testbed.apps.host_processes import KILLED, CommandError, HostCommand, HostProcess, start
from testbed.apps.lightrail_ssh import MISUSE, SOCKET
from testbed.network.host_namespaces import ROOT
from testbed.network.network import Network
from topologies.addresses import host_ip, nic_ip, nic_name
from topologies.errors import LightrailError, ScenarioError
from topologies.fabric import Fabric

MOST_BYTES = 1 << 12
"""Of a message that no memfd holds."""
MOST_REQUEST_BYTES = 1 << 24
"""Of a memfd: more than the words and the environment of a process may have."""
DESCRIPTORS = 4
"""Of a request: what is asked, and three standard streams."""
PEER = struct.Struct("=iII")
"""struct ucred (unix(7)): process, user and group at the other end."""
LISTENING = 128


class HostServer:
    """Carries out commands on the hosts of a network while it is open; a context manager.

    Parameters
    ----------
    network
        Booted, with hosts.
    door
        A descriptor over which connected sockets come from outside; it stays open.
    scale
        How many times as long as in reality applications are to compute.
    """

    def __init__(self, network: Network, door: int | None = None, *, scale: float = 1.0) -> None:
        self._network, self._door, self._scale = network, door, scale
        self._hosts = hosts_by_name(network.fabric)
        self._connections: dict[int, _Connection] = {}
        self._open: set[int] = set()
        """Descriptors that no process that is forked here is to have."""

    def __enter__(self) -> Self:
        """Begin to listen."""
        place_programs()
        with ExitStack() as stack:
            self._selector = stack.enter_context(selectors.DefaultSelector())
            listener = self._own(stack, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            Path(SOCKET).unlink(missing_ok=True)
            listener.bind(SOCKET)
            os.chmod(SOCKET, 0o666)
            listener.listen(LISTENING)
            self._selector.register(listener, selectors.EVENT_READ, lambda: self._adopt(listener.accept()[0]))
            if self._door is not None:
                os.set_inheritable(self._door, False)
                door = self._own(stack, socket.socket(fileno=os.dup(self._door)))
                self._selector.register(door, selectors.EVENT_READ, lambda: self._take_from(door))
            ended, self._waker = (self._own(stack, end) for end in socket.socketpair())
            self._selector.register(ended, selectors.EVENT_READ, None)
            _servers.add(self)
            stack.callback(_servers.discard, self)
            self._thread = threading.Thread(target=self._serve, name="host server", daemon=True)
            self._thread.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        """Kill what was started and still runs, and stop."""
        self._waker.send(b"\0")
        self._thread.join()
        self._kill_all()
        self._stack.close()
        Path(SOCKET).unlink(missing_ok=True)

    def _own(self, stack: ExitStack, end: socket.socket) -> socket.socket:
        """Have a socket closed with the server, and in processes that are forked meanwhile."""
        self._open.add(end.fileno())
        return stack.enter_context(end)

    def close_in_fork(self) -> None:
        """Close what a process that was forked has of this server: else nobody would see it hang up."""
        for descriptor in self._open:
            with suppress(OSError):
                os.close(descriptor)

    def _serve(self) -> None:
        """Answer until the server is closed."""
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                key.data()

    def _take_from(self, door: socket.socket) -> None:
        """Take a connected socket from the process outside; a door that is closed brings no more."""
        data, descriptors, *_ = socket.recv_fds(door, MOST_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        if not data:
            self._selector.unregister(door)
        for descriptor in descriptors:
            self._adopt(socket.socket(fileno=descriptor))

    def _adopt(self, end: socket.socket) -> None:
        connection = _Connection(end)
        self._connections[end.fileno()] = connection
        self._open.add(end.fileno())
        self._selector.register(end, selectors.EVENT_READ, partial(self._hear, connection))

    def _hear(self, connection: "_Connection") -> None:
        """Do what a message of a connection asks for."""
        if (
            connection.end.fileno() not in self._connections
        ):  # closed since the selector has found it readable
            return
        try:
            data, descriptors, *_ = socket.recv_fds(
                connection.end, MOST_BYTES, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except OSError:  # it was reset
            data, descriptors = b"", []
        self._open.update(descriptors)
        try:
            if not data:
                self._hang_up(connection)
            elif connection.process:
                connection.process.signal(_signal_in(data))
            else:
                self._begin(connection, data, descriptors)
        except LightrailError as error:
            code = error.code if isinstance(error, CommandError) else MISUSE
            connection.say({"refused": error.sentence, "hint": error.hint, "code": code})
        except (OSError, ValueError) as error:  # such as no memory, or a NUL in a word
            connection.say({"refused": f"it cannot be started: {error}", "hint": "", "code": MISUSE})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
            self._open.difference_update(descriptors)

    def _begin(self, connection: "_Connection", data: bytes, descriptors: list[int]) -> None:
        """Carry a request out, or raise LightrailError."""
        request = _request_in(data, descriptors)
        if request.get("follow") == "light":
            self._network.hosts.follow_light()
            connection.say({"followed": True})
            return
        command = self._command(request, connection)
        if len(descriptors) != DESCRIPTORS:
            raise ScenarioError("a command came without its standard streams")
        process = start(self._network, command, *descriptors[1:], scale=self._scale)
        connection.process = process
        self._open.add(process.fileno())
        self._selector.register(process, selectors.EVENT_READ, partial(self._ended, connection, process))
        connection.say({"started": process.pid})

    def _command(self, request: Mapping[str, object], connection: "_Connection") -> HostCommand:
        """Return the command that a request is for, or raise LightrailError."""
        match request:
            case {"host": str(name), "argv": list(argv), "env": dict(env), "cwd": str(cwd)}:
                host = self._hosts.get(name)
            case _:
                raise ScenarioError("a request has no host, argv, env and cwd")
        if host is None:
            close = get_close_matches(name, self._hosts, n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise ScenarioError(f"there is no host {name!r}", f"{meant}LIGHTRAIL_HOSTS has the names of all")
        as_root = bool(request.get("as_root"))
        if as_root and connection.user != ROOT:
            raise ScenarioError("an ordinary user runs nothing as root on a host", "leave out as_root")
        environment = {str(key): str(value) for key, value in env.items()}
        has_terminal = bool(request.get("terminal"))
        return HostCommand(host, tuple(map(str, argv)), environment, cwd, as_root, has_terminal)

    def _ended(self, connection: "_Connection", process: HostProcess) -> None:
        """Say what a process has ended with, if somebody still listens."""
        code = process.wait()
        if code > KILLED:  # it or, if it is a shell, its command was killed; one that ended may leave others
            process.kill()
        self._selector.unregister(process)
        self._open.discard(process.fileno())
        process.close()
        connection.process = None
        if connection.end.fileno() in self._connections:
            connection.say({"ended": code})
            self._close(connection)

    def _hang_up(self, connection: "_Connection") -> None:
        """Kill the process of a client that has ended."""
        if connection.process:
            connection.process.kill()
        self._close(connection)

    def _close(self, connection: "_Connection") -> None:
        descriptor = connection.end.fileno()
        self._selector.unregister(connection.end)
        self._connections.pop(descriptor)
        self._open.discard(descriptor)
        connection.end.close()

    def _kill_all(self) -> None:
        """Kill the session of each process whose end was not seen, also of those whose clients have gone."""
        for key in self._selector.get_map().values():
            if isinstance(key.fileobj, HostProcess):
                with key.fileobj:
                    pass
        for connection in self._connections.values():
            connection.end.close()


class _Connection:
    """A client, and the process that it has asked for."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        peer = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
        self.user = PEER.unpack(peer)[1]
        """The user at the other end, as this sandbox numbers users."""
        self.process: HostProcess | None = None
        """Its process; None before and after."""

    def say(self, message: Mapping[str, object]) -> None:
        """Send an answer; one that nobody waits for is dropped, and so is one that is not read in time."""
        with suppress(OSError):
            self.end.send(json.dumps(message).encode(), socket.MSG_DONTWAIT)


def hosts_by_name(fabric: Fabric) -> dict[str, int]:
    """Return the number of each host by its names and addresses in /etc/hosts, and by those of its NICs."""
    names = {server.name: number for number, server in enumerate(fabric.servers)}
    names |= {str(host_ip(number)): number for number in range(len(fabric.servers))}
    for nic in fabric.nics:
        names |= dict.fromkeys((nic_name(fabric, nic), str(nic_ip(fabric, nic))), nic.server)
    return names


def _request_in(data: bytes, descriptors: Sequence[int]) -> dict[str, object]:
    """Return the request in the first descriptor, or else in the message; ScenarioError if there is none."""
    try:
        if descriptors:
            its = os.fstat(descriptors[0])
            if not stat.S_ISREG(its.st_mode):  # to read it could take for ever
                raise ScenarioError("a request is not in a memfd")
            if its.st_size > MOST_REQUEST_BYTES:
                raise ScenarioError(f"a request of {its.st_size:,} bytes")
            data = os.pread(descriptors[0], its.st_size, 0)
        request = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ScenarioError(f"a request cannot be read: {error}") from error
    return request if isinstance(request, dict) else {}


def _signal_in(data: bytes) -> int:
    """Return the signal that a message asks for; ScenarioError if it does not."""
    try:
        return signal.Signals(json.loads(data)["signal"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ScenarioError(f"not a signal: {error}", "take one of kill -l") from error


_servers: "WeakSet[HostServer]" = WeakSet()
"""Those that are open; a fork knows them by it."""


def _close_in_fork() -> None:
    for server in _servers:
        server.close_in_fork()


os.register_at_fork(after_in_child=_close_in_fork)
