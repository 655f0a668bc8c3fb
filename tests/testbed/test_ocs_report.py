"""Schedules over parallel OCSes, without a network: the prediction, the claims, the plots and the report."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection

from controller.circuits.devices import ReconfigurationDelay, device_named, real_delay
from controller.circuits.status import LogEntry
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import LONGEST_S, PATIENT_S, dilation_for, plan_of
from testbed.live.light_log import LightLog
from testbed.model.predict import predict
from testbed.report.claims_circuits import circuit_claims
from testbed.report.means import BIG_SWITCH
from testbed.report.nodes import nodes_of
from testbed.report.ocs_plots import plan_against_measurement
from testbed.report.ocs_report import executions_table
from testbed.report.palette import colours
from testbed.report.plots import cct_percentiles, times_over_bound
from testbed.report.results import ResultsDirectory
from testbed.report.run_json import RunRecord, experiments_of
from testbed.report.table import time_unit
from testbed.trust.outcome import Outcome, Verdict, summary
from tests.testbed.cases import VOID, slowed
from tests.testbed.ocs_cases import DELAY, DELAY_S, OCSES, SERVERS, experiment_of, light_of
from topologies.big_switch import big_switch_fabric
from topologies.errors import ScenarioError
from traffic.transports.slots import GUARD_S, SlotRecord

FAITHFUL = Verdict("faithful")
RUN = RunRecord(
    "ocs_spectra",
    "Spectra's schedules",
    ["ocs_spectra.py"],
    datetime(2026, 1, 2),
    report="circuits",
    baseline=BIG_SWITCH,
)


def executed_of(
    scheduler: str, verdict: Verdict = FAITHFUL, slower: float = 1.03, delay: ReconfigurationDelay = DELAY
) -> Outcome:
    """Return an execution that went as planned, but for taking so many times as long."""
    experiment = experiment_of(scheduler, delay=delay)
    predicted = predict(experiment)
    run = slowed(predicted, slower)
    cct_s = run.iteration_s
    logs = logs_of(experiment, slower)
    light = LightLog(experiment, cct_s, (0,), (), logs, 0.0, 100, 1_000_000)
    return Outcome(experiment, predicted, run, verdict, light=light)


def logs_of(experiment: Experiment, slower: float) -> dict[str, list[LogEntry]]:
    """Return what the OCSes would log of a plan that takes so many times as long."""
    scale = slower * experiment.dilation.time
    logs: dict[str, list[LogEntry]] = {}
    plan = plan_of(experiment.rule)
    for name, slots in zip(plan.ocses, plan.schedule.switches, strict=True):
        now_s, logs[name] = 0.0, []
        for number, slot in enumerate(slots):
            circuits = tuple(enumerate(slot.permutation.tolist()))
            lit_s = now_s + DELAY_S * scale
            delay_s = plan.emulated_delay.mean_s
            logs[name].append(LogEntry(number, circuits, True, 0, delay_s, now_s, now_s, lit_s, False))
            now_s = lit_s + slot.weight * scale
    return logs


def big_switch() -> Outcome:
    """Return what one packet switch would do."""
    circuits = experiment_of("spectra")
    fabric = big_switch_fabric(SERVERS, nics=OCSES, gpus=1)
    experiment = Experiment(fabric, circuits.job, "rails", circuits.dilation, label=BIG_SWITCH)
    model = predict(experiment)
    return Outcome(experiment, model, model, FAITHFUL)


def results_of(results: Sequence[Outcome], out: Path) -> ResultsDirectory:
    """Write a run."""
    with ResultsDirectory(RUN, out=out, claims=circuit_claims) as directory:
        for result in results:
            directory.add(result)
        directory.add(big_switch())
    return directory


def test_delays_under_the_mean_lower_what_no_schedule_beats() -> None:
    execution = light_of(executed_of("spectra"))
    mean_s = plan_of(execution.experiment.rule).lower_bound_s
    assert execution.lower_bound_s == pytest.approx(mean_s)
    (first, *rest), *others = execution.logs.values()
    short = replace(first, delay_s=0.5 * first.delay_s)
    logs = dict(zip(execution.logs, [[short, *rest], *others], strict=True))
    assert mean_s - 3 * DELAY_S < replace(execution, logs=logs).lower_bound_s < mean_s


@pytest.mark.parametrize("outcome", [executed_of("spectra"), executed_of("rotor"), big_switch()])
def test_a_row_has_one_bound_in_its_table_its_nodes_and_its_plots(outcome: Outcome) -> None:
    table = summary([outcome])
    (bound_s,) = table["bound_s"]
    assert nodes_of(outcome)["bound_s"].tolist() == [bound_s]
    assert times_over_bound(outcome).max() == pytest.approx(outcome.cct_s / bound_s)
    shades = colours(table["name"])
    for figure in (plan_against_measurement(table), cct_percentiles([outcome], table, shades)):
        (axes,), (_, scale) = figure.axes, time_unit(table)
        lines = [line for line in axes.collections if isinstance(line, LineCollection)]
        assert {segment[0][1] for line in lines for segment in line.get_segments()} == {bound_s / scale}


def test_each_bar_has_its_scheduler_s_name_and_the_bound_of_its_row() -> None:
    table = summary([executed_of("spectra"), executed_of("less"), big_switch()])
    (axes,), (_, scale) = plan_against_measurement(table).axes, time_unit(table)
    lines = [line for line in axes.collections if isinstance(line, LineCollection)]
    drawn = [segment[0][1] * scale for line in lines for segment in line.get_segments()]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["spectra", "LESS", BIG_SWITCH]
    assert drawn == pytest.approx(table["bound_s"].tolist())
    assert len(set(drawn)) == 2, "no schedule may be held against what packets could do"


def test_a_delay_is_honoured_where_the_bound_allows_it() -> None:
    line_s = np.array([[0, 0.1], [0.1, 0]])
    assert dilation_for(line_s, 1, 1e-4, rate=1e-3, slot_s=0.05).emulated_s(1e-4) >= 0.002
    assert dilation_for(line_s, 1, 1e-9, rate=1e-3, slot_s=0.05).emulated_s(0.1) <= PATIENT_S
    assert dilation_for(line_s, 1, 1e-2, rate=1e-3, slot_s=50.0).emulated_s(0.11) == pytest.approx(LONGEST_S)
    with pytest.raises(ScenarioError, match="schedules without a slot"):
        dilation_for(0 * line_s, 1, 1e-3, rate=1e-3, slot_s=0.05)


@pytest.mark.drawn
def test_a_run_leaves_summary_records_plots_and_report(tmp_path: Path) -> None:
    results = results_of(
        [executed_of("spectra"), executed_of("less"), executed_of("rotor")], tmp_path / "out"
    )
    table = pd.read_csv(results.path / "summary.csv")
    planned = [f"while lit, {name}" for name in ("spectra", "less", "rotor")]
    assert table["name"].tolist() == [*planned, BIG_SWITCH]
    assert set(table["workload"]) == {"moe, 2 OCSes"}
    assert np.allclose(table["over_predicted"], [1.03, 1.03, 1.03, 1.0])
    records = pd.read_csv(results.path / "records.csv")
    assert records.groupby(["scheme", "circuits", "backend"])["bytes"].sum().nunique() == 1
    assert {path.name for path in results.path.glob("*.png")} == {
        "fabric.png",
        "fabric_2.png",
        "timeline_2.png",
        "plan_against_measurement.png",
    }
    html = (results.path / "report.html").read_text()
    assert "4 points" in html
    assert "Every emulated number stands beside its prediction and its lower bound." in html
    assert {claim.verdict for claim in results.page().claims} == {"holds"}


def test_all_that_was_run_is_read_back_from_run_json(tmp_path: Path) -> None:
    results = results_of([executed_of("spectra"), executed_of("rotor")], tmp_path / "out")
    kept = [experiment_of("spectra"), experiment_of("rotor"), big_switch().experiment]
    assert experiments_of(results.path / "run.json") == kept


def test_a_device_is_named_with_its_source_and_its_delays(tmp_path: Path) -> None:
    polatis = real_delay(device_named("polatis-16"), varying=True)
    result = executed_of("spectra", delay=polatis)
    results = results_of([result], tmp_path / "out")
    assert executions_table(results.table).caption == (
        "One seed. OCSes as polatis-16, dark for 46.75 ms on average, drawn anew each time. "
        "Transport: datagrams, under the big switch credit."
    )
    assert (
        "each standing for polatis-16 (Polatis, turnaround of 16 pairs; mFabric, Appendix C), dark for "
        "46.75 ms on average (log-normal, p99 68 ms) whenever they are reconfigured"
        in results.page().sentence
    )
    assert pd.read_csv(results.path / "summary.csv")["device"].tolist()[0] == "polatis-16"
    (kept, _) = experiments_of(results.path / "run.json")
    assert plan_of(kept.rule).setup.delay == polatis


def test_bars_and_bound_can_be_read_where_delays_are_long_and_the_big_switch_much_faster(
    tmp_path: Path,
) -> None:
    table = results_of([executed_of("spectra")], tmp_path / "out").table
    table.loc[table["name"] == BIG_SWITCH, "cct_s"] /= 100
    (axes,) = plan_against_measurement(table).axes
    assert axes.get_ylim()[1] * time_unit(table)[1] > table["cct_s"].max() > table["bound_s"].max()


def test_what_is_void_says_so_and_proves_nothing(tmp_path: Path) -> None:
    results = results_of([executed_of("spectra", VOID), executed_of("less")], tmp_path / "out")
    html = (results.path / "report.html").read_text()
    assert "do not use the number" in html
    assert VOID.reasons[0] in html
    rulings = {claim.text: claim.verdict for claim in circuit_claims(results.table)}
    assert rulings == {
        "Spectra's makespan near the lower bound": "not comparable",
        "LESS takes longer than Spectra, measured": "not comparable",
        "while lit, spectra takes no longer than predicted": "not comparable",
        "the slowest, while lit, less, takes no longer than predicted": "holds",
        "no byte is missing": "not comparable",
    }


def test_a_rotor_is_nothing_that_spectra_s_paper_compares_with(tmp_path: Path) -> None:
    executed = [executed_of("spectra"), executed_of("less"), executed_of("rotor")]
    claims = {claim.text: claim for claim in results_of(executed, tmp_path / "out").page().claims}
    rotor, less = (claims[f"{name} takes longer than Spectra, measured"] for name in ("the rotor", "LESS"))
    assert (rotor.is_own, rotor.verdict) == (True, "holds")
    assert not less.is_own


def test_predicted_schedules_rule_no_claim() -> None:
    table = summary([replace(executed_of("spectra"), verdict=Verdict("model"))])
    assert {claim.verdict for claim in circuit_claims(table)} == {"not comparable"}


def test_what_takes_longer_than_planned_does_not_hold(tmp_path: Path) -> None:
    results = results_of([executed_of("spectra"), executed_of("bvn", slower=1.3)], tmp_path / "out")
    claims = {claim.text: claim for claim in results.page().claims}
    slowest = claims["the slowest, while lit, bvn, takes no longer than predicted"]
    assert slowest.verdict == "does not hold"
    assert slowest.measured == pytest.approx(1.3)


def test_the_guard_counts_where_dark_follows_and_not_after_the_last_byte() -> None:
    execution = light_of(executed_of("spectra"))
    end_s = execution.experiment.dilation.emulated_s(execution.cct_s)
    slots = (
        SlotRecord("ocs0", 0.0, end_s / 2, 1),
        SlotRecord(
            "ocs1", 0.0, end_s + GUARD_S / 4, 1
        ),  # all but a quarter of its guard passes before the last byte
        SlotRecord("ocs0", end_s / 2, end_s + 2 * GUARD_S, 1),
    )
    lost = replace(execution, slots=slots).guard_loss
    assert lost == pytest.approx((1 + 0.75) * GUARD_S / (2 * end_s))


@pytest.mark.parametrize("over_spectra", [0.985, 1.0, 1.015])
def test_less_as_fast_as_spectra_takes_no_longer(tmp_path: Path, over_spectra: float) -> None:
    table = results_of([executed_of("spectra"), executed_of("less")], tmp_path / "out").table
    spectra_s = table.loc[table["circuits"] == "spectra", "cct_s"].item()
    table.loc[table["circuits"] == "less", "cct_s"] = over_spectra * spectra_s
    (found,) = [claim for claim in circuit_claims(table) if "LESS takes longer than Spectra" in claim.text]
    assert (found.verdict, found.reason) == ("does not hold", "no difference")


def test_equal_experiments_share_a_key_and_others_do_not() -> None:
    keys = {experiment_of(scheduler, seed=seed).key for scheduler in ("spectra", "less") for seed in (0, 1)}
    assert len(keys) == 4
    assert experiment_of("spectra").key in keys
