"""What the tests of testbed share: outcomes by the fluid model, with verdicts as a test needs them; bars."""

from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from testbed.core.run import Run
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.trust.outcome import Measures, Outcome, Verdict
from tests.testbed.runs import changed
from topologies.events import View
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.messages import crosses_network, messages_of
from traffic.scheme import Placement
from traffic.spraying.policy import QueuePair, each_of
from traffic.steps import demands_of, single
from traffic.transports.host_settings import TransportSetup
from traffic.transports.reordering import Reordering
from traffic.workloads.synthetic import sparse, uniform

HEALTHY = Measures(
    retransmits=3,
    packets=50_000,
    queue_marks=0,
    queue_drops=0,
    socket_drops=0,
    switch_drops=0,
    cpu_pressure=0.02,
    switch_cpu=0.5,
    engine_cpu=0.2,
    other_cpu=0.1,
    switch_stall_s=0.02,
    stall_s=0.02,
    lateness_s=0.001,
    late_packets=0.5,
    away=0.005,
    clock_step_s=1e-6,
    aggregate_bps=1e9,
    worst_link_error=0.01,
    packets_sent=50_003,
    packets_arrived=50_000,
    packets_anew=3,
    packets_late=2,
)
"""What a machine shows that has nothing else to do."""
DILATION = Dilation(rate=1e-3, volume=1e-2)
VOID = Verdict("void", ("Open vSwitch dropped 120 packets.",), "lower --rate")
STRAINED = Verdict("strained", ("Something waited for a CPU 31 % of the time.",), "close other programs")


def small_fabric() -> Fabric:
    """Return two servers with two rails."""
    return rail_fabric(2, 2)


def experiment_of(fabric: Fabric, demand: Demand, policy: str, seed: int = 0) -> Experiment:
    """Return an experiment that is one all-to-all."""
    return Experiment(fabric, single(demand), policy, DILATION, seed, chunk_bytes=1 << 20)


def queue_pairs_of(experiment: Experiment) -> tuple[QueuePair, ...]:
    """Return the queue pairs of an experiment's first step."""
    messages, fabric = messages_of(demands_of(experiment.job)[0]), experiment.fabric
    view = View(0.0, fabric, {}, frozenset())
    placed = experiment.new_scheme().place(view, messages.select(crosses_network(messages, fabric)))
    if isinstance(placed, Placement):
        return placed.queue_pairs
    return tuple(dict.fromkeys(pair for among in placed.lanes for pair in each_of(among)))


def slowed(run: Run, slower: float) -> Run:
    """Return a run that took so many times as long."""
    messages, tasks = (
        table.assign(start_s=table["start_s"] * slower, end_s=table["end_s"] * slower)
        for table in (run.messages, run.tasks)
    )
    return changed(run, messages=messages, tasks=tasks)


def outcome_of(
    experiment: Experiment,
    verdict: Verdict | None = None,
    slower: float = 1.04,
    measures: Measures | None = None,
) -> Outcome:
    """Return an outcome; with a verdict it is as if emulated, ``slower`` times as long as predicted."""
    model = predict(experiment)
    if verdict is None:
        return Outcome(experiment, model)
    emulated = slowed(model, slower)
    return Outcome(experiment, model, emulated, verdict, measures or HEALTHY)


def small_outcomes(seeds: int = 2) -> list[Outcome]:
    """Return uniform and sparse load on two servers, ecmp and rails, faithful all."""
    fabric = small_fabric()
    demands = [demand for seed in range(seeds) for demand in (uniform(4), one_cell_a_row(seed))]
    return [
        outcome_of(experiment_of(fabric, demand, policy, index // 2), Verdict("faithful"))
        for index, demand in enumerate(demands)
        for policy in ("ecmp", "rails")
    ]


OVERTAKEN = Reordering({0: 90, 1: 6, 4: 3, 20: 1}, held_bytes=3_000)
"""How 100 packets overtook each other: nine by less than 5, one by 20; with `DILATION` 300 kB are held."""


def with_orders() -> list[Outcome]:
    """Return `small_outcomes` of one seed: of ecmp packets stay in order, of rails as in `OVERTAKEN`."""
    orders = {"ecmp": Reordering({0: 50}), "rails": OVERTAKEN}
    return [
        replace(outcome, order=orders[str(outcome.experiment.scheme)]) for outcome in small_outcomes(seeds=1)
    ]


def one_cell_a_row(seed: int) -> Demand:
    """Return a sparse demand in which ECMP uses one NIC of two."""
    return replace(sparse(4, 0.4, top_k=1, gating="gpu", seed=seed), name="sparse 0.4")


def under_credit_and_tcp(seeds: int = 2) -> list[Outcome]:
    """Return `small_outcomes` under two transports; under tcp ecmp takes longer."""
    return [
        outcome_of(replace(outcome.experiment, transport=TransportSetup(name)), Verdict("faithful"), slower)
        for outcome in small_outcomes(seeds)
        for name in ("credit", "tcp")
        for slower in [1.3 if (name, outcome.experiment.scheme) == ("tcp", "ecmp") else 1.04]
    ]


def with_verdict(outcomes: list[Outcome], verdict: Verdict, *at: int) -> list[Outcome]:
    """Return outcomes of which some have another verdict."""
    return [
        replace(outcome, verdict=verdict) if index in at else outcome
        for index, outcome in enumerate(outcomes)
    ]


def bars_of(axes: Axes) -> dict[str, list[Rectangle]]:
    """Return the bars of each point, left to right."""
    bars: dict[str, list[Rectangle]] = {}
    for patch in axes.patches:
        if isinstance(patch, Rectangle) and patch.get_gid():
            bars.setdefault(str(patch.get_gid()), []).append(patch)
    return bars
