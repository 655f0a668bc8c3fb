"""One OCS' state machine: whole traces of orders, with time as an argument."""

import math

import pytest

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.orders import Connect, Darken, Notify, Prepare, Wait
from controller.circuits.programs import Day, Program, program_from_text
from controller.circuits.reconfiguration import MOST_WAITING, PREPARED_S, Command, OpticalSwitch
from controller.circuits.status import LogEntry
from tests.controller.conftest import DELAY_S, lit
from topologies.errors import DemandError


def test_dark_the_delay_lit(ocs: OpticalSwitch) -> None:
    assert ocs.command(Command(lit("0>1 2>0")), 2.0) == [Darken(2, ((2, 3),))]
    assert (ocs.phase, str(ocs.lit)) == ("darkening", "0>1")
    assert ocs.confirmed(2, 2.001) == [
        Notify(lit("0>1"), 2.001, None),
        Prepare(2, ((2, 0),)),
        Wait(2, 2.001 + DELAY_S),
    ]
    assert ocs.woken(2, 2.005) == [Wait(2, 2.001 + DELAY_S)]
    assert ocs.woken(2, 2.0111) == [Connect(2)]
    assert ocs.confirmed(2, 2.012) == [Notify(lit("0>1 2>0"), 2.012, None)]
    assert ocs.log[-1] == LogEntry(2, lit("0>1 2>0").pairs, True, 1, DELAY_S, 2.0, 2.001, 2.012)


def test_all_go_dark_where_reconfiguration_is_not_partial(ocs: OpticalSwitch) -> None:
    assert ocs.command(Command(lit("0>1"), partial=False), 2.0) == [Darken(2, ((0, 1), (2, 3)))]
    assert ocs.confirmed(2, 2.001)[1] == Prepare(2, ((0, 1),))


def test_a_second_command_queues(ocs: OpticalSwitch) -> None:
    ocs.command(Command(lit("0>2")), 2.0)
    assert ocs.command(Command(lit("0>3")), 2.0) == []
    assert (ocs.busy, ocs.queued) == (True, 1)
    ocs.confirmed(2, 2.001)
    ocs.woken(2, 2.02)
    assert ocs.confirmed(2, 2.021) == [Notify(lit("0>2"), 2.021, None), Darken(3, ((0, 2),))]
    assert [entry.replaced for entry in ocs.log] == [False, False, False]


def test_more_commands_than_may_wait_are_refused_and_change_nothing(ocs: OpticalSwitch) -> None:
    for _ in range(1 + MOST_WAITING):
        ocs.command(Command(lit("0>2")), 2.0)
    with pytest.raises(DemandError, match="1000 commands wait for this OCS already"):
        ocs.command(Command(lit("0>3")), 2.0)
    assert (ocs.queued, ocs.log[-1].number) == (MOST_WAITING, 2)
    ocs.command(Command(lit("0>3"), busy="replace"), 2.0)
    assert ocs.queued == 0


def test_a_second_command_replaces_and_the_delay_starts_anew(ocs: OpticalSwitch) -> None:
    ocs.command(Command(lit("0>2")), 2.0)
    ocs.confirmed(2, 2.001)
    orders = ocs.command(Command(lit("0>3"), busy="replace"), 2.005)
    assert orders == [Notify(lit("-"), 2.005, None), Prepare(3, ((0, 3),)), Wait(3, 2.005 + DELAY_S)]
    assert ocs.woken(2, 2.012) == []
    assert ocs.woken(3, 2.016) == [Connect(3)]
    assert [entry.replaced for entry in ocs.log] == [False, True, False]


def test_a_command_that_replaces_one_in_the_darkening_has_the_dark_proved_anew(ocs: OpticalSwitch) -> None:
    ocs.command(Command(lit("0>2 2>3")), 2.0)
    assert ocs.command(Command(lit("0>3"), busy="replace"), 2.0005) == [Darken(3, ((0, 1), (2, 3)))]
    assert ocs.command(Command(lit("0>2"), busy="replace"), 2.0007) == [Darken(4, ((0, 1), (2, 3)))]
    assert ocs.confirmed(3, 2.001) == []
    assert ocs.confirmed(4, 2.002)[1:] == [Prepare(4, ((0, 2),)), Wait(4, 2.002 + DELAY_S)]


