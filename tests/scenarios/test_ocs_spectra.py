"""The scenarios of parallel OCSes without a network: bad input, and the figures that are only planned."""

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pandas as pd
import pytest
from rich.progress import Progress

from controller.circuits.devices import DEVICES, LEAST_DELAY_S
from scenarios._spectra import ocs_sweep
from scenarios._spectra.ocs_sweep import SweptWorkload, cases
from scenarios.ocs_spectra import RATE_BPS, ocs_spectra
from testbed.experiment.dilation import UNSCALED
from testbed.experiment.experiment import Experiment
from testbed.experiment.ocs_plan import plan_of
from testbed.study.glances import Glance, glances
from testbed.study.machine import Machine
from testbed.study.scaling import SLOTS_NIC_BPS, check_slots, scaled
from testbed.study.study import Options, Study
from testbed.trust.calibrate import Calibration
from testbed.trust.dark_excess import DarkExcess, Excess
from tests.scenarios.command import ran
from topologies.errors import ScenarioError
from traffic.packets import packet_bytes
from traffic.workloads.ocs_workloads import SCALED


def explored(options: str) -> "CompletedProcess[str]":
    """Return what comes of the scenario to explore where no sandbox can be had: no PATH, no tool."""
    return ran("ocs_explore", *options.split(), env={"PATH": ""})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--workload", "nobody"], "unknown workload 'nobody'"),
        (["--workload", "{file}"], "matrix.txt, line 2: found '1 numbers', expected 2"),
        (["--workload", "{folder}"], "is a directory"),
        (["--servers", "1"], "a demand between 1 servers"),
        (["--ocses", "2,x"], "'x' of --ocses; give whole numbers from 1"),
        (["--ocses", "0"], "'0' of --ocses"),
        (["--schedulers", "nobody"], "unknown scheduler 'nobody'; choose among spectra, "),
        (["--schedulers", "rotor,no_such:plan"], "the scheduler 'no_such:plan' cannot be imported: Module"),
        (["--meetings", "wait"], "unknown word 'wait' of --meetings; choose from drain, pause, cut"),
        (["--seeds", "0"], "0 seeds"),
        (["--delay-ms", "-1"], "a delay of -1 ms"),
        (["--delay-ms", "nan"], "a delay of nan ms"),
        (["--device", "nobody"], "unknown device 'nobody'; take one of patch-panel, polatis, "),
        (["--device", "polatis", "--delay-ms", "1"], "--device and --delay-ms both give the"),
        (
            ["--device", "ocstrx"],
            "8 servers on OCSes of 3 ports, the most that ocstrx has; take 3 servers or",
        ),
        (["--device", "mems-3d", "--varying"], "no 99th percentile of the delay of mems-3d is known; "),
        (["--varying"], "how a --delay-ms varies was never measured; name a --device for --varying"),
        (
            ["--device", "rotornet"],
            "a delay of 0.01 ms would be 0.98 ms in the emulation, which honours 2 ms",
        ),
        (["--slot-ms", "0"], "a slot of 0 ms"),
        (["--line-ms", "0"], "a line of 0 ms"),
        (["--line-ms", "nan"], "a line of nan ms"),
        (["--line-ms", "1e12"], "a line of 1e+12 ms; give --line-ms above 0, and at most 1000000"),
        (["--workload", "{matrix}", "--line-ms", "100"], "a file, which says its bytes, so --line-ms has no"),
        (
            ["--workload", "gpt", "--experts", "8"],
            "the workload gpt is no routing trace, so --experts has no",
        ),
        (["--start-unit", "us"], "the workload benchmark is no matrix of htsim's, so --start-unit has no"),
        (["--workload", ""], "the name of the workload is empty"),
        (["--workload", "x" * 300], "unknown workload 'xxx"),
        (["--plan-only"], "the paper's figures have a command of their own; run ocs_figures.py"),
        (["--loss", "0.01"], "links have delay or loss, which schedules over OCSes do not reckon with"),
    ],
)
def test_bad_input_is_told_in_a_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    file, out = tmp_path / "matrix.txt", tmp_path / "out"
    file.write_text("0 1\n1\n")
    (tmp_path / "right.txt").write_text("0 1\n1 0\n")
    matrix = tmp_path / "right.txt"
    words = [option.format(file=file, folder=tmp_path, matrix=matrix) for option in options]
    done = ran("ocs_spectra", "--out", out, *words)
    told = done.stderr.strip().splitlines()
    assert done.returncode == 2
    assert len(told) == 1
    assert said in told[0]
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "--emulated-rate 0",
            "NICs cannot be emulated at 0 Mbit/s each; give --emulated-rate from 1 to 1000",
        ),
        ("--emulated-rate -5", "NICs cannot be emulated at -5 Mbit/s each"),
        ("--emulated-rate nan", "NICs cannot be emulated at nan Mbit/s each"),
        ("--emulated-rate 1e9", "NICs cannot be emulated at 1e+09 Mbit/s each"),
        ("--time 0", "emulated time cannot be 0 times real time; give --time above 0"),
        ("--time 1e308", "emulated time cannot be 1e+308 times real time; give --time above 0, up to 1e+09"),
        ("--time nan", "emulated time cannot be nan times real time"),
        ("--time inf", "emulated time cannot be inf times real time"),
        (
            "--device rotornet",
            "would be 1e-05 s, and the emulation honours 0.002 s and more; give --time 200",
        ),
        ("--device nobody", "unknown device 'nobody'"),
        ("--device plzt --servers 17", "17 servers on OCSes of 16 ports, the most that plzt has"),
        ("--servers 0", "a fabric of 0 servers"),
    ],
)
def test_what_cannot_be_explored_is_told_before_anything_boots(options: str, said: str) -> None:
    done = explored(options)
    told = done.stderr.strip().splitlines()
    assert done.returncode == 2
    assert len(told) == 1
    assert said in told[0]


