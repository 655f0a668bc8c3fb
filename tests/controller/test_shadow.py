"""An OCS with a second side: circuits are provisioned there and flipped to; and any order of all requests.

The reference knows the wire, onto which it puts what is ordered, and of the idle side only the rules of its
two verbs. What the state machine calls lit is held against the wire after every step.
"""

from collections.abc import Iterable, Sequence
from operator import methodcaller
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.circuits.circuits import Circuits, Pair
from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.orders import Connect, Darken, Notify, Order, Prepare, Wait
from controller.circuits.programs import Day, Program, program_from_text
from controller.circuits.reconfiguration import STAYS_S, Command, OpticalSwitch, Shadow
from controller.circuits.status import LogEntry
from tests.controller.conftest import DELAY_S, lit
from tests.examples import examples
from topologies.errors import DemandError

FLIP_S = 0.002
CONFIRM_S = 0.001
"""How long the wire of the reference takes to follow rules."""


@pytest.fixture
def flipping(ocs: OpticalSwitch) -> OpticalSwitch:
    """Return an OCS that shows ``0>1 2>3`` since 1 s, flips in 2 ms and has ``0>1 3>2`` ready at 2 s."""
    ocs.set_delay(ReconfigurationDelay("test", DELAY_S, flip_s=FLIP_S))
    assert ocs.provision(lit("0>1 3>2"), 2.0 - DELAY_S) == []
    return ocs


def test_what_is_provisioned_is_ready_after_the_devices_delay_and_lights_nothing(
    flipping: OpticalSwitch,
) -> None:
    assert flipping.shadow == Shadow(lit("0>1 3>2"), 2.0)
    assert (flipping.busy, str(flipping.lit), len(flipping.log)) == (False, "0>1 2>3", 1)
    flipping.provision(lit("0>2"), 1.995)
    assert flipping.shadow == Shadow(lit("0>2"), 1.995 + DELAY_S), "a newer one takes its place"


def test_a_flip_is_dark_for_its_own_time_and_back_again(flipping: OpticalSwitch) -> None:
    assert flipping.flip(2.0) == [Darken(2, ((2, 3),))]
    assert (flipping.phase, str(flipping.lit)) == ("darkening", "0>1")
    assert flipping.confirmed(2, 2.001) == [
        Notify(lit("0>1"), 2.001, None),
        Prepare(2, ((3, 2),)),
        Wait(2, 2.001 + FLIP_S),
    ]
    assert flipping.woken(2, 2.001 + FLIP_S) == [Connect(2)]
    assert flipping.confirmed(2, 2.004) == [Notify(lit("0>1 3>2"), 2.004, 2.004 + STAYS_S)]
    assert flipping.log[-1] == LogEntry(2, lit("0>1 3>2").pairs, True, 1, FLIP_S, 2.0, 2.001, 2.004)
    assert not flipping.busy
    assert flipping.shadow == Shadow(lit("0>1 2>3"), 2.0)
    assert flipping.flip(2.5) == [Darken(3, ((3, 2),))], "what was lit before is provisioned"


@pytest.mark.parametrize(
    ("at_s", "why"),
    [
        (1.995, r"this OCS has its shadow ready at 2\.000000 s, in 0\.005000 s; provision"),
        (1.0, "in 1.000000"),
    ],
)
def test_a_flip_to_what_is_not_ready_is_refused_and_changes_nothing(
    flipping: OpticalSwitch, at_s: float, why: str
) -> None:
    with pytest.raises(DemandError, match=why):
        flipping.flip(at_s)
    assert (flipping.busy, str(flipping.lit), len(flipping.log)) == (False, "0>1 2>3", 1)
    assert flipping.shadow == Shadow(lit("0>1 3>2"), 2.0)


def test_a_flip_of_what_has_nothing_provisioned_is_refused(ocs: OpticalSwitch) -> None:
    with pytest.raises(DemandError, match="this OCS has nothing provisioned"):
        ocs.flip(2.0)


