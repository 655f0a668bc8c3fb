"""A training step over TopoOpt's circuits: what these are lit for, where they lead, and that a step runs."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from controller.circuits.foreseen import Foreseen
from scenarios._mfabric.fabrics import NICS, RINGS, TOPOOPT
from scenarios._mfabric.step.panel import KEPT_BACK, expected_job, panel_experiment
from scenarios._mfabric.step.training import GATEWAYS, Training, training
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from traffic.collectives.all_to_all import AllToAll
from traffic.collectives.pattern import Pattern
from traffic.models.moe import model_named

REGION = 8
"""Servers of an expert-parallel group."""


def step(replicas: int = 2, pp: int = 2, micro_batches: int = 1, stage_layers: int = 1) -> Training:
    model = replace(model_named("mixtral-8x22b"), pp=pp)
    layers = pp * stage_layers
    return training(model, layers, replicas=replicas, micro_batches=micro_batches, gateways=GATEWAYS)


def circuits_of(experiment: Experiment) -> NDArray[np.int64]:
    """Return how many circuits lead from server to server."""
    assert isinstance(experiment.circuits, Foreseen)
    ((_, pairs),) = experiment.circuits.first
    counts = np.zeros((len(experiment.fabric.servers),) * 2, dtype=np.int64)
    for a, b in pairs:
        counts[a // NICS, b // NICS] += 1
    return counts


def sent(pattern: Pattern, servers: int) -> NDArray[np.int64]:
    """Return the bytes of a collective from server to server."""
    moves, matrix = pattern.lower(coupled=True).moves, np.zeros((servers, servers), dtype=np.int64)
    np.add.at(matrix, (moves.source // 8, moves.destination // 8), moves.bytes)
    np.fill_diagonal(matrix, 0)
    return matrix


def test_what_is_expected_differs_in_all_to_alls_alone_which_are_those_of_a_mean_gate() -> None:
    trained = step(micro_batches=2)
    expected = expected_job(trained)
    found = Counter[Pattern]()
    for real, mean in zip(trained.job.collectives, expected.collectives, strict=True):
        if isinstance(real.pattern, AllToAll):
            found[mean.pattern] += 1
            mean = replace(mean, pattern=real.pattern)
        assert mean == real
    # Four stages of replicas, of a layer each, whose dispatch and its transpose go twice in a micro-batch.
    assert list(found.values()) == [4] * (4 * 2)
    demand = np.sum([count * sent(pattern, 32) for pattern, count in found.items()], axis=0)
    assert not np.where(np.kron(np.eye(4), np.ones((REGION, REGION))), 0, demand).any()
    kept = demand.sum(axis=1) / (8 * trained.model.all_to_all_bytes)
    assert kept.mean() == pytest.approx(7 / 8, abs=0.05)


def test_by_algorithm_1_circuits_are_a_mesh_of_each_region_and_by_rings_alone_they_leave_it() -> None:
    """As with Mixtral 8x22B on 1,024 GPUs: of a ring over all, two circuits stay but at a region's ends."""
    trained = step(micro_batches=8, stage_layers=7)
    inside = np.kron(np.eye(4, dtype=int), np.ones((REGION, REGION), dtype=int))
    for label, peers in ((TOPOOPT, 7), (RINGS, 2)):
        counts = circuits_of(panel_experiment(trained, 100e9, label))
        assert (counts.sum(axis=1) == NICS).all()
        assert ((counts * inside > 0).sum(axis=1)).max() == peers
        assert (counts * (1 - inside)).sum(axis=1).min() == KEPT_BACK[label]
        assert all(counts[server, (server + 1) % 32] for server in range(32))


def test_nics_that_are_kept_back_have_no_circuit() -> None:
    alone = step(1, 1)
    for label in (TOPOOPT, RINGS):
        counts = circuits_of(panel_experiment(alone, 100e9, label, kept_back=KEPT_BACK[label]))
        assert (counts.sum(axis=1) == NICS - KEPT_BACK[label]).all()


def test_a_step_takes_longer_where_servers_forward() -> None:
    alone = step(1, 1)
    mesh, ring = (
        predict(panel_experiment(alone, 100e9, label, kept_back=KEPT_BACK[label]), couples=True).iteration_s
        for label in (TOPOOPT, RINGS)
    )
    assert ring > 1.2 * mesh


@pytest.mark.parametrize(("label", "pp"), [(TOPOOPT, 2), (RINGS, 1)])
def test_coupled_flows_take_as_long_as_what_they_stand_for(label: str, pp: int) -> None:
    """A pipeline goes round a ring beyond its region; by rings alone all-to-alls are relayed."""
    experiment = panel_experiment(step(1, pp), 100e9, label)
    runs = [predict(experiment, couples=couples) for couples in (False, True)]
    took_s = [(run.tasks["end_s"] - run.tasks["start_s"]).groupby(run.tasks["node"]).max() for run in runs]
    exchanges = took_s[0].index.str.contains("dispatch|combine|send")
    assert exchanges.sum() >= 4
    assert took_s[1][exchanges].to_numpy() == pytest.approx(took_s[0][exchanges].to_numpy(), rel=0.01)
    assert runs[1].iteration_s == pytest.approx(runs[0].iteration_s, rel=0.01)
