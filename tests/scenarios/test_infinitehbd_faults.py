"""The fault study of InfiniteHBD: bad input, its tables, the paper's numbers, and what is fitted."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from io import StringIO
from itertools import pairwise
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from controller.schedulers.infinitehbd_waste import ARCHITECTURES
from scenarios import infinitehbd_faults
from scenarios._infinitehbd.faults.claims import fault_claims
from scenarios._infinitehbd.faults.cluster import PAPERS_TP, TracedCluster
from scenarios._infinitehbd.faults.costs import TABLE_6, aggregate_costs, table_6_claims
from scenarios._infinitehbd.faults.plots import fault_plots
from scenarios._infinitehbd.faults.report import fault_report, sheets
from scenarios._infinitehbd.faults.study import (
    JOB_SHARES,
    PAPERS_TRACE,
    FaultStudy,
    calls_of,
    study_of,
    table_7,
)
from testbed.report.claims import Claim
from testbed.report.table import held_text
from testbed.study.output import sheet_table
from tests.computed_here import found_of
from tests.results_page import FAULT_STUDY, documented
from tests.scenarios.command import ran
from topologies.errors import ScenarioError, TraceError
from traffic.fault_trace import FaultTrace, half_nodes, stand_in_trace, timeline
from traffic.readers.infinitehbd import read_fault_trace
from traffic.workloads.datasets import FAULT_TRACE, dataset_path

SEEDS = 2
PAPER = TracedCluster()
GPUS, NODES = 2880, 720


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
        (["--trace", "{file}"], "[]", "the whole: found a list of 0, expected a list of 1 or more"),
        (["--trace", "{file}"], '[{"node_id": 7}]', "[0].node_id: found 7, expected a text"),
        (["--trace", "{folder}"], "x", "is a directory"),
        (["--trace-servers", "500"], "", "--trace-servers 500 without a trace; name yours with --trace"),
        (["--trace", "{file}", "--trace-servers", "0"], "", "a trace of 0 servers; give 1 to 10,000"),
        (["--trace", "{file}", "--servers", "401"], trace_text(), "401 servers of a trace with 400"),
        (["--servers", "4"], "", "4 servers of 8 GPUs, 8 nodes of 4; take servers for 9 to 4,096 nodes"),
        (["--node-gpus", "3"], "", "nodes of 3 GPUs in servers of 8; let a node be a server or half of one"),
        (["--server-gpus", "4", "--node-gpus", "2"], "", "nodes of 2 GPUs in servers of 4"),
        (["--tp", "6"], "", "TP-6 on nodes of 4 GPUs; take multiples of a node's GPUs"),
        (["--tp", "0"], "", "'0' of --tp; give whole numbers from 1"),
        (["--tp", "4096"], "", "TP-4096 in a cluster of 2880 GPUs; take smaller groups, or more servers"),
        (["--tp", "8,x"], "", "'x' of --tp; give whole numbers from 1"),
        (["--tp", ","], "", "the list ',' is empty"),
        (["--tp", "4,8,12,16,20,24,28,32,36"], "", "9 TP sizes; give 1 to 8"),
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


def fault_study(trace: FaultTrace, seeds: range, cluster: TracedCluster, model_seeds: int) -> FaultStudy:
    """Return a study of a trace."""
    found = found_of(calls_of(trace, seeds, cluster, model_seeds))
    return study_of(trace, seeds, cluster, found)


@pytest.fixture(scope="module")
def study() -> FaultStudy:
    """Return a small study of the synthetic stand-in."""
    return fault_study(stand_in_trace(np.random.default_rng(3)), range(SEEDS), PAPER, model_seeds=3)


def test_every_architecture_size_and_seed_is_a_row(study: FaultStudy) -> None:
    table = study.summary
    halves = table[table["reading"] != "whole servers"]
    assert len(halves) == 3 * len(ARCHITECTURES) * len(PAPERS_TP) * SEEDS
    # TP-32 on the servers themselves, of which NVL-36 cannot be made.
    assert len(table) - len(halves) == (len(ARCHITECTURES) - 1) * SEEDS
    assert not table.duplicated(["reading", "architecture", "tp_gpus", "seed"]).any()
    assert np.allclose(table["remainder_mean"] + table["above_remainder_mean"], table["waste_mean"])
    assert (table["above_remainder_mean"] > -1e-12).all()
    # GPUs are faulty, wasted or in a group.
    shares = table["faulty_mean"] + table["waste_mean"] + table["usable_mean_gpus"] / GPUS
    assert np.allclose(shares, 1)


def test_jobs_and_waiting_agree_with_the_states(study: FaultStudy) -> None:
    table = study.summary
    assert (table["job_never_pauses_gpus"] <= table["job_99_gpus"]).all()
    assert (table["job_never_pauses_gpus"] % table["tp_gpus"] == 0).all()
    waits = table[[f"waiting_{share}" for share in JOB_SHARES]].to_numpy()
    assert ((waits >= 0) & (waits <= 1)).all()
    assert (np.diff(waits, axis=1) >= 0).all()
    large = table[(table["architecture"] == "NVL-72") & (table["tp_gpus"] == 64)]
    assert (large["waiting_95"] == 1).all()  # at most 2,560 GPUs


def test_waiting_is_the_time_in_which_too_few_gpus_are_left(study: FaultStudy) -> None:
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


def test_curves_of_the_big_switch_are_the_remainder(study: FaultStudy) -> None:
    curves = study.curves
    for tp_gpus in PAPERS_TP:
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


def test_a_synthetic_trace_confirms_nothing_and_is_named_everywhere(study: FaultStudy) -> None:
    report = fault_report(study)
    captions = [sheet.caption for sheet in report.findings.sheets]
    assert captions[0].startswith("SYNTHETIC stand-in for the fault trace")
    tables = {"summary": pd.DataFrame(report.rows), **report.tables}
    assert tables.keys() == {"summary", "records", "costs"}
    for name, table in tables.items():
        assert list(table.columns) == documented(FAULT_STUDY, f"{name}.csv"), name
    assert len(report.findings.plots) == 6
    for plot in report.findings.plots:
        titled = "SYNTHETIC" in plot.draw().get_suptitle()
        assert titled or plot.name in ("waste_by_faults", "aggregate_cost")  # the fault model needs no trace
    claims = fault_claims(study)
    of_trace = [claim for claim in claims if "(trace)" in claim.source or "(jobs)" in claim.source]
    assert {claim.reason for claim in of_trace} == {"the trace is a synthetic stand-in"}
    assert {claim.verdict for claim in of_trace} == {"not comparable"}


def test_what_is_fitted_to_the_paper_is_labelled(study: FaultStudy) -> None:
    for sheet in sheets(study):
        cells = {line.cells[0] for block in sheet.blocks for line in block.lines}
        assert "TPUv4 blocks" not in cells
        if "joint" in sheet.caption:
            assert "fitted to the paper" in sheet.caption
    fitted = [claim for claim in fault_claims(study) if "blocks" in claim.text]
    assert len(fitted) == 2
    assert {claim.verdict for claim in fitted} == {"not comparable"}


def test_costs_add_what_the_curves_waste_and_confirm_nothing(study: FaultStudy) -> None:
    costs = aggregate_costs(study.curves, PAPER)
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


def of_the_paper(study: FaultStudy, summary: pd.DataFrame) -> list[Claim]:
    """Return the claims of a study as if it were of the paper's trace."""
    nodes, days, faults = PAPERS_TRACE
    kept = np.resize(np.arange(len(study.trace.node)), faults)
    trace = replace(
        study.trace, synthetic=False, nodes=nodes, window_days=days, node=study.trace.node[kept],
        start_days=study.trace.start_days[kept], end_days=study.trace.end_days[kept],
    )  # fmt: skip
    return fault_claims(replace(study, trace=trace, summary=summary))