def late_by(dark_s: float) -> Machine:
    """Return a machine whose OCSes are dark for up to so much longer than their devices."""
    now = datetime.now(UTC).isoformat()
    excess = DarkExcess("m", now, True, (Excess(1, dark_s / 2, dark_s),))
    return Machine(Calibration("m", now, True, 3e4, 1.0, 0.4), excess)


@cache
def glance(device: str | None = None) -> Glance:
    """Return what the prediction says of a schedule for 4 OCSes."""
    with Progress(disable=True) as progress:
        study = ocs_spectra(ocses="4", schedulers="spectra", device=device)
        [(_, found)] = glances(study.experiments[:1], None, progress)
    return found


def on(machine: Machine, study: Study, seen: Glance | None = None) -> list[Experiment]:
    """Return a study at the scale of a machine, all of whose points load it alike."""
    looked = [(each, seen or glance()) for each in study.experiments]
    return scaled(study, looked, Options(), machine)


def test_a_routing_trace_is_scheduled_once_its_experts_are_given(tmp_path: Path) -> None:
    trace = tmp_path / "routed.npy"
    np.save(trace, np.random.default_rng(0).random((600, 1, 8)).argsort()[:, :, :2].astype(np.int16))
    options = ["--model-only", "--workload", str(trace), "--servers", "4", "--ocses", "2"]
    options += ["--schedulers", "spectra", "--out", str(tmp_path / "out")]
    done = ran("ocs_spectra", *options)
    assert done.returncode == 2
    assert "does not tell how many experts there are; give experts (--experts" in done.stderr
    assert ran("ocs_spectra", *options, "--experts", "8", "--token-bytes", "1000").returncode == 0
    note = json.loads((tmp_path / "out" / "run.json").read_text())["jobs"]
    assert "8 experts on 4 GPUs, 1000 bytes per token; 600 tokens in one batch, spread" in json.dumps(note)


@pytest.mark.parametrize("workload", SCALED)
@pytest.mark.parametrize("device", ["mems-2d", "rotornet", "silicon-256", "laser", None])
@pytest.mark.parametrize("ocses", ["4,1", "2"])
def test_a_delay_too_short_beside_its_demand_is_refused_with_options_that_would_do(
    workload: str, device: str | None, ocses: str
) -> None:
    def asked(line_ms: float, delay_ms: float | None, device: str | None = None) -> Study:
        study = ocs_spectra(
            workload, 8, ocses, "spectra", "drain", line_ms, delay_ms, device, slot_ms=100.0, seeds=2
        )
        check_slots(study, Options())
        return study

    delay_ms = 1e-5 if device is None else None
    with pytest.raises(ScenarioError, match=r"a delay of .* ms would be .* ms in the emulation") as refused:
        asked(1000.0, delay_ms, device)
    least_ms, most_ms = map(float, re.findall(r"([\d.e+-]+) ms or", refused.value.hint))
    for would_do in (asked(most_ms, delay_ms, device), asked(1000.0, least_ms)):
        for experiment in on(late_by(2e-3), would_do):
            delays = experiment.ocs_delays.values()
            assert all(delay.mean_s * experiment.dilation.time >= LEAST_DELAY_S for delay in delays)


