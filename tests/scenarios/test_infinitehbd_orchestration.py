"""Figures 17a to 17c: shares of small clusters by hand, what is fitted rules nothing, and bad input."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from controller.schedulers.infinitehbd import (
    best_cp_groups,
    cp_groups,
    orchestrate,
    rank_crossing_share,
)
from scenarios._infinitehbd.orchestration.placements import OrchestratedCluster
from scenarios._infinitehbd.orchestration.report import orchestration_claims, plots, sheets
from scenarios._infinitehbd.orchestration.study import OrchestrationStudy, calls_of, study_of
from tests.computed_here import found_of
from tests.results_page import ORCHESTRATION, documented
from tests.scenarios.command import ran

SMALL = OrchestratedCluster(nodes=64, domain_nodes=32)
SEEDS = 2


def studied(cluster: OrchestratedCluster, seeds: range) -> OrchestrationStudy:
    """Return the figures of a cluster."""
    return study_of(cluster, seeds, found_of(calls_of(cluster, seeds)))


@pytest.fixture(scope="module")
def study() -> OrchestrationStudy:
    """Return the figures of a cluster of 64 nodes."""
    return studied(SMALL, range(SEEDS))


def test_every_point_placement_and_seed_is_a_row(study: OrchestrationStudy) -> None:
    table = study.table
    assert table.groupby("figure").size().to_dict() == {"17a": 24, "17b": 36, "17c": 60}
    assert not table.duplicated(["figure", "gpus", "job", "faulty", "placement", "seed"]).any()
    assert (table["least"] <= table["best"] + 1e-12).all()
    assert (table["best"] <= table["ranked"] + 1e-12).all()
    assert table[table["figure"] == "17a"]["gpus"].unique().tolist() == [256, 512, 1024, 2048]
    assert (table["ranked"] > 0).any()


def test_figures_agree_where_they_have_the_same_point(study: OrchestrationStudy) -> None:
    same = study.table.query("gpus == 512 and job == 90 and faulty == 5").drop(columns="figure")
    assert len(same) == 2 * len(same.drop_duplicates()) == 2 * 3 * SEEDS


def test_a_point_is_what_its_job_counts(study: OrchestrationStudy) -> None:
    faulty = set(np.random.default_rng(1).choice(64, 6, replace=False).tolist())  # 9 % of the nodes
    groups = 64 * 8 * 85 // 100 // 32 // 2 * 2
    found = orchestrate(SMALL.tree, faulty, hops=3, gpus_per_node=8, tp_gpus=32, job_gpus=32 * groups)
    assert found is not None
    job = cp_groups(SMALL.tree, found, groups)
    (row,) = study.table.query(
        "figure == '17c' and faulty == 9 and placement == 'optimised' and seed == 1"
    ).to_dict("records")
    assert row["ranked"] == rank_crossing_share(SMALL.tree, job)
    assert row["best"] == rank_crossing_share(SMALL.tree, best_cp_groups(SMALL.tree, job))
    nodes = {node for cp in job for group in cp for node in group}
    assert row["least"] == sum((node ^ 1) not in nodes for node in nodes) / len(nodes)


def test_tables_have_means_and_deviations_over_the_seeds(study: OrchestrationStudy) -> None:
    by_job = sheets(study)[1]
    assert [block.title for block in by_job.blocks] == ["optimised", "unconstrained", "shuffled"]
    line = by_job.blocks[1].lines[-1]
    rows = study.table.query("figure == '17b' and job == 90 and placement == 'unconstrained'")
    cells = [
        f"{100 * rows[name].mean():.2f} ±{100 * rows[name].std():.2f}" for name in ("least", "best", "ranked")
    ]
    assert list(line.cells) == ["90", *cells, "~ 10"]


def test_claims_measure_what_the_tables_have_and_rule_nothing(study: OrchestrationStudy) -> None:
    claims = orchestration_claims(study)
    assert {claim.verdict for claim in claims} == {"not comparable"}
    assert all("another cluster than the one fitted to the paper" in claim.reason for claim in claims)
    rows = study.table.query("figure == '17c' and faulty < 7 and placement == 'optimised'")
    assert claims[-1].measured == pytest.approx(100 * rows.groupby("faulty")["least"].mean().max())


def test_an_orchestrated_job_is_counted_as_the_claims_say() -> None:
    """A table of one's own, in which each claim's number is known."""
    rows = [
        {"figure": figure, "gpus": gpus, "job": job, "faulty": faulty, "placement": placement, "seed": 0,
         "verdict": "model", "least": least / 100, "best": math.nan, "ranked": 1.0}
        for placement, scale in (("optimised", 1), ("unconstrained", 2), ("shuffled", 3))
        for figure, gpus, job, faulty, least in [
            ("17a", 4096, 90, 5, 1.0 * scale), ("17a", 8192, 90, 5, 3.5 * scale),
            ("17b", 8192, 80, 5, 4.0 * scale), ("17b", 8192, 90, 5, 2.5 * scale),
            *(("17c", 8192, 85, faulty, faulty * scale) for faulty in (1, 6, 7)),
        ]
    ]  # fmt: skip
    claims = orchestration_claims(OrchestrationStudy(OrchestratedCluster(), 1, pd.DataFrame(rows)))
    assert [claim.measured for claim in claims] == pytest.approx([2.5, 5, 2.5, 1, 6])
    assert all(claim.reason.startswith("fitted to the paper: least") for claim in claims)
    assert not any("best" in claim.reason for claim in claims), "it is not known"


def test_larger_tors_have_no_best_and_no_panel_for_it() -> None:
    found = studied(OrchestratedCluster(nodes=128, tor_nodes=4, domain_nodes=64), range(1))
    assert found.table["best"].isna().all()
    for sheet, plot in zip(sheets(found), plots(found), strict=True):
        assert {line.cells[2] for block in sheet.blocks for line in block.lines} == {"-"}
        assert "X_best is known for two nodes under a ToR only" in plot.caption
        assert [axes.get_title("left") for axes in plot.draw().axes] == ["least, not attainable", "ranked"]


@pytest.mark.drawn
def test_a_run_prints_tables_and_leaves_results(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = ran(
        "infinitehbd_orchestration", "--nodes", "64", "--domain-nodes", "32", "--seeds", "1", "--out", out
    )
    assert done.returncode == 0, done.stderr
    assert all(len(line) <= 80 for line in done.stdout.splitlines()[:-1])
    assert {path.name for path in out.glob("*.png")} == {f"figure_17{letter}.png" for letter in "abc"}
    assert list(pd.read_csv(out / "summary.csv", nrows=0).columns) == documented(ORCHESTRATION, "summary.csv")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--seeds", "0"], "0 seeds; take 1 to 10000"),
        (["--nodes", "256"], "1 domain, of which figure 17a needs half too; give nodes in an even number"),
        (["--tor-nodes", "3"], "under ToRs of 3; let a ToR's nodes divide"),
        (["--tor-nodes", "1"], "under a ToR of one node nothing stays"),
        (["--tp", "12"], "TP groups of 12 GPUs on nodes of 8"),
        (["--tp", "0"], "TP groups of 0 GPUs"),
        (["--tp", "4096"], "a job of 0 TP groups does not fit around 26 of 512 nodes"),
        (["--hops", "0"], "K = 0 on nodes of 8 GPUs; take 2 up to as many bundles"),
        (["--hops", "9"], "K = 9 on nodes of 8 GPUs"),
        (
            ["--nodes", "1000000000000", "--domain-nodes", "500000000000", "--tp", "32"],
            "500,000,000,000 nodes; take 131,072 at most",
        ),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    out = tmp_path / "out"
    done = ran("infinitehbd_orchestration", "--out", out, *options)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert said in line
    assert not out.exists()
