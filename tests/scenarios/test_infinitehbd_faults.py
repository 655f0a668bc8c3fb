"""The fault study of InfiniteHBD: bad input, its tables, the paper's numbers, and what is fitted."""

import json
import math
from dataclasses import replace
from datetime import datetime
from io import StringIO
from itertools import pairwise
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from scenarios import infinitehbd_faults
from scenarios._infinitehbd.claims import fault_claims
from scenarios._infinitehbd.costs import aggregate_costs
from scenarios._infinitehbd.hbd import ARCHITECTURES
from scenarios._infinitehbd.report import FaultResults, sheets
from scenarios._infinitehbd.study import GPUS, JOB_SHARES, NODES, TP_GPUS, Study, fault_study, table_7
from scenarios._output import sheet_table
from testbed.report.run_json import Run
from tests.results_page import FAULT_STUDY, documented
from tests.scenarios.command import ran
from topologies.errors import TraceError
from traffic.fault_trace import half_nodes, stand_in_trace, timeline
from traffic.readers.infinitehbd import read_fault_trace
from traffic.workloads.datasets import FAULT_TRACE, dataset_path

SEEDS = 2


def studied(*options: str | Path) -> "CompletedProcess[str]":
    return ran("infinitehbd_faults", *options)


def trace_text(faults: int = 60) -> str:
    """Return a small fault trace: one server after the other, each for two days."""
    rows = [(f"server{n % 30}", 5.0 * n, "start") for n in range(faults)]
    rows += [(node, time + 2, "end") for node, time, _ in rows]
    return json.dumps(
        [
            {"node_id": node, "event_time": time, "event_type": f"fault_{kind}"}
            for node, time, kind in sorted(rows, key=lambda row: row[1])
        ]
    )


