"""The lines that a user reads of an application that has ended."""

from dataclasses import replace

from testbed.apps.app_record import AppEvent, AppProcess, Beside
from testbed.study.app_study import summary
from testbed.trust.fidelity import NOTHING_SENT
from testbed.trust.outcome import Verdict
from tests.testbed.apps.records import all_to_all, record_of
from topologies.rail import rail_fabric

RECORD = record_of(rail_fabric(3, 2), all_to_all(3, [0.2], 0.5, 1_000_000), 2.0, rate_factor=1e-3)
SENT = "hosts sent for 25% of it, 500 ms, which are 0.5 ms at real scale"


def test_only_time_in_which_hosts_sent_has_a_counterpart_at_real_scale() -> None:
    assert [*summary(RECORD)] == [f"it took 2 s; {SENT}; all exit codes are 0; faithful"]


def test_failures_reasons_and_what_came_too_late_are_said() -> None:
    record = replace(
        RECORD,
        processes=tuple(AppProcess(host, host, ("a",), code, 2.0) for host, code in enumerate((0, 3))),
        verdict=Verdict("strained", ("switches waited for a CPU 15% of the time",), "run fewer processes"),
        events=(AppEvent(1.0, "failed", "nic:0:0@1s"), AppEvent(9.0, "missed", "nic:1:0@9s")),
    )
    assert [*summary(record)] == [
        f"it took 2 s; {SENT}; 1 of 2 processes failed; strained",
        "  strained: switches waited for a CPU 15% of the time",
        "  strained: run fewer processes",
        "  nic:1:0@9s was to come after the end",
    ]


def test_the_generator_and_the_model_stand_beside_it() -> None:
    beside = Beside("phase 2", 1_000_000, 1.0, 0.9, 0.8, "tcp", Verdict("faithful"))
    assert [*summary(replace(RECORD, beside=beside, predicted_s=2.25))][1:] == [
        "  the model predicts 2.25 s for the same bytes, pauses and faults",
        "  phase 2: 1 s for 1,000,000 bytes; lightrail's generator took 0.9 s (faithful), predicted 0.8 s",
    ]


def test_the_generator_runs_without_what_failed() -> None:
    beside = Beside("phase 2", 1_000_000, 1.0, 0.9, 0.8, "tcp", Verdict("faithful"))
    record = replace(RECORD, beside=beside, events=(AppEvent(1.0, "failed", "nic:0:0@1s"),))
    assert [*summary(record)][1].startswith(
        "  phase 2: 1 s for 1,000,000 bytes; with nothing failing, lightrail's generator took 0.9 s"
    )


def test_an_application_that_sends_nothing_has_no_verdict() -> None:
    silent = record_of(rail_fabric(3, 2), all_to_all(3, [], 1.0, 0), 0.5)
    assert [*summary(replace(silent, verdict=Verdict("model", (NOTHING_SENT,))))] == [
        "it took 0.5 s; all exit codes are 0; no byte crossed the network"
    ]


def test_datagrams_that_no_socket_had_room_for_are_named() -> None:
    hosts = tuple(replace(each, unread=30 * each.host) for each in RECORD.hosts)
    assert [*summary(replace(RECORD, hosts=hosts))][1:] == [
        "  90 datagrams arrived and were lost at sockets: programs read them too slowly here"
    ]


def test_packets_that_were_not_counted_are_named() -> None:
    record = replace(RECORD, tap=replace(RECORD.tap, missed=7000))
    assert [*summary(record)][1:] == [
        "  7,000 packets came faster than they were counted, so bytes between hosts lack them"
    ]
