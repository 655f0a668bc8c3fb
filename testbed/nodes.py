"""Mininet's nodes over parts that exist already: servers' namespaces, bulk links, live bridges.

Stock Mininet starts a shell per node and runs a command per interface, 20 s for 256 links.
Here a node's shell starts when somebody first asks for it, so that a network boots without
one, and yet its CLI, ``pingall``, ``iperf``, ``net`` and ``links`` do what they always do.
"""

from subprocess import Popen

from mininet.link import Intf, Link
from mininet.node import Node, OVSSwitch


class LazyNode(Node):  # type: ignore[misc]
    """A node whose shell starts at its first command, once the node is made."""

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


class LiveServer(LazyNode):
    """A server: Mininet's host, in a namespace that a file descriptor holds."""

    def __init__(self, name: str, namespace: int, **params: object) -> None:
        self._namespace = namespace
        super().__init__(name, inNamespace=False, **params)

    def _popen(self, cmd: list[str], **params: object) -> "Popen[bytes]":
        enter = ["nsenter", f"--net=/proc/self/fd/{self._namespace}", "--"]
        params.pop("close_fds", None)
        process: Popen[bytes] = super()._popen([*enter, *cmd], pass_fds=(self._namespace,), **params)
        return process


class LiveSwitch(LazyNode, OVSSwitch):  # type: ignore[misc]
    """A switch: a bridge that `testbed.network` has made in one transaction with all the others."""

    def start(self, controllers: object) -> None:
        """Do nothing: the bridge stands."""

    def stop(self, deleteIntfs: bool = True) -> None:
        """Do nothing: the network takes its bridges away at once."""

    def attach(self, intf: Intf) -> None:
        """Do nothing: the port is in the bridge."""


class LiveIntf(Intf):  # type: ignore[misc]
    """An interface that exists, named and addressed."""

    def config(self, ip: str | None = None, **_params: object) -> dict[str, object]:
        """Take note of the address; nothing is run."""
        self.ip, self.prefixLen = ip, "32" if ip else None
        return {}


class LiveLink(Link):  # type: ignore[misc]
    """A link that exists: a veth pair made in bulk."""

    @classmethod
    def makeIntfPair(cls, *_args: object, **_kwargs: object) -> None:
        """Do nothing: the pair stands."""

    def delete(self) -> None:
        """Do nothing: the pair ends with its server's namespace, or with the network."""

    def stop(self) -> None:
        """Do nothing, see `delete`."""
