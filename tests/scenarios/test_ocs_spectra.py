"""The scenarios of parallel OCSes without a network: bad input, and the figures that are only planned."""

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from subprocess import CompletedProcess

import pandas as pd
import pytest

from controller.circuits.devices import DEVICES, LEAST_DELAY_S, ReconfigurationDelay, device_named, real_delay
from scenarios._spectra import ocs_sweep
from scenarios._spectra.ocs_sweep import Case, cases
from testbed.run.dark_excess import DarkExcess, Excess
from testbed.run.ocs_plan import plan_of
from testbed.study.comparison import Comparison
from tests.scenarios.command import ran
from topologies.errors import ScenarioError
from traffic.workloads.ocs_workloads import SCALED, ocs_demand

RATE_BPS = 100e9


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
        (["--meetings", "wait"], "senders cannot 'wait' before a reconfiguration"),
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
        (["--workload", ""], "the name of the workload is empty"),
        (["--workload", "x" * 300], "unknown workload 'xxx"),
        (["--plan-only", "--seeds", "0"], "0 seeds"),
        (["--plan-only", "--slot-ms", "5", "--ocses", "2"], "leave no room for --slot-ms, --ocses;"),
        (["--plan-only", "--device", "polatis"], "leave no room for --device;"),
    ],
)
def test_bad_input_is_told_in_a_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    file, out = tmp_path / "matrix.txt", tmp_path / "out"
    file.write_text("0 1\n1\n")
    words = [option.format(file=file, folder=tmp_path) for option in options]
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


def late_by(dark_s: float) -> DarkExcess:
    """Return a machine whose OCSes are dark for up to so much longer than their devices."""
    return DarkExcess("m", datetime.now(UTC).isoformat(), True, (Excess(1, dark_s / 2, dark_s),))


def compared(workload: str, line_ms: float, delay: ReconfigurationDelay, ocses: list[int]) -> Comparison:
    """Return a comparison between 8 servers; it refuses delays that are too short to emulate."""
    demands = [ocs_demand(workload, seed, 8, line_ms / 1e3 * RATE_BPS / 8) for seed in range(2)]
    return Comparison("short", "", demands, ocses, ["spectra"], ["drain"], RATE_BPS, delay, 0.1)


@pytest.mark.parametrize("workload", SCALED)
@pytest.mark.parametrize("device", ["mems-2d", "rotornet", "silicon-256", "laser", "delay"])
@pytest.mark.parametrize("ocses", [[4, 1], [2]])
def test_a_delay_too_short_beside_its_demand_is_refused_with_options_that_would_do(
    workload: str, device: str, ocses: list[int]
) -> None:
    delay = ReconfigurationDelay(device, 1e-8) if device == "delay" else real_delay(device_named(device))
    with pytest.raises(ScenarioError, match=r"a delay of .* ms would be .* ms in the emulation") as refused:
        compared(workload, 1000.0, delay, ocses)
    delay_ms, line_ms = map(float, re.findall(r"([\d.e+-]+) ms or", refused.value.hint))
    for would_do in (
        compared(workload, line_ms, delay, ocses),
        compared(workload, 1000.0, ReconfigurationDelay("delay", delay_ms / 1e3), ocses),
    ):
        for count in ocses:
            for experiment in would_do.experiments(count, 2.5e-4, late_by(2e-3)):
                assert plan_of(experiment.rule).emulated_delay.mean_s >= LEAST_DELAY_S


@pytest.mark.parametrize("workload", SCALED)
@pytest.mark.parametrize("ocses", [2, 4])
def test_on_a_machine_whose_ocses_are_dark_for_longer_delays_slots_and_guards_are_longer(
    workload: str, ocses: int
) -> None:
    demand = compared(workload, 100.0, ReconfigurationDelay("delay", 1e-3), [ocses])
    automatic = replace(demand, slot_s=None)
    volumes = []
    for dark_s in (1e-3, 2.7e-3, 9.2e-3):
        (experiment, _) = automatic.experiments(ocses, 2e-4, late_by(dark_s))
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
        assert bound_s <= 15.0
        volumes.append(experiment.dilation.volume)
    assert volumes[0] <= volumes[1] < volumes[2]


def test_the_help_names_every_device() -> None:
    told = ran("ocs_spectra", "--help", env={**os.environ, "COLUMNS": "400"})
    assert ", ".join(DEVICES) in told.stdout


@pytest.mark.drawn
def few_cases() -> list[Case]:
    """Return what the figures need, of fewer flows, at two delays."""
    found = [case for case in cases() if (case.flows or 0) <= 16]
    return [replace(case, delays=(0.01, 0.04) if len(case.delays) > 1 else case.delays) for case in found]


@pytest.mark.parametrize("chosen", [few_cases, pytest.param(cases, marks=pytest.mark.slow)])
def test_the_papers_figures_are_planned_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: Callable[[], list[Case]]
) -> None:
    monkeypatch.setattr(ocs_sweep, "cases", chosen)
    out = tmp_path / "out"
    done = ran("ocs_spectra", "--out", out, "--plan-only", "--seeds", "1")
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
    assert json.loads((out / "run.json").read_text())["scenario"] == "ocs_spectra"