def test_a_program_that_begins_in_the_darkening_has_the_dark_proved_anew(ocs: OpticalSwitch) -> None:
    ocs.command(Command(lit("-")), 2.0)
    assert ocs.run(program_from_text("50ms 0>1", 4), 2.0005, 2.0005) == [Darken(4, ((0, 1), (2, 3)))]


def test_a_program_that_comes_while_light_is_on_its_way_begins_in_time(ocs: OpticalSwitch) -> None:
    ocs.command(Command(lit("0>2")), 2.0)
    ocs.confirmed(2, 2.001)
    ocs.woken(2, 2.02)
    assert ocs.run(program_from_text("50ms 0>1", 4), 9.0, 2.02) == []
    assert ocs.confirmed(2, 2.02)[1] == Wait(2, 9.0)


def test_the_light_of_a_long_night_is_prepared_at_its_end(ocs: OpticalSwitch) -> None:
    ocs.set_delay(ReconfigurationDelay("slow", 180.0))
    ocs.command(Command(lit("0>2 2>3")), 2.0)
    assert ocs.confirmed(2, 2.0) == [Notify(lit("2>3"), 2.0, None), Wait(2, 182.0 - PREPARED_S)]
    assert ocs.woken(2, 180.1) == [Prepare(2, ((0, 2),)), Wait(2, 182.0)]
    assert ocs.woken(2, 182.0) == [Connect(2)]


@pytest.mark.parametrize(
    "times",
    [
        {"delay_s": -1.0},
        {"delay_s": math.nan},
        {"nic_s": math.inf},
        {"delay_s": 1e300},
        {"delay_p99_s": 0.01},
        {"delay_s": 0.01, "delay_p99_s": math.nan},
        {"delay_s": 0.01, "delay_p99_s": 0.009},
        {"nic_s": 0.001, "nic_p99_s": 0.1},
        {"nic_s": 1e9, "nic_p99_s": 2e9},
    ],
)
def test_a_delay_that_no_device_has_is_refused(times: dict[str, float]) -> None:
    with pytest.raises(DemandError, match="a delay of"):
        ReconfigurationDelay("test", **times)


def test_light_on_its_way_is_not_stopped(ocs: OpticalSwitch) -> None:
    ocs.command(Command(lit("0>2")), 2.0)
    ocs.confirmed(2, 2.001)
    ocs.woken(2, 2.02)
    assert ocs.command(Command(lit("-"), busy="replace"), 2.0205) == []
    assert ocs.confirmed(2, 2.021)[1] == Darken(3, ((0, 2),))


def test_a_program_shows_its_days_and_then_the_dark(ocs: OpticalSwitch) -> None:
    assert ocs.run(program_from_text("500ms 0>1 250ms - 125ms 1>0", 4), 3.0, 2.9) == [Wait(2, 3.0)]
    assert ocs.woken(2, 3.0) == [Darken(3, ((2, 3),))]
    assert ocs.confirmed(3, 3.0) == [Notify(lit("0>1"), 3.0, 3.5), Wait(3, 3.5)]
    assert ocs.woken(3, 3.5) == [Darken(4, ((0, 1),))]
    assert ocs.confirmed(4, 3.5)[-1] == Wait(4, 3.75)  # the night is longer than the delay
    assert ocs.woken(4, 3.75) == [Connect(4)]
    assert ocs.confirmed(4, 3.75) == [Notify(lit("1>0"), 3.75, 3.875), Wait(4, 3.875)]
    assert ocs.woken(4, 3.875) == [Darken(5, ((1, 0),)), Notify(lit("-"), 3.875, None, ended=True)]
    assert ocs.confirmed(5, 3.9) == [Notify(lit("-"), 3.9, None)]
    assert not ocs.busy


def test_what_changes_nothing_is_lit_from_its_command_on(ocs: OpticalSwitch) -> None:
    ocs.command(Command(lit("0>1 2>3")), 2.0)
    assert ocs.log[-1] == LogEntry(2, lit("0>1 2>3").pairs, True, 0, 0.0, 2.0, 2.0, 2.0)


