"""What is said of an application's run when it has ended."""

from dataclasses import replace

from testbed.apps.app_record import AppEvent, AppProcess, Beside
from testbed.study.app_study import summary
from testbed.trust.outcome import Verdict
from tests.testbed.apps.records import all_to_all, record_of
from topologies.rail import rail_fabric

RECORD = replace(
    record_of(rail_fabric(2, 1), all_to_all(2, [0.5], 1.0, 1_000_000), 2.5),
    verdict=Verdict("strained", ("Open vSwitch waited for a CPU 15% of the time",), "run fewer processes"),
    events=(AppEvent(1.0, "failed", "nic:0:0@1s"), AppEvent(9.0, "missed", "nic:1:0@9s")),
    beside=None,
)


def test_it_has_the_time_at_both_scales_and_the_verdict_with_its_reasons() -> None:
    done = tuple(AppProcess(host, host, ("a",), code, 2.0) for host, code in enumerate((0, 3)))
    assert list(summary(replace(RECORD, processes=done))) == [
        "it took 2.5 s, 2.5 ms at real scale; 1 of 2 processes failed; strained",
        "  strained: Open vSwitch waited for a CPU 15% of the time",
        "  strained: run fewer processes",
        "  nic:1:0@9s was to come after the end",
    ]


def test_the_generator_and_the_model_stand_beside_it() -> None:
    beside = Beside("phase 2", 1_000_000, 1.0, 0.9, 0.8, "tcp", Verdict("faithful"))
    *_, model, generator, _ = summary(replace(RECORD, beside=beside, predicted_s=2.25))
    assert model == "  the model predicts 2.25 s for the same bytes, pauses and faults"
    assert generator == (
        "  phase 2: 1 s for 1,000,000 bytes; lightrail's generator took 0.9 s (faithful), predicted 0.8 s"
    )
