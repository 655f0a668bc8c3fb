"""Iterations on a cluster of 128 servers, as points that the fluid model predicts (section 5).

Packet fabrics are of one switch where they do not block: so is the fat-tree of similar cost. The best
strategies that a search finds are predicted beside the one that it starts from, and the fastest of these
counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.circuits.ocs_reconfig import PERIOD, OcsReconfig
from controller.circuits.ocs_reconfig import SIP_ML as SIP_ML_RULE
from controller.schedulers.coin_change import CoinChange, bandwidth_tax
from controller.schedulers.topoopt import Plan
from controller.schedulers.totient import Rule
from scenarios._topoopt.experiments import INSIDE, Trained, over_expander, over_ocs, over_panel
from scenarios._topoopt.fabrics import (
    EXPANDER,
    FAT_TREE,
    IDEAL,
    OCS_RECONFIG,
    SIP_ML,
    TOPOOPT,
    fat_tree_bps,
)
from scenarios._topoopt.relaying import circuit_hops, circuit_loads, circuits_between, sent_between
from scenarios._topoopt.scale.search import Candidates, searched
from testbed.experiment.audit_of import sound
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.study.call_json import Row
from testbed.trust.outcome import Outcome
from topologies.big_switch import big_switch_fabric
from topologies.errors import ScenarioError
from traffic.models.topoopt import layered_model
from traffic.strategies.network import circuit_network

SERVERS = 128
FABRICS = (TOPOOPT, IDEAL, FAT_TREE, EXPANDER, OCS_RECONFIG, SIP_ML)
SHORTEST_PERIOD_S = 5e-3
"""Between two looks at what is owed, where five delays are less: they would be thousands [s]."""
SIP_ML_PERIOD_S = 50e-3
"""How often SiP-ML looks at what is owed [s]: the paper does not say, and AllReduce owes the same always."""


@dataclass(frozen=True)
class ScalePoint:
    """A model's iteration on a fabric."""

    model: str
    fabric: str
    """One of `FABRICS`."""
    degree: int
    """d."""
    rate_bps: float
    """B."""
    section: str = "5.3"
    """Of the paper, which has the model's size."""
    batch: int = 0
    """b; 0 for the section's."""
    delay_s: float = 10e-3
    """Of OCS-reconfig's circuits [s]."""
    forwards: bool = True
    """Whether servers forward under OCS-reconfig."""
    servers: int = SERVERS


@dataclass(frozen=True)
class ScaleParameters:
    """The parameters that all points of a study have in common."""

    budget: int = 500
    """Steps of each search; 0 for the start strategy."""
    seed: int = 0
    rule: Rule = "projected"
    """How jumps are selected."""
    fat_tree_bps: float = 0.0
    """Of a link of the fat-tree of similar cost; 0 for a quarter of a server's bandwidth on TopoOpt."""

    def __post_init__(self) -> None:
        """Refuse a seed that is none."""
        if self.seed < 0:
            raise ScenarioError(f"a seed of {self.seed}", "take one from 0 on")


def row_of(parameters: ScaleParameters, point: ScalePoint) -> Row:
    """Return the row of a point, from its prediction.

    Returns
    -------
    row
        iteration_s; start_s, of the start strategy; searched, whether others than that were predicted; of
        circuits that stay tax, mean_hops, least_over_most (of their loads) and even_least_over_most (if all
        servers sent each other the same); changes, how often circuits changed; mp_bytes and ring_bytes, of an
        iteration; and the parameters.

    Raises
    ------
    LightrailError
        If a run is not sound.
    """
    candidates = _candidates(parameters, point)
    tried = [(_iteration(parameters, point, *candidate), candidate) for candidate in candidates]
    best, (trained, _) = min(tried, key=lambda each: each[0].run.iteration_s)
    transfers = trained.transfers
    ring_bytes = sum(2 * (len(group.members) - 1) * group.bytes for group in trained.groups)
    return {
        "budget": parameters.budget,
        "searched": len(candidates) > 1,
        "rule": parameters.rule,
        "fat_tree_bps": parameters.fat_tree_bps,
        "iteration_s": best.run.iteration_s,
        "start_s": tried[0][0].run.iteration_s,
        "changes": int((best.run.events["what"] == "drained").sum()),
        "mp_bytes": int(transfers.sum()),
        "ring_bytes": ring_bytes,
        **_over_circuits(point, best, transfers),
    }


