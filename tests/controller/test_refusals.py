"""A switch that refuses: one OCS' state machine never claims light that is not there."""

from collections import deque

import numpy as np
import pytest

from controller.circuits.circuits import IDLE, Circuits, Pair
from controller.circuits.orders import Connect, Darken, Notify, Order, Prepare, Wait
from controller.circuits.programs import Day, Program, program_from_text
from controller.circuits.reconfiguration import Command, OpticalSwitch
from controller.circuits.status import LogEntry
from tests.controller.conftest import DELAY_S, lit

WHY = "switch ocs0 refused a message"


def test_what_was_not_taken_away_is_still_lit(ocs: OpticalSwitch) -> None:
    ocs.command(Command(lit("0>1 2>0")), 2.0)
    assert ocs.refused(2, WHY, 2.001) == [Notify(lit("0>1 2>3"), 2.001, None, ended=True, error=WHY)]
    assert ocs.confirmed(2, 2.002) == [], "the barrier is answered all the same"
    assert (ocs.busy, ocs.phase, ocs.lit) == (False, "lit", lit("0>1 2>3"))
    assert ocs.log[-1] == LogEntry(2, lit("0>1 2>0").pairs, True, 1, DELAY_S, 2.0, error=WHY)
    assert ocs.command(Command(lit("0>1")), 2.1) == [Darken(4, ((2, 3),))], "it can be asked again"


@pytest.mark.parametrize("lighting", [False, True])
def test_what_was_not_lit_is_dark(ocs: OpticalSwitch, lighting: bool) -> None:
    ocs.command(Command(lit("0>1 2>0")), 2.0)
    ocs.confirmed(2, 2.001)
    if lighting:
        ocs.woken(2, 2.02)
    ended = Notify(lit("0>1"), 2.021, None, ended=True, error=WHY)
    assert ocs.refused(2, WHY, 2.021) == [Darken(2, ((2, 0),)), ended]
    assert ocs.refused(2, "the bundle's commit too", 2.021) == []
    assert (ocs.woken(2, 2.022), ocs.confirmed(2, 2.022)) == ([], [])
    assert (ocs.busy, ocs.phase, ocs.lit) == (False, "lit", lit("0>1"))
    assert ocs.log[-1] == LogEntry(2, lit("0>1 2>0").pairs, True, 1, DELAY_S, 2.0, 2.001, error=WHY)


def test_the_program_and_what_waits_end_with_it(ocs: OpticalSwitch) -> None:
    ocs.run(program_from_text("50ms 1>0 50ms 0>2", 4), 3.0, 3.0)
    ocs.command(Command(lit("-")), 3.0)
    ocs.confirmed(3, 3.001)
    ocs.woken(3, 3.02)
    assert ocs.refused(3, WHY, 3.03)[-1] == Notify(lit("-"), 3.03, None, ended=True, error=WHY)
    assert (ocs.busy, ocs.in_program, ocs.queued) == (False, False, 0)


def test_what_another_darkened_is_known_by_what_became_of_it(ocs: OpticalSwitch) -> None:
    ocs.command(Command(lit("2>3")), 2.0)
    assert ocs.command(Command(lit("-"), busy="replace"), 2.001) == [Darken(3, ((0, 1), (2, 3)))]
    assert ocs.refused(3, WHY, 2.002) == [Notify(lit("2>3"), 2.002, None, ended=True, error=WHY)]


def test_what_was_refused_twice_is_still_lit(ocs: OpticalSwitch) -> None:
    ocs.command(Command(lit("2>3")), 2.0)
    ocs.command(Command(lit("-"), busy="replace"), 2.001)
    assert ocs.refused(2, WHY, 2.002) == [], "the newer one takes it away as well"
    assert ocs.refused(3, WHY, 2.002) == [Notify(lit("0>1 2>3"), 2.002, None, ended=True, error=WHY)]


def test_a_program_that_waits_for_its_start_takes_away_what_was_refused_to_go(ocs: OpticalSwitch) -> None:
    ocs.command(Command(lit("2>3")), 2.0)
    ocs.run(program_from_text("50ms 2>3", 4), 9.0, 2.001)
    assert ocs.refused(2, WHY, 2.002) == []
    assert ocs.lit == lit("0>1 2>3")
    assert ocs.woken(3, 9.0) == [Darken(4, ((0, 1),))]


class Wire:
    """A switch that refuses at random and answers late; two circuits that meet in a port are an error."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.lit: set[Pair] = set()
        self.answers: deque[tuple[bool, int]] = deque()
        """What is yet to be heard: whether it was refused, and of which reconfiguration."""
        self.wake: tuple[int, float] = (0, 0.0)
        self._rng = rng
        self._bundle: tuple[Pair, ...] = ()
        self._refused: set[int] = set()

    def take(self, orders: list[Order]) -> None:
        """Carry out orders, or refuse them."""
        for order in orders:
            match order:
                case Darken(number, pairs):
                    if number in self._refused or not self._refuses(number):  # what is withdrawn, is
                        self.lit -= set(pairs)
                    self.answers.append((False, number))
                case Prepare(number, pairs):
                    self._bundle = pairs[1:] if self._refuses(number) else pairs
                case Connect(number):
                    if not self._refuses(number):
                        Circuits(PORTS, (*self.lit, *self._bundle))  # raises if a port is lit twice
                        self.lit |= set(self._bundle)
                    self.answers.append((False, number))
                case Wait(number, until_s):
                    self.wake = number, until_s

    def _refuses(self, number: int) -> bool:
        refuses = bool(self._rng.random() < 0.15)
        if refuses:
            self._refused.add(number)
            self.answers.append((True, number))
        return refuses


PORTS, STEPS = 6, 400


def some(rng: np.random.Generator) -> Circuits:
    """Return random circuits, few of them or many."""
    outputs = rng.permutation(PORTS)
    outputs[rng.random(PORTS) < rng.random()] = IDLE
    return Circuits.of_permutation(outputs)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_refused_the_log_ends_with_what_the_wire_shows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ocs, wire, now = OpticalSwitch(PORTS), Wire(rng), 0.0
    heard = 0
    for _ in range(STEPS):
        now += 0.01
        draw = rng.random()
        if draw < 0.15:
            busy = "replace" if rng.random() < 0.7 else "queue"
            wire.take(ocs.command(Command(some(rng), bool(rng.random() < 0.7), busy), now))  # type: ignore[arg-type]
        elif draw < 0.2:
            days = tuple(Day(some(rng), 0.02) for _ in range(3))
            wire.take(ocs.run(Program(days), now + 0.02 * rng.random(), now))
        elif draw < 0.6 and wire.answers:
            refused, number = wire.answers.popleft()
            heard += refused
            wire.take(ocs.refused(number, WHY, now) if refused else ocs.confirmed(number, now))
        elif now >= wire.wake[1]:
            (number, _), wire.wake = wire.wake, (0, 0.0)
            wire.take(ocs.woken(number, now))
        if not wire.answers and ocs.phase in ("lit", "dark"):
            assert set(ocs.lit.pairs) == wire.lit
    assert heard > 5
    assert all(entry.lit_s is None for entry in ocs.log if entry.error)
