"""InfiniteHBD's rings while nodes die: tables by hand, bad input, and what the paper's claims rest on."""

from functools import cache
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pandas as pd
import pytest

from controller.circuits.ring_faults import Mode
from scenarios._infinitehbd.ring.dying import Dying, dying_ring, stages_of
from scenarios._infinitehbd.ring.plots import drawn_rings
from scenarios._infinitehbd.ring.report import dying_findings, dying_table, ring_table
from testbed.core.run import Run
from testbed.experiment.audit_of import sound
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.report.claims import Claim
from testbed.report.page import Sheet
from testbed.report.run_json import experiments_of
from testbed.trust.outcome import Outcome, Verdict, Word
from tests.scenarios import command
from tests.testbed.runs import changed
from topologies.errors import LightrailError
from topologies.khop_ring import KHopRing

SIZE = 1_000_000_000
GPU_BPS = 6.4e12


def asked(*nodes: int, hops: int = 2, mode: Mode = "shrink", tp: int = 16, steadies: int = 1) -> Experiment:
    """Return AllReduces of 1 GB over 8 nodes of 4 GPUs in which some nodes die."""
    return dying_ring(
        KHopRing(8, 4, hops), tp, SIZE, Dying(nodes, mode, 0.4, 1e-3, steadies), gpu_bps=GPU_BPS
    )


@cache
def predicted(experiment: Experiment) -> Run:
    """Return the prediction of an experiment: several tests look at one."""
    return predict(experiment)


def ran(*options: str | Path) -> "CompletedProcess[str]":
    """Run the scenario without an emulation."""
    return command.ran("infinitehbd_ring", "--model-only", *options)


@pytest.mark.parametrize("hops", [2, 3])
def test_worked_example_of_the_paper_s_wiring(hops: int) -> None:
    experiment = asked(2, hops=hops)
    first, after = stages_of(experiment)
    assert (first.group, after.group) == ((0, 1, 2, 3), (0, 1, 3))
    assert first.gpus == (0, 1, 4, 7, 6, 9, 12, 15, 14, 13, 10, 11, 8, 5, 2, 3)
    assert len(after.edges - first.edges) == 2, "two lanes over one link"
    run = predicted(experiment)
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
    assert (fault["ocses"], fault["nodes"], fault["neighbours"]) == (["n1b1", "n3b0"], [1, 3], [1, 3])


def test_two_dead_neighbours_are_bridged_with_three_hops_by_the_mixed_bundles() -> None:
    experiment = asked(1, 2, hops=3)
    assert [stage.group for stage in stages_of(experiment)] == [(0, 1, 2, 3), (0, 2, 3), (0, 3)]
    table = dying_table(experiment, predicted(experiment))
    assert table["ocses"].tolist() == [["n0b1", "n2b0"], ["n0b1", "n0b2", "n3b0", "n3b2"]]
    assert table["neighbours"].tolist() == table["nodes"].tolist() == [[0, 2], [0, 3]]
    assert table["whole_s"].notna().all()
    with pytest.raises(LightrailError, match="no link joins the nodes 0 and 3"):
        asked(1, 2, hops=2)


def test_a_replaced_node_leaves_as_many_gpus_as_before() -> None:
    experiment = asked(2, 3, mode="replace")
    assert [stage.group for stage in stages_of(experiment)] == [(0, 1, 2, 3), (0, 1, 3, 4), (4, 5, 6, 7)]
    run = predicted(experiment)
    assert ring_table(experiment, run)["share"].tolist() == pytest.approx([1, 1, 1], rel=1e-6)
    assert run.messages.loc[run.messages["node"].str.startswith("again"), "end_s"].notna().all()