def test_equal_days_are_both_lit_in_the_log_and_the_dark_after_them_is_not(ocs: OpticalSwitch) -> None:
    ocs.run(program_from_text("500ms 0>1 250ms 0>1", 4), 3.0, 3.0)
    ocs.confirmed(3, 3.0)
    assert ocs.woken(3, 3.5) == [Notify(lit("0>1"), 3.5, 3.75), Wait(4, 3.75)]
    ocs.woken(4, 3.75)
    ocs.confirmed(5, 3.8)
    shown = [(entry.circuits, entry.dark_s, entry.lit_s) for entry in ocs.log][1:]
    assert shown == [(((0, 1),), 3.0, 3.0), (((0, 1),), 3.5, 3.5), ((), 3.8, None)]


def test_an_unchanged_circuit_goes_dark_between_two_days_unless_reconfigurations_are_partial() -> None:
    days = (Day(lit("0>1 2>3"), 1.0), Day(lit("0>1 2>0"), 1.0))
    for partial, dark, comes in ((True, ((2, 3),), ((2, 0),)), (False, ((0, 1), (2, 3)), ((0, 1), (2, 0)))):
        ocs = OpticalSwitch(4)
        ocs.set_delay(ReconfigurationDelay("test", DELAY_S))
        ocs.run(Program(days, partial), 3.0, 3.0)
        ocs.woken(2, 4.0)
        ocs.confirmed(2, 4.0)
        assert ocs.woken(2, 5.0) == [Darken(3, dark)]
        kept = Notify(lit("0>1" if partial else "-"), 5.0, None)
        assert ocs.confirmed(3, 5.0) == [kept, Prepare(3, comes), Wait(3, 5.0 + DELAY_S)]


def test_a_stated_night_darkens_circuits_that_both_days_have(ocs: OpticalSwitch) -> None:
    ocs.run(program_from_text("1s 2>3 1s - 1s 2>3", 4), 3.0, 3.0)
    assert ocs.confirmed(3, 3.0) == [Notify(lit("2>3"), 3.0, 4.0), Wait(3, 4.0)]
    assert ocs.woken(3, 4.0) == [Darken(4, ((2, 3),))]
    assert ocs.confirmed(4, 4.0) == [Notify(lit("-"), 4.0, None), Prepare(4, ((2, 3),)), Wait(4, 5.0)]
    assert ocs.woken(4, 5.0) == [Connect(4)]
    assert ocs.confirmed(4, 5.0) == [Notify(lit("2>3"), 5.0, 6.0), Wait(4, 6.0)]


def test_a_night_at_the_start_darkens_what_is_lit(ocs: OpticalSwitch) -> None:
    assert ocs.run(program_from_text("1s - 1s 0>1,2>3", 4), 3.0, 3.0) == [Darken(3, ((0, 1), (2, 3)))]
    assert ocs.confirmed(3, 3.0)[-1] == Wait(3, 4.0)


@pytest.mark.parametrize(
    "program",
    [program_from_text("1s 2>3 1s -", 4), Program((Day(lit("2>3"), 1.0), Day(lit("-"), 0.75, 0.25)))],
)
def test_a_program_ends_after_the_night_at_its_end(ocs: OpticalSwitch, program: Program) -> None:
    ocs.run(program, 3.0, 3.0)
    ocs.confirmed(3, 3.0)
    assert ocs.woken(3, 4.0) == [Darken(4, ((2, 3),))]
    assert ocs.confirmed(4, 4.0) == [Notify(lit("-"), 4.0, 5.0), Wait(4, 5.0)]
    assert ocs.command(Command(lit("0>1")), 4.5) == []
    assert (ocs.busy, ocs.queued) == (True, 1)
    assert ocs.woken(4, 5.0)[-1] == Notify(lit("-"), 5.0, None, ended=True)


def test_a_command_stops_a_program(ocs: OpticalSwitch) -> None:
    ocs.run(program_from_text("50ms 0>1 50ms 0>2", 4), 3.0, 3.0)
    assert ocs.command(Command(lit("-"), busy="queue"), 3.0) == []
    assert ocs.command(Command(lit("3>2"), busy="replace"), 3.0) == [Darken(4, ((2, 3), (0, 1)))]
    ocs.confirmed(4, 3.01)
    ocs.woken(4, 3.03)
    assert ocs.confirmed(4, 3.031) == [Notify(lit("3>2"), 3.031, None)]
    assert not ocs.busy