def _over_circuits(point: ScalePoint, best: Outcome, transfers: np.ndarray) -> dict[str, float]:
    """Return the columns of circuits that stay."""
    if point.fabric not in (TOPOOPT, EXPANDER):
        return {}
    hops, loads = circuit_hops(best.experiment), circuit_loads(best)
    apart = ~np.eye(len(hops), dtype=bool)
    return {
        "tax": bandwidth_tax(0.0, sent_between(best.experiment), hops),
        "mean_hops": float(hops[apart].mean()),
        "least_over_most": float(loads.min() / loads.max()),
        "even_least_over_most": _least_over_most(circuits_between(best.experiment), len(hops)),
    }


def _least_over_most(circuits: Sequence[tuple[int, int]], servers: int) -> float:
    """Return that of circuits if all servers send each other the same, by one path, drawn for each pair."""
    network = circuit_network(circuits, 1.0, servers=servers, duplex=False, rng=np.random.default_rng(0))
    source, destination = np.nonzero(~np.eye(servers, dtype=bool))
    loads = network.loads_s(source, destination, np.ones(len(source)))
    return float(loads.min() / loads.max())


def _iteration(
    parameters: ScaleParameters, point: ScalePoint, trained: Trained, plan: Plan | None
) -> Outcome:
    experiment = scale_experiment(parameters, point, trained, plan)
    return Outcome(experiment, sound(predict(experiment, couples=True)))


def scale_experiment(
    parameters: ScaleParameters, point: ScalePoint, trained: Trained, plan: Plan | None = None
) -> Experiment:
    """Return the experiment of a point under a strategy; with circuits that stay a plan of them."""
    degree, rate_bps, seed = point.degree, point.rate_bps, parameters.seed
    if point.fabric == TOPOOPT:
        assert plan
        return over_panel(trained, plan, rate_bps, routing=CoinChange(plan.coins), seed=seed)
    if point.fabric == EXPANDER:
        return over_expander(trained, degree, rate_bps, seed=seed)
    if point.fabric in (OCS_RECONFIG, SIP_ML):
        rule = replace(SIP_ML_RULE, period_s=SIP_ML_PERIOD_S)
        if point.fabric == OCS_RECONFIG:
            period_s = max(PERIOD * point.delay_s, SHORTEST_PERIOD_S)
            rule = OcsReconfig(point.delay_s, period_s, forwards=point.forwards)
        return over_ocs(replace(trained, coupled=False), degree, rate_bps, rule, point.fabric, seed=seed)
    fabric = big_switch_fabric(point.servers, gpus=INSIDE, rate_bps=_nic_bps(parameters, point))
    return Experiment(fabric, trained.job(), "ecmp", seed=seed, label=point.fabric)


def _nic_bps(parameters: ScaleParameters, point: ScalePoint) -> float:
    """Return the rate of a server's one link to a packet fabric [bit/s]."""
    if point.fabric != FAT_TREE:
        return point.degree * point.rate_bps
    return parameters.fat_tree_bps or fat_tree_bps(point.degree, point.rate_bps)


def _candidates(parameters: ScaleParameters, point: ScalePoint) -> Candidates:
    """Return the start strategy and the best that a search finds, each with its circuits if these stay.

    Of the start strategy alone are DLRM of section 5.4, as in the paper, and circuits that follow demand,
    whose predictions take long.
    """
    start_alone = point.section == "5.4" or point.fabric in (OCS_RECONFIG, SIP_ML)
    budget = 0 if start_alone else parameters.budget
    model = layered_model(
        point.model, section=point.section, servers=point.servers, batch=point.batch or None
    )
    own = point.fabric in (TOPOOPT, EXPANDER)
    key = point.fabric if own else IDEAL
    rate_bps = point.rate_bps if own else _nic_bps(parameters, point) / point.degree
    return searched(
        model, key, point.degree, rate_bps, budget=budget, seed=parameters.seed, rule=parameters.rule
    )