@pytest.mark.drawn
def test_report_of_a_run_and_its_experiments(tmp_path: Path) -> None:
    small = ["--nodes", "7", "--node-gpus", "3", "--tp", "9", "--dying", "1", "--hops", "2,3"]
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
        (["--dying", "2;0"], "2;0 names no nodes that die; write it like 2+0"),
        (["--dying", "1+2", "--hops", "2"], "no link joins the nodes 0 and 3"),
        (["--dying", "9"], "faulty node 9 of nodes 0 to 7"),
        (["--dying", ""], "--dying: the list is empty"),
        (["--hops", "1"], "1 bundles on a node of 4 GPUs"),
        (["--hops", "4"], "8 nodes with links over 4"),
        (["--hops", "two"], "--hops: found 'two', expected a whole number"),
        (["--tp", "6"], "a TP group of 6 GPUs on nodes of 4"),
        (["--tp", "0"], "a TP group of 0 GPUs"),
        (["--tp", "64"], "a TP group of 64 GPUs on 8 nodes"),
        (["--mb", "0"], "a size of 0 MB"),
        (["--mb", "nan"], "--mb: found NaN, expected a finite number"),
        (["--mb", "1e-6"], "bytes make no"),
        (["--after", "repair"], "--after: found 'repair', expected 'shrink' or 'replace'"),
        (["--at", "100"], "a failure at 100 %"),
        (["--known-us", "-1"], "known after -1 us"),
        (["--rate", "0"], "a rate of 0 bit/s"),
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


@pytest.mark.parametrize("size_bytes", [20_000, 100_000, 500_000, 1_300_000])
def test_steps_of_whole_picoseconds_are_sound(size_bytes: int) -> None:
    """A step of x.5 ps ends at x, and a ring has 30 of them."""
    dying = Dying((2,), "shrink", 0.4, 1e-3, 1)
    sound(predicted(dying_ring(KHopRing(8, 4, 2), 16, size_bytes, dying, gpu_bps=GPU_BPS)))


def cells(sheet: Sheet) -> list[list[str]]:
    """Return the cells of all lines of a table."""
    return [list(line.cells) for block in sheet.blocks for line in block.lines]


def slowed(run: Run, factors: dict[str, float]) -> Run:
    """Return a run some of whose AllReduces take longer, each by a factor; the others are as they were."""
    tasks = run.tasks.copy()
    took_s = tasks["end_s"] - tasks["start_s"]
    tasks["end_s"] += took_s * (tasks["node"].map(factors).fillna(1.0) - 1)
    return changed(run, tasks=tasks)


def ruled(experiment: Experiment, seen: Run, word: Word = "faithful") -> dict[str, Claim]:
    """Return the claims by their texts over one emulated run."""
    emulated = None if word == "model" else seen
    outcome = Outcome(experiment, predicted(experiment), emulated, Verdict(word))
    return {claim.text: claim for claim in dying_findings([outcome]).claims}


FULL, BYPASSED = "healthy GPUs have their full bandwidth", "a bypassed fault costs no bandwidth"
NEIGHBOURS = "a bypass changes no node but the two neighbours"


@pytest.mark.parametrize("word", ["model", "void"])
def test_nothing_is_claimed_without_a_sound_emulation(word: Word) -> None:
    experiment = asked(2)
    claims = ruled(experiment, predicted(experiment), word)
    assert {claim.verdict for claim in claims.values()} == {"not comparable"}
    assert claims[FULL].reason == claims[NEIGHBOURS].reason == "nothing sound was emulated"


@pytest.mark.parametrize(
    ("slower", "full", "bypassed"),
    [
        ({}, "holds", "holds"),
        ({"steady 1.2": 9.0}, "holds", "holds"),
        ({"steady 1.1": 1.04, "steady 1.2": 1.04}, "holds", "does not hold"),
        ({"steady 1.1": 1.06, "steady 1.2": 1.06, "steady 1.3": 1.06}, "does not hold", "does not hold"),
        ({"steady 0.1": 1.04, "steady 0.2": 1.04, "steady 0.3": 1.04}, "holds", "holds"),
    ],
)
def test_medians_rule_what_a_fault_costs_and_faster_breaks_nothing(
    slower: dict[str, float], full: str, bypassed: str
) -> None:
    experiment = asked(2, steadies=3)
    seen = slowed(predicted(experiment), slower)
    claims = ruled(experiment, seen)
    assert (claims[FULL].verdict, claims[BYPASSED].verdict) == (full, bypassed)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "holds"), (1.04, "does not hold")])
