"""News of light: what the controller says that each OCS shows."""

import json
import socket
from pathlib import Path
from typing import NamedTuple

from controller.app.listeners import bind_privately
from topologies.errors import NetworkError
from topologies.light import Circuit

TURN_S = 0.001
"""The longest wait for news while light is to change [s]."""


class NowShown(NamedTuple):
    """What an OCS shows from now on."""

    ocs: str
    circuits: tuple[Circuit, ...]
    until_s: float | None
    """When some of it goes dark [s, monotonic]; None between two slots, while it is dark."""
    ended: bool
    """Whether nothing more is to come."""


class News:
    """Where the controller tells what is lit: a unix datagram socket; a context manager.

    Parameters
    ----------
    path
        Of the socket; in a directory that ends with the run, however it ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> "News":
        """Open the socket."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bind_privately(self._socket, self.path)
        self._socket.setblocking(False)
        return self

    def __exit__(self, *_error: object) -> None:
        """Close it."""
        self._socket.close()
        self.path.unlink()

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._socket.fileno()

    def read(self) -> list[NowShown]:
        """Return what is new; NetworkError if a switch did not light it, or notices were dropped."""
        notices: list[NowShown] = []
        while True:
            try:
                news = json.loads(self._socket.recv(1 << 16))
            except BlockingIOError:
                return notices
            if news["error"]:
                raise NetworkError(news["error"])
            if news["missed"]:
                raise NetworkError(
                    f"{news['missed']} notices of what is lit were dropped: they were read too slowly",
                    "lower the rate, or run fewer things beside this",
                )
            circuits = tuple(sorted((a, b) for a, b in news["circuits"]))
            notices.append(NowShown(news["ocs"], circuits, news["until_s"], news["ended"]))
