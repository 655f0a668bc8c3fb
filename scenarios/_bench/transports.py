"""How near transports come to what they could: RailS over 8 servers x 4 rails, at the rate that is chosen."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scenarios._bench.figure import figure
from testbed.experiment.dilation import Dilation
from testbed.experiment.experiment import Experiment
from testbed.machine.datapath import default_datapath
from testbed.model.predict import predict
from testbed.network.link_sample import worst_link_error
from testbed.network.network import Network
from testbed.study.emulating import ControlledPoints
from testbed.trust.calibrate import CALIBRATIONS, rate_factor, volume_factor
from testbed.trust.control import control
from testbed.trust.outcome import Outcome, bound_s
from testbed.trust.scale import load_of
from testbed.trust.trial import tried
from topologies.fabric import Fabric
from topologies.rail import rail_fabric
from traffic.demand import Demand
from traffic.steps import single
from traffic.transports.host_settings import TransportSetup
from traffic.workloads.synthetic import sparse, uniform

FABRIC = rail_fabric(8, 4)
UNIFORM = uniform(FABRIC.gpus)
"""At whose rate all demands are run."""
SPARSITIES = (0.6, 0.4, 0.2, 0.0)
RUNS = 5
RANDOM_DEMANDS, RANDOM_S = 50, 1.0
"""How many, and how long the bound of each takes at emulated scale [s]."""
CONTROLS = 10


@figure("ratio", "<= 1.06 at 1 Gbit/s aggregate or more")
def uniform_cct_over_bound() -> tuple[float, str]:
    """Uniform all-to-all over the ideal transport: CCT over bound, median of 5."""
    return _uniform("ideal")


@figure("ratio", "<= 1.05 at 1 Gbit/s aggregate or more")
def credit_uniform() -> tuple[float, str]:
    """Uniform all-to-all under receiver credits: CCT over bound, median of 5."""
    return _uniform("credit")


@figure("ratio", "<= 1.15, less than 1 % sent again")
def tcp_uniform() -> tuple[float, str]:
    """Uniform all-to-all under the kernel's TCP: CCT over bound, median of 5."""
    return _uniform("tcp")


@figure("ratio", "<= 1.05")
def credit_sparse() -> tuple[float, str]:
    """Sparse all-to-alls under receiver credits: CCT over bound, the worst of four medians of 5."""
    points = _sparse("credit")
    return max(points), listed_ratios(points)


@figure("ratio", "<= 1.06")
def tcp_sparse() -> tuple[float, str]:
    """Sparse all-to-alls under the kernel's TCP: CCT over bound, the median of four medians of 5."""
    points = _sparse("tcp")
    return statistics.median(points), listed_ratios(points)


@figure("ratio", "<= 1.04, the worst <= 1.12")
def credit_random() -> tuple[float, str]:
    """Random demands under receiver credits: CCT over prediction, median of 50, the worst, and verdicts."""
    experiments = [
        scaled(_random_demand(seed), "credit", beside=UNIFORM, lasts_s=RANDOM_S)
        for seed in range(RANDOM_DEMANDS)
    ]
    outcomes = outcomes_of(experiments)
    ratios, nic_bps = [each.over_predicted for each in outcomes], FABRIC.nic_rate_bps(FABRIC.nics[0])
    words = Counter(each.verdict.word for each in outcomes)
    return (
        statistics.median(ratios),
        f"{min(ratios):.3f} to {max(ratios):.3f} (bar of the worst: 1.12), "
        f"{experiments[0].dilation.rate * nic_bps / 1e6:g} Mbit/s a NIC, {dict(words)}",
    )


@figure("share", "<= 0.03")
def known_answer() -> tuple[float, str]:
    """Known-answer controls at the packet rate of a uniform all-to-all: the worst of 10, off by."""
    experiment = scaled(UNIFORM, "credit")
    hop_bps = (load_of(experiment, predict(experiment)) * experiment.dilation.rate).hop_bps
    with Network(FABRIC, experiment.dilation.rate, host=experiment.host) as network:
        done = [control(network, hop_bps, datagrams=True) for _ in range(CONTROLS)]
    errors = [abs(each.error) for each in done if each]
    return max(errors), f"{len(errors)} controls, {listed_ratios(errors)}"


def _uniform(transport: str) -> tuple[float, str]:
    outcomes = outcomes_of([scaled(UNIFORM, transport)] * RUNS)
    ratios, measures = [*map(over_bound, outcomes)], [outcome.measures for outcome in outcomes]
    aggregate_bps = statistics.median(each.aggregate_bps for each in measures)
    return (
        statistics.median(ratios),
        f"{aggregate_bps / 1e9:.2f} Gbit/s aggregate, {listed_ratios(ratios)}, "
        f"{max(each.retransmits / each.packets for each in measures):.2%} sent again at most",
    )


def _sparse(transport: str) -> list[float]:
    """Return the median of each point."""
    demands = [sparse(FABRIC.gpus, sparsity, gating="gpu") for sparsity in SPARSITIES]
    experiments = [scaled(demand, transport, beside=UNIFORM) for demand in demands]
    outcomes = outcomes_of([each for each in experiments for _ in range(RUNS)])
    ratios = np.array([*map(over_bound, outcomes)]).reshape(len(SPARSITIES), RUNS)
    return [float(value) for value in np.median(ratios, axis=1)]


def outcomes_of(experiments: Sequence[Experiment]) -> list[Outcome]:
    """Return the outcomes of experiments at one rate, judged as the points of a scenario are."""
    first, points = experiments[0], list[Outcome]()
    with Network(first.fabric, first.dilation.rate, host=first.host) as network:
        link_error, controlled = worst_link_error(network, first.seed), ControlledPoints(network)
        for each in experiments:
            list(controlled.before(each))
            points.append(controlled.judged(tried(each, network, link_error)))
    return points


def over_bound(outcome: Outcome) -> float:
    """Return the CCT over its bound."""
    return outcome.cct_s / outcome.bound_s


def scaled(
    demand: Demand,
    transport: str,
    fabric: Fabric = FABRIC,
    *,
    beside: Demand | None = None,
    lasts_s: float | None = None,
) -> Experiment:
    """Return an experiment at the rate chosen for it, or one beside it, as long as usual or as wanted [s]."""
    setup = TransportSetup(transport)
    full = Experiment(fabric, single(demand), "rails", Dilation(1.0, 1.0), transport=setup)
    loading = replace(full, job=single(beside)) if beside else full
    rate = rate_factor(fabric, load_of(loading, predict(loading)), CALIBRATIONS.of(default_datapath()), None)
    least_s = bound_s(full)
    volume = volume_factor(rate, [least_s]) if lasts_s is None else min(lasts_s * rate / least_s, 1.0)
    return replace(full, dilation=Dilation(rate, volume))


def _random_demand(seed: int) -> Demand:
    """Return a demand of random density and spread: from a few large messages to many equal ones."""
    rng = np.random.default_rng(seed)
    shape = (FABRIC.gpus, FABRIC.gpus)
    there = rng.random(shape) < rng.uniform(0.05, 1.0)
    return Demand(
        f"random {seed}", (there * rng.lognormal(16.0, rng.uniform(0.0, 2.0), shape)).astype(np.int64)
    )


def listed_ratios(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)