def test_a_larger_ring_is_held_to_the_bandwidth_of_a_smaller_one(factor: float, verdict: str) -> None:
    slower = {f"steady 0.{number}": factor for number in (1, 2, 3)}
    outcomes = []
    for tp_gpus, factors in ((16, dict[str, float]()), (32, slower)):
        experiment = asked(2, tp=tp_gpus, steadies=3)
        run = predicted(experiment)
        outcomes.append(Outcome(experiment, run, slowed(run, factors), Verdict("faithful")))
    text = "no bandwidth is lost from 16 to 32 GPUs"
    both, alone = (
        next(claim for claim in dying_findings(these).claims if claim.text == text)
        for these in (outcomes, outcomes[:1])
    )
    assert both.verdict == verdict
    assert both.measured == pytest.approx(1 / factor, rel=2e-3)
    assert (alone.verdict, alone.reason) == ("not comparable", "needs rings of both (--tp 16,32)")


def test_a_run_that_does_not_take_the_time_of_its_model_says_nothing_of_rates() -> None:
    experiment = asked(2, steadies=3)
    run = predicted(experiment)
    messages, tasks = (
        table.assign(start_s=1.2 * table["start_s"], end_s=1.2 * table["end_s"])
        for table in (run.messages, run.tasks)
    )
    stretched = changed(run, messages=messages, tasks=tasks)
    claims = ruled(experiment, stretched)
    assert claims[FULL].verdict == claims[BYPASSED].verdict == "not comparable"
    assert claims[FULL].reason == "CCT / model outside 0.90 .. 1.15: TP-16, 1000 MB, K=2, shrink, node 2 1.20"
    assert claims[NEIGHBOURS].verdict == "holds"


def test_the_light_log_says_which_nodes_changed_and_not_the_plan() -> None:
    experiment = asked(2, 0)
    run = predicted(experiment)
    assert ruled(experiment, run)[NEIGHBOURS].verdict == "holds"
    at_s = run.events.loc[run.events["what"] == "lit", "at_s"].max()
    lit = pd.DataFrame({"at_s": [at_s], "what": ["lit"], "which": ["n5b2 0>1 1>0"]})
    claim = ruled(experiment, changed(run, events=pd.concat([run.events, lit])))[NEIGHBOURS]
    assert (claim.verdict, claim.measured) == ("does not hold", 1)
    assert claim.reason == "node 0: [1, 5] changed, its neighbours are [1]"
    is_dark = (run.events["at_s"] > 0) & run.events["which"].str.startswith("n3b0")
    claim = ruled(experiment, changed(run, events=run.events[~is_dark]))[NEIGHBOURS]
    assert (claim.verdict, claim.reason) == (
        "does not hold",
        "node 2: [1] changed, its neighbours are [1, 3]",
    )


def test_tables_have_the_emulation_above_the_model_and_a_drawing_per_ring() -> None:
    experiment = asked(2, 0)
    run = predicted(experiment)
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


@pytest.mark.parametrize(
    "experiment",
    [
        asked(2, 0),
        asked(1, 2, hops=3),
        asked(3, 2, mode="replace", tp=20),
        asked(2, 3, hops=3, mode="replace"),
    ],
)
def test_no_lane_crosses_a_gpu_that_it_does_not_join(experiment: Experiment) -> None:
    for axes, stage in zip(drawn_rings(experiment).axes, stages_of(experiment), strict=True):
        (dots,) = (np.asarray(line.get_xydata()) for line in axes.lines if line.get_marker() == "o")
        lanes = [np.asarray(line.get_xydata()) for line in axes.lines if line.get_marker() == "None"]
        assert len(lanes) >= len(stage.gpus)
        for lane in lanes:
            on = [lane[:-1] + share * np.diff(lane, axis=0) for share in np.linspace(0, 1, 20)]
            apart = np.linalg.norm(np.concatenate(on)[:, None] - dots, axis=2).min(axis=0)
            assert sorted(apart)[:2] == pytest.approx([0, 0], abs=1e-9)
            assert sorted(apart)[2] > 0.1