def test_a_flip_while_it_is_reconfigured_is_refused(flipping: OpticalSwitch) -> None:
    flipping.command(Command(lit("1>0")), 2.0)
    for phase in ("darkening", "dark", "lighting"):
        assert flipping.phase == phase
        with pytest.raises(DemandError, match=rf"this OCS is being reconfigured \({phase}\)"):
            flipping.flip(2.02)
        flipping.confirmed(2, 2.001) if phase == "darkening" else flipping.woken(2, 2.02)
    flipping.confirmed(2, 2.03)
    assert flipping.flip(2.03) == [Darken(3, ((1, 0),))], "the idle side is as it was"


def test_a_flip_takes_the_place_of_a_program_and_of_what_waits(flipping: OpticalSwitch) -> None:
    flipping.run(program_from_text("1s 0>1,2>3 1s 0>3", 4), 3.0, 3.0)
    flipping.command(Command(lit("0>2")), 3.1)
    assert (flipping.in_program, flipping.queued) == (True, 1)
    assert flipping.flip(3.2) == [Darken(4, ((2, 3),))]
    flipping.confirmed(4, 3.2)
    assert (flipping.in_program, flipping.queued) == (False, 0)


def test_a_flip_to_equal_circuits_darkens_nothing(flipping: OpticalSwitch) -> None:
    flipping.provision(lit("0>1 2>3"), 2.0)
    assert flipping.flip(2.5) == [Notify(lit("0>1 2>3"), 2.5, 2.5 + STAYS_S)]
    assert flipping.log[-1] == LogEntry(2, lit("0>1 2>3").pairs, True, 0, 0.0, 2.5, 2.5, 2.5)


@pytest.mark.parametrize("flips", [False, True])
def test_after_a_lost_connection_the_idle_side_is_unknown(flipping: OpticalSwitch, flips: bool) -> None:
    if flips:
        flipping.flip(2.0)
    flipping.lost("gone", 2.1)
    flipping.found(2.2)
    with pytest.raises(DemandError, match="has nothing provisioned"):
        flipping.flip(3.0)
    flipping.provision(lit("0>2"), 3.0)
    flipping.flip(4.0)
    assert flipping.log[-1].circuits == ((0, 2),)


def test_a_flip_that_the_switch_refuses_leaves_the_former_circuits_lit_and_the_idle_side_unknown(
    flipping: OpticalSwitch,
) -> None:
    flipping.flip(2.0)
    assert flipping.refused(2, "full", 2.001) == [
        Notify(lit("0>1 2>3"), 2.001, None, ended=True, error="full")
    ]
    assert (flipping.busy, flipping.shadow, flipping.log[-1].error) == (False, None, "full")


def test_a_flip_time_is_checked_and_scaled() -> None:
    delay = ReconfigurationDelay("panel", 180.0, flip_s=0.001)
    assert delay.scaled(10) == ReconfigurationDelay("panel", 1800.0, flip_s=0.01)
    assert delay.mean_s == 180.0
    with pytest.raises(DemandError, match="a delay of -1 s"):
        ReconfigurationDelay("panel", flip_s=-1.0)


