"""Mininet's nodes over parts that exist already: servers' namespaces, bulk links, live bridges.

Stock Mininet starts a shell per node and runs a command per interface, 20 s for 256 links.
Here a node's shell starts when somebody first asks for it, so that a network boots without
one, and yet its CLI, ``pingall``, ``iperf``, ``net`` and ``links`` do what they always do.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from types import MappingProxyType

from mininet.link import Intf, Link
from mininet.log import output
from mininet.net import Mininet
from mininet.node import Node, OVSSwitch, Switch

from topologies.errors import NetworkError

IPERF_S = 5.0
"""How long iperf may take beside what it was asked for [s]."""
LISTENS = {"TCP": ("tcp", "0A"), "UDP": ("udp", "07")}
"""The file of /proc/PID/net, and the state in it, by which a listening socket is known."""


class LiveMininet(Mininet):  # type: ignore[misc]
    """Mininet, with an ``iperf`` that ends.

    Its own waits for ever for a second line of the server, which iperf 2.1 (Debian 12, Ubuntu
    24.04) does not print (https://github.com/mininet/mininet/issues/1060).
    """

    def iperf(
        self,
        hosts: Sequence[Node] | None = None,
        l4Type: str = "TCP",
        udpBw: str = "10M",
        fmt: str | None = None,
        seconds: int = 5,
        port: int = 5001,
    ) -> list[str]:
        """Run iperf from the first host to the second; return what the server and the client say.

        Raises
        ------
        NetworkError
            If the server does not listen, or hears nothing.
        """
        client, server = hosts or (self.hosts[0], self.hosts[-1])
        output("*** Iperf: testing", l4Type, "bandwidth between", client, "and", server, "\n")
        command = ["iperf", "-p", str(port)] + (["-f", fmt] if fmt else []) + ["-u"] * (l4Type == "UDP")
        bandwidth = ["-b", udpBw] if l4Type == "UDP" else []
        with server.popen(*command, "-s", "-P", "1") as listening, ExitStack() as stack:
            stack.callback(listening.kill)
            _wait_until_listens(listening, l4Type, port)
            sending = client.popen(*command, "-c", server.IP(), "-t", str(seconds), *bandwidth)
            stack.enter_context(sending)
            stack.callback(sending.kill)
            try:
                sent = sending.communicate(timeout=2 * seconds + IPERF_S)[0].decode()
                received = listening.communicate(timeout=IPERF_S)[0].decode()
            except TimeoutExpired as error:
                raise NetworkError(f"iperf from {client} to {server} did not end") from error
        result = [self._parseIperf(received), self._parseIperf(sent)]
        output(f"*** Results: {result}\n")
        return [udpBw, *result] if l4Type == "UDP" else result


def _wait_until_listens(process: "Popen[bytes]", kind: str, port: int) -> None:
    table, state = LISTENS[kind]
    deadline = time.monotonic() + IPERF_S
    while f":{port:04X} 00000000:0000 {state}" not in Path(f"/proc/{process.pid}/net/{table}").read_text():
        if time.monotonic() > deadline or process.poll() is not None:
            raise NetworkError(f"iperf does not listen on {kind} port {port}", "end what uses the port")
        time.sleep(0.01)


class LazyNode(Node):  # type: ignore[misc]
    """A node whose shell starts at its first command, once the node is made."""

    waitExited = True
    """Mininet waits for the shell's end: no process is left when the network has stopped."""
    _made = False

    def __init__(self, name: str, **params: object) -> None:
        super().__init__(name, **params)
        self._made = True

    def startShell(self, mnopts: str | None = None) -> None:
        """Put the shell off until `wake`."""

    def wake(self) -> None:
        """Start the shell, unless it runs."""
        if self.shell is None and self._made:
            super().startShell()

    def cmd(self, *args: object, **kwargs: object) -> str | None:
        """Run a command in the node's shell and return what it printed.

        While the node is made Mininet raises its loopback, which is up.
        """
        self.wake()
        return super().cmd(*args, **kwargs) if self.shell else ""

    def sendCmd(self, *args: object, **kwargs: object) -> None:
        """Run a command in the node's shell, started first if need be."""
        self.wake()
        super().sendCmd(*args, **kwargs)

    def popen(self, *args: object, **kwargs: object) -> "Popen[bytes]":
        """Run a process on the node."""
        self.wake()
        process: Popen[bytes] = super().popen(*args, **kwargs)
        return process


class HeldNode(LazyNode):
    """A node in namespaces that file descriptors hold."""

    environment: Mapping[str, str] = MappingProxyType({})
    """The environment of its commands beside this process'."""

    def __init__(self, name: str, entry: Sequence[str], **params: object) -> None:
        self._entry = entry
        """The words before a command's own by which it runs here."""
        super().__init__(name, **params)

    def _popen(self, cmd: list[str], **params: object) -> "Popen[bytes]":
        params.pop("close_fds", None)
        # To enter a mount namespace leads to its first directory.
        here = [*self._entry, "env", f"--chdir={os.getcwd()}"]
        process: Popen[bytes] = super()._popen([*here, *cmd], env=os.environ | self.environment, **params)
        return process


class LiveServer(HeldNode):
    """A server: Mininet's host."""


class LiveRouter(HeldNode, Switch):  # type: ignore[misc]
    """A packet switch that routes (`testbed.network.switch_routes`)."""

    def __init__(
        self, name: str, entry: Sequence[str], turn: Callable[[str, bool], None], **params: object
    ) -> None:
        self.turn = turn
        """Takes one of its interfaces down or up, and has switches go around what is down."""
        super().__init__(name, entry, **params)

    def start(self, controllers: object) -> None:
        """Do nothing: it routes."""

    def stop(self, deleteIntfs: bool = True) -> None:
        """Do nothing: its namespace ends with the network."""

    def dpctl(self, *_args: object) -> str:
        """Raise NetworkError: it speaks no OpenFlow."""
        raise NetworkError(f"switch {self.name} routes, and has no flows", f"type {self.name} ip route")


class LiveSwitch(LazyNode, OVSSwitch):  # type: ignore[misc]
    """A switch: a bridge that `testbed.network.network` has made in one transaction with all the others."""

    def start(self, controllers: object) -> None:
        """Do nothing: the bridge stands."""

    def stop(self, deleteIntfs: bool = True) -> None:
        """Do nothing: the network takes its bridges away at once."""

    def attach(self, intf: Intf) -> None:
        """Do nothing: the port is in the bridge."""


class LiveIntf(Intf):  # type: ignore[misc]
    """An interface that exists, named and addressed; it is shown with its server, as all have equal ones."""

    def __str__(self) -> str:
        return f"{self.node}-{self.name}" if isinstance(self.node, LiveServer) else str(self.name)

    def config(self, ip: str | None = None, **_params: object) -> dict[str, object]:
        """Record the address; nothing is run."""
        self.ip, self.prefixLen = ip, "32" if ip else None
        return {}

    def ifconfig(self, *args: str) -> str:
        """Configure it; a server's stays up, so that Mininet's ``link`` cuts the cable at the switch.

        A server's own interface that goes down loses its routes and neighbours, and has none when it
        comes up again.
        """
        if isinstance(self.node, LiveRouter) and args in (("up",), ("down",)):
            self.node.turn(str(self.name), args == ("up",))
            return ""
        if args == ("down",) and isinstance(self.node, LiveServer):
            return ""
        return str(super().ifconfig(*args))


class LiveLink(Link):  # type: ignore[misc]
    """A link that exists: a veth pair made in bulk."""

    @classmethod
    def makeIntfPair(cls, *_args: object, **_kwargs: object) -> None:
        """Do nothing: the pair stands."""

    def delete(self) -> None:
        """Do nothing: the pair ends with its server's namespace, or with the network."""

    def stop(self) -> None:
        """Do nothing, see `delete`."""