@pytest.mark.parametrize(
    ("factors", "ruling"),
    [
        ({}, "holds"),
        ({"independent": 2}, "not comparable"),
        ({"joint": 2}, "not comparable"),
        ({"joint": 2, "independent": 2, "iid": 2}, "does not hold"),
    ],
)
def test_a_claim_is_ruled_over_all_readings(
    study: FaultStudy, factors: dict[str, float], ruling: str
) -> None:
    summary = study.summary.copy()
    waste = summary["reading"].map(factors).fillna(1.0) * 0.0053
    summary.loc[summary["architecture"] == "InfiniteHBD K=3", "waste_mean"] = waste
    (claim,) = [c for c in of_the_paper(study, summary) if c.text == "TP-32: K=3 wastes 0.53 %"]
    assert claim.verdict == ruling
    assert ("it depends on what the paper leaves open" in claim.reason) == (ruling == "not comparable")
    assert claim.measured == pytest.approx(0.53 * factors.get("joint", 1))


@pytest.mark.parametrize(
    ("waits", "ruling"),
    [
        ({80: 1, 85: 1, 90: 1, 95: 1}, "holds"),
        ({80: 0, 85: 0, 90: 0, 95: 1}, "holds"),  # where no job waits nothing is said
        ({80: -1, 85: -1, 90: -1, 95: -1}, "does not hold"),
        ({80: 1, 85: 1, 90: 1, 95: -1}, "not comparable"),  # the paper does not say how large jobs are
        ({80: 0, 85: 0, 90: 0, 95: 0}, "not comparable"),
    ],
)
def test_who_waits_longest_is_ruled_over_all_job_sizes(
    study: FaultStudy, waits: dict[int, int], ruling: str
) -> None:
    summary = study.summary.copy()
    worst = summary["architecture"].isin(["SiP-Ring", "TPUv4 mod", "TPUv4 blocks"])
    unfit = (summary["architecture"] == "NVL-36") & (summary["tp_gpus"] == 64)
    for share, more in waits.items():
        summary[f"waiting_{share}"] = 0.5 * (more != 0) + 0.1 * more * worst
        summary.loc[unfit, f"waiting_{share}"] = 1.0  # it cannot hold a group, whatever the job's size
    found = [claim for claim in of_the_paper(study, summary) if "SiP-Ring and TPUv4" in claim.text]
    assert [claim.verdict for claim in found] == [ruling]


