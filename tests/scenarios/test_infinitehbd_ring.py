"""InfiniteHBD's rings while nodes die: tables by hand, bad input, and what the paper's claims rest on."""

from pathlib import Path
from subprocess import CompletedProcess

import pandas as pd
import pytest

from controller.circuits.ring_faults import Mode
from scenarios._infinitehbd.dying_plots import drawn_rings
from scenarios._infinitehbd.dying_report import dying_findings, dying_table, ring_table
from scenarios._infinitehbd.dying_ring import Dying, dying_ring, stages_of
from testbed.report.page import Sheet
from testbed.report.run_json import experiments_of
from testbed.run.experiment import Experiment
from testbed.run.outcome import Outcome, Verdict
from testbed.run.predict import predict
from tests.scenarios import command
from tests.testbed.runs import changed
from topologies.errors import LightrailError
from topologies.khop_ring import KHopRing

SIZE = 1_000_000_000
GPU_BPS = 6.4e12


def asked(*nodes: int, hops: int = 2, mode: Mode = "shrink", tp: int = 16) -> Experiment:
    """Return AllReduces of 1 GB over 8 nodes of 4 GPUs in which some nodes die."""
    return dying_ring(KHopRing(8, 4, hops), tp, SIZE, Dying(nodes, mode, 0.4, 1e-3), gpu_bps=GPU_BPS)


def ran(*options: str | Path) -> "CompletedProcess[str]":
    """Run the scenario without an emulation."""
    return command.ran("infinitehbd_ring", "--model-only", *options)


@pytest.mark.parametrize("hops", [2, 3])
def test_worked_example_of_the_paper_s_wiring(hops: int) -> None:
    experiment = asked(2, hops=hops)
    first, after = stages_of(experiment)
    assert (first.group, after.group) == ((0, 1, 2, 3), (0, 1, 3))
    assert after.changed == ("n1b1", "n3b0")
    assert first.gpus == (0, 1, 4, 7, 6, 9, 12, 15, 14, 13, 10, 11, 8, 5, 2, 3)
    assert len(after.edges - first.edges) == 2, "two lanes over one link"
    run = predict(experiment)
    rings = ring_table(experiment, run)
    assert rings["gpus"].tolist() == [16, 12]
    assert rings["took_s"].tolist() == pytest.approx(
        [2 * (n - 1) / n * SIZE * 8 / GPU_BPS for n in (16, 12)], rel=1e-6
    )
    assert rings["share"].tolist() == pytest.approx([1, 1], rel=1e-6)
    (fault,) = dying_table(experiment, run).to_dict("records")
    assert fault["known_s"] == pytest.approx(1e-3)
    assert fault["switched_s"] == pytest.approx(1.07e-3)
    assert fault["first_byte_s"] == pytest.approx(1.07e-3)
    assert fault["whole_s"] == pytest.approx(1.07e-3 + rings["took_s"][1])
    assert fault["nodes"] == 2


def test_two_dead_neighbours_are_bridged_with_three_hops_by_the_mixed_bundles() -> None:
    experiment = asked(1, 2, hops=3)
    assert [stage.group for stage in stages_of(experiment)] == [(0, 1, 2, 3), (0, 2, 3), (0, 3)]
    assert stages_of(experiment)[2].changed == ("n0b1", "n0b2", "n3b0", "n3b2")
    table = dying_table(experiment, predict(experiment))
    assert table["nodes"].tolist() == [2, 2]
    assert table["whole_s"].notna().all()
    with pytest.raises(LightrailError, match="no link joins the nodes 0 and 3"):
        asked(1, 2, hops=2)


def test_a_replaced_node_leaves_as_many_gpus_as_before() -> None:
    experiment = asked(2, 3, mode="replace")
    assert [stage.group for stage in stages_of(experiment)] == [(0, 1, 2, 3), (0, 1, 3, 4), (4, 5, 6, 7)]
    run = predict(experiment)
    assert ring_table(experiment, run)["share"].tolist() == pytest.approx([1, 1, 1], rel=1e-6)
    assert run.messages.loc[run.messages["node"].str.startswith("again"), "end_s"].notna().all()


