"""A switch's connection and the library's threads: whatever ends it, one thread announces the end."""

import resource
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import pytest
from os_ken.base.app_manager import AppManager, unregister_app

from controller.app import app as app_module
from controller.app.app import Controller as App
from controller.app.openflow import (
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    EventBase,
    _Connection,
    barrier,
    live_ports,
    on,
    send_as_one,
)
from controller.circuits.status import Status
from tests.controller.fake_switch import FakeSwitch
from tests.controller.played import FABRIC, SECONDS, Controller, command, eventually, started
from tests.tools import CHECKOUT
from topologies.addresses import datapath_id

STANDARD_STREAMS = 3
BARRIER_BYTES = 8
UNKNOWN_VERSION = 9
"""Of OpenFlow; the library raises where it receives it."""


class Brick:
    """Takes the library's events, and notes which thread announces which state."""

    def __init__(self) -> None:
        self.announced: list[tuple[str, threading.Thread]] = []

    def send_event_to_observers(self, event: object, state: str) -> None:
        """Note a state."""
        self.announced.append((state, threading.current_thread()))


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    with started(tmp_path) as controller:
        yield controller


@pytest.fixture
def app() -> Iterator[App]:
    """Return the app as a manager of apps makes it; its thread is played by the test."""
    app = AppManager().instantiate(App, fabric=FABRIC)
    yield app
    unregister_app(app)


def status_of(app: App) -> Status:
    """Return what the app answers on its thread."""
    answers: SimpleQueue[Status] = SimpleQueue()
    threading.Thread(target=lambda: answers.put(app.status()), daemon=True).start()
    event, _ = app.events.get(timeout=SECONDS)
    assert answers.empty(), "the app's thread has not come to it"
    app.work(event)
    return answers.get(timeout=SECONDS)


def test_a_failed_send_announces_nothing_on_the_callers_thread() -> None:
    """On the app's own thread it would wait for room in the queue that only this thread empties."""
    switch, connected = socket.socketpair()
    connection = _Connection(connected)
    connection.ofp_brick = brick = Brick()
    receiving = threading.Thread(target=connection.serve)
    receiving.start()
    connection.socket.shutdown(socket.SHUT_WR)  # whatever is sent fails, and the switch is still there
    assert not connection.send(b"barrier")
    receiving.join(SECONDS)
    assert not receiving.is_alive()
    assert brick.announced == [(DEAD_DISPATCHER, receiving)]
    switch.close()


def test_a_thousand_messages_do_not_wait_for_a_switch_to_read_some() -> None:
    switch, connected = socket.socketpair()
    connection = _Connection(connected)
    last = send_as_one(connection, [barrier(connection) for _ in range(1000)])
    switch.setblocking(False)
    received = switch.recv(1 << 16)
    assert len(received) == 1000 * BARRIER_BYTES
    assert struct.unpack("!4xI", received[-BARRIER_BYTES:]) == (last,)
    connection.socket.close()
    switch.close()


def test_ports_that_change_while_they_are_read_are_no_error() -> None:
    ports: dict[int, object] = {}

    class Description(SimpleNamespace):
        """A port whose number, when read, makes the receiving thread add another."""

        @property
        def port_no(self) -> int:
            ports[len(ports) + 1] = SimpleNamespace(port_no=len(ports) + 1, state=0, config=0)
            return 1

    ports[1] = Description(state=0, config=0)
    assert live_ports(SimpleNamespace(ports=ports)) == {0}


def test_status_is_read_on_the_apps_thread_between_two_events(app: App) -> None:
    """Read from another thread it could say ready while a handler had done half of its work."""
    assert app.fabric == FABRIC
    assert not status_of(app).ready


def test_a_handler_that_fails_does_not_end_the_apps_thread_but_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing:
        reported: str

        @on(EventBase, MAIN_DISPATCHER)
        def fail(self, _event: EventBase) -> None:
            raise KeyError("port 3")

        def failed(self, sentence: str) -> None:
            self.reported = sentence

    failing = Failing()
    failing.fail(EventBase())
    assert failing.reported == "the controller failed in fail: KeyError('port 3')"
    assert "Failing.fail failed" in caplog.text


def test_what_fails_on_the_apps_thread_is_an_error_of_the_network(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(*_: object) -> object:
        raise OverflowError("a group of 2,100 buckets")

    assert status_of(app).errors == ()
    monkeypatch.setattr(app_module, "renumbered", too_many)
    app.settle(app_module._Settle())
    app.settle(app_module._Settle())
    errors = ("the controller failed in settle: OverflowError('a group of 2,100 buckets')",)
    assert status_of(app).errors == errors


def test_a_message_that_makes_no_sense_ends_the_connection_and_leaves_no_thread(
    controller: Controller,
) -> None:
    controller.switches()
    controller.client.wait_ready(SECONDS)
    before = controller.threads()
    for _ in range(5):
        stranger = FakeSwitch(controller.openflow, datapath_id(FABRIC, "leaf0"), [1])
        with stranger:
            stranger.send(struct.pack("!BBHI", UNKNOWN_VERSION, 0, 8, 1))
            assert stranger.ended.wait(SECONDS)
    eventually(lambda: controller.threads() <= before)


def test_a_connection_that_replaces_another_is_the_one_that_counts(controller: Controller) -> None:
    first = controller.switches()["leaf0"]
    controller.client.wait_ready(SECONDS)
    second = controller.switch("leaf0")
    eventually(lambda: second.told[-1:] == ["barrier"])
    assert first.ended.wait(SECONDS), "the old one is hung up"
    controller.client.wait_ready(SECONDS)
    assert [switch.name for switch in controller.client.switches() if not switch.connected] == []


def test_the_process_ends_when_its_northbound_does_and_clients_do_not_wait(tmp_path: Path) -> None:
    fail = "import controller.app.northbound as n; n.serve = lambda *_: sys.exit(3)"
    start = f"import sys; {fail}; from controller.__main__ import main; main()"
    arguments = [sys.executable, "-c", start, *command(tmp_path)[3:]]
    ran = subprocess.run(arguments, cwd=CHECKOUT, capture_output=True, text=True, timeout=SECONDS)
    assert ran.returncode == 1
    assert "the northbound has ended, and the controller with it" in ran.stderr


def test_a_switch_that_finds_no_descriptor_left_is_served_once_there_is_one(controller: Controller) -> None:
    process = controller.process
    controller.client.status()  # all is imported
    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (STANDARD_STREAMS, hard))
    controller.switch("leaf0")
    assert process.stderr
    assert process.stderr.readline() == "accept a switch: [Errno 24] Too many open files\n"
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (soft, hard))
    eventually(lambda: "leaf0" not in controller.client.status().missing)


def test_many_switches_may_vanish_at_once(controller: Controller) -> None:
    """More ends at one instant than the app's queue of 128 holds, while it has something for each."""
    switches = list(controller.switches().values())
    controller.client.wait_ready(SECONDS)
    for _ in range(40):
        switches += controller.switches().values()
    for switch in switches:
        switch.set_link(1, up=False)
        switch.__exit__()
    eventually(lambda: len(controller.client.status().missing) == len(FABRIC.switches))
