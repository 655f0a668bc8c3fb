"""What the tests of testbed share: outcomes by the fluid model, with verdicts as a test needs them."""

from dataclasses import replace

import numpy as np

from testbed.dilation import Dilation
from testbed.experiment import Experiment
from testbed.outcome import Measures, Outcome, Verdict
from tests.traffic.cases import rates, ways
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.collective import single
from traffic.demand import Demand
from traffic.fluid import fluid_transfers
from traffic.messages import chunks_of, crosses_network, messages_of
from traffic.records import Records, records_of
from traffic.spraying.policy import ProactivePolicy
from traffic.spraying.registry import policy_named
from traffic.workloads import sparse, uniform

DILATION = Dilation(rate=1e-3, volume=1e-2)
VOID = Verdict("void", ("Open vSwitch dropped 120 packets.",), "lower --rate")
STRAINED = Verdict("strained", ("Something waited for a CPU 31 % of the time.",), "close other programs")


def small_fabric() -> Fabric:
    """Return two servers with two rails."""
    return rail_fabric(2, 2)


def experiment_of(fabric: Fabric, demand: Demand, policy: str, seed: int = 0) -> Experiment:
    """Return an experiment that is one all-to-all."""
    return Experiment(fabric, single(demand), policy, DILATION, seed, chunk_bytes=1 << 20)


def predicted(experiment: Experiment) -> Records:
    """Return the fluid model's records of a one-step experiment, over random spines."""
    fabric, demand = experiment.fabric, experiment.collective.steps[0].demand
    messages = messages_of(demand)
    crossing = messages.select(crosses_network(messages, fabric))
    chunks = chunks_of(crossing, experiment.chunk_bytes)
    policy = policy_named(experiment.policy)
    assert isinstance(policy, ProactivePolicy)
    assignment = policy.assign(fabric=fabric, messages=crossing, chunks=chunks, rng=experiment.rng(0))
    transfers = fluid_transfers(
        rate_bps=rates(fabric),
        queue_pairs=assignment.queue_pairs,
        paths=ways(fabric, assignment.queue_pairs, np.random.default_rng(experiment.seed)),
        chunks=chunks,
        assignment=assignment,
    )
    return records_of(messages=messages, chunks=chunks, transfers=transfers, fabric=fabric)


def outcome_of(
    experiment: Experiment,
    verdict: Verdict | None = None,
    slower: float = 1.04,
    measures: Measures | None = None,
) -> Outcome:
    """Return an outcome; with a verdict it is as if emulated, ``slower`` times as long as predicted."""
    model = predicted(experiment)
    if verdict is None:
        return Outcome(experiment, model)
    emulated = model.assign(start_s=model["start_s"] * slower, end_s=model["end_s"] * slower)
    seen = measures or Measures(retransmits=3, packets=50_000, cpu_pressure=0.02, worst_link_error=0.01)
    return Outcome(experiment, model, emulated, verdict, seen)


def small_outcomes(seeds: int = 2) -> list[Outcome]:
    """Return uniform and sparse load on two servers, ecmp and rails, faithful all."""
    fabric = small_fabric()
    demands = [demand for seed in range(seeds) for demand in (uniform(4), sparse(4, 0.4, top_k=1, seed=seed))]
    return [
        outcome_of(experiment_of(fabric, demand, policy, index // 2), Verdict("faithful"))
        for index, demand in enumerate(demands)
        for policy in ("ecmp", "rails")
    ]


def with_verdict(outcomes: list[Outcome], verdict: Verdict, *at: int) -> list[Outcome]:
    """Return outcomes of which some have another verdict."""
    return [
        replace(outcome, verdict=verdict) if index in at else outcome
        for index, outcome in enumerate(outcomes)
    ]
