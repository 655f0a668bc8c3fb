"""News for hosts, of light and of links: a thread hands on what the controller says, whoever changed it."""

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, Self

from controller.app.listeners import bind_privately
from topologies.light import Circuit

MOST_BYTES = 1 << 18
"""Of a notice: all links of a large fabric may fail."""
END = b""
"""The message that ends the thread."""


class LitSince(NamedTuple):
    """The circuits of an OCS that carry."""

    circuits: tuple[Circuit, ...]
    since_s: float
    """Since when, on the machine's monotonic clock [s]."""


class HostNews(NamedTuple):
    """The changes of a moment."""

    lit: Mapping[str, LitSince]
    """Of each OCS that changed, by its name."""
    links: bool
    """Whether links have failed, or work again."""


class NewsSocket:
    """A socket that the controller tells of every change of light and of links; a context manager.

    Parameters
    ----------
    path
        Of the socket; in a directory that ends with the network.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        """Open the socket: a controller can be told of it."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bind_privately(self._socket, self.path)
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the socket."""
        self._socket.close()
        self.path.unlink()

    @contextmanager
    def handed_to(self, heard: Callable[[HostNews], None]) -> Iterator[None]:
        """Have a thread call a function with what changes inside the block."""
        thread = Thread(target=self._listen, args=(heard,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
                own.sendto(END, str(self.path))
            thread.join()

    def _listen(self, heard: Callable[[HostNews], None]) -> None:
        ended = False
        while not ended:
            notices = [self._socket.recv(MOST_BYTES), *self._waiting()]
            ended = END in notices
            if any(notices):
                heard(_news(map(json.loads, filter(None, notices))))

    def _waiting(self) -> list[bytes]:
        """Return the notices that have come meanwhile."""
        notices: list[bytes] = []
        while True:
            try:
                notices.append(self._socket.recv(MOST_BYTES, socket.MSG_DONTWAIT))
            except BlockingIOError:
                return notices


def _news(notices: Iterator[dict[str, Any]]) -> HostNews:
    """Return notices as one: of each OCS the newest counts."""
    lit, links = dict[str, LitSince](), False
    for notice in notices:
        if "ocs" in notice:
            lit[notice["ocs"]] = LitSince(tuple((a, b) for a, b in notice["circuits"]), notice["now"])
        else:
            links = True
    return HostNews(lit, links)
