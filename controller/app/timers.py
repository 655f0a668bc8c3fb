"""Times at which the app's thread has something to do; one thread waits for all of them."""

from collections.abc import Hashable
from threading import TIMEOUT_MAX, Condition, Thread
from time import monotonic

from controller.app.app_thread import AppThread, Work


class Timers:
    """Has the app's thread do pieces of work at their times.

    Parameters
    ----------
    thread
        The app's thread.
    """

    def __init__(self, thread: AppThread) -> None:
        self._thread = thread
        self._pending: dict[Hashable, tuple[float, Work]] = {}
        self._changed = Condition()
        Thread(target=self._serve, daemon=True).start()

    def set(self, key: Hashable, time_s: float, work: Work) -> None:
        """Set a timer; from any thread.

        Parameters
        ----------
        key
            Which timer: if it is set already, that time and that work are dropped.
        time_s
            When it goes off, on this machine's monotonic clock [s]; at once if that is past.
        work
            What the app's thread does then.
        """
        with self._changed:
            self._pending[key] = time_s, work
            self._changed.notify()

    def _serve(self) -> None:
        while True:
            for work in self._due():
                self._thread.post(work)

    def _due(self) -> list[Work]:
        """Wait until some timers are due, and return what they are for, the earliest first."""
        with self._changed:
            while True:
                now = monotonic()
                due = [key for key, (time_s, _) in self._pending.items() if not time_s > now]  # also NaN
                if due:
                    due.sort(key=lambda key: self._pending[key][0])
                    return [self._pending.pop(key)[1] for key in due]
                left_s = min((time_s - now for time_s, _ in self._pending.values()), default=TIMEOUT_MAX)
                self._changed.wait(min(left_s, TIMEOUT_MAX))
