"""Jobs that share a cluster: how long their iterations take alone, and beside the others (section 5.6).

On TopoOpt each job has a shard, circuits between its servers and no others, and an ideal switch does not
block: there jobs do not interact, and one of each model is predicted alone. On a fat-tree a job has servers
drawn at random, and its flows meet those of others where a hash leads both over one link: all jobs of a
cluster are predicted together.

Jobs start together and repeat their iteration until each has finished one; the first one's time counts. How
often each repeats is fixed before: n = ceil(1.7 longest / own), by a prediction in which each runs once. The
rest is for jobs that take longer because others go on; `JobFound.repeats_s` says whether it sufficed.

A flow takes one path, which a hash draws. By default each AllReduce and each all-to-all has flows of its own,
so that those of a job's layers take different paths, and one slow path does not hold up all. The artifact
draws a path for each step of a ring. Or a job's servers keep one flow between any two of them, as NCCL does.

References
----------
TopoOpt, section 5.6; its artifact for servers drawn at random, which iteration counts, and paths
(``FFRingAllreduce::start_flow``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from controller.schedulers.coin_change import CoinChange
from scenarios._topoopt.experiments import INSIDE, Trained, data_parallel, over_panel, plan_for
from scenarios._topoopt.fabrics import (
    FAT_TREE,
    IDEAL,
    OVERSUBSCRIBED,
    TOPOOPT,
    oversubscribed_fat_tree,
)
from testbed.core.run import Run
from testbed.experiment.audit_of import sound
from testbed.experiment.experiment import Experiment
from testbed.model.predict import predict
from testbed.study.computed import Call, Found
from topologies.big_switch import big_switch_fabric
from topologies.fat_tree import fat_tree_fabric, least_k
from traffic.compose import Repeat, placed, unfolded
from traffic.job import Collective, Job
from traffic.models.topoopt import layered_model

SECTION = "5.6"
SHARD = 16
"""Servers of a job."""
MODELS = ("dlrm", "bert", "candle", "vgg16")
MIXES: Mapping[str, tuple[float, ...]] = {
    "text": (0.40, 0.30, 0.20, 0.10),
    "notebook": (0.35, 0.65 * 0.65, 0.65 * 0.35 * 0.9, 0.65 * 0.35 * 0.1),
}
"""Shares of the models among jobs: the paper's, and those of the published notebook. It compares a new random
number with each of .35, .65, .9 and 1 in turn, so that its shares are 35, 42, 20 and 2 %."""
SPARE = 1.7
"""For how much longer jobs repeat than the longest took where each ran once. At full load, with 1.25, two of
three jobs ended too early, and the longest iteration was 14 % shorter."""
OF_EXCHANGE, OF_JOB = "exchange", "job"
PATHS = (OF_EXCHANGE, OF_JOB)
"""The unit that has flows of its own, each on one path."""
PRIVATE, SHARED = (TOPOOPT, IDEAL), (FAT_TREE, OVERSUBSCRIBED)
"""The fabrics on which jobs do not interact, and those on which they do."""


@dataclass(frozen=True)
class SharedCluster:
    """The cluster that jobs share."""

    servers: int = 432
    degree: int = 8
    """d, on TopoOpt."""
    rate_bps: float = 100e9
    """B, on TopoOpt [bit/s]; a NIC of the ideal switch and of the oversubscribed fat-tree has d B."""
    fat_tree_bps: float = 200e9
    """Of a NIC of the fat-tree of similar cost [bit/s]."""
    mix: str = "text"
    """One of `MIXES`."""
    paths: str = OF_EXCHANGE
    """One of `PATHS`."""

    @property
    def most_jobs(self) -> int:
        """How many jobs there are at full load."""
        return self.servers // SHARD


@dataclass(frozen=True)
class SharedPoint:
    """Jobs on a fabric that they share."""

    fabric: str
    """One of `PRIVATE` or `SHARED`."""
    jobs: int
    seed: int
    """Draws the jobs, their servers, and what the switches hash."""


@dataclass(frozen=True)
class DrawnJob:
    """A job of a cluster."""

    model: str
    servers: tuple[int, ...]


@dataclass(frozen=True)
class JobFound:
    """The times of a job beside the others of its cluster."""

    model: str
    iteration_s: float
    """Its first iteration [s]."""
    repeats: int
    """How often it ran."""
    repeats_s: float
    """When its last iteration ended [s]."""


AloneTimes = Mapping[str, Mapping[str, float]]
"""How long a model's iteration takes alone on NICs as fast as a fabric's, by fabric and model [s]."""


def drawn_jobs(cluster: SharedCluster, jobs: int, seed: int) -> tuple[DrawnJob, ...]:
    """Return jobs as a seed draws them: fewer jobs are the first of more."""
    rng = np.random.default_rng(seed)
    models = rng.choice(MODELS, size=cluster.most_jobs, p=MIXES[cluster.mix])
    servers = rng.permutation(cluster.servers).tolist()
    return tuple(
        DrawnJob(str(model), tuple(servers[SHARD * number : SHARD * (number + 1)]))
        for number, model in enumerate(models[:jobs])
    )


def alone_s(cluster: SharedCluster, model: str) -> dict[str, float]:
    """Return how long an iteration of a model takes alone, by fabric [s]; of a fat-tree on one switch."""
    trained = _trained(model)
    plan = plan_for(trained, cluster.degree)
    ideal, slower = (
        big_switch_fabric(SHARD, gpus=INSIDE, rate_bps=nic_bps)
        for nic_bps in (cluster.degree * cluster.rate_bps, cluster.fat_tree_bps)
    )
    experiments = {
        TOPOOPT: over_panel(trained, plan, cluster.rate_bps, routing=CoinChange(plan.coins)),
        IDEAL: Experiment(ideal, trained.job(), "ecmp", label=IDEAL),
        FAT_TREE: Experiment(slower, trained.job(), "ecmp", label=FAT_TREE),
    }
    found = {fabric: _predicted(each).iteration_s for fabric, each in experiments.items()}
    return {**found, OVERSUBSCRIBED: found[IDEAL]}


def points_of(jobs: Sequence[int], seeds: Sequence[int]) -> list[SharedPoint]:
    """Return so many jobs on each fabric, for each seed."""
    return [
        SharedPoint(fabric, number, seed)
        for number, seed, fabric in product(jobs, seeds, (*PRIVATE, *SHARED))
    ]


def calls_of(cluster: SharedCluster, points: Sequence[SharedPoint]) -> list[Call]:
    """Return the predictions to make: of each model alone, and of the points at which jobs interact."""
    shared = [point for point in points if point.fabric in SHARED]
    return [
        *(Call(alone_s, (cluster, model)) for model in MODELS),
        *(Call(found_together, (cluster, point)) for point in shared),
    ]


def jobs_of(
    cluster: SharedCluster, points: Sequence[SharedPoint], found: Found
) -> tuple[AloneTimes, dict[SharedPoint, Sequence[JobFound]]]:
    """Return the times of models alone, and the jobs of each point, from the results of `calls_of` them."""
    each = iter(found)
    times = {model: next(each) for model in MODELS}
    alone = {fabric: {model: times[model][fabric] for model in MODELS} for fabric in (*PRIVATE, *SHARED)}
    return alone, {
        point: next(each) if point.fabric in SHARED else found_alone(cluster, alone, point)
        for point in points
    }


def found_alone(cluster: SharedCluster, alone: AloneTimes, point: SharedPoint) -> tuple[JobFound, ...]:
    """Return the times of jobs on `PRIVATE`, in the order in which they were drawn: as long as alone."""
    own_s = alone[point.fabric]
    drawn = drawn_jobs(cluster, point.jobs, point.seed)
    return tuple(JobFound(job.model, own_s[job.model], 1, own_s[job.model]) for job in drawn)


def found_together(cluster: SharedCluster, point: SharedPoint) -> tuple[JobFound, ...]:
    """Return the times of the jobs of a cluster on `SHARED`, in the order in which they were drawn.

    Raises
    ------
    LightrailError
        If a run is not sound.
    """
    jobs = drawn_jobs(cluster, point.jobs, point.seed)
    once = _found_with(cluster, point, jobs, [1] * len(jobs))
    return _found_with(cluster, point, jobs, repeated([job.iteration_s for job in once]))


def _found_with(
    cluster: SharedCluster, point: SharedPoint, jobs: Sequence[DrawnJob], repeats: Sequence[int]
) -> tuple[JobFound, ...]:
    return found_in(_predicted(shared_experiment(cluster, point, jobs, repeats)), jobs, repeats)


def repeated(once_s: Sequence[float]) -> list[int]:
    """Return how often each job runs, by what each took where it ran once [s].

    Examples
    --------
    >>> repeated([0.03, 0.1])
    [6, 2]
    """
    longest_s = max(once_s)
    return [math.ceil(SPARE * longest_s / own_s) for own_s in once_s]


def shared_experiment(
    cluster: SharedCluster, point: SharedPoint, jobs: Sequence[DrawnJob], repeats: Sequence[int]
) -> Experiment:
    """Return jobs beside each other over the packet switches of a point, a path per flow."""
    if point.fabric == FAT_TREE:
        fabric = fat_tree_fabric(
            least_k(cluster.servers), servers=cluster.servers, gpus=INSIDE, rate_bps=cluster.fat_tree_bps
        )
    else:
        fabric = oversubscribed_fat_tree(cluster.servers, cluster.degree, cluster.rate_bps, gpus=INSIDE)
    parts = []
    for number, (job, times) in enumerate(zip(jobs, repeats, strict=True)):
        gpus = [server * INSIDE + gpu for server in job.servers for gpu in range(INSIDE)]
        iteration = placed(_trained(job.model).job(), gpus, of=fabric.gpus)
        iteration = replace(iteration, name=_name(number, job))
        parts.append(Repeat(_apart(iteration) if cluster.paths == OF_EXCHANGE else iteration, times))
    together = unfolded(f"{len(jobs)} jobs", fabric.gpus, parts)
    return Experiment(fabric, together, "ecmp", seed=point.seed, label=point.fabric)


def found_in(run: Run, jobs: Sequence[DrawnJob], repeats: Sequence[int]) -> tuple[JobFound, ...]:
    """Return the times of the jobs of a run."""
    ends_s = run.tasks["end_s"].groupby(run.tasks["node"].str.partition("/")[0]).max()
    found = []
    for number, (job, times) in enumerate(zip(jobs, repeats, strict=True)):
        first_s, last_s = (float(ends_s[f"{_name(number, job)}[{time}]"]) for time in (0, times - 1))
        found.append(JobFound(job.model, first_s, times, last_s))
    return tuple(found)


def _apart(job: Job) -> Job:
    """Return a job each of whose exchanges has a communicator, and so flows, of its own."""
    nodes = (
        replace(node, communicator=f"{job.name}/{node.name}") if isinstance(node, Collective) else node
        for node in job.nodes
    )
    return replace(job, nodes=tuple(nodes))


def _name(number: int, job: DrawnJob) -> str:
    return f"job {number}, {job.model}"


def _trained(model: str) -> Trained:
    return data_parallel(layered_model(model, section=SECTION), gpus=INSIDE)


def _predicted(experiment: Experiment) -> Run:
    return sound(predict(experiment, couples=True))
