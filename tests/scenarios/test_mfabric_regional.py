"""Circuits that follow a job's all-to-alls: what delays cost, how often they change, and JSON."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from controller.schedulers.mfabric import region_circuits
from scenarios._mfabric.region_plan import Prediction, RegionalSetup, regions_of
from testbed.core.run import Run
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.report.activity import light_spans
from testbed.trust.outcome import Outcome, summary_row
from testbed.trust.similitude import facts_of
from tests.testbed.region_cases import DELAY, MACHINES, MODEL, file_step, toy_experiment, toy_step, with_delay
from topologies.errors import ScenarioError
from topologies.mfabric import mfabric_fabric, regions
from traffic.delegated import DelegatedSetup
from traffic.models.moe_step import attention_s


def changes(run: Run) -> Counter[str]:
    """Return how often each OCS was reconfigured."""
    return Counter(run.events[run.events["what"] == "drained"]["which"])


def warmed_s(experiment: Experiment) -> float:
    """Return how long the iteration takes from when circuits are first lit."""
    return predict(experiment, couples=True).iteration_s


def test_block_exposes_the_delay_once_per_layer_and_micro_batch_in_the_forward_pass() -> None:
    layers = 4
    step = toy_step(layers=layers)
    experiment = toy_experiment(step)
    assert attention_s(replace(MODEL, layers=layers), 0, MACHINES) > DELAY.mean_s
    exposed_s = warmed_s(experiment) - warmed_s(with_delay(experiment, 0.0))
    assert exposed_s == pytest.approx(layers * DELAY.mean_s)


def test_block_over_a_pipeline_costs_at_least_what_the_critical_path_has() -> None:
    """(M + pp - 1) (L / pp) delta, and once more per turn of a stage where it goes over to a backward."""
    pp, layers, micro_batches = 2, 4, 3
    step = toy_step(pp=pp, layers=layers, micro_batches=micro_batches)
    experiment = toy_experiment(step, pp=pp)
    exposed_s = warmed_s(experiment) - warmed_s(with_delay(experiment, 0.0))
    turns = micro_batches + pp - 1
    assert turns * layers / pp - 0.01 <= exposed_s / DELAY.mean_s <= turns * (layers / pp + 1)


def test_reuse_waits_for_nothing_in_the_forward_pass() -> None:
    step = toy_step(layers=1)
    experiment = toy_experiment(step, "reuse")
    run = predict(experiment, couples=True)
    tasks = run.tasks.set_index("node")
    # What is lit before the job, at random, and then the exact circuits while experts compute.
    assert changes(run) == {"ocs0": 1}
    assert "held" not in run.events["what"].tolist()
    lit_s = run.events[run.events["what"] == "lit"]["at_s"].tolist()
    (dispatch,) = (each.node for each in step.dispatches)
    assert lit_s[1] == pytest.approx(tasks.loc[dispatch]["end_s"] + DELAY.mean_s)
    assert lit_s[1] < tasks.loc["F0 0.0 l0 combine"]["start_s"]


def test_copilot_with_the_right_prediction_hides_the_delay_behind_attention() -> None:
    step = toy_step(layers=3)
    block = toy_experiment(step)
    assert isinstance(block.circuits, RegionalSetup)
    exact = {turn.node: turn.demand for turn in regions_of(block.rule).turns["ocs0"]}
    predictions = tuple(
        Prediction(each.node, tuple(map(tuple, exact[each.node].tolist()))) for each in step.dispatches[1:]
    )
    setup = replace(block.circuits, first="copilot", predictions=predictions)
    copilot = replace(block, circuits=setup)
    hidden_s = warmed_s(block) - warmed_s(copilot)
    assert hidden_s == pytest.approx(2 * DELAY.mean_s)  # all but that of the first layer
    assert warmed_s(with_delay(copilot, 0.0)) == pytest.approx(warmed_s(with_delay(block, 0.0)))


@pytest.mark.parametrize("alpha", [3, 6])
def test_circuits_change_as_often_as_algorithm_1_says(alpha: int) -> None:
    step = toy_step(pp=2, layers=4, micro_batches=2, sparsity=0.5)
    experiment = toy_experiment(step, pp=2, alpha=alpha)
    run = predict(experiment, couples=True)
    planned = Counter[str]()
    for region in regions(experiment.fabric):
        rng = np.random.default_rng([0, region.servers[0]])
        mapping = region_circuits(experiment.fabric, region, rng.random((8, 8)))
        for turn in regions_of(experiment.rule).turns[region.ocs]:
            after = region_circuits(experiment.fabric, region, turn.demand, last=mapping)
            planned[region.ocs] += set(after) != set(mapping)
            mapping = after
    assert changes(run) == planned
    between = run.tasks.set_index("node")["start_s"]
    drained_s = run.events[run.events["what"] == "drained"]["at_s"].to_numpy()
    for dispatch in (each.node for each in step.dispatches):  # the same circuits serve the combine
        combine = dispatch.replace("dispatch", "combine")
        after = (drained_s > between[dispatch] + DELAY.mean_s) & (drained_s < between[combine])
        own = run.events[run.events["what"] == "drained"][after]["which"]
        assert f"ocs{dispatch.split()[1].split('.')[1]}" not in own.tolist()


def test_full_meshes_never_change() -> None:
    step = toy_step(layers=2)
    run = predict(toy_experiment(step, alpha=7), couples=True)
    assert changes(run) == {}


def test_circuits_of_the_iteration_before_are_lit_when_the_job_starts() -> None:
    experiment = toy_experiment(toy_step(layers=1))
    assert isinstance(experiment.circuits, RegionalSetup)
    (first, *_) = regions_of(experiment.rule).turns["ocs0"]
    same = Prediction(first.node, tuple(map(tuple, first.demand.tolist())))
    run = predict(replace(experiment, circuits=replace(experiment.circuits, before=(same,))), couples=True)
    assert run.events["what"].tolist() == ["lit"]
    assert run.events["at_s"].tolist() == [0.0]
    assert run.iteration_s == pytest.approx(predict(with_delay(experiment, 0.0), couples=True).iteration_s)


def test_coupled_and_lane_by_lane_predictions_agree() -> None:
    experiment = toy_experiment(toy_step(layers=1))
    coupled, lanes = (predict(experiment, couples=couples).iteration_s for couples in (True, False))
    assert lanes == pytest.approx(coupled, rel=0.02)


def test_run_json_repeats_regions_and_lanes() -> None:
    step = toy_step()
    experiment = replace(
        toy_experiment(step, "copilot"), scheme=DelegatedSetup(pipelined=True, spill=True, rest="ecmp")
    )
    again = Experiment.from_json(experiment.to_json())
    assert again == experiment
    runs = [predict(each, couples=True) for each in (experiment, again)]
    assert runs[0].messages.equals(runs[1].messages)
    assert runs[0].events.equals(runs[1].events)


def test_spans_of_dark_and_held_are_events() -> None:
    run = predict(toy_experiment(toy_step(layers=1)), couples=True)
    happened = run.events["what"].tolist()
    assert happened == ["lit", "held", "drained", "lit", "released"]
    assert all(a <= b for a, b in pairwise(run.events["at_s"]))


def test_activity_has_the_dark_of_each_reconfiguration() -> None:
    experiment = toy_experiment(toy_step(layers=2))
    run = predict(experiment, couples=True)
    spans = light_spans(run, experiment.fabric)
    dark = spans[spans["circuits"] == ""]
    assert len(dark) == changes(run)["ocs0"] > 1
    assert (dark["end_s"] - dark["start_s"]).to_numpy() == pytest.approx(DELAY.mean_s)


def test_outcomes_name_regions_and_lanes_and_keep_their_bounds() -> None:
    experiment = replace(toy_experiment(toy_step()), scheme=DelegatedSetup(spill=True))
    outcome = Outcome(experiment, predict(experiment))
    assert summary_row(outcome)["name"] == "delegated, spill, block"
    assert 0 < outcome.bound_s <= outcome.cct_s
    delay_over_cct = facts_of(experiment, predict(experiment)).reconfiguration_s
    assert delay_over_cct == DELAY.mean_s


def test_drawn_delays_are_replayed() -> None:
    experiment = toy_experiment(toy_step(layers=1))
    drawn = predict(experiment, delays_s={"ocs0": (0.01, 0.07)})
    drained, lit = (drawn.events[drawn.events["what"] == what]["at_s"] for what in ("drained", "lit"))
    assert lit.iloc[1:].to_numpy() - drained.to_numpy() == pytest.approx([0.01])


def test_a_delay_that_cannot_be_emulated_names_the_volume_that_would_do() -> None:
    experiment = toy_experiment(toy_step())
    with pytest.raises(ScenarioError, match="would be") as refused:
        replace(experiment, dilation=Dilation(1e-3, 1e-6))
    volume = float(str(refused.value).split("V = ")[1].split()[0])
    assert replace(experiment, dilation=Dilation(1e-3, volume)).rule


def test_what_is_refused() -> None:
    step = toy_step()
    experiment = toy_experiment(step)
    assert isinstance(experiment.circuits, RegionalSetup)
    with pytest.raises(ScenarioError, match="is not an all-to-all"):
        replace(experiment, circuits=replace(experiment.circuits, dispatches=("nobody",)))
    late = Prediction(step.dispatches[0].node.replace("dispatch", "combine"), ((0.0,),))
    with pytest.raises(ScenarioError, match="is not the first all-to-all of a region"):
        replace(experiment, circuits=replace(experiment.circuits, before=(late,)))
    with pytest.raises(ScenarioError, match="not of one region"):
        replace(experiment, fabric=mfabric_fabric(8, 4, gpus=1, nics=4, packet_nics=1))
    with pytest.raises(ScenarioError, match="no circuits that follow"):
        regions_of(replace(experiment, circuits=None).rule)


def test_all_to_alls_inside_servers_leave_circuits_alone(tmp_path: Path) -> None:
    experiment = toy_experiment(file_step(tmp_path), servers=4, gpus=2, alpha=2)
    turns = [turn.node for turn in regions_of(experiment.rule).turns["ocs0"]]
    assert len(turns) == 2 * 4
    assert all("moelayer" in node for node in turns)
    lit = predict(experiment).events.query("what == 'lit'")["which"]
    assert len(lit) == 3, (
        "the first layer's, before the job; the second's forward and back; the first's again"
    )
