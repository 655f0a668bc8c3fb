"""Verdicts: properties of the machine's word, which no prediction enters."""

import math
from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest

from controller.circuits.status import LogEntry
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import Scheduled, over_ocses, plan_of
from testbed.live.light_log import LightLog
from testbed.model.predict import predict
from testbed.trust.control import Control
from testbed.trust.fidelity import (
    ALWAYS,
    NOTHING_SENT,
    PACKETS,
    SHORT_S,
    WORST_LAST,
    Limit,
    verdict,
    verdict_of_light,
    with_control,
)
from testbed.trust.outcome import Measures, Outcome, Verdict
from testbed.trust.trial import limits_of
from tests.testbed import ocs_cases
from tests.testbed.cases import HEALTHY, experiment_of, outcome_of, small_fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.scheme_setup import WhileLitSetup
from traffic.steps import single
from traffic.transports.slots import GUARD_S, Meeting, SlotRecord
from traffic.workloads.synthetic import uniform

JUDGED = (
    "socket_drops",
    "switch_drops",
    "cpu_pressure",
    "switch_cpu",
    "engine_cpu",
    "switch_stall_s",
    "stall_s",
    "lateness_s",
    "late_packets",
    "away",
    "clock_step_s",
    "worst_link_error",
)
NOT_JUDGED = (
    "retransmits",
    "queue_marks",
    "queue_drops",
    "aggregate_bps",
    "other_cpu",
    "sent_over_granted",
    "packets_sent",
    "packets_arrived",
    "packets_anew",
    "packets_late",
)
CONTROLLED = "traffic of a known duration was {:.1%} off it"


def judged(
    measures: Measures, *, measured_s: float = 1.0, bound_s: float = 1.0, emulated_s: float = math.inf
) -> Verdict:
    """Return a verdict of a run that took as long as it had to."""
    return verdict(measures, measured_s=measured_s, bound_s=bound_s, emulated_s=emulated_s)


def test_packets_that_choose_are_late_sooner_than_placed_ones() -> None:
    fabric = rail_fabric(2, 2, 2)
    words = {}
    for scheme in ("rails", "reps"):
        experiment = Experiment(fabric, single(uniform(fabric.gpus)), scheme)
        late = (replace(HEALTHY, late_packets=packets) for packets in (1.4, 1.6, 3.9, 4.1, 10.1))
        judged_by = partial(verdict, measured_s=1.0, bound_s=1.0, limits=limits_of(experiment))
        words[scheme] = [judged_by(each).word for each in late]
    assert words == {
        "rails": ["faithful", "faithful", "faithful", "strained", "void"],
        "reps": ["faithful", "strained", "strained", "void", "void"],
    }


@pytest.mark.parametrize("name", JUDGED)
def test_a_worse_measure_never_has_a_better_word_and_the_worst_is_not_faithful(name: str) -> None:
    values = [0.0, *(10.0**power for power in range(-4, 6))]
    words = [judged(replace(HEALTHY, **{name: value})).word for value in values]
    ranks = [WORST_LAST.index(word) for word in words]
    assert ranks == sorted(ranks)
    assert (words[0], words[-1] == "faithful") == ("faithful", False)


@pytest.mark.parametrize("name", JUDGED)
def test_what_is_unknown_is_strained_and_named_and_void_stays_void(name: str) -> None:
    unknown = replace(HEALTHY, **{name: math.nan})
    found = judged(unknown)
    assert found.word == "strained"
    assert [reason.partition(":")[0] for reason in found.reasons] == ["unknown"]
    other = "lateness_s" if name != "lateness_s" else "stall_s"
    assert judged(replace(unknown, **{other: 10.0})).word == "void"


def test_of_nothing_known_every_unknown_is_named() -> None:
    nothing = replace(Measures(), packets=1000.0)
    assert len(judged(nothing).reasons) == len(PACKETS)
    without_psi = replace(HEALTHY, cpu_pressure=math.nan)
    assert judged(without_psi).reasons == ("unknown: CPU pressure (the kernel has no PSI)",)


def test_what_waited_for_a_cpu_stands_beside_what_used_them_as_far_as_is_known() -> None:
    pressed = replace(HEALTHY, cpu_pressure=0.9, switch_cpu=0.75, engine_cpu=0.5, other_cpu=1.25)
    waited = "something waited for a CPU 90% of the time"
    used = ": of CPUs switches 0.75, the engine 0.50, all else 1.25 were used"
    assert judged(pressed).reasons == (waited + used,)
    [reason, *_] = judged(replace(pressed, switch_cpu=math.nan, other_cpu=math.nan)).reasons
    assert reason == f"{waited}: of CPUs the engine 0.50 were used"
    alone = replace(Measures(), packets=1.0, cpu_pressure=0.9)
    assert judged(alone).reasons[0] == waited


