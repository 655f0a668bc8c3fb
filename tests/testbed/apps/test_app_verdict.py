"""The verdict of an application's run: of the machine alone, and not of how busy its programs kept it."""

import math
from dataclasses import replace

import pytest

from testbed.apps.app_verdict import APP_ADVICE, WAIT_STRAINED, WAIT_VOID, app_verdict, worst_error
from testbed.trust.control import Control
from testbed.trust.fidelity import NOTHING_SENT
from testbed.trust.outcome import Measures, Verdict

SEEN = Measures(
    packets=10_000,
    queue_drops=0,
    socket_drops=0,
    switch_drops=0,
    cpu_pressure=1.0,
    switch_cpu=0.3,
    other_cpu=1.7,
    switch_stall_s=0.01,
    clock_step_s=0.0,
    worst_link_error=0.01,
)
"""Of a machine whose CPUs MPI's ranks keep busy all of the time."""
RIGHT = Control(1e9, 8, 0.004, 0.2)


def judged(measures: Measures = SEEN, wait: float = 0.01, **given: object) -> Verdict:
    """Return the verdict of a run of one second."""
    controls = given.pop("controls", (RIGHT, RIGHT))
    usual = {"has_packets": True, "duration_s": 1.0, **given}
    return app_verdict(measures, wait, controls, **usual)  # type: ignore[arg-type]


def test_busy_cpus_are_no_doubt_while_open_vswitch_does_not_wait() -> None:
    assert judged() == Verdict("faithful")


@pytest.mark.parametrize(
    ("wait", "word"),
    [
        (0.0, "faithful"),
        (WAIT_STRAINED * 1.01, "strained"),
        (WAIT_VOID * 1.01, "void"),
        (math.nan, "strained"),
    ],
)
def test_open_vswitch_that_waits_is_one(wait: float, word: str) -> None:
    found = judged(wait=wait)
    assert (found.word, found.advice) == (word, "" if word == "faithful" else APP_ADVICE)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("worst_link_error", -0.2, "void"),
        ("socket_drops", 5, "strained"),
        ("switch_drops", 500, "void"),
        ("switch_stall_s", 0.2, "strained"),
        ("clock_step_s", 3.0, "strained"),
        ("switch_cpu", 0.99, "strained"),
        ("worst_link_error", math.nan, "strained"),
    ],
)
def test_each_measure_of_the_machine_counts(name: str, value: float, word: str) -> None:
    assert judged(replace(SEEN, **{name: value})).word == word


def test_a_control_off_its_time_counts_whether_it_came_before_or_after() -> None:
    off = replace(RIGHT, error=0.2)
    assert judged(controls=(off, RIGHT)).word == judged(controls=(RIGHT, off)).word == "void"
    assert judged(controls=(RIGHT, None)).reasons == ("unknown: a control (none was carried out)",)
    assert worst_error((RIGHT, None, off)) == 0.2
    assert math.isnan(worst_error((None,)))


def test_of_a_busy_machine_no_application_is_to_blame_that_does_not_run_yet() -> None:
    pressed = replace(RIGHT, cpu_pressure=0.9)
    assert "end what else runs on this machine" in judged(controls=(pressed, RIGHT)).advice
    assert judged(wait=0.9, controls=(RIGHT, pressed)).advice == APP_ADVICE


def test_over_circuits_alone_there_are_no_links_to_sample_and_no_controls() -> None:
    unsampled = replace(SEEN, worst_link_error=math.nan)
    assert judged(unsampled, has_packets=False, controls=(None, None)).word == "faithful"


def test_a_run_that_was_ended_is_void_and_says_why() -> None:
    found = judged(stopped="interrupted after 3.2 s")
    assert (found.word, found.reasons) == ("void", ("interrupted after 3.2 s",))


def test_an_application_that_sends_nothing_says_so() -> None:
    assert judged(replace(SEEN, packets=0)) == Verdict("model", (NOTHING_SENT,))