@pytest.mark.parametrize("workload", SCALED)
@pytest.mark.parametrize("ocses", [2, 4])
def test_on_a_machine_whose_ocses_are_dark_for_longer_delays_slots_and_guards_are_longer(
    workload: str, ocses: int
) -> None:
    study = ocs_spectra(workload, ocses=str(ocses), schedulers="spectra", seeds=2)
    volumes = []
    for dark_s in (1e-3, 2.7e-3, 9.2e-3):
        experiment, other, *switches = on(late_by(dark_s), study)
        assert {each.dilation for each in (other, *switches)} == {experiment.dilation}
        plan, margins = plan_of(experiment.rule), experiment.sending.margins
        assert plan.emulated_delay.mean_s >= 10 * dark_s
        assert margins.guard_s >= dark_s
        assert margins.start_s > dark_s
        slots = [slot.weight for slots in plan.schedule.switches for slot in slots]
        longer_s = margins.slot_s("drain")
        bound_s = plan.lower_bound_s * experiment.dilation.time
        assert experiment.dilation.emulated_s(min(slots)) >= 20 * longer_s - 1e-9 or bound_s > 4.999
        assert longer_s * max(map(len, plan.schedule.switches)) < 0.05 * experiment.dilation.emulated_s(
            plan.schedule.makespan
        )
        assert bound_s <= 15.5
        volumes.append(experiment.dilation.volume)
    assert volumes[0] <= volumes[1] < volumes[2]


def test_nics_may_send_at_once_whatever_the_dark_leaves_of_the_mean() -> None:
    """A device that is dark for most of the time does not make a machine carry more."""
    calm = late_by(1e-3)
    weak = replace(calm, calibration=replace(calm.calibration, packets_s=3e3))
    study = ocs_spectra(ocses="4", schedulers="spectra", device="polatis")
    carried_bps = weak.calibration.safe_packets_s * 8 * packet_bytes(9000)
    (point, _) = on(weak, study, glance("polatis"))
    assert 0.9 * carried_bps < 8 * 4 * RATE_BPS * point.dilation.rate <= carried_bps
    assert on(calm, study)[0].dilation.rate == SLOTS_NIC_BPS / RATE_BPS


def test_a_run_that_goes_on_has_the_points_of_its_study_whatever_the_machine() -> None:
    study = ocs_spectra(ocses="2", schedulers="spectra,rotor", meetings="drain,cut")
    there = on(late_by(9e-3), study)
    assert UNSCALED not in {each.dilation for each in there}
    assert [each.unscaled for each in there] == study.experiments


def test_what_is_predicted_needs_no_delay_that_can_be_emulated_and_is_joined_of_parts(tmp_path: Path) -> None:
    def asked(*words: str | Path) -> "CompletedProcess[str]":
        small = ("--servers", "4", "--ocses", "2", "--schedulers", "spectra,less")
        return ran("ocs_spectra", "--model-only", "--device", "rotornet", *small, *words)

    parts = [asked("--out", tmp_path / "out", "--part", f"{number}/2") for number in (1, 2)]
    joined = asked("--resume", tmp_path / "out")
    assert [done.returncode for done in (*parts, joined)] == [0] * 3, joined.stderr
    table = pd.read_csv(tmp_path / "out" / "summary.csv")
    study = ocs_spectra(servers=4, ocses="2", schedulers="spectra,less", device="rotornet")
    assert table["key"].tolist() == [each.key for each in study.experiments]
    assert (table["cct_s"] >= table["bound_s"] * (1 - 1e-9)).all()


def test_no_seed_is_no_figure(tmp_path: Path) -> None:
    done = ran("ocs_figures", "--out", tmp_path / "out", "--seeds", "0")
    assert done.returncode == 2
    assert done.stderr.startswith("0 seeds")
    assert not (tmp_path / "out").exists()


def test_the_help_names_every_device() -> None:
    told = ran("ocs_spectra", "--help", env={**os.environ, "COLUMNS": "400"})
    assert ", ".join(DEVICES) in told.stdout


@pytest.mark.drawn
def few_cases() -> list[SweptWorkload]:
    """Return what the figures need, of fewer flows, at two delays."""
    found = [case for case in cases() if (case.flows or 0) <= 16]
    return [replace(case, delays=(0.01, 0.04) if len(case.delays) > 1 else case.delays) for case in found]


@pytest.mark.parametrize("chosen", [few_cases, pytest.param(cases, marks=pytest.mark.slow)])
def test_the_papers_figures_are_planned_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: Callable[[], list[SweptWorkload]]
) -> None:
    monkeypatch.setattr(ocs_sweep, "cases", chosen)
    out = tmp_path / "out"
    done = ran("ocs_figures", "--out", out, "--seeds", "1")
    assert done.returncode == 0, done.stderr
    assert f"results: {out}/report.html" in done.stdout
    table = pd.read_csv(out / "summary.csv")
    assert set(table["workload"]) == {"gpt", "moe", "benchmark"}
    assert set(table["scheme"]) == {"spectra", "not_equalized", "eclipse", "less", "spectra_plus"}
    assert (table["makespan"] >= table["bound"] * (1 - 1e-9)).all()
    assert {path.name for path in out.glob("fig*.png")} == {
        "fig6_ai_workloads.png",
        "fig7_equalization.png",
        "fig8_noise.png",
        "fig9_benchmark.png",
        "fig10_flows.png",
    }
    report = (out / "report.html").read_text()
    assert "nothing was emulated" in report
    assert report.count("data:image/png;base64") == 5
    assert json.loads((out / "run.json").read_text())["scenario"] == "ocs_figures"
