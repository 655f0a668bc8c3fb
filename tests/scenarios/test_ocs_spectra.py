"""The scenario of parallel OCSes without a network: bad input, and the figures that are only planned."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.tools import CHECKOUT

SCENARIO = CHECKOUT / "scenarios" / "ocs_spectra.py"


def ran(out: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(SCENARIO), "--out", str(out), *options]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--workload", "nobody"], "nobody knows the workload 'nobody'"),
        (["--workload", "{file}"], "matrix.txt, line 2: found '1 numbers', expected 2"),
        (["--workload", "{folder}"], "is a directory"),
        (["--servers", "1"], "a demand between 1 servers"),
        (["--ocses", "2,x"], "'2,x' is no list of numbers of OCSes"),
        (["--ocses", "0"], "8 servers and 0 parallel OCSes"),
        (["--schedulers", "nobody"], "nobody knows the scheduler 'nobody'"),
        (["--meetings", "wait"], "senders cannot 'wait' in the dark"),
        (["--seeds", "0"], "0 seeds"),
        (["--delay-ms", "-1"], "a delay of -1 ms"),
        (["--slot-ms", "0"], "a slot of 0 ms"),
        (["--line-ms", "0"], "a line that carries 0 bytes"),
        (["--plan-only", "--seeds", "0"], "0 seeds"),
    ],
)
def test_bad_input_is_told_in_a_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    file, out = tmp_path / "matrix.txt", tmp_path / "out"
    file.write_text("0 1\n1\n")
    done = ran(out, *(option.format(file=file, folder=tmp_path) for option in options))
    told = done.stderr.strip().splitlines()
    assert done.returncode == 2
    assert len(told) == 1
    assert said in told[0]
    assert not out.exists()


@pytest.mark.slow
def test_the_papers_figures_are_planned_and_reported(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = ran(out, "--plan-only", "--seeds", "1")
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
