"""An OCS' state machine, as the tests of it begin with."""

import pytest

from controller.circuits.circuits import Circuits, circuits_from_text
from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.orders import Connect, Notify, Wait
from controller.circuits.reconfiguration import Command, OpticalSwitch

DELAY_S = 0.01


def lit(text: str) -> Circuits:
    """Return circuits of an OCS of 4 ports."""
    return circuits_from_text(text, 4)


@pytest.fixture
def ocs() -> OpticalSwitch:
    """Return an OCS of 4 ports that needs 10 ms and shows ``0>1 2>3`` since 1 s."""
    made = OpticalSwitch(4)
    made.set_delay(ReconfigurationDelay("test", DELAY_S))
    assert made.command(Command(lit("0>1 2>3")), 0.9)[-1] == Wait(1, 0.9 + DELAY_S)
    assert made.woken(1, 0.95) == [Connect(1)]
    assert made.confirmed(1, 1.0) == [Notify(lit("0>1 2>3"), 1.0, None)]
    assert not made.busy
    return made
