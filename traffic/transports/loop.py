"""The loop of an engine: waits for sockets, serves them, and knows how late it was."""

import contextlib
import select
import time
from collections.abc import Callable
from typing import Protocol, Self

import numpy as np

EVENTS = 128
"""As many are served at once: 512 kept the others of 7,848 queue pairs waiting for 18 ms."""


class Watches(Protocol):
    """An engine, by its loop."""

    def watch(self, descriptor: int, action: Callable[[int], None]) -> None:
        """Do something whenever a descriptor can be read."""
        ...


class Loop:
    """Descriptors and what is done when something happens to them; a context manager."""

    def __init__(self) -> None:
        self._serving: dict[int, Callable[[int], None]] = {}
        self._rounds_s: list[float] = []
        self._polled_at: float | None = None
        self._overslept_s = 0.0

    def __enter__(self) -> Self:
        """Get ready."""
        with contextlib.ExitStack() as stack:
            self._poller = stack.enter_context(select.epoll())
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        """Close all that was opened on its stack."""
        self.stack.close()

    def watch(self, descriptor: int, action: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        """Do something whenever a descriptor can be read, or something else happens to it."""
        self._serving[descriptor] = action
        self._poller.register(descriptor, events)

    def modify(self, descriptor: int, events: int) -> None:
        """Wait for other events of a descriptor that is watched."""
        self._poller.modify(descriptor, events)

    def forget(self, descriptor: int) -> None:
        """Watch a descriptor no longer."""
        del self._serving[descriptor]
        self._poller.unregister(descriptor)

    def starts_anew(self) -> None:
        """Take that nobody waited for what was done since the last round."""
        self._polled_at = None

    def rest(self, seconds: float) -> None:
        """Let time pass while nothing is on its way; nobody waits, so the loop is not late."""
        time.sleep(max(seconds, 0.0))
        self.starts_anew()

    def begins_round(self, *, counts: bool) -> None:
        """Note for how long events may have waited since the last poll, if somebody waited for them."""
        if self._polled_at is not None and counts:
            self._rounds_s.append(time.monotonic() - self._polled_at)

    def serve(self, wait_s: float, *, counts: bool) -> None:
        """Wait for events, for so long at most [s], and serve them; ``counts`` as of `begins_round`."""
        began = time.monotonic()
        events = self._poller.poll(wait_s, EVENTS)
        self._polled_at = time.monotonic()
        if counts:
            self._overslept_s = max(self._overslept_s, self._polled_at - began - wait_s)
        for descriptor, event in events:
            if serve := self._serving.get(descriptor):  # one served before may have closed it
                serve(event)

    @property
    def lateness_s(self) -> float:
        """How long a round kept the next events waiting, 99th percentile [s]."""
        return float(np.percentile(self._rounds_s, 99)) if self._rounds_s else 0.0

    @property
    def stall_s(self) -> float:
        """The longest that it was away: a round of it, or a wait that ended too late [s]."""
        return max(self._overslept_s, max(self._rounds_s, default=0.0))
