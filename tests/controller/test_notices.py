"""Subscribers that read slowly, never or not any more."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from controller.app.app_thread import AppThread
from controller.app.notices import KEPT, Subscriber
from tests.controller.played import begun_since, eventually, started
from topologies.errors import DemandError
from topologies.parallel_ocs import parallel_ocs_fabric

SECONDS = 30.0


class Thread:
    """The app's thread, played by the test."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.app = AppThread(self._work.put)

    def run(self, timeout_s: float) -> bool:
        """Do the next piece of work; return whether there was one."""
        try:
            self._work.get(timeout=timeout_s)()
        except Empty:
            return False
        return True


@pytest.fixture
def thread() -> Thread:
    return Thread()


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Callable[[str], socket.socket]]:
    """Bind sockets in a directory."""
    opened: list[socket.socket] = []

    def bind(name: str) -> socket.socket:
        opened.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        opened[-1].bind(str(tmp_path / name))
        opened[-1].settimeout(SECONDS)
        return opened[-1]

    yield bind
    for each in opened:
        each.close()


Bound = Callable[[str], socket.socket]


def heard(subscriber: socket.socket) -> dict[str, int]:
    """Return the next notice."""
    notice: dict[str, int] = json.loads(subscriber.recv(1 << 16))
    return notice


def read(subscriber: socket.socket, thread: Thread, last: int) -> list[dict[str, int]]:
    """Return all notices up to a number, while the app's thread does what there is to do."""
    notices = [heard(subscriber)]
    subscriber.setblocking(False)
    while notices[-1]["number"] < last:
        try:
            notices.append(heard(subscriber))
        except BlockingIOError:
            assert thread.run(SECONDS), "room in the socket is noticed"
    return notices


def test_600_notices_to_an_unread_socket_make_one_thread_and_hold_up_nobody_else(
    thread: Thread, bound: Bound, tmp_path: Path
) -> None:
    unread, prompt = bound("unread"), bound("prompt")
    stalled, other = Subscriber(tmp_path / "unread", thread.app), Subscriber(tmp_path / "prompt", thread.app)
    before = threading.enumerate()
    for number in range(600):
        stalled.notify({"number": number})
    assert len(begun_since(before)) == 1
    other.notify({"number": 0})
    assert heard(prompt) == {"number": 0, "missed": 0}, "while nobody reads the others"
    numbers = [notice["number"] for notice in read(unread, thread, last=599)]  # at last
    assert numbers == list(range(600)), "none was lost, and none came twice"
    stalled.close()
    other.close()


def test_of_too_many_notices_the_oldest_are_dropped_and_counted(
    thread: Thread, bound: Bound, tmp_path: Path
) -> None:
    unread = bound("unread")
    subscriber = Subscriber(tmp_path / "unread", thread.app)
    for number in range(KEPT + 100):
        subscriber.notify({"number": number})
    notices = read(unread, thread, last=KEPT + 99)
    in_socket = len(notices) - KEPT
    assert [notice["missed"] for notice in notices if notice["missed"]] == [100 - in_socket]
    assert [notice["number"] for notice in notices[-KEPT:]] == list(range(100, KEPT + 100))
    subscriber.close()


def test_of_an_ocs_that_has_another_subscriber_nothing_more_is_sent(
    thread: Thread, bound: Bound, tmp_path: Path
) -> None:
    unread = bound("unread")
    subscriber = Subscriber(tmp_path / "unread", thread.app)
    for number in range(100):
        subscriber.notify({"number": number, "ocs": f"ocs{number % 2}"})
    subscriber.forget("ocs1")
    subscriber.notify({"number": 100, "ocs": "ocs0"})
    numbers = [notice["number"] for notice in read(unread, thread, last=100)]
    first_kept = next(number for number in range(100) if number not in numbers)
    assert numbers == [*range(first_kept), *(n for n in range(first_kept, 101) if n % 2 == 0)]
    subscriber.close()


def test_a_subscriber_that_has_gone_is_not_waited_for(thread: Thread, bound: Bound, tmp_path: Path) -> None:
    unread = bound("unread")
    subscriber = Subscriber(tmp_path / "unread", thread.app)
    for number in range(50):
        subscriber.notify({"number": number})
    unread.close()
    assert thread.run(SECONDS)
    subscriber.notify({"number": 50})
    assert not thread.run(0.0)
    subscriber.close()


def test_a_subscriber_that_is_replaced_while_it_is_slow_leaves_no_thread(
    thread: Thread, bound: Bound, tmp_path: Path
) -> None:
    bound("unread")
    before = threading.enumerate()
    subscriber = Subscriber(tmp_path / "unread", thread.app)
    for number in range(50):
        subscriber.notify({"number": number})
    subscriber.close()
    assert thread.run(SECONDS)
    eventually(lambda: not begun_since(before))


@pytest.mark.parametrize(("name", "why"), [("x" * 200, "too long"), ("missing", "No such file")])
def test_a_path_on_which_nothing_is_bound_is_refused(
    thread: Thread, tmp_path: Path, name: str, why: str
) -> None:
    with pytest.raises(DemandError, match=f"notify .*{why}.*; name a unix datagram socket"):
        Subscriber(tmp_path / name, thread.app)


def test_an_unread_subscriber_of_one_ocs_does_not_hold_up_anothers(tmp_path: Path, bound: Bound) -> None:
    bound("unread")
    prompt = bound("prompt")
    with started(tmp_path, parallel_ocs_fabric(4, 2)) as controller:
        controller.switches()
        client = controller.client
        client.wait_ready(SECONDS)
        client.show("ocs0", "1ms 0>1 1ms 0>2 " * 150, notify=tmp_path / "unread")
        eventually(lambda: client.ocs("ocs0").number > 100)
        threads = []
        client.show("ocs1", "1ms 0>1 1ms 0>2 " * 20, notify=tmp_path / "prompt")
        while not heard(prompt)["ended"]:
            threads.append(controller.threads())
        eventually(lambda: not client.ocs("ocs0").busy)
        assert client.ocs("ocs0").number >= 300
        assert max(threads) < 60, "600 notices, and a thread for none of them"