@pytest.mark.parametrize(
    ("options", "text", "said"),
    [
        (["--seeds", "0"], "", "0 seeds; take 1 to 10000"),
        (["--trace", "/nonexistent"], "", "/nonexistent does not exist"),
        (["--trace", "{file}"], "hello", "line 1: Expecting value"),
        (["--trace", "{file}"], "[]", "is not a JSON list of events"),
        (["--trace", "{file}"], '[{"node_id": 7}]', "event 0: found something else"),
        (["--trace", "{folder}"], "x", "is a directory"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, options: list[str], text: str, said: str) -> None:
    file, out = tmp_path / "trace.json", tmp_path / "out"
    file.write_text(text)
    words = [option.format(file=file, folder=tmp_path) for option in options]
    done = studied("--out", out, *words)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2
    assert len(lines) == 1
    assert said in lines[0]
    assert not out.exists()


def test_help_is_the_docstring() -> None:
    done = studied("--help")
    words = " ".join(done.stdout.split())
    assert done.returncode == 0
    assert "nearly all of it the remainder that one big switch has too" in words
    assert "--trace" in words
    assert "--seeds" in words


def test_without_a_trace_the_stand_in_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(name: str, trace: Path | None = None) -> Path:
        raise TraceError(f"the data set {name} is not on this machine", "get it")

    monkeypatch.setattr(infinitehbd_faults, "dataset_path", absent)
    assert infinitehbd_faults.fault_trace(None).synthetic
    said = capsys.readouterr().err
    assert FAULT_TRACE in said
    assert "going on with a synthetic stand-in" in said
    with pytest.raises(TraceError, match="not on this machine"):
        infinitehbd_faults.fault_trace(Path("faults.json"))


@pytest.fixture(scope="module")
def study() -> Study:
    """Return a small study of the synthetic stand-in."""
    return fault_study(stand_in_trace(np.random.default_rng(3)), range(SEEDS), model_seeds=3)


def test_every_architecture_size_and_seed_is_a_row(study: Study) -> None:
    table = study.summary
    fitted = table[table["reading"] == "joint"]
    assert len(fitted) == len(ARCHITECTURES) * len(TP_GPUS) * SEEDS
    # TP-32 in two other readings and on the servers themselves, of which NVL-36 cannot be made.
    assert len(table) - len(fitted) == (3 * len(ARCHITECTURES) - 1) * SEEDS
    assert not table.duplicated(["reading", "architecture", "tp_gpus", "seed"]).any()
    assert np.allclose(table["remainder_mean"] + table["above_remainder_mean"], table["waste_mean"])
    assert (table["above_remainder_mean"] > -1e-12).all()
    # GPUs are faulty, wasted or in a group.
    shares = table["faulty_mean"] + table["waste_mean"] + table["usable_mean_gpus"] / GPUS
    assert np.allclose(shares, 1)


def test_jobs_and_waiting_agree_with_the_states(study: Study) -> None:
    table = study.summary
    assert (table["job_never_pauses_gpus"] <= table["job_99_gpus"]).all()
    assert (table["job_never_pauses_gpus"] % table["tp_gpus"] == 0).all()
    waits = table[[f"waiting_{share}" for share in JOB_SHARES]].to_numpy()
    assert ((waits >= 0) & (waits <= 1)).all()
    assert (np.diff(waits, axis=1) >= 0).all()
    row = table[(table["architecture"] == "NVL-72") & (table["tp_gpus"] == 64) & (table["seed"] == 1)].iloc[0]
    assert row["waiting_95"] == 1  # at most 2,560 GPUs


def test_waiting_is_the_time_in_which_too_few_gpus_are_left(study: Study) -> None:
    trace, seed, tp_gpus = study.trace, 1, 32
    nodes = half_nodes(trace, 360, np.random.default_rng(seed)).with_repair(trace.mean_repair_days)
    lengths, states = timeline(nodes)
    waited = 0.0
    for length, state in zip(lengths, states, strict=True):
        rings = state.reshape(-1, tp_gpus // 4)
        waited += length * (tp_gpus * (~rings.any(axis=1)).sum() < 0.95 * GPUS // tp_gpus * tp_gpus)
    table = study.summary
    here = (table["architecture"] == "SiP-Ring") & (table["tp_gpus"] == tp_gpus) & (table["seed"] == seed)
    found = table.loc[here & (table["reading"] == "joint"), "waiting_95"].item()
    assert found == pytest.approx(waited / trace.window_days)
    assert 0 < found < 1


def test_curves_of_the_big_switch_are_the_remainder(study: Study) -> None:
    curves = study.curves
    for tp_gpus in TP_GPUS:
        here = curves[(curves["architecture"] == "big switch") & (curves["tp_gpus"] == tp_gpus)]
        model = here[here["kind"] == "faulty nodes"]
        faulty = np.rint(model["x"] * NODES).astype(int)
        assert faulty.tolist() == list(range(109))
        assert np.allclose(model["waste"], (GPUS - 4 * faulty) % tp_gpus / GPUS)
        assert (model["low"] == model["high"]).all()
        assert here.loc[here["kind"] == "share of time", "waste"].is_monotonic_increasing


def test_table_7_has_the_printed_digits_and_is_simulated() -> None:
    cells = table_7()
    printed = [cell.printed for cell in cells]
    assert [cell.digits for cell in cells] == printed
    assert printed == ["7.54 %", "0.28 %", "1.02e-04", "25.02 %", "1.81 %", "0.13 %"]
    for cell in cells:
        if cell.hops == 4:
            assert math.isnan(cell.simulated)
        else:
            assert cell.simulated == pytest.approx(cell.exact, rel=0.02 if cell.hops == 2 else 0.12)


def test_a_synthetic_trace_confirms_nothing_and_is_named_everywhere(tmp_path: Path, study: Study) -> None:
    run = Run("infinitehbd_faults", "faults", ["python"], datetime(2026, 1, 2))
    with FaultResults(run, out=tmp_path / "out") as results:
        results.add(study)
    report = (results.path / "report.html").read_text()
    assert "SYNTHETIC stand-in for the fault trace" in report
    assert report.count("data:image/png;base64") == 6
    assert len(pd.read_csv(results.path / "summary.csv")) == len(study.summary)
    assert len(pd.read_csv(results.path / "records.csv")) == len(study.curves)
    for file in results.path.glob("*.csv"):
        assert list(pd.read_csv(file, nrows=0).columns) == documented(FAULT_STUDY, file.name), file.name
    for plot in results.page().plots:
        titled = "SYNTHETIC" in plot.draw().get_suptitle()
        assert titled or plot.name in ("waste_by_faults", "aggregate_cost")  # the fault model needs no trace
    rulings = {claim.source: claim.verdict for claim in fault_claims(study)}
    assert rulings["InfiniteHBD, 1 and 6.2 (trace)"] == "not comparable"
    assert rulings["InfiniteHBD, appendix C"] == "holds"


def test_what_is_fitted_to_the_paper_is_labelled(study: Study) -> None:
    for sheet in sheets(study):
        cells = {line.cells[0] for block in sheet.blocks for line in block.lines}
        assert "TPUv4 blocks" not in cells
        if "joint" in sheet.caption:
            assert "fitted to the paper" in sheet.caption
    fitted = [claim for claim in fault_claims(study) if "blocks" in claim.text]
    assert len(fitted) == 2
    assert {claim.verdict for claim in fitted} == {"not comparable"}


def test_costs_add_what_the_curves_waste_and_confirm_nothing(study: Study) -> None:
    costs = aggregate_costs(study.curves, 32)
    assert costs.index.tolist() == [count / NODES for count in range(109)]
    assert [round(costs[name].iloc[0]) for name in costs] == [2627, 3741, 4179, 11612, 11612, 27038]
    curves = study.curves
    wasted = {
        name: curves.loc[
            (curves["kind"] == "faulty nodes") & (curves["tp_gpus"] == 32) & (curves["architecture"] == name),
            "waste",
        ].to_numpy()
        for name in costs
    }
    for a, b in pairwise(costs):  # what differs beside the interconnect is idle GPUs
        grows = (costs[a] - costs[b]).to_numpy() - (costs[a] - costs[b]).iloc[0]
        idle = (wasted[a] - wasted[b]) - (wasted[a] - wasted[b])[0]
        assert np.allclose(grows, 28_000 * idle)
    said = {claim.text: claim for claim in fault_claims(study) if "aggregate cost" in claim.source}
    assert {claim.verdict for claim in said.values()} == {"not comparable"}
    assert all("fitted to the paper" in claim.reason for claim in said.values())
    crossing = said["K=2 costs less than K=3 below 12.1 % of faulty nodes"].measured
    at = costs.index.get_loc(crossing / 100)
    assert (costs["InfiniteHBD K=2"] <= costs["InfiniteHBD K=3"]).iloc[:at].all()
    assert (costs["InfiniteHBD K=2"] > costs["InfiniteHBD K=3"]).iloc[at]


@pytest.mark.parametrize(
    ("factors", "ruling"),
    [
        ({}, "holds"),
        ({"independent": 2}, "not comparable"),
        ({"joint": 2}, "not comparable"),
        ({"joint": 2, "independent": 2, "iid": 2}, "does not hold"),
    ],
)
def test_a_claim_is_ruled_over_all_readings(study: Study, factors: dict[str, float], ruling: str) -> None:
    summary = study.summary.copy()
    waste = summary["reading"].map(factors).fillna(1.0) * 0.0053
    summary.loc[summary["architecture"] == "InfiniteHBD K=3", "waste_mean"] = waste
    measured = replace(study, trace=replace(study.trace, synthetic=False), summary=summary)
    (claim,) = [claim for claim in fault_claims(measured) if claim.text == "TP-32: K=3 wastes 0.53 %"]
    assert claim.verdict == ruling
    assert claim.measured == pytest.approx(0.53 * factors.get("joint", 1))


def test_tables_fit_a_terminal_of_80_columns_whole(study: Study) -> None:
    for sheet in sheets(study):
        console = Console(width=80, record=True, file=StringIO())
        console.print(sheet_table(sheet))
        lines = console.export_text().splitlines()
        assert max(map(len, lines)) <= 80
        for cells in (line.cells for block in sheet.blocks for line in block.lines):
            assert any(line.split() == " ".join(cells).split() for line in lines), cells


def test_waste_on_the_real_trace_is_within_the_bars() -> None:
    try:
        trace = read_fault_trace(dataset_path(FAULT_TRACE))
    except TraceError as error:
        pytest.skip(str(error))
    means: dict[str, list[float]] = {"InfiniteHBD K=3": [], "NVL-72": []}
    for seed in range(20):
        lengths, states = timeline(half_nodes(trace, 360, np.random.default_rng(seed)))
        for name, values in means.items():
            values.append(100 * np.average(ARCHITECTURES[name](states, 4, 32), weights=lengths) / GPUS)
    assert 0.50 <= np.mean(means["InfiniteHBD K=3"]) <= 0.55
    assert 9.9 <= np.mean(means["NVL-72"]) <= 10.2


@pytest.mark.drawn
@pytest.mark.early
def test_a_run_prints_tables_and_leaves_results(tmp_path: Path) -> None:
    file, out = tmp_path / "faults.json", tmp_path / "out"
    file.write_text(trace_text())
    done = studied("--trace", file, "--seeds", "1", "--out", out)
    assert done.returncode == 0, done.stderr
    assert f"results: {out}/report.html" in done.stdout
    assert "Trace faults.json, 1 seed." in done.stdout
    assert "SYNTHETIC" not in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines()[:-1])
    assert "…" not in done.stdout  # nothing was cropped
    assert {path.suffix for path in out.iterdir()} == {".png", ".csv", ".json", ".html"}
    settings = json.loads((out / "run.json").read_text())["settings"]
    assert settings["trace"] == {
        "name": "trace faults.json", "synthetic": False, "servers": 400, "window_days": 297.0, "faults": 60,
    }  # fmt: skip