def test_an_architecture_that_holds_no_group_is_left_out_of_claims(study: FaultStudy) -> None:
    summary = study.summary.copy()
    summary.loc[summary["architecture"] == "NVL-36", "waste_mean"] = 0.11
    summary.loc[(summary["architecture"] == "NVL-36") & (summary["tp_gpus"] == 64), "waste_mean"] = 0.99
    (claim,) = [c for c in of_the_paper(study, summary) if c.text == "NVL-36 wastes about 11 % for TP >= 16"]
    assert claim.verdict == "holds"
    assert claim.measured == pytest.approx(11)
    assert claim.reason.endswith("no TP-64 group fits into NVL-36")


def test_what_follows_from_the_papers_inputs_is_arithmetic_and_not_counted(study: FaultStudy) -> None:
    claims = {claim.text: claim for claim in fault_claims(study)}
    sums = {text for text, claim in claims.items() if claim.verdict == "arithmetic"}
    assert "a node of 4 is faulty with 50.21 % if its server is" in sums
    assert "table 7: the upper bound of the waste ratio, every digit" in sums
    assert sums > {"K=2 costs 62.84 % of TPUv4", "31 % of the cost of NVL-72", "1.59x cheaper than TPUv4"}
    assert held_text(list(claims.values())).endswith(f"arithmetic: {len(sums)}")


def test_table_6_has_its_printed_digits_but_for_one_that_contradicts_its_parts() -> None:
    failing = [claim for claim in table_6_claims() if claim.verdict != "arithmetic"]
    assert [(claim.text, claim.verdict) for claim in failing] == [
        ("table 6: watts, every digit", "does not hold")
    ]
    assert failing[0].reason == "NVL-36x2 has 152.13, printed 150.33"
    # By hand from table 8: 36 switches of 275 W, 6,480 cables of 0.1 W and 162 of 2.5 W, for 72 GPUs.
    assert round((36 * 275 + 6480 * 0.1 + 162 * 2.5) / 72, 3) == 152.125
    assert TABLE_6["NVL-36x2"][1] == "150.33"


def test_table_6_is_shown_with_both_numbers_where_they_differ(study: FaultStudy) -> None:
    (sheet,) = [sheet for sheet in sheets(study) if sheet.words == ("table 6",)]
    rows = {line.cells[0]: line.cells[1:] for block in sheet.blocks for line in block.lines}
    assert rows["InfiniteHBD K=2"] == ["2626.80", "48.10", "3.28", "0.06"]
    assert rows["NVL-36x2"] == ["17924.00", "(150.33) 152.13", "19.92", "0.17"]
    assert list(rows) == [*TABLE_6, "Alibaba HPN"]


