"""Notices to subscribers: JSON datagrams to a unix socket of each, sent without blocking the app's thread.

A slow subscriber's notices are kept, and one thread waits until its socket has room; other subscribers
and the switches go on meanwhile. Of more than `KEPT` the oldest are dropped, because what is lit now
matters most, and the next notice says how many: its ``missed``.
"""

import json
import select
import socket
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from threading import Thread

from controller.app.app_thread import AppThread
from topologies.errors import DemandError

KEPT = 10_000
"""How many notices wait for a slow subscriber at most, of all its OCSes; the socket itself holds ten more."""


class Subscriber:
    """One subscriber, of one or several OCSes; every method is for the app's thread.

    Parameters
    ----------
    path
        The unix datagram socket that it has bound.
    thread
        The app's thread, on which sending goes on when there is room again.

    Raises
    ------
    DemandError
        If there is no such socket.
    """

    def __init__(self, path: Path, thread: AppThread) -> None:
        self._thread = thread
        self._kept: deque[Mapping[str, object]] = deque()
        self._missed = 0
        self._waiting = self._closed = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise DemandError(
                f"notify {path}: {error.strerror or error}", "name a unix datagram socket that is bound"
            ) from error

    def notify(self, notice: Mapping[str, object]) -> None:
        """Send a notice, or keep it until the subscriber has read some."""
        self._kept.append(notice)
        if len(self._kept) > KEPT:
            self._kept.popleft()
            self._missed += 1
        if not self._waiting:
            self._send()

    def forget(self, ocs: str) -> None:
        """Send nothing more of what is kept of an OCS."""
        self._kept = deque(notice for notice in self._kept if notice["ocs"] != ocs)

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        self._kept.clear()
        if self._waiting:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which still holds the descriptor
        else:
            self._socket.close()

    def _send(self) -> None:
        while self._kept:
            try:
                self._socket.send(json.dumps({**self._kept[0], "missed": self._missed}).encode())
            except BlockingIOError:
                self._waiting = True
                Thread(target=self._wait_for_room, daemon=True).start()
                return
            except OSError:  # the subscriber has gone; the OCS goes on
                self._kept.clear()
                return
            self._kept.popleft()
            self._missed = 0

    def _wait_for_room(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT)
        poll.poll()
        self._thread.post(self._resume)

    def _resume(self) -> None:
        self._waiting = False
        if self._closed:
            self._socket.close()
        else:
            self._send()