@pytest.mark.parametrize("name", NOT_JUDGED)
def test_what_a_transport_does_is_no_health_of_the_machine(name: str) -> None:
    assert judged(replace(HEALTHY, **{name: 1e6})) == Verdict("faithful")


def test_all_measures_are_either_judged_or_known_not_to_be() -> None:
    names = {field.name for field in fields(Measures)}
    assert names == {*JUDGED, *NOT_JUDGED, "packets", "control_error"}


@pytest.mark.parametrize("limits", [PACKETS, ALWAYS])
def test_limits_are_in_order(limits: tuple[Limit, ...]) -> None:
    assert all(0 <= limit.strained < limit.void for limit in limits)


@pytest.mark.parametrize("slower", [0.1, 0.98, 1.0, 1.3, 40.0])
def test_how_long_it_took_decides_nothing_above_its_bound(slower: float) -> None:
    assert judged(HEALTHY, measured_s=slower, bound_s=0.1).word == "faithful"


def test_what_beats_its_bound_is_void() -> None:
    found = judged(HEALTHY, measured_s=0.97)
    assert found.word == "void"
    assert found.reasons == ("it took 0.97 of the least time possible, so something was not measured",)
    assert judged(HEALTHY, measured_s=0.985).word == "faithful"


def test_no_time_is_void_and_no_bound_is_unknown() -> None:
    assert [judged(HEALTHY, measured_s=time).word for time in (math.nan, math.inf)] == ["void"] * 2
    assert judged(HEALTHY, bound_s=math.nan) == Verdict(
        "strained", ("unknown: the lower bound",), judged(replace(HEALTHY, stall_s=0.2)).advice
    )


def test_a_run_that_sent_nothing_was_not_emulated() -> None:
    nothing = judged(replace(HEALTHY, packets=0.0, stall_s=9.0), measured_s=0.5)
    assert nothing == Verdict("model", (NOTHING_SENT,))


def test_a_setting_that_did_not_take_effect_is_void_and_named() -> None:
    found = verdict(HEALTHY, measured_s=1.0, bound_s=1.0, unmet=["port leaf0:1 is not shaped"])
    assert (found.word, found.reasons) == ("void", ("port leaf0:1 is not shaped",))


@pytest.mark.parametrize("stall_s", [0.2, 3.0])
def test_a_run_too_short_to_be_timed_is_not_advised_to_go_slower(stall_s: float) -> None:
    long, short = (
        judged(replace(HEALTHY, stall_s=stall_s), emulated_s=emulated_s)
        for emulated_s in (2 * SHORT_S, SHORT_S / 1e6)
    )
    assert "--emulated-rate" in long.advice
    assert short.advice == "send more bytes: these take under 0.1 s here, too little to be timed"


@pytest.mark.parametrize(
    ("errors", "word", "kept"),
    [
        ((0.01,), "faithful", 0.01),
        ((0.01, -0.02), "faithful", -0.02),
        ((0.01, 0.05), "strained", 0.05),
        ((0.05, 0.01), "strained", 0.05),
        ((0.2, 0.05), "void", 0.2),
        ((0.05, -0.2), "void", -0.2),
    ],
)
def test_the_worst_control_on_either_side_counts(errors: tuple[float, ...], word: str, kept: float) -> None:
    outcome = outcome_of(experiment_of(small_fabric(), uniform(4), "rails"), Verdict("faithful"))
    for error in errors:
        outcome = with_control(outcome, Control(1e9, 4, error, 0.1))
    assert (outcome.verdict.word, outcome.measures.control_error) == (word, kept)
    assert set(outcome.verdict.reasons) == {CONTROLLED.format(abs(e)) for e in errors if abs(e) > 0.03}


@pytest.mark.parametrize(("pressure", "word"), [(0.1, "faithful"), (0.7, "strained"), (0.9, "void")])
def test_a_control_on_a_busy_machine_is_no_witness(pressure: float, word: str) -> None:
    point = experiment_of(small_fabric(), uniform(4), "rails")
    found = with_control(outcome_of(point, Verdict("faithful")), Control(1e9, 4, 0.0, pressure)).verdict
    assert found.word == word


def test_a_control_never_betters_a_word_and_none_is_unknown() -> None:
    point = experiment_of(small_fabric(), uniform(4), "rails")
    void = outcome_of(point, Verdict("void", ("lost packets",)))
    assert with_control(void, Control(1e9, 4, 0.0, 0.1)).verdict == void.verdict
    missing = with_control(outcome_of(point, Verdict("faithful")), None).verdict
    assert (missing.word, missing.reasons) == ("strained", ("unknown: a control (none was carried out)",))
    model = outcome_of(point)
    assert with_control(model, None) is model


