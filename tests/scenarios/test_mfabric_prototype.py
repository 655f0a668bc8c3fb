"""mFabric's emulated training steps: what is run, their tables, and bad input."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer

from controller.circuits.devices import ReconfigurationDelay
from scenarios._mfabric.step.training import OWN_NIC, over_circuits, training
from scenarios._mfabric.training.circuits import changed_between, changes_claims, shown
from scenarios._mfabric.training.report import held_times, iteration_table, training_findings
from scenarios.mfabric_prototype import Name, figure_10, prototype_points
from testbed.core.run import Run
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.report.palette import colours
from testbed.report.run_json import experiments_of
from testbed.trust.outcome import Measures, Outcome, Verdict, Word
from tests.scenarios import command
from tests.testbed.runs import changed
from topologies.big_switch import big_switch_fabric
from topologies.mfabric import mfabric_fabric
from traffic.delegated import DelegatedSetup
from traffic.fault_text import WrittenFault
from traffic.models.moe import model_named


def asked(delay_s: float = 0.025) -> tuple[Experiment, Experiment]:
    """Return two layers of Mixtral 8x22B over 3 circuit NICs and a packet NIC, and over 4 own packet NICs."""
    model = replace(model_named("mixtral-8x22b"), pp=1)
    trained, with_own_nics = (training(model, 2, gateways=gateways) for gateways in ((0,), (0, 2, 4, 6)))
    circuits = mfabric_fabric(8, nics=4, packet_nics=1, one_packet_switch=True)
    delay = ReconfigurationDelay("made up", delay_s)
    packets = big_switch_fabric(8, nics=4, gpus=8)
    return (
        over_circuits(circuits, trained, "block", delay, "circuits"),
        Experiment(packets, with_own_nics.job, OWN_NIC, label="packets"),
    )


def slower(run: Run) -> Run:
    """Return a run whose last node ends later, so that the iteration is 1.2 times as long."""
    end_s = run.tasks["end_s"].mask(run.tasks["end_s"] == run.iteration_s, 1.2 * run.iteration_s)
    return changed(run, tasks=run.tasks.assign(end_s=end_s))


def test_what_dispatches_wait_for_is_the_delay_but_for_what_attention_hides() -> None:
    experiment, _ = asked()
    run = predict(experiment)
    tasks = run.tasks[run.tasks["gpu"] == 0].set_index("node")
    hidden_s = tasks["end_s"] - tasks["start_s"]
    # A change for a forward starts with its dispatch, one for a backward with the attention before it.
    waits_s = [0.025, 0.025, 0.025 - hidden_s["B0 0.0 l1 attention"]]
    assert held_times(run).sum() == pytest.approx(sum(waits_s), rel=1e-6)
    assert changed_between(experiment, run) == 0


def test_changes_between_an_all_to_all_and_its_transpose_are_counted() -> None:
    experiment, _ = asked()
    run = predict(experiment)
    ended_s = run.tasks.loc[run.tasks["node"] == "F0 0.0 l0 dispatch", "end_s"].max()
    wrong = pd.DataFrame([{"at_s": ended_s + 1e-6, "what": "drained", "which": "ocs0"}])
    assert changed_between(experiment, changed(run, events=pd.concat([run.events, wrong]))) == 1


def on_the_wire(run: Run) -> pd.DataFrame:
    """Return packets as noted on the wire, where they took all circuits of a run."""
    rows = [
        {"ocs": ocs, "number": number, "circuit": circuit, "packets": 3}
        for ocs, sets in shown(run).items()
        for number, circuits in enumerate(sets)
        for circuit in circuits
    ]
    return pd.DataFrame(rows)


def test_circuits_are_held_to_what_packets_took() -> None:
    experiment, _ = asked()
    run = predict(experiment)
    wire = on_the_wire(run)
    (last,) = shown(run)["ocs0"][-1:]
    unused = wire["packets"].mask((wire["number"] == 3) & (wire["circuit"] == min(last)), 0)
    stray = pd.DataFrame([{"ocs": "ocs0", "number": -1, "circuit": "0>1", "packets": 5}])

    def said(wire: pd.DataFrame) -> tuple[list[str], list[str]]:
        outcome = Outcome(experiment, run, run, Verdict("faithful"), wire=wire)
        found = training_findings([outcome], "packets")
        (line,) = found.sheets[3].blocks[0].lines
        return [*line.cells[4:8], line.cells[9]], [claim.verdict for claim in found.claims[-3:-1]]

    assert said(wire) == (["3", "3", "3", "yes", "0"], ["holds", "holds"])
    assert said(wire.assign(packets=unused)) == (["3", "3", "2", "no", "0"], ["does not hold", "holds"])
    assert said(pd.concat([wire, stray])) == (["3", "3", "3", "yes", "5"], ["holds", "does not hold"])


@pytest.mark.parametrize("word", ["void", "unsound"])
def test_what_is_void_or_unsound_says_nothing_of_circuits(word: Word) -> None:
    experiment, _ = asked()
    run = predict(experiment)
    claims = changes_claims([Outcome(experiment, run, run, Verdict(word), wire=on_the_wire(run))])
    assert {claim.verdict for claim in claims} == {"not comparable"}


def test_gates_before_a_step_are_drawn_apart_from_its_own() -> None:
    """A row differs from its loads by another draw in the iteration before."""
    trained = training(replace(model_named("mixtral-8x22b"), pp=1), 2)
    own = trained.gate(0, 0, 0)
    rows = [tokens / tokens.mean(axis=0) - 1 for tokens in (own, trained.before[0, 0])]
    assert abs(np.corrcoef(*(row.ravel() for row in rows))[0, 1]) < 0.5


def test_what_the_tap_missed_makes_claims_of_packets_not_comparable() -> None:
    experiment, _ = asked()
    run = predict(experiment)
    seen, missed = (
        Outcome(experiment, run, run, Verdict("faithful"), wire=wire) for wire in (on_the_wire(run), None)
    )
    planned, dark, between = changes_claims([seen, missed])
    assert (planned.verdict, dark.verdict, between.verdict) == ("not comparable", "not comparable", "holds")
    assert planned.reason == "packets came faster than they were noted in 1 of 2 emulations"


def test_a_prediction_alone_rules_no_claim_of_figure_10() -> None:
    rows = [
        {"workload": "mixtral-8x7b (2 of 32 layers)", "name": name, "seed": 0, "iteration_s": 1.0}
        for name in ("3 + 1 NICs", "4 packet NICs", "4 packet NICs, delegated")
    ]
    for verdict, ruled in (("model", "not comparable"), ("faithful", "holds"), ("void", "not comparable")):
        (claim,) = figure_10(pd.DataFrame(rows).assign(verdict=verdict))
        assert claim.verdict == ruled
        assert claim.text == "mixtral-8x7b: 3 + 1 NICs are comparable to 4 packet NICs, a GPU's own each"


@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen-moe"])
def test_mfabric_is_comparable_to_packets_over_own_nics(name: Name) -> None:
    """Figure 10, predicted; gathered and scattered, packets are faster."""
    circuits, own, delegated = (
        predict(each, couples=True).iteration_s
        for each in prototype_points([name], 1, 4, 0.0, False, 100e9, 2400e9, 0)
    )
    assert 0.95 < circuits / own < 1.10
    assert delegated < own


def test_tables_and_claims_are_of_emulations() -> None:
    outcomes = []
    for experiment in asked():
        run = predict(experiment)
        late = slower(run)
        outcomes.append(Outcome(experiment, run, late, Verdict("faithful")))
    table = iteration_table(outcomes, "packets")
    assert table["emulated_s"].tolist() == pytest.approx((1.2 * table["predicted_s"]).tolist())
    assert table["over_baseline"][1] == 1
    assert table["over_baseline"][0] == pytest.approx(table["emulated_s"][0] / table["emulated_s"][1])
    found = training_findings(outcomes, "packets")
    (line,) = found.sheets[3].blocks[0].lines
    assert list(line.cells[:8]) == ["circuits", "credit", "ocs0", "3", "3", "3", "-", "yes"]
    assert list(line.cells[9:]) == ["-", "0", "2"], "packets were not looked at, and two NICs of 24 were dark"
    assert [claim.verdict for claim in found.claims[-3:]] == ["not comparable", "not comparable", "holds"]
    assert len(found.plots[0].draw().axes[0].patches) == 2


def test_parts_of_an_iteration_are_the_iteration() -> None:
    outcomes = [Outcome(experiment, predict(experiment)) for experiment in asked()]
    table = iteration_table(outcomes, "packets").set_index("fabric")
    parts = table[["all_to_all_s", "held_s", "dp_s", "compute_s"]]
    assert parts.sum(axis=1).tolist() == pytest.approx(table["predicted_s"].tolist())
    assert (parts >= 0).all(axis=None)
    assert parts.loc["packets", "held_s"] == 0
    assert parts.loc["circuits", "held_s"] == pytest.approx(held_times(outcomes[0].run).sum())
    # Data parallelism has one packet NIC instead of four, but for what goes over NVLink.
    assert 3 < table["dp_s"]["circuits"] / table["dp_s"]["packets"] < 4
    assert table["compute_s"]["circuits"] == pytest.approx(table["compute_s"]["packets"], rel=1e-3)


def test_what_tcp_does_is_told_by_its_counters() -> None:
    _, packets = asked()
    tcp, run = replace(packets.transport, name="tcp"), predict(packets)
    measures = Measures(retransmits=2, packets=100, queue_drops=3, socket_drops=0)
    outcomes = [
        Outcome(replace(packets, transport=tcp), run, run, Verdict("faithful"), measures),
        Outcome(packets, run, run, Verdict("faithful"), measures),
    ]
    caption = training_findings(outcomes, "packets").sheets[1].caption
    assert "3 packets were dropped and 2 sent again" in caption
    assert "over packets alone 1.00 .. 1.00 under tcp and 1.00 .. 1.00 otherwise" in caption
    assert "over circuits" not in caption


def test_credit_is_held_to_its_prediction_and_tcp_is_reported() -> None:
    experiment, _ = asked()
    run = predict(experiment)
    late = slower(run)

    def ruled(transport: str) -> str:
        under = replace(experiment, transport=replace(experiment.transport, name=transport))
        claim = training_findings([Outcome(under, run, late, Verdict("faithful"))], "packets").claims[0]
        assert claim.measured == pytest.approx(1.2)
        return claim.verdict

    assert (ruled("credit"), ruled("tcp")) == ("does not hold", "not comparable")


@pytest.mark.drawn
def test_report_of_a_run_and_its_experiments(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options: list[str | Path] = [
        "--models",
        "mixtral-8x7b,qwen-moe",
        "--layers",
        "1",
        "--spill",
        "--out",
        out,
    ]
    done = command.ran("mfabric_prototype", "--model-only", *options)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "mixtral-8x7b (1 of 32 layers)" in said
    assert "1-1-1-1-1-1" in said, "4 servers of 3 circuit NICs are a full mesh"
    kept = experiments_of(out / "run.json")
    assert [each.label for each in kept] == 2 * [
        "3 + 1 NICs", "3 + 1, spill", "4 packet NICs", "4 packet NICs, delegated",
    ]  # fmt: skip
    assert [each.scheme for each in kept if not each.circuits] == 2 * ["ecmp", DelegatedSetup()]
    assert [len(each.ocs_delays) for each in kept if each.circuits] == [1, 1, 2, 2]
    assert len({each.job.name for each in kept}) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--models", "gpt"], "--models: found 'gpt', expected 'mixtral-8x7b'"),
        (["--models", ""], "--models: the list is empty"),
        (["--layers", "0"], "experts in 0 layers"),
        (["--micro-batches", "0"], "0 micro-batches"),
        (["--sparsity", "1"], "sparsity 1"),
        (["--delay-ms", "-1"], "a delay of -1 ms"),
        (["--delay-ms", "1e9"], "a delay of 1e+09 ms"),
        (["--layers", "33"], "33 layers of mixtral-8x7b, which has 32"),
        (["--micro-batches", "65"], "65 micro-batches"),
        (["--rate", "0"], "NICs of 0 Gbit/s"),
        (["--inside", "0"], "0 Gbit/s inside a server"),
        (["--inside", "nan"], "--inside: found NaN, expected a finite number"),
        (["--seed", "-1"], "--seed: found -1, expected 0 or more"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    done = command.ran("mfabric_prototype", "--model-only", "--out", tmp_path / "out", *options)
    lines = done.stderr.strip().splitlines()
    assert (done.returncode, len(lines)) == (2, 1), done.stderr
    assert said in lines[0]
    assert not (tmp_path / "out").exists()


def test_a_fabric_has_the_colour_of_the_run_s_other_plots_beside_faults_too() -> None:
    """A name with what fails takes a colour of the run; fabrics after it had another in one plot."""
    (_, packets) = asked()
    run = predict(packets)
    fault = WrittenFault("nic:1:0@40%").over(packets.fabric, run.iteration_s)
    outcomes = [
        Outcome(replace(packets, label=label, faults=faults), run)
        for label, faults in (("a", ()), ("a", (fault,)), ("b", ()))
    ]
    (iterations, _) = training_findings(outcomes, "a").plots
    handles, labels = iterations.draw().axes[0].get_legend_handles_labels()
    drawn = {
        label: to_hex(bars.patches[0].get_facecolor())
        for label, bars in zip(labels, handles, strict=True)
        if isinstance(bars, BarContainer)
    }
    shades = colours(each.experiment.name for each in outcomes)
    assert drawn == {label: shades[label] for label in ("a", "b")}