@pytest.mark.drawn
def test_report_of_a_run_and_its_experiments(tmp_path: Path) -> None:
    small = ["--nodes", "7", "--gpus", "3", "--tp", "9", "--dying", "1", "--mb", "1000"]
    done = ran(*small, "--after", "shrink,replace", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "n0b1 n2b0 n2b1 n3b0" in said, "replaced"
    assert "Known to lit stands beside the device's 70 us (ocstrx)" in said
    assert "16 GPUs use 77.11 % of the ring's bandwidth" in said
    out = tmp_path / "out"
    assert len(pd.read_csv(out / "summary.csv")) == 4
    nodes = pd.read_csv(out / "nodes.csv")
    assert set(nodes["kind"]) == {"ring all-reduce"}
    assert nodes["bound_s"].notna().all()
    assert len(list(out.glob("rings_*.png"))) == 4
    kept = experiments_of(out / "run.json")
    assert [each.label for each in kept] == ["K=2, shrink", "K=2, replace", "K=3, shrink", "K=3, replace"]
    assert [stage.group for stage in stages_of(kept[0])] == [(0, 1, 2), (0, 2)]
    assert [stage.group for stage in stages_of(kept[1])] == [(0, 1, 2), (0, 2, 3)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--dying", "5"], "node 5 is in no TP group when it dies; let one of 0, 1, 2, 3 die"),
        (["--dying", "2+2"], "a node dies twice in 2, 2"),
        (["--dying", "2;0"], "'2;0' is not a list of whole numbers; write it like 2+3"),
        (["--dying", "1+2", "--hops", "2"], "no link joins the nodes 0 and 3"),
        (["--dying", "9"], "faulty node 9 of nodes 0 to 7"),
        (["--dying", ""], "the list '' is empty"),
        (["--hops", "1"], "1 bundles on a node of 4 GPUs"),
        (["--hops", "4"], "8 nodes with links over 4"),
        (["--hops", "two"], "'two' is not a list of whole numbers"),
        (["--tp", "6"], "a TP group of 6 GPUs on nodes of 4"),
        (["--tp", "0"], "a TP group of 0 GPUs"),
        (["--tp", "64"], "a TP group of 64 GPUs on 8 nodes"),
        (["--mb", "0"], "an AllReduce of 0 MB"),
        (["--mb", "nan"], "an AllReduce of nan MB"),
        (["--mb", "1e-6"], "bytes make no"),
        (["--after", "repair"], "unknown mode 'repair' of --after; take shrink or replace"),
        (["--at", "100"], "a node that dies at 100 %"),
        (["--known-us", "-1"], "known -1 us later"),
        (["--rate", "0"], "a GPU's rate of 0 Gbit/s"),
        (["--fail", "nic:0:0@40%"], "foresees what fails in it, and --fail would come on top"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    done = ran("--out", tmp_path / "out", *options)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2
    assert len(lines) == 1
    assert said in lines[0]
    assert not (tmp_path / "out").exists()


def cells(sheet: Sheet) -> list[list[str]]:
    """Return the cells of all lines of a table."""
    return [list(line.cells) for block in sheet.blocks for line in block.lines]


def test_claims_are_ruled_over_sound_emulations_alone() -> None:
    experiment = asked(2)
    run = predict(experiment)

    def ruled(word: str, slower: float = 1.0) -> dict[str, str]:
        tasks = run.tasks.copy()
        took_s = tasks["end_s"] - tasks["start_s"]
        tasks["end_s"] += (slower - 1) * took_s.where(tasks["node"] == "steady 1", 0.0)
        verdict = Verdict("void" if word == "void" else "faithful")
        seen = changed(run, tasks=tasks)
        outcome = Outcome(experiment, run, None if word == "model" else seen, verdict)
        return {claim.text: claim.verdict for claim in dying_findings([outcome]).claims}

    full, bypassed = "healthy GPUs have their full bandwidth", "a bypassed fault costs no bandwidth"
    assert {ruled(word)[full] for word in ("model", "void")} == {"not comparable"}
    assert ruled("faithful")[full] == ruled("faithful")[bypassed] == "holds"
    assert (ruled("faithful", 1.04)[full], ruled("faithful", 1.04)[bypassed]) == ("holds", "does not hold")
    assert ruled("faithful", 1.06)[full] == "does not hold"


def test_tables_have_the_emulation_above_the_model_and_a_drawing_per_ring() -> None:
    experiment = asked(2, 0)
    run = predict(experiment)
    found = dying_findings([Outcome(experiment, run, run, Verdict("faithful"))])
    rings, faults = found.sheets
    assert [row[0] for row in cells(faults)] == [
        "node 2, emulated", "node 0, emulated", "node 2, predicted", "node 0, predicted",
    ]  # fmt: skip
    assert [row[:3] for row in cells(rings)] == [
        ["0", "16", "0 1 2 3"], ["1", "12", "0 1 3"], ["2", "8", "1 3"],
    ]  # fmt: skip
    (plot,) = found.plots
    assert len(plot.draw().axes) == 3
    crosses = [sum(line.get_marker() == "x" for line in axes.lines) for axes in drawn_rings(experiment).axes]
    assert crosses == [0, 1, 2]