def test_a_schedule_is_judged_by_its_controls_too() -> None:
    experiment = ocs_cases.experiment_of("spectra")
    model = predict(experiment)
    outcome = Outcome(experiment, model, model, Verdict("faithful"), light=lit_for(1.0))
    assert with_control(outcome, Control(1e9, 4, 0.02, 0.1)).verdict == outcome.verdict
    late = with_control(outcome, Control(1e9, 4, 0.05, 0.1))
    assert (late.verdict.word, late.measures.control_error) == ("strained", 0.05)
    assert with_control(late, Control(1e9, 4, 0.2, 0.1)).verdict.word == "void"
    assert with_control(outcome, None).verdict.word == "strained"


def lit_for(took: float, meeting: Meeting = "drain") -> LightLog:
    """Return what circuits did that took so many times as long as their slots."""
    experiment = ocs_cases.experiment_of("spectra")
    experiment = replace(experiment, scheme=WhileLitSetup(meeting))
    found = LightLog(experiment, 1.0, (0,), (), {}, 0.0, 100, 1_000_000)
    return replace(found, cct_s=took / (1 + found.behind))


def test_a_schedule_that_takes_longer_than_its_slots_is_not_faithful() -> None:
    lights = map(lit_for, (1.0, 1.05, 1.2, 2.0))
    words = [verdict_of_light(HEALTHY, light, measured_s=light.cct_s).word for light in lights]
    assert words == ["faithful", "faithful", "strained", "void"]
    assert verdict_of_light(HEALTHY, lit_for(2.0, "cut"), measured_s=1.0).word == "faithful"


def test_the_slots_of_a_schedule_have_room_for_guard_times() -> None:
    drained, cut = lit_for(1.0), lit_for(1.0, "cut")
    slots = max(map(len, plan_of(drained.experiment.rule).schedule.switches))
    more_s = drained.experiment.dilation.emulated_s(drained.cct_s - cut.cct_s)
    assert more_s == pytest.approx(slots * GUARD_S)


def late(light: LightLog, size: int) -> LightLog:
    """Return the same with so many bytes that came in a clean-up round, and news that came 9 ms late."""
    logs = {"ocs0": [LogEntry(0, ((0, 1),), False, 0, 0.0, 0.0, 0.0, 1.0, False)]}
    return replace(light, undelivered_bytes=(size, 0), slots=(SlotRecord("ocs0", 1.009, 2.0, 1),), logs=logs)


def test_bytes_that_missed_their_slots_by_the_machines_fault_are_never_faithful() -> None:
    punctual = lit_for(1.04)
    assert verdict_of_light(HEALTHY, punctual, measured_s=punctual.cct_s).word == "faithful"
    found = verdict_of_light(HEALTHY, late(punctual, 10_240), measured_s=punctual.cct_s)
    assert found.word == "strained"
    assert found.reasons == (
        "10,240 bytes missed their slots, and light was heard of up to 0.0090 s late; the last of them "
        f"came {punctual.behind_s:.3f} s after the slots, 4% of the schedule",
    )


def test_a_clean_up_round_that_cost_half_the_schedule_is_void() -> None:
    costly = late(lit_for(1.56), 10_240)
    found = verdict_of_light(HEALTHY, costly, measured_s=costly.cct_s)
    assert found.word == "void"
    assert "56% of the schedule" in found.reasons[0]


def test_bytes_that_senders_lose_by_choice_say_nothing_of_the_machine() -> None:
    cut = late(lit_for(1.56, "cut"), 10_240)
    assert verdict_of_light(HEALTHY, cut, measured_s=cut.cct_s).word == "faithful"


@pytest.mark.parametrize(("late_share", "word"), [(0.0, "faithful"), (0.005, "faithful"), (0.05, "strained")])
def test_what_a_schedule_leaves_to_packets_is_not_late(late_share: float, word: str) -> None:
    fabric = parallel_ocs_fabric(4, 2, packet_switch=True)
    matrix = np.full((4, 4), 10_000_000) - np.diag([10_000_000] * 4)
    partly = "tests.testbed.rest_cases:partly"
    circuits, scheme = Scheduled(partly, ocs_cases.DELAY), WhileLitSetup(rest="ecmp")
    job = over_ocses(Demand("d", matrix), 2)
    experiment = Experiment(fabric, job, scheme, Dilation(2e-4, 6e-3), circuits=circuits)
    plan, scale = plan_of(experiment.rule), experiment.dilation
    unserved_s = (plan.line_s - plan.schedule.served(4)).clip(0.0).sum()
    planned = math.ceil(unserved_s * plan.rate_bps / 8 * scale.volume)
    sent = int(scale.volume * matrix.sum())
    light = LightLog(experiment, 1.0, (0,), (), {}, 0.0, 100, sent)
    left = late(light, planned + math.ceil(late_share * sent))
    assert planned > 0
    assert verdict_of_light(HEALTHY, left, measured_s=left.cct_s).word == word
