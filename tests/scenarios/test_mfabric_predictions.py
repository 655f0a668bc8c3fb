"""Copilot in a training step: what it sees ahead, and how much of the delay that hides."""

from dataclasses import replace

import numpy as np
import pytest

from controller.schedulers.copilot import WINDOW
from scenarios._mfabric.region_plan import RegionalSetup
from scenarios._mfabric.step import predictions
from scenarios._mfabric.step.predictions import copilot_predictions
from testbed.model.predict import predict
from tests.testbed.region_cases import DELAY, MACHINES, MODEL, toy_experiment
from traffic.models.moe_step import moe_step
from traffic.workloads.gate import gate_loads, gate_tokens

LAYERS = 3
TOY = replace(MODEL, layers=LAYERS)


def test_predictions_hide_delays_behind_attention_and_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions, "GPUS", 1)  # the toy's servers
    loads = gate_loads(["early"] * (WINDOW + 1), LAYERS, noise=0.0)
    tokens = gate_tokens(loads[-1:], 8, TOY.tokens * TOY.top_k)[0]
    step = moe_step(TOY, lambda _r, _m, layer: tokens[layer], machines=MACHINES)
    found = copilot_predictions(step, TOY, lambda _r, _m, layer: tokens[layer], loads[:-1])
    assert [each.node for each in found] == [each.node for each in step.dispatches[1:]]
    for layer, each in enumerate(found, start=1):
        predicted = np.array(each.demand)
        assert predicted.sum(axis=1) == pytest.approx(np.full(8, TOY.tokens * TOY.top_k))
        share = predicted.sum(axis=0) / predicted.sum()
        assert share == pytest.approx(tokens[layer].sum(axis=0) / tokens[layer].sum(), abs=0.05)
    block = toy_experiment(step)
    assert isinstance(block.circuits, RegionalSetup)
    copilot = replace(block, circuits=replace(block.circuits, first="copilot", predictions=found))
    block_s, copilot_s = (predict(each, couples=True).iteration_s for each in (block, copilot))
    hidden = (block_s - copilot_s) / DELAY.mean_s
    assert 0.8 * (LAYERS - 1) < hidden <= LAYERS - 1 + 0.01
