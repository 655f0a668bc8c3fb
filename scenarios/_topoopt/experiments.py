"""A model's training iteration over TopoOpt and over the fabrics it is compared with, as experiments."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controller.circuits.devices import ReconfigurationDelay
from controller.circuits.foreseen import Foreseen
from controller.circuits.ocs_reconfig import OcsReconfig
from controller.schedulers.coin_change import KShortest
from controller.schedulers.topoopt import Group, Plan, panel_circuits, topology_finder
from controller.schedulers.totient import Rule
from scenarios._topoopt.fabrics import EXPANDER, TOPOOPT, expander_pairs
from testbed.experiment.experiment import Experiment
from topologies.fabric import Fabric
from topologies.patch_panel import patch_panel_fabric
from topologies.routing import Routing
from traffic.collectives.fan import Fan
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.job import Collective, Job, Node
from traffic.models.layered import LayeredModel
from traffic.scheme_setup import ONCE_LIT
from traffic.spread import SpreadSetup
from traffic.strategies.iteration_job import BUCKET_BYTES, Rings, iteration_job
from traffic.strategies.strategy import Strategy, start_strategy, summed, transfers

INSIDE = 2
"""GPUs of a server in the fabric, in simulations: one stands for all, one for the NVLink between them."""
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Trained:
    """A model, and how it is trained in parallel."""

    model: LayeredModel
    strategy: Strategy
    """Which servers have which layers."""
    bucket_bytes: int = BUCKET_BYTES
    """Gradients that are summed together [bytes]."""
    gpus: int = 1
    """Of a server in the fabric: one that stands for all of them, and with 2 another for their NVLink."""
    coupled: bool = False
    """Whether what tables send and are sent ends all at once where a model couples."""

    @property
    def groups(self) -> list[Group]:
        """The AllReduces of the servers."""
        return [Group(members, size) for members, size in summed(self.model, self.strategy)]

    @property
    def transfers(self) -> NDArray[np.int64]:
        """The bytes that servers send each other, forward and back, shape (n, n)."""
        return transfers(self.model, self.strategy)

    def job(self, rings: Rings = lambda members: (members,)) -> Job:
        """Return an iteration whose AllReduces go over some rings, by default one in the order of servers."""
        job = iteration_job(self.model, self.strategy, rings, bucket_bytes=self.bucket_bytes, gpus=self.gpus)
        return replace(job, nodes=tuple(map(_as_one, job.nodes))) if self.coupled else job


def _as_one(node: Node) -> Node:
    """Return a node whose fan may be one operation.

    Where a server owns what two fans send they end together, later than one after the other: an iteration of
    DLRM on 8 servers of two tables each took up to 1.13 times as long. Of data-parallel strategies each
    server has one; a search that moves tables is so judged too slow by that at most, on all fabrics.
    """
    if isinstance(node, Collective) and isinstance(node.pattern, Fan):
        return replace(node, pattern=replace(node.pattern, coupled_as_one=True))
    return node


def _edge_by_edge(node: Node) -> Node:
    """Return a node whose ring is a message per edge."""
    if not (isinstance(node, Collective) and isinstance(node.pattern, Ring)):
        return node
    moves = node.pattern.lower(coupled=True).moves
    columns = (column.tolist() for column in (moves.source, moves.destination, moves.bytes))
    return replace(node, pattern=PointToPoint(tuple(zip(*columns, strict=True))))


def data_parallel(model: LayeredModel, *, bucket_bytes: int = BUCKET_BYTES, gpus: int = 1) -> Trained:
    """Return a model whose layers are on all servers, but for tables, which take turns."""
    return Trained(model, start_strategy(model), bucket_bytes, gpus)


def plan_for(trained: Trained, degree: int, rule: Rule = "projected") -> Plan:
    """Return circuits for what a model sums, on which what it sends is relayed: coins alone, as published."""
    servers = trained.model.servers
    return topology_finder(
        trained.groups, trained.transfers, servers=servers, degree=degree, mp_degree=0, rule=rule
    )


def over_panel(
    trained: Trained, plan: Plan, rate_bps: float, *, routing: Routing | None = None, seed: int = 0
) -> Experiment:
    """Return an iteration over the circuits of a plan, with d NICs of a rate [bit/s] for each server.

    What has no circuit is relayed by a routing, by default over up to four shortest paths of each pair.
    """
    by = KShortest(seed=seed) if routing is None else routing
    fabric = patch_panel_fabric(plan.servers, nics=plan.degree, gpus=trained.gpus, rate_bps=rate_bps)
    return over_fixed_circuits(fabric, trained.job(plan.rings_of), plan, by, label=TOPOOPT, seed=seed)


def over_expander(trained: Trained, degree: int, rate_bps: float, *, seed: int = 0) -> Experiment:
    """Return an iteration over a random regular graph: one ring in order, one shortest path a pair."""
    pairs = expander_pairs(trained.model.servers, degree, seed)
    routing = KShortest(1, seed)
    fabric = patch_panel_fabric(trained.model.servers, nics=degree, gpus=trained.gpus, rate_bps=rate_bps)
    return over_fixed_circuits(fabric, trained.job(), pairs, routing, label=EXPANDER, seed=seed)


def over_ocs(
    trained: Trained, degree: int, rate_bps: float, rule: OcsReconfig, label: str, *, seed: int = 0
) -> Experiment:
    """Return an iteration over circuits that follow what is owed: a ring in order, one path a pair.

    The ring goes both ways round, since circuits do: one way would leave half of each to acknowledgements.
    A ring is what each member sends the next one in all its steps, as a message: a coupled flow cannot change
    its lanes, and step by step 128 servers are a million messages. So no step waits for another, which is to
    the advantage of circuits that change.
    """
    fabric = patch_panel_fabric(trained.model.servers, nics=degree, gpus=trained.gpus, rate_bps=rate_bps)
    scheme = SpreadSetup(anew=True) if rule.forwards else ONCE_LIT
    routing = KShortest(1, seed) if rule.forwards else None
    job = trained.job(lambda members: (members, members[::-1]))
    job = replace(job, nodes=tuple(map(_edge_by_edge, job.nodes)))
    return Experiment(fabric, job, scheme, seed=seed, label=label, circuits=rule, routing=routing)


def over_fixed_circuits(
    fabric: Fabric, job: Job, circuits: Plan | Pairs, routing: Routing, *, label: str, seed: int = 0
) -> Experiment:
    """Return a job over circuits of a panel that stay, over all paths that a routing names."""
    return Experiment(
        fabric,
        job,
        SpreadSetup(),
        seed=seed,
        label=label,
        circuits=Foreseen(panel_circuits(fabric, circuits), (), ReconfigurationDelay(), stays=True),
        routing=routing,
    )
