"""TopoOpt's stand-in for a training step: which circuits it needs, and that a step runs over it."""

from dataclasses import replace

import numpy as np
import pytest

from scenarios._mfabric.panel import linked_servers, mean_demand, panel_experiment, panel_of
from scenarios._mfabric.training_points import Training, training
from testbed.run.predict import predict
from topologies.patch_panel import patch_panel_fabric
from traffic.models.moe import model_named


def step(replicas: int = 2, pp: int = 2) -> Training:
    model = replace(model_named("mixtral-8x22b"), pp=pp)
    return training(model, pp, replicas=replicas, micro_batches=1)


def test_links_are_rings_over_both_kinds_of_weights_and_a_hop_to_the_next_stage() -> None:
    trained = step()
    links = {frozenset(pair) for pair in linked_servers(trained.job, patch_panel_fabric(32))}
    dense = [(stage + k, stage + (k + 1) % 16) for stage in (0, 16) for k in range(16)]
    experts = [(stage + k, stage + 8 + k) for stage in (0, 16) for k in range(8)]
    stages = [(k, k + 16) for k in range(16)]
    assert links == {frozenset(pair) for pair in (*dense, *experts, *stages)}


def test_demand_is_within_regions_and_of_all_that_their_ranks_send() -> None:
    trained = step()
    demand, model = mean_demand(trained), trained.model
    assert not np.where(np.kron(np.eye(4), np.ones((8, 8))), 0, demand).any()
    kept = demand.sum(axis=1) / model.all_to_all_bytes
    assert (kept < 1).all()
    assert kept.mean() == pytest.approx(7 / 8, abs=0.05)


def test_nics_that_are_kept_back_have_no_circuit() -> None:
    trained, fabric = step(1, 1), patch_panel_fabric(8)
    spent = [
        panel.linked_nics + panel.demanded_nics
        for panel in (panel_of(fabric, trained), panel_of(fabric, trained, kept_back=3))
    ]
    assert spent[0].max() == 8
    assert spent[1].max() == 5


def test_a_step_takes_longer_where_servers_forward() -> None:
    trained = step(1, 1)
    all_nics, some = (
        predict(panel_experiment(trained, 100e9, "panel", kept_back=kept), couples=True).iteration_s
        for kept in (0, 3)
    )
    assert some > 1.02 * all_nics


def test_coupled_flows_take_as_long_as_what_they_stand_for() -> None:
    experiment = panel_experiment(step(), 100e9, "panel")
    runs = [predict(experiment, couples=couples) for couples in (False, True)]
    took_s = [(run.tasks["end_s"] - run.tasks["start_s"]).groupby(run.tasks["node"]).max() for run in runs]
    assert took_s[1].to_numpy() == pytest.approx(took_s[0].to_numpy(), rel=0.01)
