"""OCS-reconfig predicted: skewed all-to-alls and a ring over a panel, with servers that forward or not."""

from dataclasses import replace

import numpy as np
import pytest

from controller.circuits.ocs_reconfig import SIP_ML, OcsReconfig
from controller.schedulers.coin_change import KShortest
from testbed.core.run import Run
from testbed.experiment.circuits_registry import CIRCUITS
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from tests.testbed.test_coupled import assert_equal
from topologies.patch_panel import patch_panel_fabric
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.job import Collective, Job
from traffic.scheme_setup import ONCE_LIT, ROUTED
from traffic.spread import SpreadSetup
from traffic.steps import single

FABRIC = patch_panel_fabric(8, nics=4, gpus=1)
NICS_BPS = 4 * 100e9
SKEWED = np.random.default_rng(1).pareto(1.2, (8, 8)) * (1 - np.eye(8))
DELAYS_S = [10e-6, 1e-3, 10e-3]


def job(pattern: str, longest_s: float) -> tuple[Job, float]:
    """Return a job that takes about so many delays, and what the busiest server needs at least [s]."""
    size = longest_s * NICS_BPS / 8
    if pattern == "ring":
        whole = int(size * 8 / 14)
        return Job("ring", 8, (Collective("ring", Ring((tuple(range(8)),), whole)),)), longest_s
    busiest = max(SKEWED.sum(axis=0).max(), SKEWED.sum(axis=1).max())
    return single(Demand("skewed", (SKEWED * size / busiest).astype(np.int64))), longest_s


def sound(experiment: Experiment) -> Run:
    """Return what is predicted, in which nothing is impossible."""
    run = predict(experiment)
    assert run.audit is not None
    assert not run.audit.findings
    return run


def reconfigurations(run: Run) -> int:
    """Return how often the panel changed; it is lit once at the start."""
    return int((run.events["what"] == "lit").sum()) - 1


@pytest.mark.parametrize("delay_s", DELAYS_S)
@pytest.mark.parametrize("pattern", ["skewed", "ring"])
@pytest.mark.parametrize("forwards", [True, False])
def test_it_ends_is_sound_and_reconfigures(forwards: bool, pattern: str, delay_s: float) -> None:
    sent, least_s = job(pattern, 6 * delay_s)
    rule = OcsReconfig(delay_s, forwards=forwards)
    experiment = Experiment(FABRIC, sent, ROUTED if forwards else ONCE_LIT, circuits=rule)
    run = sound(experiment)
    assert run.iteration_s > 0.999 * least_s
    looks = (run.iteration_s - rule.first_s) / rule.every_s + 1
    assert 1 <= reconfigurations(run) <= looks


def test_circuits_that_follow_demand_beat_those_that_stay() -> None:
    sent, least_s = job("skewed", 0.1)
    follows, stays = (
        sound(Experiment(FABRIC, sent, ONCE_LIT, circuits=OcsReconfig(1e-4, period_s, forwards=False)))
        for period_s in (5e-3, 1.0)
    )
    assert follows.iteration_s < 1.1 * least_s
    assert stays.iteration_s > 2 * least_s
    assert reconfigurations(stays) < reconfigurations(follows)


@pytest.mark.parametrize("scheme", [ROUTED, ONCE_LIT, SpreadSetup(), SpreadSetup(anew=True)], ids=str)
def test_rings_that_may_change_lanes_run_step_by_step(scheme: str | SpreadSetup) -> None:
    sent, _ = job("ring", 2e-3)
    routing = KShortest() if isinstance(scheme, SpreadSetup) else None
    rule = OcsReconfig(1e-3, forwards=scheme != ONCE_LIT)
    experiment = Experiment(FABRIC, sent, scheme, circuits=rule, routing=routing)
    assert_equal(*(predict(experiment, couples=couples) for couples in (False, True)))


def test_sip_ml_is_once_lit_and_a_value_that_is_written_down_and_read_back() -> None:
    sent, _ = job("skewed", 2e-3)
    for rule in (SIP_ML, OcsReconfig(1e-3, 4e-3, discount="linear")):
        assert CIRCUITS.of_document(CIRCUITS.document(rule)) == rule
    experiment = Experiment(replace(FABRIC, servers_forward=False), sent, ONCE_LIT, circuits=SIP_ML)
    assert Experiment.from_json(experiment.to_json()) == experiment
    assert experiment.name == "once lit, OcsReconfig(delay_s=2.5e-05 forwards=False discount=none)"
    run, again = sound(experiment), sound(experiment)
    assert reconfigurations(run) > 5
    assert again.events.equals(run.events), "equal experiments give equal runs"
