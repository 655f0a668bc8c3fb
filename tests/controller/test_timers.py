"""Timers: one thread waits for all of them."""

import math
import threading
from collections.abc import Iterator
from itertools import count
from queue import SimpleQueue
from time import monotonic

import pytest

from controller.app.app_thread import AppThread
from controller.app.timers import Timers
from tests.controller.played import begun_since

SECONDS = 30.0


class Set:
    """Timers, and what they had the app's thread do."""

    def __init__(self) -> None:
        self._done: SimpleQueue[str] = SimpleQueue()
        self._timers = Timers(AppThread(lambda work: work()))
        self._keys: Iterator[int] = count()

    def set(self, what: str, time_s: float, key: object = None) -> None:
        """Set a timer, by default one of its own."""
        self._timers.set(next(self._keys) if key is None else key, time_s, lambda: self._done.put(what))

    def done(self) -> str:
        """Return what was done next."""
        return self._done.get(timeout=SECONDS)


@pytest.fixture
def timers() -> Set:
    return Set()


def test_timers_go_off_in_the_order_of_their_times_and_not_before(timers: Set) -> None:
    now = monotonic()
    for what, after_s in (("third", 0.03), ("first", 0.01), ("second", 0.02)):
        timers.set(what, now + after_s)
    assert [timers.done() for _ in range(3)] == ["first", "second", "third"]
    assert monotonic() >= now + 0.03


def test_a_timer_that_is_set_again_drops_what_it_was_for(timers: Set) -> None:
    now = monotonic()
    timers.set("old", now + 0.01, key="ocs0")
    timers.set("new", now + 0.02, key="ocs0")
    timers.set("later", now + 0.03)
    assert [timers.done(), timers.done()] == ["new", "later"]


@pytest.mark.parametrize("time_s", [1e300, math.inf])
def test_a_time_that_no_thread_can_wait_for_stops_no_other(timers: Set, time_s: float) -> None:
    timers.set("never", time_s)
    timers.set("soon", monotonic() + 0.01)
    assert timers.done() == "soon"


def test_what_is_due_or_is_no_time_is_done_at_once(timers: Set) -> None:
    for what, time_s in (("past", -1.0), ("no time", math.nan)):
        timers.set(what, time_s)
        assert timers.done() == what


def test_many_timers_take_one_thread(timers: Set) -> None:
    timers.set("begun", 0.0)
    timers.done()
    before = threading.enumerate()
    for _ in range(50):
        timers.set("much later", monotonic() + 1e6)
    assert not begun_since(before)
