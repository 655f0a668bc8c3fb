"""The scenario of parallel OCSes, small: real circuits, a table, and a report with its verdicts."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from controller.circuits.devices import device_named, real_delay
from testbed.experiment.ocs_plan import off_diagonal, plan_of
from testbed.report.run_json import experiments_of
from tests.emulation.machine import Machine
from tests.tools import CHECKOUT, need_sandbox

# At rates that only real CPUs carry.
pytestmark = [
    pytest.mark.emulation,
    pytest.mark.real_cpus,
    pytest.mark.early,
    pytest.mark.usefixtures("modest"),
]

COMMAND = [sys.executable, str(CHECKOUT / "scenarios" / "ocs_spectra.py")]
SMALL = ["--schedulers", "spectra,rotor", "--slot-ms", "120", "--emulated-rate", "20"]
DARK, KEPT = "all circuits go dark", "Circuits that two slots share stay lit between them."
SCHEMES = ["spectra", "rotor", "big switch"]


def ran(out: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run the scenario in a sandbox of its own."""
    need_sandbox()
    done = subprocess.run(
        [*COMMAND, *SMALL, "--out", str(out), *options],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_small_run_leaves_a_table_plots_and_a_report(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = ran(out, "--workload", "moe", "--servers", "4", "--ocses", "1,2")
    table = pd.read_csv(out / "summary.csv")
    workloads = ["moe, 1 OCS", "moe, 2 OCSes"]
    shown = table["circuits"].fillna(table["scheme"])
    assert list(zip(table["workload"], shown, strict=True)) == [
        (workload, scheme) for workload in workloads for scheme in SCHEMES
    ]
    executed = table[table["name"] != "big switch"]
    assert (executed["missing_bytes"] == 0).all()
    assert not executed["partial"].any()
    assert (executed["cct_s"] >= 0.98 * executed["bound_s"]).all()
    sound = executed[executed["verdict"] == "faithful"]
    assert (sound["cct_s"] <= 1.15 * sound["predicted_s"]).all()
    assert all(words in done.stdout for words in (*workloads, *SCHEMES, f"results: {out}/report.html"))
    files = {path.name for path in out.iterdir()}
    tables = {"nodes.csv", "records.csv", "summary.csv", "summary.parquet", "run.json", "report.html"}
    fabrics = {"fabric.png", *(f"fabric_{which}.png" for which in (2, 3, 4))}  # OCSes and a big switch, twice
    plots = {*fabrics, "timeline_1.png", "timeline_2.png", "plan_against_measurement.png"}
    assert files == tables | plots | {"points", "traces", "SHA256SUMS"}
    report = (out / "report.html").read_text()
    assert report.count("data:image/png;base64") == len(plots)
    for said in (
        *workloads,
        "no byte is missing",
        "Can it be believed?",
        "emulated_delay_s",
        "openvswitch",
        DARK,
    ):
        assert said in report


@pytest.mark.slow
def test_a_device_whose_delays_vary_carries_every_byte_and_is_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    demand = ["--workload", "moe", "--servers", "4", "--ocses", "2", "--schedulers", "spectra"]
    done = ran(out, *demand, "--device", "polatis-nic", "--varying")
    table = pd.read_csv(out / "summary.csv")
    executed = table[table["name"] != "big switch"]
    assert (executed["missing_bytes"] == 0).all()
    assert set(executed["device"]) == {"polatis-nic"}
    assert executed["delay_s"].tolist() == [pytest.approx(46.75e-3 + 5.67)]
    assert (executed["cct_s"] >= 0.98 * executed["predicted_s"]).all()
    assert "OCSes as polatis-nic" in done.stdout
    assert "each standing for polatis-nic (" in (out / "report.html").read_text()
    kept = [each for each in experiments_of(out / "run.json") if each.has_slots]
    polatis = real_delay(device_named("polatis-nic"), varying=True)
    assert [plan_of(each.rule).setup.delay for each in kept] == [polatis]


@pytest.mark.slow  # test_ocs.py keeps light between slots, test_repeat.py carries out an emulation again
def test_a_matrix_file_decides_the_servers_and_every_byte_of_it_arrives(
    tmp_path: Path, machine: Machine
) -> None:
    out, file = tmp_path / "out", tmp_path / "matrix.txt"
    matrix = np.array([[0, 50, 20], [30, 5, 40], [60, 0, 0]]) * 10_000_000
    file.write_text("\n".join(" ".join(map(str, row)) for row in matrix))
    done = ran(out, "--workload", str(file), "--ocses", "2", "--servers", "8", "--partial")
    assert done.stderr.startswith("trace matrix.txt is between 3 servers, so there are 3\n")
    assert KEPT in " ".join(done.stdout.split())
    records = pd.read_csv(out / "records.csv")
    records["under"] = records["circuits"].str.removesuffix(", partial").fillna(records["scheme"])
    emulated = records[records["backend"] == "emulated"]
    carried = emulated.groupby(["under", "source", "destination"])["bytes"].sum()
    for scheme in SCHEMES:
        assert {(i, j): int(matrix[i, j]) for i, j in np.argwhere(matrix > 0) if i != j} == carried[
            scheme
        ].to_dict()
    run = json.loads((out / "run.json").read_text())
    assert len(run["experiments"]) == len(list((out / "points").iterdir())) == len(SCHEMES)
    (step,) = run["jobs"][0]["nodes"]
    assert step["matrix_bytes"] == off_diagonal(matrix).tolist()
    again = tmp_path / "again"
    command = [sys.executable, str(CHECKOUT / "scenarios" / "repeat.py"), str(out), "--out", str(again)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    report = (again / "report.html").read_text()
    assert machine.busy or report.count("as long as before") == len(SCHEMES)
    kept = [each for each in experiments_of(again / "run.json") if each.has_slots]
    assert kept
    assert all(plan_of(each.rule).setup.partial for each in kept)
    assert experiments_of(again / "run.json") == experiments_of(out / "run.json")


@pytest.mark.slow
def test_what_a_users_scheduler_leaves_over_goes_over_packets(tmp_path: Path, machine: Machine) -> None:
    out, own = tmp_path / "out", "tests.testbed.rest_cases:partly"
    options = ["--workload", "moe", "--servers", "4", "--ocses", "2", "--rest", "ecmp", "--schedulers", own]
    done = subprocess.run(
        [*COMMAND, *options, "--slot-ms", "60", "--emulated-rate", "20", "--out", str(out)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(out / "summary.csv")
    mine = table[table["circuits"] == own]
    assert (mine["missing_bytes"] == 0).all()
    assert machine.busy or mine["over_predicted"].between(0.9, 1.2).all()
    records = pd.read_csv(out / "records.csv").set_index("circuits").loc[own]
    assert records["path"].str.contains("eps0").any()