LOST = "the connection to OCS ocs0 was lost"


def test_a_lost_connection_ends_what_is_under_way_and_nothing_is_known_to_be_lit(ocs: OpticalSwitch) -> None:
    ocs.command(Command(lit("0>2")), 2.0)
    ocs.command(Command(lit("0>3")), 2.0)
    ocs.confirmed(2, 2.001)
    assert ocs.lost(LOST, 2.1) == [Notify(lit("-"), 2.1, None)]
    assert (ocs.busy, ocs.queued, str(ocs.lit), ocs.error) == (False, 0, "-", LOST)
    assert ocs.log[-1] == LogEntry(2, lit("0>2").pairs, True, 2, DELAY_S, 2.0, 2.001, error=LOST)
    assert (ocs.woken(2, 2.2), ocs.confirmed(2, 2.2)) == ([], [])
    ocs.found(3.0)
    ocs.lost("and lost again", 3.1)
    assert ocs.error == LOST, "the second time nothing was under way"
    assert ocs.found(3.2) == [Notify(lit("-"), 3.2, None)]
    ocs.command(Command(lit("0>1")), 4.0)
    assert ocs.error == "", "a new command begins without the old one's error"


def test_a_lost_connection_is_logged_where_circuits_were_lit(ocs: OpticalSwitch) -> None:
    ocs.lost(LOST, 2.1)
    assert ocs.log[-1] == LogEntry(2, lit("-").pairs, False, 2, 0.0, 2.1, error=LOST)
    ocs.found(3.0)
    ocs.lost(LOST, 4.0)
    assert (len(ocs.log), ocs.error) == (2, LOST), "nothing was lit, nothing more is lost"


def test_a_program_that_loses_its_connection_is_over(ocs: OpticalSwitch) -> None:
    ocs.run(program_from_text("50ms 1>0 50ms 0>2", 4), 3.0, 2.9)
    ocs.lost(LOST, 2.95)
    assert (ocs.busy, ocs.in_program, ocs.error) == (False, False, LOST)
    assert ocs.found(3.0) == [Notify(lit("-"), 3.0, None, ended=True)]
    ocs.lost(LOST, 4.0)
    assert ocs.found(5.0) == [Notify(lit("-"), 5.0, None)], "a program ends once"


@pytest.mark.parametrize("lighting", [False, True])
def test_what_is_not_proved_is_not_logged_as_dark_or_lit(ocs: OpticalSwitch, lighting: bool) -> None:
    why = "no proof that changes are on the wire"
    ocs.command(Command(lit("0>1 2>0")), 2.0)
    if lighting:
        ocs.confirmed(2, 2.001)
        ocs.woken(2, 2.02)
    *withdrawn, ended = ocs.unproved(2, why, 2.03)
    assert withdrawn == ([Darken(2, ((2, 0),))] if lighting else [])
    assert ended == Notify(lit("0>1"), 2.03, None, ended=True, error=why)
    assert ocs.log[-1] == LogEntry(
        2, lit("0>1 2>0").pairs, True, 1, DELAY_S, 2.0, 2.001 if lighting else None, error=why
    )
    assert (ocs.busy, str(ocs.lit), ocs.error) == (False, "0>1", why)
    assert ocs.confirmed(2, 2.04) == []
    going = ((2, 0),) if lighting else ((2, 3),)
    number = ocs.number + 1
    assert ocs.command(Command(lit("0>1 2>0")), 3.0) == [Darken(number, going)], "dark is proved at last"
    ocs.confirmed(number, 3.001)
    assert (ocs.log[-1].dark_s, ocs.phase) == (3.001, "dark")


def test_a_connection_lost_after_a_failed_proof_keeps_the_reason(ocs: OpticalSwitch) -> None:
    ocs.command(Command(lit("0>2")), 2.0)
    ocs.unproved(2, "no proof", 2.01)
    ocs.lost(LOST, 2.02)
    assert ocs.error == "no proof", "nothing was lit or under way any more"
