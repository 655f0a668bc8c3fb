"""The OCSes of a fabric, with their switches and the app's thread played by the test."""

import struct
import threading
from time import monotonic
from typing import Any

import pytest

from controller.app.app_thread import AppThread, Work
from controller.app.ocs import OpticalSwitches
from controller.app.proof import Proof, Then
from controller.circuits.circuits import circuits_from_text
from controller.circuits.devices import LONGEST_S
from controller.circuits.programs import Showing, program_from_text
from controller.circuits.reconfiguration import Command
from tests.controller.played import begun_since, eventually
from topologies.errors import NetworkError
from topologies.parallel_ocs import parallel_ocs_fabric

OCS = "ocs0"
FAILURE = "OCS ocs0 failed: error: too long for a message"


class Proven(Proof):
    """Proves everything at once."""

    def __init__(self) -> None: ...

    def ask(self, then: Then) -> None:
        """Say that it is on the wire."""
        then(monotonic(), "")

    def hasten(self) -> None:
        """Do nothing more."""


class Switch:
    """A connection to a switch that answers barriers at once; it takes some messages, then sending fails."""

    def __init__(self, good: int = 1000) -> None:
        self.socket = self
        self.hung_up = False
        self.ocses: OpticalSwitches | None = None
        self._good = good
        self._transactions = 0

    def send(self, _messages: bytes) -> None:
        """Take messages, or fail."""
        if self._good == 0:
            raise struct.error("too long for a message")
        self._good -= 1

    def set_xid(self, _message: object) -> int:
        """Number a message."""
        self._transactions += 1
        return self._transactions

    def send_msg(self, _barrier: object) -> None:
        """Answer a barrier."""
        if self.ocses:
            self.ocses.answered(OCS, self._transactions)

    def shutdown(self, _how: int) -> None:
        """End the connection."""
        self.hung_up = True


class Played:
    """The OCSes of a fabric with one, and what plays the rest of the controller."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.ocses = OpticalSwitches(parallel_ocs_fabric(4, 1), AppThread(self._run), Proven())

    def _run(self, work: Work) -> None:
        with self._lock:
            work()

    def connect(self, switch: Switch) -> Switch:
        """Connect a switch that was proved to be dark."""
        switch.ocses = self.ocses
        datapath: Any = switch
        self._run(lambda: self.ocses.connected(OCS, datapath))
        return switch

    def light(self, text: str) -> None:
        """Have circuits lit, in place of what is under way."""
        self.ocses.command(OCS, Command(circuits_from_text(text, 4), busy="replace"))

    def idle(self) -> bool:
        """Return whether nothing is under way, and that is known: not while a connection is being lost."""
        try:
            return not self.ocses.status(OCS).busy
        except NetworkError:
            return False


@pytest.fixture
def played() -> Played:
    return Played()


def test_circuits_are_lit(played: Played) -> None:
    played.connect(Switch())
    for text in ("0>1 1>0", "0>2"):
        played.light(text)
        eventually(played.idle)
        assert played.ocses.status(OCS).circuits == circuits_from_text(text, 4).pairs


@pytest.mark.parametrize("good", range(4))
def test_an_unexpected_error_ends_the_connection_and_what_was_under_way(played: Played, good: int) -> None:
    """At each of the messages that light one circuit, and then another: bring, commit, take away, bring."""
    switch = played.connect(Switch(good))
    for text in ("0>1", "0>2"):
        if not switch.hung_up:
            played.light(text)
            eventually(lambda: switch.hung_up or played.idle())
    with pytest.raises(NetworkError, match="OCS ocs0 is not connected"):
        played.ocses.status(OCS)
    assert played.ocses.log(OCS)[-1].error == FAILURE
    played.ocses.disconnected(OCS)  # the connection's end is reported too
    played.connect(Switch())
    status = played.ocses.status(OCS)
    assert (status.busy, status.circuits, status.error) == (False, (), FAILURE)
    played.light("2>3")
    eventually(played.idle)
    assert played.ocses.status(OCS).circuits == ((2, 3),)


def test_waits_of_years_take_no_threads_and_are_replaced(played: Played) -> None:
    played.connect(Switch())
    before = threading.enumerate()
    for _ in range(20):
        played.ocses.run({OCS: Showing(program_from_text("50ms 0>1", 4), LONGEST_S)})
    assert not begun_since(before)
    assert played.ocses.status(OCS).busy
    played.light("1>0")
    eventually(played.idle)
    assert played.ocses.status(OCS).circuits == ((1, 0),)
