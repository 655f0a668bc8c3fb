"""How late the loop of an engine says it was."""

import ctypes
import threading
import time

import pytest

from traffic.transports.loop import Loop

AWAY_S, ROUNDS = 0.03, 100


def rounds(loop: Loop, count: int, wait_s: float = 0.0) -> None:
    """Have a loop serve what there is, so many times."""
    for _ in range(count):
        loop.begins_round(counts=True)
        loop.serve(wait_s, counts=True)


def test_a_loop_that_was_away_for_most_of_the_time_is_late_whatever_its_other_rounds() -> None:
    """Of the rounds it is one in a hundred, as for an engine that a quota lets run now and then."""
    with Loop() as loop:
        for _ in range(4):
            rounds(loop, ROUNDS)
            time.sleep(AWAY_S)
        rounds(loop, 1)
    assert AWAY_S <= loop.lateness_s <= loop.stall_s


def test_a_loop_that_was_away_once_is_not_late_if_events_seldom_came_meanwhile() -> None:
    with Loop() as loop:
        rounds(loop, 1)
        time.sleep(AWAY_S)
        rounds(loop, 20, AWAY_S)
    assert loop.lateness_s < AWAY_S <= loop.stall_s


def test_a_loop_that_cannot_run_when_a_wait_is_over_is_late() -> None:
    """Another thread lets nothing else of this process run meanwhile."""
    holding = threading.Thread(target=ctypes.PyDLL(None).usleep, args=(int(2e6 * AWAY_S),))
    with Loop() as loop:
        rounds(loop, 1)
        holding.start()
        rounds(loop, 1, AWAY_S / 10)
        holding.join()
        rounds(loop, 1)
    assert loop.lateness_s == loop.stall_s >= AWAY_S


def test_stops_of_a_loop_add_up_but_for_what_nics_hold_meanwhile() -> None:
    with Loop() as loop:
        for _ in range(2):
            rounds(loop, 1)
            time.sleep(AWAY_S)
            rounds(loop, 16, AWAY_S)
        assert 0.03 < loop.away(AWAY_S / 6) < loop.away(0.0) < 1.0
        assert loop.away(100 * AWAY_S) == 0.0


@pytest.mark.parametrize("counts", [False, True])
def test_nobody_waits_for_a_loop_that_rests_or_has_nothing_to_do(counts: bool) -> None:
    with Loop() as loop:
        loop.begins_round(counts=counts)
        loop.serve(0.0, counts=counts)
        if counts:
            loop.rest(AWAY_S)
        else:
            time.sleep(AWAY_S)
        loop.begins_round(counts=counts)
    assert loop.lateness_s == loop.stall_s == 0.0
