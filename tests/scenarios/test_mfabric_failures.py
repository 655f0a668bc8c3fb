"""Failures in a training step on mFabric: which points there are, what tables say, and bad input."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from scenarios._mfabric.failures.points import (
    CIRCUIT_NIC,
    FAILURES,
    GPU,
    PACKET_NIC,
    PACKET_NICS,
    SERVER,
    STEP,
    failure_of,
)
from scenarios._mfabric.failures.report import failure_findings, lacking_bytes
from scenarios._mfabric.figures.failures import MODELS, POINTS, failure_section
from scenarios._mfabric.step.points import StepSetup
from testbed.model.predict import predict
from testbed.report.palette import colours
from testbed.report.run_json import experiments_of
from testbed.trust.outcome import Outcome
from tests.results_page import SCALE, documented
from tests.scenarios import command
from tests.scenarios.test_mfabric_prototype import asked
from tests.testbed.moved_cases import GPU_MOVES, HEALTHY, losing
from tests.testbed.runs import changed
from topologies.mfabric import mfabric_fabric
from traffic.fault_text import WrittenFault
from traffic.faults import AS_IT_WAS

SMALL = ["--model-only", "--layers", "1", "--transport", "credit"]


@pytest.mark.drawn
def test_every_failure_has_a_step_in_which_it_comes_and_one_after_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = command.ran("mfabric_failures", *SMALL, "--failures", "gpu,server,circuit-nic", "--out", out)
    assert done.returncode == 0, done.stderr
    kept = experiments_of(out / "run.json")
    assert [each.scheme_name for each in kept] == [
        "mFabric",
        "mFabric, a GPU", "mFabric, steady, a GPU",
        "mFabric, a server", "mFabric, steady, a server",
        "mFabric, one circuit NIC", "mFabric, steady, one circuit NIC",
    ]  # fmt: skip
    assert len({each.fabric for each in kept}) == len({each.job.name for each in kept}) == 1
    assert [len(each.faults) for each in kept] == [0, 1, 0, 1, 0, 1, 1]
    arrived = [line for line in done.stdout.splitlines() if line.split()[-1:] == ["all"]]
    assert len(arrived) == 3, "of each failure every byte"
    assert "lightrail's own hold: 0 of 3; not comparable: 3" in done.stdout, "nothing was emulated"
    took_s = pd.read_csv(out / "summary.csv").set_index("scheme")["iteration_s"]
    for name in ("a GPU", "a server"):
        assert took_s[f"mFabric, {name}"] > took_s["mFabric"]
        assert took_s[f"mFabric, steady, {name}"] > took_s["mFabric"]
    assert took_s["mFabric, one circuit NIC"] >= took_s["mFabric"]


def test_what_lacks_is_what_was_owed_and_did_not_arrive() -> None:
    """Between the GPUs of then: what moved is owed to the backup GPU by what ended after that was known."""
    experiment = losing(HEALTHY, GPU_MOVES, 0.26)
    run = predict(experiment)
    assert run.messages["end_s"].isna().any()
    assert lacking_bytes(experiment, run) == 0
    ((_, backup),) = GPU_MOVES
    messages = run.messages.copy()
    row = messages.index[(messages["destination"] == backup) & (messages["node"] == "F0 0.0 l0 combine")][0]
    messages.loc[row, "end_s"] = float("nan")
    assert lacking_bytes(experiment, changed(run, messages=messages)) == messages.loc[row, "bytes"]
    unmoved = replace(experiment, revisions=AS_IT_WAS, faults=())
    assert lacking_bytes(unmoved, run) > 0


def test_figure_14_compares_what_failures_add_to_an_iteration() -> None:
    found = {(model, name): 10.0 for model in MODELS for name in POINTS}
    found["deepseek-r1", PACKET_NIC] = 10.33
    found["mixtral-8x22b", GPU] = 12.0
    found["mixtral-8x22b", SERVER] = 14.0
    section = failure_section(StepSetup([400e9]), found)
    table = section.tables["failures"]
    assert list(table.columns) == documented(SCALE, "failures.csv")
    added = table.set_index(["model", "failure"])["added"]
    assert added["deepseek-r1", PACKET_NIC] == pytest.approx(0.033)
    assert added["mixtral-8x22b", GPU] == pytest.approx(0.2)
    ruled = {claim.text: claim for claim in section.findings.claims}
    assert ruled["deepseek-r1: one packet NIC gone adds 3.3 %"].reason.startswith(
        "predicted, nothing was emulated; in the range"
    )
    assert "; not in the range" in ruled["mixtral-8x22b: a GPU gone adds 5.1 %"].reason
    assert {claim.verdict for claim in ruled.values()} == {"not comparable"}
    order = ruled["a server adds more than a GPU, 8x22B"]
    assert "; in the range" in order.reason
    assert order.measured == pytest.approx(2.0)
    (sheet,), (plot,) = section.findings.sheets, section.findings.plots
    assert [len(block.lines) for block in sheet.blocks] == [len(POINTS)] * 2
    assert "One decision of the gate repeats" in sheet.caption
    assert plot.draw().axes


def test_a_step_has_the_colour_of_the_run_s_other_plots() -> None:
    _, packets = asked()
    healthy = replace(packets, label=STEP)
    faults = [
        WrittenFault(f"nic:1:{nic}@40%").over(packets.fabric, predict(packets).iteration_s) for nic in (0, 1)
    ]
    steps = [healthy, *(replace(healthy, faults=(fault,)) for fault in faults)]
    outcomes = [Outcome(each, predict(each)) for each in steps]
    _, moved = failure_findings(outcomes[1:] + outcomes[:1]).plots
    lines = [line for line in moved.draw().axes[0].get_lines() if not str(line.get_label()).startswith("_")]
    shades = colours(each.name for each in steps)
    assert [line.get_color() for line in lines] == [shades[each.name] for each in (*steps[1:], healthy)]


def test_a_gpu_s_backup_is_in_the_next_server_and_a_server_s_beyond_all_regions() -> None:
    fabric = mfabric_fabric(8, 4, backup_gpu=True, spare_servers=2)
    gone = {name: failure_of(name, fabric, 2, gpus=8, gpu=3) for name in FAILURES.values()}
    moves = {name: failure.moves for name, failure in gone.items()}
    assert moves == {
        PACKET_NIC: (), PACKET_NICS: (), CIRCUIT_NIC: (),
        GPU: ((2 * 9 + 3, 3 * 9 + 8),),
        SERVER: tuple((2 * 9 + gpu, 8 * 9 + gpu) for gpu in range(8)),
    }  # fmt: skip
    nics = {name: [nic.nic for nic in failure.nics] for name, failure in gone.items()}
    assert nics == {
        PACKET_NIC: [0], PACKET_NICS: [0, 4], CIRCUIT_NIC: [1], GPU: [], SERVER: list(range(8))
    }  # fmt: skip
    assert {nic.server for failure in gone.values() for nic in failure.nics} == {2}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--failures", "fan"], "--failures: found 'fan', expected 'packet-nic'"),
        (["--failures", ""], "--failures: the list is empty"),
        (["--layers", "0"], "experts in 0 layers"),
        (["--seed", "0,1"], "--seed: the findings are about one value of it"),
        (["--layers", "1,2"], "--layers: the findings are about one value of it; give one value"),
        (["--known-us", "-1"], "known after -1 us"),
        (
            ["--delay-ms", "1e9"],
            "a delay of 1e+09 ms; give a rate above 0 up to 1e+06, and a delay from 0 to 100000 ms",
        ),
        (["--at", "100"], "a failure at 100 %"),
        (["--rate", "nan"], "--rate: found NaN, expected a finite number"),
        (["--fail", "nic:0:0@40%"], "foresees what fails in it"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    done = command.ran("mfabric_failures", "--model-only", "--out", tmp_path / "out", *options)
    lines = done.stderr.strip().splitlines()
    assert (done.returncode, len(lines)) == (2, 1), done.stderr
    assert said in lines[0]
    assert not (tmp_path / "out").exists()