@given(st.integers(9, 2048), st.integers(1, 100), st.sampled_from([4, 8, 12, 32]))
def test_jobs_and_faults_are_exact_shares(servers: int, percent: int, tp_gpus: int) -> None:
    cluster = TracedCluster(servers=servers, tp_gpus=(tp_gpus,))
    share = Fraction(percent, 100)
    groups = (share * cluster.gpus) // tp_gpus
    assert cluster.job_gpus(percent, tp_gpus) == groups * tp_gpus
    assert abs(cluster.faulty_nodes(percent) - share * cluster.nodes) <= Fraction(1, 2)


def test_another_cluster_is_studied_and_not_compared_with_the_paper() -> None:
    cluster = TracedCluster(servers=400, node_gpus=8, tp_gpus=(8, 16, 24))
    found = fault_study(stand_in_trace(np.random.default_rng(3)), range(1), cluster, model_seeds=2)
    rows = found.summary.set_index(["architecture", "tp_gpus"])
    assert set(found.summary["reading"]) == {"whole servers"}
    # 3,200 GPUs are no whole number of HBDs of 36, 72 or 576, nor of rings of 24, nor 64 of blocks of 24.
    assert not {"NVL-36", "NVL-72", "NVL-576"} & set(found.summary["architecture"])
    assert ("SiP-Ring", 8) in rows.index
    assert not {("SiP-Ring", 24), ("TPUv4 blocks", 24)} & set(rows.index)
    shares = rows["faulty_mean"] + rows["waste_mean"] + rows["usable_mean_gpus"] / 3200
    assert np.allclose(shares, 1)
    drawn = {plot.name: plot.draw() for plot in fault_plots(found)}
    assert [axes.get_title(loc="left") for axes in drawn["waste_cdf"].axes] == ["TP-8", "TP-16", "TP-24"]
    labels = [str(line.get_label()) for line in drawn["aggregate_cost"].axes[0].lines]
    assert labels == ["InfiniteHBD K=2", "InfiniteHBD K=3"]
    caption = sheets(found)[0].caption
    assert "NVL-72: 400 nodes of 8 GPUs cannot be divided into HBDs of 72 GPUs." in caption
    claims = fault_claims(found)
    compared = [claim for claim in claims if "table" not in claim.text and claim.verdict != "arithmetic"]
    assert {claim.reason for claim in compared} == {"another cluster than the paper's"}
    assert {claim.verdict for claim in compared} == {"not comparable"}


def test_fewer_tp_sizes_leave_claims_about_others_out(study: FaultStudy) -> None:
    few = replace(study, cluster=TracedCluster(tp_gpus=(16, 32)))
    claims = {claim.text: claim for claim in fault_claims(few)}
    longest = claims["TP-32, TP-64: jobs wait longest on SiP-Ring and TPUv4"]
    assert (longest.ran, longest.reason) == (False, "not run: TP-64")
    assert claims["TP-32: K=3 wastes 0.53 %"].ran


def test_a_users_trace_is_not_the_papers(study: FaultStudy) -> None:
    theirs = replace(study, trace=replace(study.trace, synthetic=False))
    assert not theirs.of_the_papers_trace
    (claim,) = [claim for claim in fault_claims(theirs) if claim.text == "TP-32: K=3 wastes 0.53 %"]
    assert (claim.verdict, claim.reason) == ("not comparable", "another trace than the paper's")


def test_a_cluster_of_fewer_or_more_nodes_than_a_ring_takes_is_refused() -> None:
    assert TracedCluster(servers=5, tp_gpus=(4,)).nodes == 10
    with pytest.raises(ScenarioError, match="8 nodes of 4"):
        TracedCluster(servers=4)
    with pytest.raises(ScenarioError, match="4098 nodes of 4; take servers for 9 to 4,096 nodes"):
        TracedCluster(servers=2049)


def test_tables_fit_a_terminal_of_80_columns_whole(study: FaultStudy) -> None:
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
    assert {path.suffix for path in out.glob("*.*")} == {".png", ".csv", ".json", ".html"}
    settings = json.loads((out / "run.json").read_text())["settings"]
    assert settings["cluster"] == {
        "servers": 360, "server_gpus": 8, "nodes": 720, "node_gpus": 4, "tp_gpus": [8, 16, 32, 64],
    }  # fmt: skip
    assert settings["trace"] == {
        "name": "trace faults.json", "synthetic": False, "servers": 400, "window_days": 297.0, "faults": 60,
    }  # fmt: skip