class World:
    """An OCS, the wire that follows what it orders `CONFIRM_S` later, and what its idle side should be."""

    def __init__(self) -> None:
        self.ocs = OpticalSwitch(4)
        self.ocs.set_delay(ReconfigurationDelay("test", DELAY_S, flip_s=FLIP_S))
        self.now = 0.0
        self.wire = set[Pair]()
        self.idle: tuple[Circuits, float] | None = None
        self._prepared: tuple[Pair, ...] = ()
        self._confirm: tuple[float, int] | None = None
        self._wake: tuple[float, int] | None = None

    def take(self, orders: Iterable[Order]) -> None:
        """Put what is ordered on the wire, then hold what is called lit against it."""
        for order in orders:
            match order:
                case Darken(number, pairs):
                    self.wire -= {*pairs}
                    self._confirm = self.now + CONFIRM_S, number
                case Prepare(_, pairs):
                    self._prepared = pairs
                case Connect(number):
                    self.wire |= {*self._prepared}
                    self._confirm = self.now + CONFIRM_S, number
                case Wait(number, until_s):
                    self._wake = until_s, number
                case Notify(circuits):
                    assert {*circuits.pairs} <= self.wire
        self._check()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with all that falls into it in its order."""
        end = self.now + seconds
        while due := sorted(each for each in (self._confirm, self._wake) if each and each[0] <= end):
            at, number = due[0]
            self.now = max(at, self.now)
            if due[0] == self._confirm:
                self._confirm = None
                self.take(self.ocs.confirmed(number, self.now))
            else:
                self._wake = None
                self.take(self.ocs.woken(number, self.now))
        self.now = end

    def command(self, circuits: Circuits, partial: bool, busy: Literal["queue", "replace"]) -> None:
        """Give a command."""
        self.take(self.ocs.command(Command(circuits, partial, busy), self.now))

    def run(self, days: Sequence[Circuits], partial: bool) -> None:
        """Show a program."""
        program = Program(tuple(Day(circuits, 0.02) for circuits in days), partial)
        self.take(self.ocs.run(program, self.now, self.now))

    def provision(self, circuits: Circuits) -> None:
        """Provision: nothing is ordered, and it is ready after the device's delay."""
        self.idle = circuits, self.now + DELAY_S
        assert self.ocs.provision(circuits, self.now) == []

    def flip(self) -> None:
        """Flip, and be refused exactly where the rules say so."""
        before, log = self.ocs.lit, list(self.ocs.log)
        if self.ocs.phase != "lit" or self.idle is None or self.now < self.idle[1]:
            with pytest.raises(DemandError):
                self.ocs.flip(self.now)
            assert (list(self.ocs.log), self.ocs.lit) == (log, before)
            return
        asked, self.idle = self.idle[0], (before, self.now)
        self.take(self.ocs.flip(self.now))
        entry = self.ocs.log[-1]
        comes = {*asked.pairs} - {*before.pairs}
        assert (entry.circuits, entry.delay_s) == (asked.pairs, FLIP_S if comes else 0.0)

    def lose(self) -> None:
        """Lose the connection, and find the OCS dark."""
        self._confirm, self.idle = None, None
        self.wire.clear()
        self.take([*self.ocs.lost("gone", self.now), *self.ocs.found(self.now)])

    def _check(self) -> None:
        ocs = self.ocs
        assert {*ocs.lit.pairs} <= self.wire, "what is called lit is on the wire"
        if ocs.phase != "lighting":
            assert {*ocs.lit.pairs} == self.wire, "and nothing else"
        shadow = ocs.shadow and (ocs.shadow.circuits, ocs.shadow.ready_s)
        assert shadow == self.idle
        for entry in ocs.log:
            if entry.lit_s is not None and entry.dark_s is not None:
                assert entry.lit_s >= entry.dark_s + entry.delay_s
        if ocs.phase == "lit" and ocs.log and not ocs.error:
            assert ocs.lit.pairs == ocs.log[-1].circuits


PERMUTATIONS = st.permutations([0, 1, 2, -1]).map(Circuits.of_permutation)
BUSY = st.sampled_from(["queue", "replace"])
TIMES = st.sampled_from([0.0005, CONFIRM_S, 0.003, DELAY_S, 0.05, 0.2])
STEPS = st.one_of(
    st.builds(methodcaller, st.just("command"), PERMUTATIONS, st.booleans(), BUSY),
    st.builds(methodcaller, st.just("run"), st.lists(PERMUTATIONS, min_size=1, max_size=3), st.booleans()),
    st.builds(methodcaller, st.just("provision"), PERMUTATIONS),
    st.just(methodcaller("flip")),
    st.just(methodcaller("lose")),
    st.builds(methodcaller, st.just("pass_time"), TIMES),
)


@settings(max_examples=examples(200, 3000))
@given(st.lists(st.tuples(STEPS, TIMES), max_size=40))
def test_whatever_is_asked_for_only_what_was_confirmed_is_lit(
    steps: list[tuple[methodcaller, float]],
) -> None:
    world = World()
    for step, then_s in steps:
        step(world)
        world.pass_time(then_s)
    world.pass_time(10.0)
    assert not world.ocs.busy
